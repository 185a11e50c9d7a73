//! Carries out compaction plans (RFC 0019): what a plan comes to, who may run and what every
//! commit says is decided by `siltstone_manifest::compaction`; here tables are read and written.
//!
//! | module | holds |
//! | --- | --- |
//! | [`run`] | one plan, from its choice to its commit; jobs that an earlier process left |
//! | [`cut`] | a job's keys cut into ranges that are merged at once |
//! | [`range`] | one key range of a job: inputs to tables, streamed, each recorded |
//! | [`merging`] | the synchronous inner loop |
//! | [`sending`] | chunks of a table on their way to the store |
//! | [`records`] | changes of the job record |
//! | [`named`] | its options among the engine's |
//! | [`schedule`] | the scheduler at work in the background |
//! | [`log`] | what was merged into what: totals, lines |
//! | [`pending`] | how much there is to do |

mod cut;
pub(crate) mod log;
mod merging;
pub(crate) mod named;
pub(crate) mod pending;
mod range;
mod records;
mod run;
pub(crate) mod schedule;
mod sending;

pub(crate) use run::Wanted;

use crate::writer::Writer;
use log::CompactionLog;
use run::Run;
use siltstone_base::{Epoch, Error, ErrorKind, Result};
use siltstone_manifest::compaction::Compactions;
use std::sync::Arc;

/// The compactor of the writer's process.
#[derive(Default)]
pub(crate) struct Compactor {
    held: tokio::sync::Mutex<Held>,
    pub(crate) log: CompactionLog,
}

/// What it keeps from one plan to the next.
#[derive(Default)]
struct Held {
    /// Its epoch; `NONE` until it has something to do.
    epoch: Epoch,
    /// The newest record it knows, its own; `None` when it must look: at first, and after an error,
    /// when the outcome of a change may be open.
    record: Option<Arc<Compactions>>,
    /// Another compactor has taken over: this one stays stopped.
    fenced: Option<Error>,
}

impl Compactor {
    /// Waits until nothing is at work. Who waits has closed the handle before.
    pub(crate) async fn at_rest(&self) {
        drop(self.held.lock().await);
    }
}

/// Carries out what is wanted, as a task of its own: a caller that gives up leaves nothing half
/// done. Jobs that an earlier process left come first. `false` when nothing was to gain.
///
/// # Errors
/// Conflict for a plan that may not run, and for one that the tree moved away from; Fenced once
/// another compactor has taken over; Closed; Corruption; the store's. What was recorded is where
/// the next compactor goes on.
pub(crate) async fn compact(writer: &Arc<Writer>, wanted: Wanted) -> Result<bool> {
    let (answer, answered) = futures::channel::oneshot::channel();
    let owned = Arc::clone(writer);
    let task = Box::pin(async move { drop(answer.send(alone(&owned, &wanted).await)) });
    writer.env.spawn.spawn("compact", task);
    answered.await.map_err(|_| Error::internal("a compaction died"))?
}

/// One after another.
async fn alone(writer: &Arc<Writer>, wanted: &Wanted) -> Result<bool> {
    if *wanted == Wanted::Scheduled && run::next_plan(writer, wanted, &[])?.is_none() {
        // Not even the epoch is claimed for nothing.
        return Ok(false);
    }
    let mut held = writer.compactor.held.lock().await;
    if let Some(fenced) = &held.fenced {
        return Err(fenced.clone());
    }
    let ran = async {
        let run = Run::begin(writer, &mut held).await?;
        run.check_open()?;
        run.resume().await?;
        let gained = run.carry_out(wanted).await?;
        Ok((gained, run.end()))
    };
    let ran: Result<(bool, Arc<Compactions>)> = ran.await;
    writer.compactor.log.ran(&ran);
    if let Err(error) = &ran
        && error.kind() == ErrorKind::Fenced
    {
        held.fenced = Some(error.clone());
    }
    let (gained, record) = ran?;
    held.record = Some(record);
    if *wanted != Wanted::Scheduled {
        // The tree takes the new tables up at once, rather than with the next flush.
        writer.commit_pins().await?;
    }
    Ok(gained)
}
