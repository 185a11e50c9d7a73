//! Spans of keys without a value: scans find them, and later scans seek past them (RFC 0056).
//!
//! A span without a value at sequence number `n` stays so for every later view of the same tables,
//! until a value is written into it. All such values are in the memtables, whose entries are in the
//! order of their numbers, so each is looked at once. A transaction with own writes has spans of
//! its own: it reads all else at one moment, so only its own values end them.

use super::Pin;
use super::tree::Tree;
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone_base::entry::key_after;
use siltstone_base::{Seq, UnixMillis};
use siltstone_memtable::Memtable;
use siltstone_merge::DeadSpan;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Spans that are remembered for the tables of a tree. A new one takes the place of the oldest.
const MAX_SPANS: usize = 16;

/// The spans without a value over the tables of one tree, or in the view of one transaction.
#[derive(Debug, Default)]
pub(crate) struct DeadSpans {
    /// Whether there are any; a scan takes the lock only then.
    some: AtomicBool,
    known: Mutex<Known>,
}

/// Spans, and the number up to which no value was written into them.
#[derive(Debug, Default)]
struct Known {
    spans: Vec<KnownSpan>,
    until: Seq,
}

#[derive(Debug, Clone)]
struct KnownSpan {
    span: DeadSpan,
    /// Views at and after these see no value in it. An expired row stays expired, but a snapshot
    /// has the clock of its beginning.
    since: Seq,
    now: UnixMillis,
}

impl DeadSpans {
    /// The spans in which no key has a value at `pin`.
    pub(super) fn of(pin: &Pin) -> Vec<DeadSpan> {
        DeadSpans::usable(pin).into_iter().map(|one| one.span).collect()
    }

    /// The spans with which the view of a transaction begins that reads at `base`.
    pub(super) fn of_own(base: &Pin) -> DeadSpans {
        let spans = DeadSpans::usable(base);
        let some = AtomicBool::new(!spans.is_empty());
        DeadSpans { some, known: Mutex::new(Known { spans, until: base.seq }) }
    }

    fn usable(pin: &Pin) -> Vec<KnownSpan> {
        let dead = pin.tree.dead();
        if !dead.some.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut known = dead.known.lock();
        known.advance(&pin.tree, pin.seq);
        dead.some.store(!known.spans.is_empty(), Ordering::Release);
        let usable = known.spans.iter().filter(|one| one.since <= pin.seq && one.now <= pin.now);
        usable.cloned().collect()
    }

    /// Remembers `found`, in which no key has a value at `pin`. A shared view that does not see all
    /// of the tables leaves nothing.
    pub(super) fn learn(pin: &Pin, found: Vec<DeadSpan>) {
        let (tree, seq) = (&pin.tree, pin.seq);
        if tree.own.is_none() && tree.levels.newest > seq {
            return;
        }
        let found = found.into_iter().map(|span| KnownSpan { span, since: seq, now: pin.now });
        let mut found: Vec<KnownSpan> = found.collect();
        let dead = tree.dead();
        let mut known = dead.known.lock();
        known.advance(tree, seq);
        let until = known.until;
        if seq < until {
            // Values of after the view, up to the moment to which the other spans were checked. The
            // memtables of the view may end before it.
            let last = tree.growing_memtables().filter_map(|memtable| memtable.last_seq()).max();
            if last < Some(until) || !cut_by(&mut found, tree.growing_memtables(), seq, until) {
                return;
            }
        }
        found.into_iter().for_each(|span| known.add(span));
        dead.some.store(!known.spans.is_empty(), Ordering::Release);
    }
}

impl Known {
    /// Cuts out of the spans the values that were written after the last check and up to `seq`,
    /// which `tree` has.
    fn advance(&mut self, tree: &Tree, seq: Seq) {
        if seq <= self.until {
            return;
        }
        let after = std::mem::replace(&mut self.until, seq);
        if !cut_by(&mut self.spans, tree.growing_memtables(), after, seq) {
            self.spans.clear();
        }
    }

    /// Adds a span, united with those that it touches.
    fn add(&mut self, mut new: KnownSpan) {
        let mut others = Vec::with_capacity(MAX_SPANS);
        for other in self.spans.drain(..) {
            match united(&other.span, &new.span) {
                None => others.push(other),
                Some(span) => {
                    new = KnownSpan {
                        span,
                        since: new.since.max(other.since),
                        now: new.now.max(other.now),
                    };
                }
            }
        }
        if others.len() == MAX_SPANS {
            others.remove(0);
        }
        others.push(new);
        self.spans = others;
    }
}

/// The keys of both spans, if they are one span.
fn united(a: &DeadSpan, b: &DeadSpan) -> Option<DeadSpan> {
    let reaches = |a: &DeadSpan, b: &DeadSpan| a.end.as_ref().is_none_or(|end| b.start <= *end);
    if !reaches(a, b) || !reaches(b, a) {
        return None;
    }
    let end = a.end.as_ref().zip(b.end.as_ref()).map(|(a, b)| a.max(b).clone());
    let start = a.start.clone().min(b.start.clone());
    Some(DeadSpan { start, end, entries: a.entries.saturating_add(b.entries) })
}

/// Cuts out of `spans` the keys of the values that `memtables` have above `after` and up to
/// `until`. Returns `false` if a memtable has more such entries than the spans: the check must not
/// cost more than passing them.
fn cut_by<'m>(
    spans: &mut Vec<KnownSpan>,
    mut memtables: impl Iterator<Item = &'m Arc<Memtable>>,
    after: Seq,
    until: Seq,
) -> bool {
    if spans.is_empty() {
        return true;
    }
    let most = spans.iter().map(|one| one.span.entries).sum();
    memtables.all(|memtable| {
        if memtable.last_seq().is_none_or(|last| last <= after) {
            return true;
        }
        let Some(keys) = memtable.values_after(after, until, most) else { return false };
        keys.for_each(|key| cut(spans, key));
        true
    })
}

fn cut(spans: &mut Vec<KnownSpan>, key: &[u8]) {
    let Some(at) = spans.iter().position(|one| one.span.contains(key)) else { return };
    let mut behind = spans.remove(at);
    let mut before = behind.clone();
    before.span.end = Some(Bytes::copy_from_slice(key));
    behind.span.start = key_after(key).into();
    for part in [before, behind] {
        if !part.span.is_empty() && spans.len() < MAX_SPANS {
            spans.insert(at, part);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the unexpected")]
mod tests {
    use super::*;
    use crate::cache::metadata::{MetadataBudget, TableHandle, testing};
    use crate::read::tree::Levels;
    use siltstone_base::{Batch, SstDescriptor};

    /// Tables whose newest entry has number 10.
    fn levels() -> Arc<Levels> {
        let descriptor = SstDescriptor { max_seq: Seq(10), ..testing::descriptor(b"a", b"z") };
        let budget = MetadataBudget::new(usize::MAX);
        Arc::new(Levels::of_table(TableHandle::new(descriptor, &budget)))
    }

    fn view(levels: &Arc<Levels>, active: &Arc<Memtable>, seq: u64, now: u64) -> Pin {
        let tree = Tree {
            active: Arc::clone(active),
            frozen: Vec::new(),
            levels: Arc::clone(levels),
            queue: None,
            flushed_seq: Seq::NONE,
            own: None,
        };
        Pin { tree: Arc::new(tree), seq: Seq(seq), now: UnixMillis(now) }
    }

    fn span(start: &'static str, end: Option<&'static str>) -> DeadSpan {
        DeadSpan { start: start.into(), end: end.map(Bytes::from), entries: 100 }
    }

    fn put(table: &Memtable, seq: u64, key: &str) {
        let mut batch = Batch::new();
        batch.put(key.as_bytes(), b"", None).unwrap();
        table.insert_batch(Seq(seq), &Arc::from(batch.as_bytes())).unwrap();
    }

    /// Rule 1: an entry of the tables that the finder does not see may be a value for the next one.
    #[test]
    fn a_view_that_does_not_see_all_of_the_tables_leaves_nothing() {
        let (levels, active) = (levels(), Arc::new(Memtable::new()));
        DeadSpans::learn(&view(&levels, &active, 9, 0), vec![span("a", None)]);
        assert_eq!(DeadSpans::of(&view(&levels, &active, 20, 0)), []);
        DeadSpans::learn(&view(&levels, &active, 10, 0), vec![span("a", None)]);
        assert_eq!(DeadSpans::of(&view(&levels, &active, 20, 0)), [span("a", None)]);
    }

    /// Rule 2: a snapshot may see a row that was deleted, or had expired, when the span was found.
    #[test]
    fn an_older_view_uses_nothing() {
        let (levels, active) = (levels(), Arc::new(Memtable::new()));
        DeadSpans::learn(&view(&levels, &active, 20, 500), vec![span("a", None)]);
        assert_eq!(DeadSpans::of(&view(&levels, &active, 19, 500)), []);
        assert_eq!(DeadSpans::of(&view(&levels, &active, 20, 499)), []);
        assert_eq!(DeadSpans::of(&view(&levels, &active, 20, 500)), [span("a", None)]);
    }

    /// Rule 3, also for a span that is found late, beside others that were checked further.
    #[test]
    fn values_are_cut_out() {
        let (levels, active) = (levels(), Arc::new(Memtable::new()));
        DeadSpans::learn(&view(&levels, &active, 10, 0), vec![span("a", Some("f"))]);
        put(&active, 11, "c");
        put(&active, 12, "x");
        let cut = [span("a", Some("c")), span("c\0", Some("f"))];
        let sorted = |pin: &Pin| {
            let mut spans = DeadSpans::of(pin);
            spans.sort_by(|a, b| a.start.cmp(&b.start));
            spans
        };
        assert_eq!(sorted(&view(&levels, &active, 12, 0)), cut);
        DeadSpans::learn(&view(&levels, &active, 10, 0), vec![span("w", None)]);
        let late = [span("w", Some("x")), span("x\0", None)];
        assert_eq!(sorted(&view(&levels, &active, 12, 0)), [cut, late].concat());
        // A view whose memtables end before the last check cannot check its own.
        DeadSpans::learn(&view(&levels, &Arc::new(Memtable::new()), 10, 0), vec![span("g", None)]);
        assert_eq!(sorted(&view(&levels, &active, 12, 0)).len(), 4);
    }

    #[test]
    fn touching_spans_are_one_and_the_oldest_goes() {
        let (levels, active) = (levels(), Arc::new(Memtable::new()));
        let pin = view(&levels, &active, 10, 0);
        DeadSpans::learn(&pin, vec![span("a", Some("c")), span("e", Some("f"))]);
        DeadSpans::learn(&pin, vec![span("c", Some("e"))]);
        let all = DeadSpan { entries: 300, ..span("a", Some("f")) };
        assert_eq!(DeadSpans::of(&pin), [all]);
        for at in 0..MAX_SPANS {
            let start = format!("g{at:02}");
            let end = Some(Bytes::from(format!("g{at:02}0")));
            DeadSpans::learn(&pin, vec![DeadSpan { start: start.into(), end, entries: 100 }]);
        }
        let kept = DeadSpans::of(&pin);
        assert_eq!(kept.len(), MAX_SPANS);
        assert!(kept.iter().all(|span| span.start.starts_with(b"g")));
    }
}
