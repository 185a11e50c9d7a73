//! Closing, in this order: no new writes, the WAL drained, the memtable flushed, a clean close
//! recorded. Each step stands by itself: stopping anywhere between leaves a database that the next
//! opener recovers.

use crate::write::commit::closed;
use crate::writer::{Phase, Writer};
use siltstone_base::{ErrorKind, Result};
use siltstone_manifest::Edit;
use std::sync::Arc;

/// See [`crate::Database::close`].
pub(crate) async fn close(writer: &Arc<Writer>) -> Result<()> {
    if !refuse_writes(writer) {
        // A second close waits for the first, to its end: `Done` comes before the clean close is
        // recorded, and whoever opens then would find a writer that may be alive.
        return well_closed(until(writer, Phase::Closed).await);
    }
    writer.freeze(&mut writer.tail.lock());
    let ended = shut_down(writer).await;
    // Whatever came of it: nothing more is acknowledged, nobody waits, the tasks end.
    writer.end(&closed());
    writer.set_phase(Phase::Closed);
    well_closed(ended)
}

/// To find the handle closed is what closing it is for.
fn well_closed(ended: Result<()>) -> Result<()> {
    match ended {
        Err(error) if error.kind() == ErrorKind::Closed => Ok(()),
        ended => ended,
    }
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
        writer.manifests.commit(edit).await.map(|_| ())
    };
    writer.env.deadline(writer.options.deadline, "close", steps).await?;
    crate::gc::embedded::tidy(writer, deadline).await;
    Ok(())
}

/// The last handle was dropped without a close: the tasks send what is buffered and end.
pub(crate) fn abandon(writer: &Arc<Writer>) {
    if refuse_writes(writer) {
        if cfg!(mutation = "abandon_drops") {
            writer.end(&closed());
        }
        writer.set_phase(Phase::DrainWal);
    }
}

/// Ends accepting; `false` when that had been done before.
fn refuse_writes(writer: &Arc<Writer>) -> bool {
    let mut closing = writer.closing.lock();
    let first = !*closing;
    *closing = true;
    drop(closing);
    if first {
        writer.tail.lock().ended.get_or_insert_with(closed);
        writer.pressure.relief.notify_waiters();
    }
    first
}

/// Waits until closing has come as far as `phase`, or the handle died.
async fn until(writer: &Arc<Writer>, phase: Phase) -> Result<()> {
    loop {
        let mut changed = std::pin::pin!(writer.phase_changed.notified());
        changed.as_mut().enable();
        if writer.phase() >= phase {
            return Ok(());
        }
        if let Some(dead) = writer.dead() {
            return Err(dead);
        }
        changed.await;
    }
}
