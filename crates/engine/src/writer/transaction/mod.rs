//! Transactions (RFC 0025): reads at one sequence number and writes in one batch, which is accepted
//! if nothing that the transaction depends on was committed meanwhile.

pub(crate) mod commit_window;
pub(crate) mod conditional;
pub(crate) mod footprint;
mod own;
mod reads;

use super::accept::Accept;
use super::snapshot::Snapshot;
use super::state::Writer;
use crate::read::answer::Answer;
use crate::read::value::Value;
use crate::read::{self, Keys, Pin, ReadRange, Scan, ScanRange, Size};
use footprint::Footprint;
use own::{OwnWriteAnswer, OwnWrites};
use parking_lot::Mutex;
use reads::TrackedReads;
use siltstone_base::entry::check_key;
use siltstone_base::{Batch, BatchMark, Error, ErrorKind, Result, Seq, UnixMillis};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of validation rounds outside of the lock. Each round leaves the commits that came
/// during it, so a few rounds leave almost none, unless others commit faster than validation runs.
const ROUNDS: usize = 4;

/// The reads that the commit of a transaction depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Everything that the transaction has read, as if it all happened at the commit.
    #[default]
    Serializable,
    /// The keys that the transaction writes: the first commit wins. Two transactions may each read
    /// what the other one changes (write skew).
    Snapshot,
}

/// A transaction of the writer. It never waits for another transaction: its commit is accepted or
/// fails with Conflict. All clones are one transaction; dropping the last one rolls it back.
#[derive(Clone)]
pub struct Transaction(Arc<TransactionInner>);

struct TransactionInner {
    isolation: Isolation,
    seq: Seq,
    writer: Arc<Writer>,
    state: Mutex<TransactionState>,
}

struct TransactionState {
    /// `None` once the transaction has ended.
    open: Option<OpenTransaction>,
    /// How the transaction ended.
    ended: &'static str,
}

/// The state of an open transaction.
struct OpenTransaction {
    base: Snapshot,
    batch: Batch,
    own: Option<OwnWrites>,
    reads: TrackedReads,
    savepoints: Vec<(Savepoint, BatchMark)>,
    /// Commits up to this number touched nothing that the transaction depends on.
    validated: Seq,
    _registered: Registration,
}

/// A point in a transaction to which it can roll back.
#[derive(Clone, Debug)]
pub struct Savepoint(Arc<()>);

/// A sequence number that is registered with the commit window.
pub(super) struct Registration {
    writer: Arc<Writer>,
    seq: Seq,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.writer.tail.lock().window.release(self.seq);
    }
}

impl Writer {
    /// Runs `take` at the newest accepted number and registers that number with the window, both
    /// under the commit lock (rule O1).
    ///
    /// # Errors
    /// Why the handle has ended.
    fn register<T>(
        self: &Arc<Self>,
        take: impl FnOnce(&Arc<Writer>) -> T,
    ) -> Result<(T, Registration)> {
        let mut tail = self.tail.lock();
        if let Some(ended) = &tail.ended {
            return Err(ended.clone());
        }
        let seq = tail.next_seq.minus(1);
        tail.window.register(seq);
        let taken = take(self);
        drop(tail);
        Ok((taken, Registration { writer: Arc::clone(self), seq }))
    }
}

impl Transaction {
    pub(crate) fn begin(writer: &Arc<Writer>, isolation: Isolation) -> Result<Transaction> {
        let (base, registered) = writer.register(Snapshot::of_accepted)?;
        let seq = base.seq();
        let open = OpenTransaction {
            base,
            batch: Batch::new(),
            own: None,
            reads: TrackedReads::default(),
            savepoints: Vec::new(),
            validated: registered.seq,
            _registered: registered,
        };
        let state = Mutex::new(TransactionState { open: Some(open), ended: "" });
        let writer = Arc::clone(writer);
        Ok(Transaction(Arc::new(TransactionInner { isolation, seq, writer, state })))
    }

    /// The last sequence number of other writes that the transaction sees.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.0.seq
    }

    /// The reads that the commit of the transaction depends on.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.0.isolation
    }

    /// How the transaction ended; `None` while it is open.
    #[must_use]
    pub fn ended(&self) -> Option<&'static str> {
        let state = self.0.state.lock();
        if state.open.is_some() { None } else { Some(state.ended) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut OpenTransaction) -> Result<T>) -> Result<T> {
        self.0.state.lock().with(work)
    }

    fn tracks(&self) -> bool {
        self.0.isolation == Isolation::Serializable
    }

    /// The value of `key`: the transaction's own write, or the value at its beginning.
    ///
    /// # Errors
    /// Closed if the transaction has ended; Invalid for an invalid key; those of the awaited part.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        check_key(key)?;
        let pin = self.with(|open| {
            let says = open.own_says(key)?;
            if self.tracks() && says != OwnWriteAnswer::All {
                open.reads.key(key);
            }
            if says == OwnWriteAnswer::Nothing { Ok(open.base.pin().clone()) } else { open.view() }
        })?;
        read::get(&self.0.writer.context, pin, key)
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        let keys = Arc::new(keys.into());
        for key in keys.iter() {
            check_key(key)?;
        }
        let pin = self.with(|open| {
            for key in keys.iter().filter(|_| self.tracks()) {
                if open.own_says(key)? != OwnWriteAnswer::All {
                    open.reads.key(key);
                }
            }
            open.view()
        })?;
        read::get_many(&self.0.writer.context, pin, keys)
    }

    /// Approximate size of a range with the transaction's own writes, computed from metadata alone.
    /// The commit does not depend on this estimate.
    ///
    /// # Errors
    /// Closed if the transaction has ended; those of the awaited part.
    pub fn approximate_size(&self, range: ScanRange) -> Result<Answer<Size>> {
        let pin = self.with(OpenTransaction::view)?;
        Ok(read::approximate_size(&self.0.writer.context, &pin, range))
    }

    /// Iterates over a range as the transaction sees it now. Later writes of the transaction do not
    /// show. The range counts as read as far as rows are returned, including gaps.
    ///
    /// # Errors
    /// Closed if the transaction has ended.
    pub fn scan(&self, range: ScanRange) -> Result<Scan> {
        self.with(|open| {
            let noted = self.tracks().then(|| Arc::new(Mutex::new(ReadRange::new(&range))));
            let (pin, guard) = (open.view()?, Arc::new(open.base.clone()));
            let scan = Scan::new(self.0.writer.context.clone(), pin, range, Some(guard));
            Ok(match noted {
                Some(noted) => {
                    open.reads.scan(&noted);
                    scan.noting(noted)
                }
                None => scan,
            })
        })
    }

    /// Sets `key` to `value`, optionally until `expires_at`.
    ///
    /// # Errors
    /// Closed if the transaction has ended; Invalid for an invalid key or value.
    pub fn put(&self, key: &[u8], value: &[u8], expires_at: Option<UnixMillis>) -> Result<()> {
        self.with(|open| open.batch.put(key, value, expires_at))
    }

    /// Deletes `key`.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.with(|open| open.batch.delete(key))
    }

    /// Deletes every key of `[start, end)`.
    ///
    /// # Errors
    /// As [`Transaction::put`]; Invalid if `start` is not below `end`.
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        self.with(|open| open.batch.delete_range(start, end))
    }

    /// Deletes every key from `start` on.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_from(&self, start: &[u8]) -> Result<()> {
        self.with(|open| open.batch.delete_from(start))
    }

    /// Adds a merge operand to `key`.
    ///
    /// # Errors
    /// As [`Transaction::put`]; Invalid without a merge operator, or for an operand that it
    /// refuses.
    pub fn merge(&self, key: &[u8], operand: &[u8], expires_at: Option<UnixMillis>) -> Result<()> {
        self.0.writer.context.operator_or_invalid()?.check(operand)?;
        self.with(|open| open.batch.merge(key, operand, expires_at))
    }

    /// The time at which a value that is written now with this lifetime expires.
    ///
    /// # Errors
    /// Invalid, as for [`UnixMillis::after`].
    pub fn expiry(&self, expires_in: Option<Duration>) -> Result<Option<UnixMillis>> {
        expires_in.map(|life| self.0.writer.context.now().after(life)).transpose()
    }

    /// Creates a savepoint.
    ///
    /// # Errors
    /// Closed if the transaction has ended.
    pub fn savepoint(&self) -> Result<Savepoint> {
        self.with(|open| {
            let savepoint = Savepoint(Arc::new(()));
            open.savepoints.push((savepoint.clone(), open.batch.mark()));
            Ok(savepoint)
        })
    }

    /// Discards the writes and savepoints since `savepoint`, which itself stays. Reads since then
    /// still count, because later writes may depend on them.
    ///
    /// # Errors
    /// Closed if the transaction has ended; Invalid for a savepoint of another transaction, or one
    /// that was discarded.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        self.with(|open| {
            let found =
                open.savepoints.iter().position(|(one, _)| Arc::ptr_eq(&one.0, &savepoint.0));
            let found = found.and_then(|at| Some((at, open.savepoints.get(at)?.1)));
            let (at, mark) = found.ok_or_else(|| {
                Error::invalid(
                    "no such savepoint: it belongs to another transaction, or was discarded by a \
                     rollback to an earlier one",
                )
            })?;
            open.savepoints.truncate(at + 1);
            open.batch.cut_back(mark);
            open.own = None;
            Ok(())
        })
    }

    /// Commits the writes if nothing that the transaction depends on was committed meanwhile, and
    /// ends the transaction. Returns `None` without any check if there are no writes. If the result
    /// is pressure, nothing was committed: await it, then commit again.
    ///
    /// # Errors
    /// Conflict, with the key: the transaction has ended. Invalid if the batch exceeds
    /// `max_batch_bytes`; Closed, Fenced.
    pub fn commit(&self) -> Result<Option<Accept>> {
        let mut state = self.0.state.lock();
        let committed = state.with(|open| {
            if open.batch.is_empty() {
                return Ok(None);
            }
            open.commit(&self.0.writer, self.0.isolation).map(Some)
        });
        // End it under the same lock; otherwise another clone could commit it again.
        let held = match &committed {
            Ok(Some(Accept::Pressure(_))) => None,
            Ok(None | Some(Accept::Accepted(_))) => state.end("committed"),
            Err(error) if error.kind() == ErrorKind::Conflict => state.end("ended by a conflict"),
            Err(_) => None,
        };
        drop(state);
        drop(held);
        committed.map_err(|error| error.during("commit"))
    }

    /// Whether a commit takes no longer than a put: few own writes, and few commits of others
    /// since.
    #[must_use]
    pub fn is_light(&self, most_bytes: usize) -> bool {
        self.0.state.lock().open.as_ref().is_none_or(|open| {
            open.batch.as_bytes().len() <= most_bytes
                && open.reads.is_few()
                && (open.batch.is_empty()
                    || self.0.writer.tail.lock().window.is_little_above(open.validated))
        })
    }

    /// Discards the writes and ends the transaction. Does nothing if it has ended.
    pub fn rollback(&self) {
        self.end("rolled back");
    }

    fn end(&self, how: &'static str) {
        let held = self.0.state.lock().end(how);
        // Drop it outside of the lock.
        drop(held);
    }
}

impl TransactionState {
    fn with<T>(&mut self, work: impl FnOnce(&mut OpenTransaction) -> Result<T>) -> Result<T> {
        if let Some(open) = &mut self.open {
            return work(open);
        }
        let text = format!("the transaction has ended: it was {}; begin another one", self.ended);
        Err(Error::new(ErrorKind::Closed, text))
    }

    /// Ends the transaction. The caller drops the returned state outside of the lock.
    fn end(&mut self, how: &'static str) -> Option<OpenTransaction> {
        let held = self.open.take();
        if held.is_some() {
            self.ended = how;
        }
        held
    }
}

impl OpenTransaction {
    /// The effect of the transaction's own writes on a key.
    fn own_says(&mut self, key: &[u8]) -> Result<OwnWriteAnswer> {
        if self.batch.is_empty() {
            return Ok(OwnWriteAnswer::Nothing);
        }
        match own::of_few(&self.batch, key)? {
            Some(says) => Ok(says),
            None => Ok(self.own()?.says(key)),
        }
    }

    /// The own writes, in order.
    fn own(&mut self) -> Result<&OwnWrites> {
        let base = self.base.pin();
        let own = self.own.get_or_insert_with(|| OwnWrites::over(base));
        own.take(base.seq, &self.batch)?;
        Ok(own)
    }

    /// The own writes above the base.
    fn view(&mut self) -> Result<Pin> {
        if self.batch.is_empty() {
            return Ok(self.base.pin().clone());
        }
        let (base, now) = (self.base.pin().seq, self.base.pin().now);
        let seq = base.plus(u64::from(self.batch.ops()));
        Ok(Pin { tree: Arc::clone(self.own()?.tree()), seq, now })
    }

    fn commit(&mut self, writer: &Arc<Writer>, isolation: Isolation) -> Result<Accept> {
        let footprint = match isolation {
            Isolation::Serializable => self.reads.footprint(),
            Isolation::Snapshot => Footprint::of_writes(&self.batch)?,
        };
        for _ in 0..ROUNDS {
            let above = writer.tail.lock().window.above(self.validated)?;
            let Some(stretch) = above else { break };
            if let Some(clash) = stretch.clash(self.validated, &footprint) {
                return Err(clash.into());
            }
            self.validated = stretch.until;
        }
        let (bytes, validated) = (Arc::from(self.batch.as_bytes()), self.validated);
        let read = self.base.pin().tree.below();
        writer.accept_if(bytes, self.batch.ops(), |window| {
            window.check(validated, &footprint)?;
            writer.check_behind(read, &footprint)
        })
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("seq", &self.seq())
            .field("isolation", &self.0.isolation)
            .field("ended", &self.ended())
            .finish_non_exhaustive()
    }
}
