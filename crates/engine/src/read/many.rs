//! Many keys at once: one pin, sorted look-ups, requests joined over all keys.

use super::Pin;
use super::get::{Hand, Lookup, lookup};
use crate::answer::Answer;
use crate::fetch::ReadContext;
use crate::value::Value;
use siltstone_base::Result;
use siltstone_base::entry::check_key;
use std::sync::Arc;

/// A look-up under way: the answers so far, and which keys still lack something.
struct Many<K> {
    keys: Arc<Vec<K>>,
    answers: Vec<Option<Value>>,
    /// Positions in `keys`, by key: neighbours share blocks, which then stay in the processor's
    /// caches.
    open: Vec<usize>,
}

/// `get` of many keys; the answers stand in the order of the keys.
pub(crate) fn get_many<K: AsRef<[u8]> + Send + Sync + 'static>(
    context: &ReadContext,
    pin: Pin,
    keys: Arc<Vec<K>>,
) -> Result<Answer<Vec<Option<Value>>>> {
    for key in keys.iter() {
        check_key(key.as_ref())?;
    }
    context.asked.get_many_keys.add(keys.len() as u64);
    let mut open: Vec<usize> = (0..keys.len()).collect();
    open.sort_by(|a, b| key_at(&keys, *a).cmp(key_at(&keys, *b)));
    let answers = vec![None; keys.len()];
    let mut many = Many { keys, answers, open };
    let lacking = many.walk(context, &pin, &Hand::default())?;
    if lacking.is_empty() {
        return Ok(Answer::Ready(many.answers));
    }
    let context = context.clone();
    Ok(Answer::Pending(Box::pin(async move {
        let rounds = async {
            let mut lacking = lacking;
            let mut hand = Hand::default();
            while !lacking.is_empty() {
                hand.fetch(&context, lacking).await?;
                lacking = many.walk(&context, &pin, &hand)?;
            }
            Ok(many.answers)
        };
        context.env.deadline(context.deadline, "get_many", rounds).await
    })))
}

fn key_at<K: AsRef<[u8]>>(keys: &[K], position: usize) -> &[u8] {
    keys.get(position).map(AsRef::as_ref).unwrap_or_default()
}

impl<K: AsRef<[u8]>> Many<K> {
    /// Looks every open key up; answers what is lacking over all of them.
    fn walk(
        &mut self,
        context: &ReadContext,
        pin: &Pin,
        hand: &Hand,
    ) -> Result<Vec<super::get::Lack>> {
        let mut lacking = Vec::new();
        let mut still_open = Vec::new();
        for position in std::mem::take(&mut self.open) {
            match lookup(context, pin, key_at(&self.keys, position), hand)? {
                Lookup::Done(value) => {
                    if let Some(answer) = self.answers.get_mut(position) {
                        *answer = value;
                    }
                }
                Lookup::Lacking(more) => {
                    lacking.extend(more);
                    still_open.push(position);
                }
            }
        }
        self.open = still_open;
        Ok(lacking)
    }
}
