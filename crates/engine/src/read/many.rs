//! Many keys at once: one pin, sorted look-ups in waves, requests joined over all keys.

use super::Pin;
use super::get::{Hand, Lack, Lookup, lookup};
use super::keys::Keys;
use super::wave::{Found, WAVE, Wanted, Wave};
use crate::answer::Answer;
use crate::fetch::ReadContext;
use crate::value::Value;
use siltstone_base::Result;
use siltstone_base::entry::check_key;
use siltstone_base::prefix::head;
use siltstone_bloom::key_hash;
use std::sync::Arc;

/// A look-up under way: the answers so far, and which keys still lack something.
struct Many {
    keys: Arc<Keys>,
    answers: Vec<Option<Value>>,
    /// Positions in `keys`, by key: neighbours share blocks, which then stay in the processor's
    /// caches.
    open: Vec<usize>,
}

/// `get` of many keys; the answers stand in the order of the keys.
pub(crate) fn get_many(
    context: &ReadContext,
    pin: Pin,
    keys: Arc<Keys>,
) -> Result<Answer<Vec<Option<Value>>>> {
    for key in keys.iter() {
        check_key(key)?;
    }
    context.asked.get_many_keys.add(keys.len() as u64);
    let answers = vec![None; keys.len()];
    let mut many = Many { open: in_order(&keys), keys, answers };
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
        context.deadline(context.deadline, "get_many", rounds).await
    })))
}

/// The positions of `keys` by key. Numbers are sorted, and bytes are looked at only where numbers
/// are equal.
fn in_order(keys: &Keys) -> Vec<usize> {
    let mut order: Vec<(u64, usize)> =
        keys.iter().enumerate().map(|(position, key)| (head(key), position)).collect();
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| keys.key(a.1).cmp(keys.key(b.1))));
    order.into_iter().map(|(_, position)| position).collect()
}

impl Many {
    /// Looks every open key up; answers what is lacking over all of them.
    fn walk(&mut self, context: &ReadContext, pin: &Pin, hand: &Hand) -> Result<Vec<Lack>> {
        let mut lacking = Vec::new();
        let mut still_open = Vec::new();
        let mut wave = Wave::default();
        let mut wanted = Vec::with_capacity(WAVE);
        let mut found = Vec::with_capacity(WAVE);
        let keys = Arc::clone(&self.keys);
        let open = std::mem::take(&mut self.open);
        for positions in open.chunks(WAVE) {
            wanted.clear();
            wanted.extend(positions.iter().map(|position| {
                let key = keys.key(*position);
                Wanted { key, hash: key_hash(key) }
            }));
            wave.look_up(&context.cache, pin, &wanted, &mut found);
            for ((position, wanted), found) in positions.iter().zip(&wanted).zip(found.drain(..)) {
                let value = match found {
                    Found::Nothing => None,
                    Found::Value(value) => Some(value),
                    Found::Hard => match lookup(context, pin, wanted.key, wanted.hash, hand)? {
                        Lookup::Done(value) => value,
                        Lookup::Lacking(more) => {
                            lacking.extend(more);
                            still_open.push(*position);
                            continue;
                        }
                    },
                };
                if let Some(answer) = self.answers.get_mut(*position) {
                    *answer = value;
                }
            }
        }
        self.open = still_open;
        Ok(lacking)
    }
}
