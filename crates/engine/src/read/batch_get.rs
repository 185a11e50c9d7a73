//! Many keys at once: one pin, sorted look-ups in probes, requests joined over the keys of a wave.
//!
//! Keys whose blocks are in memory are answered at once. Other blocks are fetched in waves of a
//! bounded size, in the order of the keys, so that 100,000 keys take no more memory than 1,000:
//!
//! ```text
//! keys in order:  [answered] [at work: what they lack is being fetched] [rest: not looked at yet]
//! memory:          <= 8 MiB of blocks beside the answers' own bytes
//!                             <= 20 MiB of reads and blocks        4 MiB of tables between waves
//! ```

use super::Pin;
use super::answer::Answer;
use super::batch_probe::{BatchProbe, PROBE_KEYS, ProbeAnswer, ProbeKey};
use super::get::{FetchedParts, Lookup, lookup};
use super::keys::Keys;
use super::missing::MissingParts;
use super::value::Value;
use super::warm::let_others_run;
use crate::cache::fetch::ReadContext;
use siltstone_base::Result;
use siltstone_base::entry::check_key;
use siltstone_base::prefix::head;
use siltstone_bloom::key_hash;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of blocks that answers may keep alive besides their own bytes; beyond it the answers are
/// copied out. A hundred keys keep at most 100 blocks of 16 KiB, and are never copied.
const PINNED_BYTES: usize = 8 << 20;
/// Keys that are looked up before the task lets others run: some 50 ms. A call of millions of keys
/// thus keeps its deadline, and can be interrupted.
const KEYS_A_TURN: usize = 32 << 10;

/// A look-up under way: the answers so far, and which keys still lack something.
struct BatchGet {
    keys: Arc<Keys>,
    answers: Vec<Option<Value>>,
    /// Positions in `keys` that are not looked at yet, by key: neighbours share blocks, which then
    /// stay in the processor's caches.
    rest: VecDeque<usize>,
    /// Those whose blocks are being fetched, by key too.
    at_work: Vec<usize>,
    /// The blocks that answers keep alive; counted once something has to be fetched.
    pins: Option<Pins>,
}

/// Memory that is kept from one look-up of [`PROBE_KEYS`] keys to the next.
struct ProbeScratch {
    probe: BatchProbe,
    found: Vec<ProbeAnswer>,
}

/// The keys that have no answer yet.
#[derive(Default)]
struct UnansweredKeys {
    /// They lack something.
    open: Vec<usize>,
    /// They were not looked at to the end, since there was no room for what they may lack.
    waiting: Vec<usize>,
}

/// Answers that keep blocks alive.
#[derive(Default)]
struct Pins {
    holding: Vec<usize>,
    bytes: usize,
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
    let rest = in_order(&keys).into();
    let mut many = BatchGet { rest, keys, answers, at_work: Vec::new(), pins: None };
    let lacking = many.round(context, &pin, &mut FetchedParts::default())?;
    if many.is_done() {
        return Ok(Answer::Ready(many.answers));
    }
    let context = context.clone();
    Ok(Answer::Pending(Box::pin(async move {
        let rounds = async {
            let mut lacking = lacking;
            let mut fetched = FetchedParts::default();
            many.count_pins();
            while !many.is_done() {
                if lacking.is_empty() {
                    let_others_run().await;
                } else {
                    fetched.fetch(&context, lacking.into_lacks()).await?;
                }
                lacking = many.round(&context, &pin, &mut fetched)?;
                many.limit_pins();
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

impl BatchGet {
    /// Whether all keys are answered.
    fn is_done(&self) -> bool {
        self.at_work.is_empty() && self.rest.is_empty()
    }

    /// Looks keys up until what they lack fills a wave, or until the turn ends; answers what they
    /// lack. Keys at work come first, and only once all of them are answered others.
    fn round(
        &mut self,
        context: &ReadContext,
        pin: &Pin,
        fetched: &mut FetchedParts,
    ) -> Result<MissingParts> {
        let mut looks =
            ProbeScratch { probe: BatchProbe::default(), found: Vec::with_capacity(PROBE_KEYS) };
        let mut lacking = MissingParts::beside(fetched.bytes());
        let (mut still, mut waiting) = (Vec::new(), Vec::new());
        for positions in std::mem::take(&mut self.at_work).chunks(PROBE_KEYS) {
            let looked = self.look(&mut looks, (context, pin, fetched), positions, &mut lacking)?;
            still.extend(looked.open);
            waiting.extend(looked.waiting);
        }
        self.put_back(waiting);
        if still.is_empty() {
            fetched.end_wave();
            lacking = MissingParts::beside(fetched.bytes());
            let mut positions = Vec::with_capacity(PROBE_KEYS);
            let until = self.rest.len().saturating_sub(KEYS_A_TURN);
            while self.rest.len() > until && !lacking.is_full() {
                positions.clear();
                positions.extend(self.rest.drain(..PROBE_KEYS.min(self.rest.len())));
                let looked =
                    self.look(&mut looks, (context, pin, fetched), &positions, &mut lacking)?;
                still.extend(looked.open);
                self.put_back(looked.waiting);
            }
        }
        self.at_work = still;
        Ok(lacking)
    }

    /// Looks up some keys, which ascend, as far as there is room for what they lack.
    fn look(
        &mut self,
        looks: &mut ProbeScratch,
        (context, pin, fetched): (&ReadContext, &Pin, &FetchedParts),
        positions: &[usize],
        lacking: &mut MissingParts,
    ) -> Result<UnansweredKeys> {
        let BatchGet { keys, answers, pins, .. } = self;
        let mut wanted = [ProbeKey { key: &[][..], hash: 0 }; PROBE_KEYS];
        for (wanted, position) in wanted.iter_mut().zip(positions) {
            let key = keys.key(*position);
            *wanted = ProbeKey { key, hash: key_hash(key) };
        }
        let wanted = wanted.get(..positions.len()).unwrap_or_default();
        looks.probe.look_up(&context.cache, pin, wanted, &mut looks.found);
        let mut looked = UnansweredKeys::default();
        for ((position, wanted), found) in positions.iter().zip(wanted).zip(looks.found.drain(..)) {
            let value = match found {
                ProbeAnswer::Nothing => None,
                ProbeAnswer::Value(value) => Some(value),
                ProbeAnswer::Hard if lacking.is_full() => {
                    looked.waiting.push(*position);
                    continue;
                }
                ProbeAnswer::Hard => {
                    match lookup(context, pin, wanted.key, wanted.hash, fetched)? {
                        // Only this answer may hold the block that the value lies in.
                        Lookup::Done(value) => value.map(Value::compact),
                        Lookup::Lacking(more) => {
                            lacking.add(more);
                            looked.open.push(*position);
                            continue;
                        }
                    }
                }
            };
            if let Some(pins) = pins {
                pins.note(*position, value.as_ref());
            }
            if let Some(answer) = answers.get_mut(*position) {
                *answer = value;
            }
        }
        Ok(looked)
    }

    /// Keys that found no room are the next ones.
    fn put_back(&mut self, waiting: Vec<usize>) {
        waiting.into_iter().rev().for_each(|position| self.rest.push_front(position));
    }

    /// Counts from now on what answers keep alive, those that there are included: as soon as blocks
    /// are fetched, others leave the cache, and an answer may be all that holds them.
    fn count_pins(&mut self) {
        let mut pins = Pins::default();
        for (position, answer) in self.answers.iter().enumerate() {
            pins.note(position, answer.as_ref());
        }
        self.pins = Some(pins);
        self.limit_pins();
    }

    fn limit_pins(&mut self) {
        let Some(pins) = self.pins.as_mut().filter(|pins| pins.bytes > PINNED_BYTES) else {
            return;
        };
        for position in pins.holding.drain(..) {
            if let Some(Some(value)) = self.answers.get_mut(position) {
                value.own();
            }
        }
        pins.bytes = 0;
    }
}

impl Pins {
    fn note(&mut self, position: usize, value: Option<&Value>) {
        let bytes = value.map_or(0, Value::bytes_beside);
        if bytes > 0 {
            self.bytes += bytes;
            self.holding.push(position);
        }
    }
}
