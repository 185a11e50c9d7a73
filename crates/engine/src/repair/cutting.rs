//! Cuts the log off (rule Y2) in an opening that ends with one commit, like a restore.

use super::log::Log;
use super::report::RepairReport;
use crate::manifests::client::commit_alone;
use crate::manifests::objects::Objects;
use crate::options::Options;
use crate::tables::log_to_tables::{TableTarget, TablesOfLog, TakenLog, tables_of_log};
use crate::writer::flush::new_names;
use crate::writer::opening::Opening;
use siltstone_base::{
    AttemptId, Error, ErrorKind, ManifestId, Result, Seq, TimelineId, UnixMillis, WalId,
};
use siltstone_manifest::protocol::{CutOff, Recovered, WriterOptions};
use siltstone_manifest::{Edit, KeepPrefix, Manifest};
use siltstone_sst::wal::WalObject;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of sequence numbers in an unreadable object: it has less than 4 GiB, and an
/// operation takes at least a byte. The length of the remains does not matter, because they do not
/// show the original length. There are 2^24 times as many sequence numbers.
const NUMBERS_AN_OBJECT: u64 = 1 << 32;

/// The result of a cut.
pub(super) struct CutDone {
    manifest_id: ManifestId,
    kept: Seq,
}

impl CutDone {
    pub(super) fn into_report(self, report: &mut RepairReport) {
        (report.manifest_id, report.seq_kept) = (self.manifest_id, self.kept);
    }
}

/// Cuts the log of `newest` off at `at`.
///
/// # Errors
/// Conflict if the log has changed; Fenced if another process has opened the database meanwhile;
/// errors of the store.
pub(super) async fn cut(
    objects: &Objects,
    newest: Arc<Manifest>,
    at: WalId,
    log: &Log,
    options: &Options,
) -> Result<CutDone> {
    let env = &objects.env;
    // The claim reserves the names, so no collector deletes what is uploaded under them (rule R1).
    let names = new_names(env, log.objects);
    let how = WriterOptions {
        claim: AttemptId(env.random_u128()),
        max_parallel_writes: 1,
        take_over: true,
        reserve: names.clone(),
        cut: Some(at),
        ..WriterOptions::default()
    };
    let (recovered, mut bodies) = Opening::new(objects, newest, how).drive().await?;
    let Some(off) = &recovered.cut_off else {
        return Err(Error::new(
            ErrorKind::Conflict,
            "the log has changed since it was inspected: try again",
        ));
    };
    let kept = recovered.replay.iter().filter_map(|(id, _)| bodies.remove(id)).collect();
    let state = &recovered.manifest;
    let kept = TakenLog::read(objects, kept, state.flushed_seq).await?;
    let target = TableTarget { env, database: state.database, job: None, options };
    let log = tables_of_log(&kept, state.flushed_seq, &target, &mut names.into_iter()).await?;
    let (reached, commit_time) = reached(&recovered, &log, off, &bodies);
    let cut = log.last_seq;
    let edit = Edit::KeepPrefix(KeepPrefix {
        epoch: recovered.epoch,
        log: log.into_edit(),
        cut,
        reached,
        commit_time,
        fences: recovered.keep.clone(),
        timeline: TimelineId(env.random_u128()),
        began_at: env.clock.now(),
    });
    let state = commit_alone(objects, edit, recovered.manifest).await?;
    Ok(CutDone { manifest_id: state.id, kept: cut })
}

/// A sequence number above all that were assigned, and the latest commit time.
fn reached(
    recovered: &Recovered,
    log: &TablesOfLog,
    off: &CutOff,
    bodies: &BTreeMap<WalId, WalObject>,
) -> (Seq, UnixMillis) {
    let read = off.readable.iter().filter_map(|id| bodies.get(id));
    let seq = read.clone().map(|object| object.last_seq).fold(log.last_seq, Seq::max);
    let at = read.map(|object| object.sent.at).fold(log.commit_time, UnixMillis::max);
    let ids = off.last.get().saturating_sub(off.at.get()).saturating_add(1);
    let unknown = ids.saturating_sub(off.readable.len() as u64);
    // For a log of months the numbers could run out this way. Half of the remaining numbers exceed
    // what any database has assigned.
    let left = Seq::MAX.get().saturating_sub(seq.get());
    let numbers = unknown.saturating_mul(NUMBERS_AN_OBJECT).min(left / 2);
    (seq.plus(numbers), at.max(recovered.manifest.commit_time))
}
