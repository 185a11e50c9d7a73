//! The expected results: the histories of all writers, and the acknowledged writes.

use parking_lot::Mutex;
use siltstone::{Batch, MergeOperator, Result, Seq, UnixMillis};
use siltstone_tests::model::{Model, View};
use std::collections::BTreeMap;

pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The time of a read: by the reader's clock, and by the clock that is furthest ahead. Entries that
/// expire between the two may be present or not, because other processes drop by their clocks (RFC
/// 0023); an older version of them never is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) low: UnixMillis,
    pub(crate) high: UnixMillis,
}

impl Moment {
    /// Whether `rows` can be the content of `model` at `seq`.
    pub(crate) fn fits(self, model: &Model, seq: Seq, rows: &Rows) -> bool {
        let low = all_rows(model, seq, self.low);
        if low == *rows {
            return true;
        }
        let high: BTreeMap<_, _> = all_rows(model, seq, self.high).into_iter().collect();
        let low: BTreeMap<_, _> = low.into_iter().collect();
        let seen: BTreeMap<_, _> = rows.iter().cloned().collect();
        let in_order = rows.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let mut keys = low.keys().chain(high.keys()).chain(seen.keys());
        in_order && keys.all(|key| seen.get(key) == low.get(key) || seen.get(key) == high.get(key))
    }

    /// Whether an entry with an expiry has expired by now.
    pub(crate) fn hides_something(self, model: &Model, seq: Seq) -> bool {
        all_rows(model, seq, self.low) != all_rows(model, seq, UnixMillis(2))
    }
}

/// One writer that was opened.
#[derive(Default)]
struct Opened {
    /// The number up to which it recovered.
    from: Seq,
    /// Everything at or below `from`, and all batches that it accepted itself, in order.
    history: Vec<(Seq, Vec<u8>)>,
    last: Seq,
    acknowledged: Seq,
}

#[derive(Default)]
struct Books {
    writers: BTreeMap<u64, Opened>,
    /// The rows that readers saw, for comparison with the final history.
    seen: Vec<(Seq, Moment, Rows)>,
    violations: Vec<String>,
    opens: u64,
    acks: u64,
}

/// The records of one run.
#[derive(Default)]
pub(crate) struct Oracle(Mutex<Books>);

impl Oracle {
    /// A writer of `epoch` has opened with everything up to `at`. Returns its expected content.
    pub(crate) fn opened(&self, epoch: u64, at: Seq) -> Model {
        let mut books = self.0.lock();
        books.opens += 1;
        let mut history = Vec::new();
        let mut violation = None;
        if let Some((before, parent)) = books.writers.range(..epoch).next_back() {
            history.clone_from(&parent.history);
            history.retain(|(first, _)| *first <= at);
            let end = history.iter().map(|(first, bytes)| last_of(*first, bytes)).max();
            if end.unwrap_or_default() != at {
                violation = Some(format!(
                    "epoch {epoch} recovered up to {at}, no end of a batch of epoch {before}"
                ));
            } else if at < parent.acknowledged {
                violation = Some(format!(
                    "epoch {epoch} recovered up to {at}; epoch {before} had acknowledged {}",
                    parent.acknowledged
                ));
            }
        } else if at != Seq::NONE {
            violation = Some(format!("epoch {epoch} recovered up to {at} out of nothing"));
        }
        if books.writers.contains_key(&epoch) {
            violation = Some(format!("epoch {epoch} was opened twice"));
        }
        books.violations.extend(violation);
        let model = model_of(&history);
        let opened = Opened { from: at, history, last: at, acknowledged: Seq::NONE };
        books.writers.insert(epoch, opened);
        model
    }

    /// The writer of `epoch` accepted a batch whose last operation has number `last`.
    pub(crate) fn accepted(&self, epoch: u64, batch: &Batch, last: Seq) {
        let first = last.minus(u64::from(batch.ops()) - 1);
        let mut books = self.0.lock();
        let Some(writer) = books.writers.get_mut(&epoch) else { return };
        let gap = first != writer.last.next();
        writer.last = last;
        writer.history.push((first, batch.as_bytes().to_vec()));
        if gap {
            books.violations.push(format!("epoch {epoch}: number {first} does not follow"));
        }
    }

    /// The writer of `epoch` reported everything up to `seq` as durable.
    pub(crate) fn acknowledged(&self, epoch: u64, seq: Seq) {
        let mut books = self.0.lock();
        books.acks += 1;
        let Some(writer) = books.writers.get_mut(&epoch) else { return };
        writer.acknowledged = writer.acknowledged.max(seq);
        // A later writer that is already open must have it (rule F6).
        let acknowledged = writer.acknowledged;
        let later = books.writers.range(epoch + 1..).next().map(|(e, w)| (*e, w.from));
        if let Some((later, from)) = later
            && acknowledged > from
        {
            books.violations.push(format!(
                "epoch {epoch} acknowledged {acknowledged} after epoch {later} had recovered {from}"
            ));
        }
    }

    /// The rows that the writer of `epoch` must see now.
    pub(crate) fn expected(&self, epoch: u64) -> Model {
        let books = self.0.lock();
        books.writers.get(&epoch).map(|writer| model_of(&writer.history)).unwrap_or_default()
    }

    /// A reader saw these rows at `seq`.
    pub(crate) fn seen(&self, seq: Seq, moment: Moment, rows: Rows) {
        self.0.lock().seen.push((seq, moment, rows));
    }

    /// The rows that readers saw, for a check against another history.
    pub(crate) fn take_seen(&self) -> Vec<(Seq, Moment, Rows)> {
        std::mem::take(&mut self.0.lock().seen)
    }

    /// Records a violation.
    pub(crate) fn violation(&self, what: String) {
        self.0.lock().violations.push(what);
    }

    /// Compares all observations and acknowledgements with the final history.
    pub(crate) fn settle(&self) -> Vec<String> {
        let mut books = self.0.lock();
        let Some((_, winner)) = books.writers.last_key_value() else {
            return std::mem::take(&mut books.violations);
        };
        let model = model_of(&winner.history);
        let last = winner.last;
        let mut found = Vec::new();
        for (seq, moment, rows) in &books.seen {
            if *seq > last {
                found.push(format!("a reader saw {seq}; the history that won ends at {last}"));
            } else if !moment.fits(&model, *seq, rows) {
                found.push(format!("a reader's view at {seq} is not that of the history that won"));
            }
        }
        books.violations.extend(found);
        std::mem::take(&mut books.violations)
    }

    pub(crate) fn opens_and_acks(&self) -> (u64, u64) {
        let books = self.0.lock();
        (books.opens, books.acks)
    }
}

fn last_of(first: Seq, bytes: &[u8]) -> Seq {
    first.plus(siltstone_base::BatchOps::new(bytes).count() as u64).minus(1)
}

fn model_of(history: &[(Seq, Vec<u8>)]) -> Model {
    let mut model = Model::default();
    for (first, bytes) in history {
        model.apply(*first, bytes).expect("an accepted batch decodes");
    }
    model
}

/// All of a model at `seq`, at a moment.
pub(crate) fn all_rows(model: &Model, seq: Seq, now: UnixMillis) -> Rows {
    model.scan(None, None, false, view_at(seq, now)).expect("appending is no error")
}

/// Everything up to `seq` that has not expired.
pub(crate) fn view_at(seq: Seq, now: UnixMillis) -> View<'static> {
    View { seq, now, operator: Some(&Append) }
}

/// A second implementation of the built-in operator with that name.
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn fold(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        Ok([base.unwrap_or_default(), &operands.concat()].concat())
    }
}
