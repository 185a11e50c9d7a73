//! What was committed, in the order of its commits (RFC 0041): read on from a token, by whoever
//! has the store, with or without a handle.

mod start;

pub use siltstone_manifest::Hold;
pub use start::{ChangesOptions, Consumer, Since, changes, consumers, forget_consumer, newest};

use crate::feed::originals::{Originals, OriginalsLimit};
use crate::feed::rows::Changed;
use crate::feed::token::ChangeToken;
use crate::feed::walk::FeedWalk;
use crate::io::env::Env;
use crate::io::store::counting::Requests;
use crate::manifests::client::{self, commit_alone};
use crate::manifests::objects::Objects;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::batch::BatchOps;
use siltstone_base::{Entry, Error, ErrorKind, ObjectName, Result, Seq, UnixMillis, WalId};
use siltstone_manifest::{
    AdvanceHold, Checkpoint, Edit, HoldEdit, LogPlace, Manifest, follow_each_other,
};
use siltstone_sst::wal::{WalIngest, WalObject, WalRecord};
use start::Held;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Bytes that one read gives at most, but for the commit that it ends with.
const MOST_AT_ONCE: usize = 1 << 30;

/// A reading position in the feed. It looks for what is new each time it is asked at the end.
pub struct Changes {
    objects: Objects,
    requests: Arc<Requests>,
    walk: FeedWalk,
    place: ChangeToken,
    /// Where it ends, though there is more.
    until: Option<ChangeToken>,
    /// Whether what stands at the place is known to follow it: a commit that others lie before.
    met: bool,
    /// The newest state that is known.
    state: Arc<Manifest>,
    /// Records of the object that is read, each with the id behind it; and when that was committed.
    records: VecDeque<(WalRecord, WalId)>,
    time: UnixMillis,
    originals: Option<Originals>,
    /// Where a read began that nobody has seen the end of: it was dropped, and is done again.
    unfinished: Option<ChangeToken>,
    held: Option<Held>,
    checkpoint: Option<Checkpoint>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Changes {
    /// Where it stands: reading on from here gives what comes next.
    #[must_use]
    pub fn token(&self) -> ChangeToken {
        match cfg!(mutation = "dropped_is_passed_on") {
            true => self.place,
            false => self.unfinished.unwrap_or(self.place),
        }
    }

    /// The checkpoint that it goes on from, of one that began with a snapshot.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// The name of its consumer.
    #[must_use]
    pub fn consumer(&self) -> Option<&str> {
        self.held.as_ref().map(|held| held.consumer.name.as_str())
    }

    /// The next changes: whole commits, as many as it takes to reach `most_rows` or `most_bytes`,
    /// or 1 GiB, at least one; of an ingest just so many. `None` where nothing more is durable, or
    /// at the token where it ends.
    ///
    /// # Errors
    /// Expired where what comes next is not kept any more, was undone by a restore, or the
    /// consumer has been let go; Fenced where a newer consumer of its name has begun; Corruption
    /// for a hole in the log; NotFound without a database; Denied, Unavailable, Timeout.
    pub fn read(
        &mut self,
        most_rows: usize,
        most_bytes: usize,
    ) -> BoxFuture<'_, Result<Option<Changed>>> {
        async move {
            let (most_rows, most_bytes) = (most_rows.max(1), most_bytes.clamp(1, MOST_AT_ONCE));
            let (env, limit) = (self.objects.env.clone(), self.objects.limit);
            let requests = Arc::clone(&self.requests);
            let reads = async {
                if let Some(place) = self.unfinished.take() {
                    self.go_back(place);
                }
                self.refresh().await?;
                self.unfinished = Some(self.place);
                let rows = self.read_on(most_rows, most_bytes).await;
                self.unfinished = None;
                rows
            };
            requests.within(&env, limit, "changes", reads).await
        }
        .boxed()
    }

    /// Goes on behind `token` again, where this feed stood before: what was read since was passed
    /// on to nobody.
    pub fn rewind(&mut self, token: ChangeToken) {
        if self.token() != token {
            self.unfinished = None;
            self.go_back(token);
        }
    }

    /// Forgets what was read behind `place`.
    fn go_back(&mut self, place: ChangeToken) {
        self.place = place;
        self.walk = FeedWalk::new(&self.objects, (!place.wal.is_none()).then_some(place.wal));
        self.records.clear();
        self.originals = None;
        self.met = false;
    }

    async fn read_on(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<Changed>> {
        let (mut rows, mut looked) = (Changed::default(), false);
        // On a slow store few rows in time are better than none.
        let clock = Arc::clone(&self.objects.env.clock);
        let enough = clock.monotonic() + self.objects.limit / 2;
        while rows.len() < most_rows && rows.bytes() < most_bytes && !self.has_ended() {
            if !rows.is_empty() && clock.monotonic() >= enough {
                break;
            }
            if self.records.is_empty() {
                match self.next_object(!rows.is_empty()).await {
                    Ok(true) => {}
                    // What was read before it is passed on; the error comes again.
                    Err(_) if !rows.is_empty() && !cfg!(mutation = "trouble_takes_rows") => break,
                    ended => {
                        ended?;
                        break;
                    }
                }
            }
            let (place, read) = (self.place, rows.len());
            if let Err(error) = self.step(most_rows, most_bytes, &mut rows).await {
                (self.place, self.originals) = (place, None);
                rows.truncate(read);
                if !rows.is_empty() {
                    break;
                }
                // What is gone was perhaps undone since it was read: a newer state says so.
                let gone = error.kind() == ErrorKind::Expired;
                if looked || !gone || cfg!(mutation = "gone_is_expired") {
                    return Err(error);
                }
                looked = true;
                self.go_back(place);
            }
        }
        if rows.is_empty() && self.until.is_some() && !self.has_ended() {
            return Err(Error::unavailable(
                "the log ends before the token that the feed is to be read to; the store may not \
                 show all of it yet: read again",
            ));
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn has_ended(&self) -> bool {
        self.until.is_some_and(|until| {
            // Nothing of the history lies between.
            let next =
                || follow_each_other(&self.state.timelines, self.place.seq, until.seq.next());
            self.place.order() >= until.order() || (!until.is_inside() && next())
        })
    }

    /// Makes the records of the next object those that are read; whether there is one. `as_is`:
    /// without a look for what is new.
    async fn next_object(&mut self, as_is: bool) -> Result<bool> {
        let mut looked = cfg!(mutation = "hold_ends_unseen");
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
            let (place, until) = (self.place, self.until);
            let check = move |state: &Manifest| check_state(state, &place, until.as_ref());
            let found = match self.walk.fill(&check).await {
                // What is not kept any more is perhaps undone, and its hold ended by that: the walk
                // begins with the newest state now.
                Err(error) if error.kind() == ErrorKind::Expired && !looked => {
                    looked = true;
                    continue;
                }
                filled => filled?,
            };
            let known = self.walk.known().cloned();
            let before = known.map(|state| std::mem::replace(&mut self.state, state));
            let left_out = |state: Arc<Manifest>| state.timelines != self.state.timelines;
            if before.is_some_and(left_out) && !cfg!(mutation = "left_out_for_good") {
                // What was left out may be part of the history again.
                self.go_back(place);
                continue;
            }
            if !found {
                self.check_kept()?;
                return Ok(false);
            }
        }
    }

    /// All that is durable was read, and nothing of it was behind the place: what has been flushed
    /// since then is deleted.
    fn check_kept(&self) -> Result<()> {
        let (place, flushed) = (self.place, self.state.flushed_seq);
        let follows = || follow_each_other(&self.state.timelines, place.seq, flushed.next());
        if self.met || place.seq.is_none() || flushed <= place.seq || follows() {
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

    /// Reads the next record, or a part of an ingest.
    async fn step(&mut self, rows: usize, bytes: usize, out: &mut Changed) -> Result<()> {
        let Some((record, behind)) = self.records.front().cloned() else { return Ok(()) };
        let (first, last) = match &record {
            WalRecord::Batch { first_seq, ops, .. } => {
                (*first_seq, first_seq.plus(u64::from(*ops).saturating_sub(1)))
            }
            WalRecord::Ingest(ingest) => (ingest.first_seq, ingest.last_seq()),
            _ => {
                return Err(Error::unsupported(
                    "the log holds a record that this version can not read; upgrade",
                ));
            }
        };
        let undone = self.state.timelines.iter().any(|one| one.lacks(last));
        if last <= self.place.seq || undone {
            self.records.pop_front();
            if !undone || cfg!(mutation = "left_out_for_good") {
                // What is left out may come back by another restore: the place stays before it.
                self.place.wal = self.place.wal.max(behind);
            }
            return Ok(());
        }
        self.check_follows(first, behind)?;
        match record {
            WalRecord::Ingest(ingest) => {
                if !self.place.is_inside() {
                    // The place in it is of that number, whatever was left out before.
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
            _ => {}
        }
        self.records.pop_front();
        let timeline = self.state.history_behind(last);
        self.place =
            ChangeToken { timeline, seq: last, wal: behind, table: 0, row: 0, ..self.place };
        Ok(())
    }

    /// Where to stop inside an ingest, where that is where the feed ends.
    fn until_inside(&self, ingest: &WalIngest) -> Option<(u32, u32)> {
        let until = self.until.filter(|until| until.seq < ingest.last_seq());
        until.map(|until| (until.table, until.row))
    }

    async fn read_ingest(
        &mut self,
        ingest: &WalIngest,
        until: OriginalsLimit,
        out: &mut Changed,
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

    /// Numbers go on where the place is, but for what a restore left out.
    fn check_follows(&mut self, first: Seq, behind: WalId) -> Result<()> {
        let seq = self.place.seq;
        let follows = follow_each_other(&self.state.timelines, seq, first);
        // Where nothing was passed on it begins with whatever is there.
        if follows || seq.is_none() {
            self.met = true;
            return Ok(());
        }
        if !self.met {
            return Err(not_kept().with("oldest sequence number", first));
        }
        Err(Error::corruption("the sequence numbers of the log do not follow each other")
            .with("object", ObjectName::Wal(behind))
            .with("expected", seq.next())
            .with("found", first))
    }

    /// Says that everything up to `token` has been dealt with (`None`: all that was read): what
    /// lies before it is not held any more.
    ///
    /// # Errors
    /// Invalid without a consumer, and for a token of another database; Expired where it has been
    /// let go; Fenced where a newer one of its name has begun; those of a commit.
    pub fn acknowledge(&mut self, token: Option<ChangeToken>) -> BoxFuture<'_, Result<()>> {
        async move {
            let token = token.unwrap_or(self.token());
            if token.database != self.place.database {
                return Err(start::of_another_database(&token, self.place.database));
            }
            if token.order() > self.token().order() {
                return Err(Error::invalid("what was not read yet can not be acknowledged"));
            }
            let Some(held) = &mut self.held else {
                return Err(Error::invalid(
                    "only a consumer holds the log: name one when the feed is begun",
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

    /// Keeps the hold alive, once half its life is over.
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
        let state = commit_alone(&self.objects, Edit::Hold(HoldEdit::Advance(advance)), base);
        (held.base, held.since) = (state.await?, now);
        Ok(())
    }
}

fn not_kept() -> Error {
    Error::new(
        ErrorKind::Expired,
        "what came right after that place is not kept any more; begin anew from a snapshot, or at \
         the oldest place that is still there",
    )
}

fn push_batch(bytes: &[u8], first: Seq, time: UnixMillis, out: &mut Changed) -> Result<()> {
    for (op, seq) in BatchOps::new(bytes).zip(first.get()..) {
        let op = op?;
        let (key, kind, expires_at, value) = (op.key, op.kind, op.expires_at, op.value);
        out.push(&Entry { key, seq: Seq(seq), kind, expires_at, value }, time)?;
    }
    Ok(())
}

/// Whether the feed may go on in `state`, and end where it is to.
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
