//! Closing a writer: refuse new writes, drain the WAL, flush the memtable, record a clean close.
//!
//! A close that stops between two steps leaves a database that the next opener recovers. A memtable
//! may therefore stay unflushed if its rows are durable in the log: see [`stays_in_log`]. A clean
//! close must never be recorded before all acknowledged writes are durable.

use super::commit::Tail;
use super::life::Phase;
use super::state::Writer;
use crate::compact::job::either;
use siltstone_base::Result;
use siltstone_manifest::Edit;
use siltstone_store::supervise::closed;
use siltstone_store::supervise::ends_the_handle;
use siltstone_store::troubles::explained;
use std::sync::Arc;

/// The state of closing a handle.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Whether writes are refused, by a close or because the last handle was dropped.
    refused: bool,
    /// Whether the closing task was started.
    begun: bool,
    /// The result of closing, which every call of close returns.
    ended: Option<Result<()>>,
}

/// See [`crate::Database::close`].
pub(crate) async fn close(writer: &Arc<Writer>) -> Result<()> {
    refuse_writes(writer);
    if !std::mem::replace(&mut writer.life.closing.lock().begun, true) {
        begin(writer);
    }
    loop {
        let mut changed = std::pin::pin!(writer.life.changed.notified());
        changed.as_mut().enable();
        // Wait for the result, not for the phase `Done`. `Done` precedes the clean close, and an
        // opener at that time would find a writer that may be alive.
        if let Some(ended) = ended(writer) {
            return ended;
        }
        changed.await;
    }
}

/// The result of closing; `None` while closing has not ended.
pub(crate) fn ended(writer: &Writer) -> Option<Result<()>> {
    writer.life.closing.lock().ended.clone()
}

/// Starts the closing task. Closing runs in its own task, so that it completes even if the caller
/// drops the future of its close.
fn begin(writer: &Arc<Writer>) {
    let (closes, dies) = (Arc::clone(writer), Arc::clone(writer));
    let task = async move {
        freeze(&closes);
        let ended = shut_down(&closes).await;
        settle(&closes, ended);
    };
    writer.spawn_watched("close", task, move |died| {
        dies.die(died);
        settle(&dies, Err(ends_the_handle(died)));
    });
}

/// A memtable may stay in the log if it is smaller than this number of bytes, and smaller than
/// `l0_sst_size_bytes / SHARE_LEFT`.
const MOST_BYTES_LEFT: usize = 1 << 20;
const SHARE_LEFT: usize = 16;
/// A memtable may stay in the log while the log has fewer unflushed objects than this. The next
/// opener reads them ahead, in a few round trips.
const MOST_OBJECTS_LEFT: usize = 24;
/// A memtable may stay in the log while fewer fences than this were met on opening. The manifest
/// records how the last 16 writers closed; the fence of an unrecorded writer would be kept for ever
/// (rule F5).
const MOST_LIVES_LEFT: usize = 12;

/// Brief compactions are finished for at most this share of the deadline of the close.
const SHARE_FOR_JOBS: u32 = 4;

/// Freezes the memtable, unless its rows stay in the log.
fn freeze(writer: &Writer) {
    let mut tail = writer.tail.lock();
    if !stays_in_log(writer, &tail) {
        writer.freeze(&mut tail);
    }
}

/// Whether the unflushed rows stay in the log: L0 has reached half of its limit, and the rows are
/// few. Many short-lived writers with few writes each would otherwise fill L0 with tables of a few
/// rows, without living long enough to compact them, and the writes of every tenth writer would
/// wait for a compaction.
fn stays_in_log(writer: &Writer, tail: &Tail) -> bool {
    let most = writer.options.compaction.l0_max_ssts;
    let left = writer.pressure.l0_layers_left() as u64;
    let tree = writer.tree();
    let waits =
        !tree.frozen.is_empty() || !tree.queued().is_empty() || writer.large.has_unreleased();
    let most_bytes = MOST_BYTES_LEFT.min(writer.options.l0_sst_size_bytes / SHARE_LEFT);
    writer.options.writes.wal_enabled
        && left * 2 <= most
        && !waits
        && tail.active.bytes() < most_bytes
        && writer.log.unflushed() < MOST_OBJECTS_LEFT
        && writer.fences_met < MOST_LIVES_LEFT
}

/// Ends the handle with the result of closing: no write is acknowledged any more, waiting callers
/// wake up, and the tasks end.
fn settle(writer: &Writer, ended: Result<()>) {
    writer.end(&closed());
    writer.context.end_use(&writer.budget);
    writer.life.closing.lock().ended.get_or_insert(ended);
    writer.set_phase(Phase::Closed);
}

async fn shut_down(writer: &Arc<Writer>) -> Result<()> {
    if let Some(dead) = writer.dead() {
        return Err(dead);
    }
    let deadline = writer.env.clock.monotonic() + writer.options.deadline;
    let steps = async {
        writer.compactor.finish_brief_jobs(true);
        writer.set_phase(Phase::DrainWal);
        until(writer, Phase::Done).await?;
        // The compactor has seen the phase and stops, but for brief jobs. The next compactor
        // continues after the progress that this one has recorded.
        let patience = writer.env.clock.sleep(writer.options.deadline / SHARE_FOR_JOBS);
        if either(writer.compactor.at_rest(), patience).await.is_none() {
            writer.compactor.finish_brief_jobs(false);
            writer.compactor.at_rest().await;
        }
        writer.collector.at_rest().await;
        let wal_id_last_seen = writer.log.last_committed();
        let edit = Edit::CloseClean { epoch: writer.epoch, wal_id_last_seen };
        // Hold the lock of the pins, so that no pin is committed after the clean close.
        let _pins = writer.pins.lock().await;
        writer.manifests.commit(edit).await.map(|_| ())
    };
    let troubles = writer.context.requests.troubles();
    let began = troubles.moment();
    let ended = writer.env.deadline(writer.options.deadline, "close", steps).await;
    writer.compactor.finish_brief_jobs(false);
    let why = |error| explained(error, troubles.since(began).or_else(|| troubles.of_log()));
    if ended.is_ok() {
        crate::writer::collector::tidy(writer, deadline).await;
    }
    writer.env.at_rest(deadline).await;
    ended.map(|_| ()).map_err(why)
}

/// Handles a drop of the last handle without a close: the tasks upload the buffered writes and end.
pub(crate) fn abandon(writer: &Arc<Writer>) {
    // No handle is left that could close the writer, so other openers may take over now.
    writer.life.leave();
    if refuse_writes(writer) {
        if !writer.options.writes.wal_enabled {
            freeze(writer);
        }
        writer.set_phase(Phase::DrainWal);
    }
}

/// Refuses further writes. Returns `false` if they were refused before.
fn refuse_writes(writer: &Arc<Writer>) -> bool {
    // Set this before `refused`: a second caller that finds `refused` set goes on to drain the
    // log.
    writer.tail.lock().ended.get_or_insert_with(closed);
    let first = !std::mem::replace(&mut writer.life.closing.lock().refused, true);
    if first {
        writer.pressure.relief.notify_waiters();
    }
    first
}

/// Waits until closing has reached `phase`, or the handle has died.
async fn until(writer: &Arc<Writer>, phase: Phase) -> Result<()> {
    loop {
        let mut changed = std::pin::pin!(writer.life.changed.notified());
        changed.as_mut().enable();
        // Read the phase before the cause of death: the tasks of a dead handle also reach their
        // final phase, after its death.
        let is_there = writer.life.phase() >= phase;
        if let Some(dead) = writer.dead() {
            return Err(dead);
        }
        if is_there {
            return Ok(());
        }
        changed.await;
    }
}
