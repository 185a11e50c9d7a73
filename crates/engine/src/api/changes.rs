//! The change feed: committed operations in commit order (RFC 0041).
//!
//! A feed reads on from a token. It needs access to the store, but no open handle. It must never
//! skip a commit silently: if the next commit is no longer retained, a read fails with Expired.

mod before;
mod start;

pub use before::ImageBase;
pub use siltstone_manifest::Hold;
pub use start::{
    ChangesFrom, ChangesOptions, Consumer, changes, consumers, forget_consumer, newest,
};

use crate::feed::originals::{Originals, OriginalsLimit};
use crate::feed::rows::ChangeRows;
use crate::feed::token::ChangeToken;
use crate::feed::walk::FeedWalk;
use crate::manifests::client::{self, commit_alone};
use crate::manifests::objects::Objects;
use before::BeforeImages;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::batch::BatchOps;
use siltstone_base::{Entry, Error, ErrorKind, ObjectName, Result, Seq, UnixMillis, WalId};
use siltstone_manifest::{
    AdvanceHold, Checkpoint, Edit, HoldEdit, LogPlace, Manifest, follow_each_other,
};
use siltstone_sst::wal::{WalIngest, WalObject, WalRecord};
use siltstone_store::counting::Requests;
use siltstone_store::env::Env;
use start::ConsumerHold;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Maximum bytes that one read returns. The last commit of the read may exceed it.
const MOST_AT_ONCE: usize = 1 << 30;

/// A change feed with its position. A read at the end of the feed looks for new commits in the
/// store.
pub struct Changes {
    objects: Objects,
    requests: Arc<Requests>,
    walk: FeedWalk,
    place: ChangeToken,
    /// Whether the feed begins with the first record that it finds, wherever that is: it has no
    /// position yet.
    begins_anywhere: bool,
    /// The token at which the feed ends, even if later changes exist.
    until: Option<ChangeToken>,
    /// Whether a record was found that directly follows `place`, so that nothing is missing
    /// between the two.
    met: bool,
    /// The newest manifest that the feed has read.
    state: Arc<Manifest>,
    /// Unread records of the current WAL object. Each has the id of the object at which reading
    /// continues after it: the next object's id for the last record.
    records: VecDeque<(WalRecord, WalId)>,
    /// Commit time of the current WAL object.
    time: UnixMillis,
    originals: Option<Originals>,
    /// Start of a read whose future was dropped before it completed. The next read repeats it.
    unfinished: Option<ChangeToken>,
    held: Option<ConsumerHold>,
    /// Why the consumer of this feed is gone: removed, or replaced by a newer feed.
    lost: Option<Error>,
    checkpoint: Option<Checkpoint>,
    /// The state at the position, for a feed with before-images.
    before: Option<BeforeImages>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Changes {
    /// The token of the current position. A feed that begins at it returns the next changes.
    #[must_use]
    pub fn token(&self) -> ChangeToken {
        let target = self.before.as_ref().and_then(BeforeImages::target);
        target.or(self.unfinished).unwrap_or(self.place)
    }

    /// The checkpoint after which the feed begins; `None` unless it began with
    /// [`ChangesFrom::Snapshot`].
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// The name of the feed's consumer; `None` if it has none.
    #[must_use]
    pub fn consumer(&self) -> Option<&str> {
        self.held.as_ref().map(|held| held.consumer.name.as_str())
    }

    /// Reads the next changes. Returns whole commits, at least one, until they reach `most_rows`
    /// rows, `most_bytes` bytes or 1 GiB. Only an ingest is split: a read returns as much of it as
    /// fits these limits. Returns `None` if nothing more is durable, or at the token where the
    /// feed ends.
    ///
    /// # Errors
    /// Expired if the next changes are no longer retained, if a restore has undone them, or if the
    /// consumer was removed; Fenced if a newer consumer of the same name has begun; Corruption if
    /// the log has a gap; NotFound if there is no database; Denied, Unavailable, Timeout.
    pub fn read(
        &mut self,
        most_rows: usize,
        most_bytes: usize,
    ) -> BoxFuture<'_, Result<Option<ChangeRows>>> {
        async move {
            self.check_consumer()?;
            let (most_rows, most_bytes) = (most_rows.max(1), most_bytes.clamp(1, MOST_AT_ONCE));
            let (env, limit) = (self.objects.env.clone(), self.objects.limit);
            let requests = Arc::clone(&self.requests);
            while self.before.as_ref().is_some_and(|images| images.target().is_some()) {
                requests.within(&env, limit, "changes", self.catch_up()).await?;
            }
            let reads = async {
                self.repeat_unfinished();
                self.refresh().await?;
                self.unfinished = Some(self.place);
                let mut rows = ChangeRows::default();
                let read = self.read_rows(most_rows, most_bytes, &mut rows).await;
                if self.before.is_none() || read.is_ok() {
                    self.unfinished = None;
                }
                read.inspect_err(|error| {
                    if error.kind() == ErrorKind::Fenced {
                        self.lost = Some(error.clone());
                    }
                })?;
                Ok((!rows.is_empty()).then_some(rows))
            };
            requests.within(&env, limit, "changes", reads).await
        }
        .boxed()
    }

    /// Moves the feed back to `token`, an earlier position of this feed. The next read returns the
    /// changes after it again.
    pub fn rewind(&mut self, token: ChangeToken) {
        if self.token() != token {
            self.unfinished = None;
            let next = self.before.as_mut().map_or(token, |images| images.rewind(token));
            self.go_back(next);
        }
    }

    /// Goes back to the start of a read that did not complete.
    fn repeat_unfinished(&mut self) {
        if let Some(place) = self.unfinished.take() {
            if let Some(images) = &mut self.before {
                images.take_back();
            }
            self.go_back(place);
        }
    }

    /// Sets the position to `place` and discards everything that was read ahead of it.
    fn go_back(&mut self, place: ChangeToken) {
        self.place = place;
        self.walk = FeedWalk::new(&self.objects, (!place.wal.is_none()).then_some(place.wal));
        self.records.clear();
        self.originals = None;
        self.met = false;
    }

    /// Reads changes into `rows` until they reach a limit. After an error `rows` are unchanged.
    async fn read_on(
        &mut self,
        most_rows: usize,
        most_bytes: usize,
        rows: &mut ChangeRows,
    ) -> Result<()> {
        let mut looked = false;
        // On a slow store, return the rows read in half the time limit rather than time out
        // without any.
        let clock = Arc::clone(&self.objects.env.clock);
        let enough = clock.monotonic() + self.objects.limit / 2;
        while rows.len() < most_rows && rows.bytes() < most_bytes && !self.has_ended() {
            if !rows.is_empty() && clock.monotonic() >= enough {
                break;
            }
            if self.records.is_empty() {
                match self.next_object(!rows.is_empty()).await {
                    Ok(true) => {}
                    // Return the rows read before the error. The next read meets the error again.
                    Err(_) if !rows.is_empty() => break,
                    ended => {
                        ended?;
                        break;
                    }
                }
            }
            let (place, read) = (self.place, rows.len());
            if let Err(error) = self.step(most_rows, most_bytes, rows).await {
                (self.place, self.originals) = (place, None);
                rows.truncate(read);
                if !rows.is_empty() {
                    break;
                }
                // A restore may have undone the missing changes since the manifest was read. Read
                // on once more from the newest manifest, which records the restore.
                let gone = error.kind() == ErrorKind::Expired;
                if looked || !gone {
                    return Err(error);
                }
                looked = true;
                self.go_back(place);
            }
        }
        if rows.is_empty() && self.end().is_some() && !self.has_ended() {
            return Err(Error::unavailable(
                "the log ends before the token at which the feed is to end; the store may not \
                 list all of the log yet: read again",
            ));
        }
        Ok(())
    }

    /// The token at which reading ends: that of the feed, or the start of the feed as long as it
    /// reads the changes before it.
    fn end(&self) -> Option<ChangeToken> {
        self.before.as_ref().and_then(BeforeImages::target).or(self.until)
    }

    fn has_ended(&self) -> bool {
        self.end().is_some_and(|until| {
            // No committed number lies between the position and the end.
            let next =
                || follow_each_other(&self.state.timelines, self.place.seq, until.seq.next());
            self.place.order() >= until.order() || (!until.is_inside() && next())
        })
    }

    /// Loads the records of the next WAL object. Returns `false` if there is none. With `as_is` it
    /// does not look for new objects in the store.
    async fn next_object(&mut self, as_is: bool) -> Result<bool> {
        let mut looked = false;
        loop {
            if let Some(object) = self.walk.pop() {
                self.open(&object)?;
                if self.records.is_empty() {
                    continue;
                }
                return Ok(true);
            }
            if as_is && self.walk.is_idle() {
                return Ok(false);
            }
            let (place, until, held) = (self.place, self.end(), self.held.as_ref());
            let begins_anywhere = self.begins_anywhere;
            let held = held.map(|held| (held.consumer.name.clone(), held.generation, held.base.id));
            let check = move |state: &Manifest| {
                check_state(state, &place, until.as_ref())?;
                if !begins_anywhere {
                    check_logged(state, place.seq)?;
                }
                match &held {
                    // Older states do not have the hold yet.
                    Some((name, generation, base)) if state.id > *base => {
                        Ok(state.check_hold(name, *generation)?)
                    }
                    _ => Ok(()),
                }
            };
            let found = match self.walk.fill(&check).await {
                // A restore may have undone the missing objects and ended their hold. Try once
                // more: the walk now begins with the newest manifest.
                Err(error) if error.kind() == ErrorKind::Expired && !looked => {
                    looked = true;
                    continue;
                }
                filled => filled?,
            };
            let known = self.walk.known().cloned();
            let before = known.map(|state| std::mem::replace(&mut self.state, state));
            let left_out = |state: Arc<Manifest>| state.timelines != self.state.timelines;
            if before.is_some_and(left_out) {
                // The timelines have changed. Records that were skipped as undone may be part of
                // the history again, so read again from the position.
                self.go_back(place);
                continue;
            }
            if !found {
                self.check_kept()?;
                return Ok(false);
            }
        }
    }

    /// Checks, at the end of the log, that no flushed commit after the position was deleted. If
    /// the log had no record after the position but the manifest has flushed later numbers, their
    /// WAL objects have been deleted.
    fn check_kept(&self) -> Result<()> {
        let (place, flushed) = (self.place, self.state.flushed_seq);
        let follows = || follow_each_other(&self.state.timelines, place.seq, flushed.next());
        if self.met || self.begins_anywhere || flushed <= place.seq || follows() {
            return Ok(());
        }
        Err(not_kept().with("flushed up to sequence number", flushed))
    }

    fn open(&mut self, object: &WalObject) -> Result<()> {
        let records = object.records().collect::<Result<Vec<_>>>()?;
        let last = records.len().saturating_sub(1);
        let behind = |at| if at == last { object.id.next() } else { object.id };
        let records = records.into_iter().enumerate();
        self.records = records.map(|(at, record)| (record, behind(at))).collect();
        self.time = object.sent.at;
        Ok(())
    }

    /// Appends the next record to `out`, or the next part of an ingest.
    async fn step(&mut self, rows: usize, bytes: usize, out: &mut ChangeRows) -> Result<()> {
        let Some((record, behind)) = self.records.front().cloned() else { return Ok(()) };
        let (first, last) = record.seqs();
        if self.skips(last, behind) {
            return Ok(());
        }
        self.check_follows(first, behind)?;
        match record {
            WalRecord::Ingest(ingest) => {
                if !self.place.is_inside() {
                    // A position inside an ingest has the number before its first row, even if
                    // earlier numbers were undone.
                    self.place.seq = first.minus(1);
                    self.place.timeline = self.state.history_behind(self.place.seq);
                }
                let until = OriginalsLimit { rows, bytes, place: self.until_inside(&ingest) };
                self.read_ingest(&ingest, until, out).await?;
                if self.originals.is_some() {
                    return Ok(());
                }
            }
            WalRecord::Batch { bytes, .. } => push_batch(&bytes, first, self.time, out)?,
        }
        self.records.pop_front();
        let timeline = self.state.history_behind(last);
        self.place =
            ChangeToken { timeline, seq: last, wal: behind, table: 0, row: 0, ..self.place };
        Ok(())
    }

    /// Discards the next record, whose last number is `last`, if the feed does not return it.
    fn skips(&mut self, last: Seq, behind: WalId) -> bool {
        let undone = self.state.timelines.iter().any(|one| one.lacks(last));
        // Rows that were never logged follow. A feed without a position begins after those.
        let before_gap = self.begins_anywhere && last <= self.state.features.unlogged();
        let skipped = last <= self.place.seq || undone || before_gap;
        if skipped {
            self.records.pop_front();
            if !undone {
                // Another restore may bring an undone record back: the position stays before it.
                self.place.wal = self.place.wal.max(behind);
            }
        }
        skipped
    }

    /// Gives a feed without a position that before the first record that it returns, or that of the
    /// flushed rows if the log has none. The number 0 is a position too, that of an empty database.
    ///
    /// # Errors
    /// As [`Changes::read`].
    async fn find_start(&mut self) -> Result<()> {
        while self.begins_anywhere {
            let Some((record, behind)) = self.records.front().cloned() else {
                if !self.next_object(false).await? {
                    self.begin_behind(self.state.flushed_seq);
                }
                continue;
            };
            let (first, last) = record.seqs();
            if !self.skips(last, behind) {
                self.begin_behind(first.minus(1));
            }
        }
        Ok(())
    }

    fn begin_behind(&mut self, seq: Seq) {
        (self.place.seq, self.begins_anywhere) = (seq, false);
        self.place.timeline = self.state.history_behind(seq);
    }

    /// The table and row of `ingest` at which the feed ends; `None` if it ends elsewhere.
    fn until_inside(&self, ingest: &WalIngest) -> Option<(u32, u32)> {
        let until = self.end().filter(|until| until.seq < ingest.last_seq());
        until.map(|until| (until.table, until.row))
    }

    async fn read_ingest(
        &mut self,
        ingest: &WalIngest,
        until: OriginalsLimit,
        out: &mut ChangeRows,
    ) -> Result<()> {
        let at = (self.place.table, self.place.row);
        let mut originals = match self.originals.take() {
            Some(originals) => originals,
            None => Originals::open(&self.objects, ingest, at).await?,
        };
        let filled = originals.fill(ingest, self.time, until, out).await;
        (self.place.table, self.place.row) = originals.at();
        if filled.is_ok() && !originals.is_over() {
            self.originals = Some(originals);
        }
        filled
    }

    /// Checks that `first` directly follows the position, apart from numbers that a restore has
    /// undone.
    fn check_follows(&mut self, first: Seq, behind: WalId) -> Result<()> {
        let seq = self.place.seq;
        let follows = follow_each_other(&self.state.timelines, seq, first);
        if follows {
            self.met = true;
            return Ok(());
        }
        if seq < self.state.features.unlogged() {
            return Err(not_logged(&self.state));
        }
        if !self.met {
            return Err(not_kept().with("oldest sequence number", first));
        }
        Err(Error::corruption("the sequence numbers of the log do not follow each other")
            .with("object", ObjectName::Wal(behind))
            .with("expected", seq.next())
            .with("found", first))
    }

    /// Acknowledges all changes up to `token`; `None` acknowledges all changes read so far. The
    /// consumer's hold no longer retains the log before that position.
    ///
    /// # Errors
    /// Invalid without a consumer, for a token of another database, and for a token after the
    /// current position; Expired if the consumer was removed; Fenced if a newer consumer of the
    /// same name has begun; the errors of a manifest commit.
    pub fn acknowledge(&mut self, token: Option<ChangeToken>) -> BoxFuture<'_, Result<()>> {
        async move {
            self.check_consumer()?;
            let token = token.unwrap_or(self.token());
            if token.database != self.place.database {
                return Err(start::of_another_database(&token, self.place.database));
            }
            if token.order() > self.token().order() {
                return Err(Error::invalid(
                    "the token lies after the feed's position; acknowledge only changes that were \
                     read",
                ));
            }
            let Some(held) = &mut self.held else {
                return Err(Error::invalid(
                    "the feed has no consumer, so there is nothing to acknowledge; name a \
                     consumer when the feed is opened",
                ));
            };
            if token.seq >= held.seen.seq {
                held.timeline = token.timeline;
            }
            held.seen =
                LogPlace { seq: token.seq.max(held.seen.seq), wal: token.wal.max(held.seen.wal) };
            let (env, limit) = (self.objects.env.clone(), self.objects.limit);
            let requests = Arc::clone(&self.requests);
            requests.within(&env, limit, "acknowledge", self.advance()).await
        }
        .boxed()
    }

    /// Renews the consumer's hold once half of its lifetime has passed.
    async fn refresh(&mut self) -> Result<()> {
        let now = self.objects.env.clock.now();
        match &self.held {
            Some(held) if held.is_due(now) => self.advance().await,
            _ => Ok(()),
        }
    }

    async fn advance(&mut self) -> Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let now = self.objects.env.clock.now();
        let expires_at = held.consumer.expires_at(now)?;
        let advance = AdvanceHold {
            name: held.consumer.name.clone(),
            generation: held.generation,
            to: held.seen,
            timeline: held.timeline,
            expires_at,
        };
        let base = held.base.clone();
        let state = commit_alone(&self.objects, Edit::Hold(HoldEdit::Advance(advance)), base).await;
        match state {
            Ok(state) => (held.base, held.since) = (state, now),
            Err(error) => {
                // Expired here always means that the consumer was removed.
                if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Expired) {
                    self.lost = Some(error.clone());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// A feed that has lost its consumer returns no more changes, not even those that it has read
    /// ahead: the feed that replaced it returns them as well.
    fn check_consumer(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), Err)
    }
}

fn not_kept() -> Error {
    Error::new(
        ErrorKind::Expired,
        "the changes right after the feed's position are no longer retained; begin again from a \
         snapshot, or at the oldest retained change",
    )
}

/// The error of a feed that lacks rows that a writer without a WAL has written.
fn not_logged(state: &Manifest) -> Error {
    Error::new(
        ErrorKind::Expired,
        "rows after the feed's position were written without a WAL and are not in the feed; begin \
         again from a snapshot, or at the end",
    )
    .with("up to sequence number", state.features.unlogged())
}

fn push_batch(bytes: &[u8], first: Seq, time: UnixMillis, out: &mut ChangeRows) -> Result<()> {
    for (op, seq) in BatchOps::new(bytes).zip(first.get()..) {
        let op = op?;
        let (key, kind, expires_at, value) = (op.key, op.kind, op.expires_at, op.value);
        out.push(&Entry { key, seq: Seq(seq), kind, expires_at, value }, time)?;
    }
    Ok(())
}

/// Checks that all changes after `seq` were logged.
fn check_logged(state: &Manifest, seq: Seq) -> Result<()> {
    if seq < state.features.unlogged() { Err(not_logged(state)) } else { Ok(()) }
}

/// Checks that `place` and `until` belong to the database of `state`, and that no restore has
/// undone them.
fn check_state(state: &Manifest, place: &ChangeToken, until: Option<&ChangeToken>) -> Result<()> {
    for token in std::iter::once(place).chain(until) {
        if token.database != state.database {
            return Err(start::of_another_database(token, state.database));
        }
        if let Some(undone) = token.undone_in(state) {
            return Err(undone.into());
        }
    }
    Ok(())
}

async fn newest_state(env: &Env, limit: std::time::Duration) -> Result<(Objects, Arc<Manifest>)> {
    let objects = Objects { env: env.clone(), limit };
    let newest = client::newest(&objects).await?;
    Ok((objects, newest))
}
