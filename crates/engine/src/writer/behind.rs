//! Ingest jobs that come behind all existing rows (RFC 0043). One commit installs such a job. It
//! has no number in the history, so no log names it, and it is visible once installed.

use super::checkpoint::TreePins;
use super::state::Writer;
use super::transaction::footprint::{CommitFootprint, Footprint};
use crate::read::tree::Levels;
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{Error, ErrorKind, Result, Seq};
use siltstone_manifest::ingest::ClosedJob;
use siltstone_manifest::{
    Edit, FlushL0, HISTORY_BEGINS, IngestEdit, InstallBehind, Manifest, Refusal,
};
use siltstone_store::supervise;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Number of jobs whose keys are kept for transactions that began before them. A transaction that
/// is older than all of them fails with Conflict.
const MOST_REMEMBERED: usize = 64;
/// Pause before the next attempt to settle an install, after an error that may pass.
const RETRY: Duration = Duration::from_secs(1);

/// Keys of the jobs that came behind, to validate transactions that read before them (rule O4).
#[derive(Debug, Default)]
pub(crate) struct BehindKeys(Mutex<VecDeque<JobKeys>>);

#[derive(Debug)]
struct JobKeys {
    /// Counts of behind-numbers before and after the job.
    from: u64,
    to: u64,
    /// First and last key of each table.
    spans: Vec<(Bytes, Bytes)>,
}

impl BehindKeys {
    fn remember(&self, from: u64, closed: &ClosedJob) {
        let to = from.saturating_add(closed.layers.len() as u64);
        let keys = |table: &siltstone_base::SstDescriptor| {
            (table.first_key.clone(), table.last_key.clone())
        };
        let spans = closed.tables().map(keys).collect();
        let mut jobs = self.0.lock();
        jobs.push_back(JobKeys { from, to, spans });
        if jobs.len() > MOST_REMEMBERED {
            jobs.pop_front();
        }
    }

    /// Checks that no job that came behind since `read` touches `footprint`. `read` and `now` are
    /// the behind-counts of the tables that the transaction read and of the current tables.
    ///
    /// # Errors
    /// Conflict, with the key.
    fn check(&self, read: Option<u64>, now: Option<u64>, footprint: &Footprint) -> Result<()> {
        let Some(read) = read.filter(|_| read != now) else { return Ok(()) };
        let jobs = self.0.lock();
        if jobs.front().is_none_or(|oldest| oldest.from > read) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "too many ingest jobs came behind since this transaction began; run it again \
                 (siltstone.retry does, and siltstone.aio.retry)",
            ));
        }
        let since = jobs.iter().filter(|job| job.to > read);
        for (first, last) in since.flat_map(|job| &job.spans) {
            let within =
                (first < last).then(|| footprint.clash(CommitFootprint::Span(first, last)));
            let clash = within.flatten().or_else(|| footprint.clash(CommitFootprint::Key(last)));
            if let Some(clash) = clash {
                return Err(clash.into());
            }
        }
        Ok(())
    }
}

impl Writer {
    /// Installs a job behind all existing rows, or refuses it.
    ///
    /// # Errors
    /// As [`Writer::commit_pinned`].
    pub(super) async fn install_behind(&self, closed: &ClosedJob) -> Result<()> {
        let mut held = self.pins.lock().await;
        if !self.is_open() {
            return Err(self.dead().unwrap_or_else(supervise::closed));
        }
        let newest = self.manifests.newest_known();
        let layers = closed.layers.clone();
        let behind = Some(InstallBehind { job: closed.job, digest: closed.digest(), layers });
        let nothing = FlushL0::nothing(self.epoch, &newest);
        let edit = FlushL0 { behind, floor: self.floor(), ..nothing };
        if let Some(reason) = refused(&edit, &newest) {
            drop(held);
            let edit = IngestEdit::Refuse { epoch: self.epoch, job: closed.job, reason };
            return self.manifests.commit(Edit::Ingest(edit)).await.map(drop);
        }
        // Remember the keys before any reader sees the rows. If the commit fails, the entry stays;
        // it costs some transaction a second run.
        self.came_behind.remember(newest.behind.unwrap_or_default(), closed);
        let levels = self.settle_pinned(&mut held, edit).await?;
        self.install_levels(&levels);
        drop(held);
        self.nudges.compact.notify_one();
        Ok(())
    }

    /// As [`Writer::commit_pinned`], repeated until the outcome is known. Each attempt commits the
    /// same edit, which recognizes an earlier attempt that landed.
    async fn settle_pinned(&self, held: &mut TreePins, edit: FlushL0) -> Result<Arc<Levels>> {
        loop {
            let error = match self.commit_pinned(held, edit.clone()).await {
                Ok(levels) => return Ok(levels),
                Err(error) => error,
            };
            if !error.kind().may_pass() || !self.is_open() {
                // The fate of its checkpoint is unknown, so no other commit may use the same id.
                held.draw_anew(&self.env);
                return Err(error);
            }
            self.env.clock.sleep(self.env.jittered(RETRY)).await;
        }
    }

    /// Checks that no job that came behind since the tables `read` were read touches `footprint`.
    /// Called under the commit lock.
    ///
    /// # Errors
    /// Conflict, with the key.
    pub(super) fn check_behind(&self, read: &Levels, footprint: &Footprint) -> Result<()> {
        self.came_behind.check(read.behind, self.tree().below().behind, footprint)
    }

    /// Makes the tree show a job that was adopted at `seq`, if the job came behind.
    ///
    /// # Errors
    /// As [`Writer::commit_pins`].
    pub(super) async fn show_behind(self: &Arc<Self>, seq: Seq) -> Result<()> {
        let behind = self.tree().below().behind;
        let shows = |taken| HISTORY_BEGINS.get().saturating_sub(seq.get()) <= taken;
        if behind.is_none_or(shows) {
            return Ok(());
        }
        // Its install is being settled, or was settled without being taken up here.
        let writer = Arc::clone(self);
        self.apart(async move { writer.commit_pins().await }).await
    }

    /// A key at or above every present and future key, and whether the bound includes it. If jobs
    /// may come behind, it is the greatest possible key.
    pub(super) fn greatest_key(&self) -> Option<(Vec<u8>, bool)> {
        let tree = self.tree();
        match tree.below().behind {
            Some(_) => Some((vec![u8::MAX; MAX_KEY_BYTES], true)),
            None => tree.greatest_key(),
        }
    }
}

/// The error for a database that does not allow ingest behind.
pub(crate) fn not_made_for_it() -> Error {
    Error::unsupported(
        "the database was made without allow_ingest_behind, and stays so: tombstones may be gone \
         whose keys would come back; make a new one with it, and load this one's rows into that",
    )
}

/// The reason why a job cannot be placed, if there is one.
fn refused(edit: &FlushL0, newest: &Manifest) -> Option<String> {
    match Edit::FlushL0(edit.clone()).apply(newest) {
        Err(Refusal::Invalid(why)) => Some(why.to_owned()),
        _ => None,
    }
}
