//! Closing, in this order: no new writes, the WAL drained, the memtable flushed, a clean close
//! recorded. Each step stands by itself: stopping anywhere between leaves a database that the next
//! opener recovers. So a memtable may stay unflushed, its rows durable in the log: see
//! [`stays_in_log`].

use super::commit::Tail;
use super::life::Phase;
use super::state::Writer;
use crate::io::store::troubles::explained;
use crate::io::supervise::closed;
use crate::io::supervise::ends_the_handle;
use siltstone_base::Result;
use siltstone_manifest::Edit;
use std::sync::Arc;

/// What is known of closing.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Writes are refused: by a close, or since nobody holds the handle any more.
    refused: bool,
    /// A task closes.
    begun: bool,
    /// How that ended: what every close answers.
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
        // To its very end: `Done` comes before the clean close is recorded, and whoever opens then
        // would find a writer that may be alive.
        if let Some(ended) = ended(writer) {
            return ended;
        }
        changed.await;
    }
}

/// How closing ended; `None` while it has not.
pub(crate) fn ended(writer: &Writer) -> Option<Result<()>> {
    writer.life.closing.lock().ended.clone()
}

/// Closes as a task of its own: half a close helps nobody, and whoever waits for it may give up.
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

/// Bytes of a memtable that is little enough to stay in the log, at most; and the share of a full
/// one.
const MOST_BYTES_LEFT: usize = 1 << 20;
const SHARE_LEFT: usize = 16;
/// Objects of the log that may be left to the next opener: some round trips, as it reads ahead.
const MOST_OBJECTS_LEFT: usize = 24;
/// Lives that may leave rows before one flushes. The manifest knows of the last 16 writers how they
/// closed, and the fence of one that it does not know would be kept for good (rule F5).
const MOST_LIVES_LEFT: usize = 12;

/// Freezes the memtable, unless its rows stay in the log.
fn freeze(writer: &Writer) {
    let mut tail = writer.tail.lock();
    if !stays_in_log(writer, &tail) {
        writer.freeze(&mut tail);
    }
}

/// Whether what is unflushed stays in the log, where L0 has come to half of its bound and there is
/// little of it. Many short lives that write little would fill L0 with tables of a few rows each,
/// too short-lived to compact them, and the writes of every tenth would wait for a compaction.
fn stays_in_log(writer: &Writer, tail: &Tail) -> bool {
    let most = writer.options.compaction.l0_max_ssts;
    let left = writer.pressure.l0_layers_left() as u64;
    let tree = writer.tree();
    let waits = !tree.frozen.is_empty() || !tree.queued().is_empty() || writer.large.has_left();
    let most_bytes = MOST_BYTES_LEFT.min(writer.options.l0_sst_size_bytes / SHARE_LEFT);
    left * 2 <= most
        && !waits
        && tail.active.bytes() < most_bytes
        && writer.log.unflushed() < MOST_OBJECTS_LEFT
        && writer.fences_met < MOST_LIVES_LEFT
}

/// Whatever came of it: nothing more is acknowledged, nobody waits, the tasks end.
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
        writer.set_phase(Phase::DrainWal);
        until(writer, Phase::Done).await?;
        // It has seen the phase and stops; what it recorded is where the next one goes on.
        writer.compactor.at_rest().await;
        writer.collector.at_rest().await;
        let edit = Edit::CloseClean { epoch: writer.epoch };
        // Nobody pins anything behind it.
        let _pins = writer.pins.lock().await;
        writer.manifests.commit(edit).await.map(|_| ())
    };
    let troubles = writer.context.requests.troubles();
    let began = troubles.moment();
    let ended = writer.env.deadline(writer.options.deadline, "close", steps).await;
    let why = |error| explained(error, troubles.since(began).or_else(|| troubles.of_log()));
    ended.map_err(why)?;
    crate::writer::collector::tidy(writer, deadline).await;
    Ok(())
}

/// The last handle was dropped without a close: the tasks send what is buffered and end.
pub(crate) fn abandon(writer: &Arc<Writer>) {
    // Nobody is left who could close it, and so let another one in.
    writer.life.leave();
    if refuse_writes(writer) {
        if cfg!(mutation = "abandon_drops") {
            writer.end(&closed());
        }
        writer.set_phase(Phase::DrainWal);
    }
}

/// Ends accepting; `false` when that had been done before.
fn refuse_writes(writer: &Arc<Writer>) -> bool {
    // Before anybody can learn that it was done: whoever is second goes on to drain the log.
    writer.tail.lock().ended.get_or_insert_with(closed);
    let first = !std::mem::replace(&mut writer.life.closing.lock().refused, true);
    if first {
        writer.pressure.relief.notify_waiters();
    }
    first
}

/// Waits until closing has come as far as `phase`, or the handle died.
async fn until(writer: &Arc<Writer>, phase: Phase) -> Result<()> {
    loop {
        let mut changed = std::pin::pin!(writer.life.changed.notified());
        changed.as_mut().enable();
        // First the phase: the tasks of a handle that died come to their ends too, after it did.
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
