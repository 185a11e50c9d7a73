//! Encoding of job records: the envelope of a manifest around a different body.

use super::{Compactions, Job, JobParameters, JobRange};
use crate::codec::encode::{Builder, Offset, byte_list, id128, list, names, table};
use crate::codec::{FRAME_BYTES, TABLE_BYTES_AT_MOST, seal};
use crate::compaction::plan::PlanReason;
use crate::layer::Layer;
use bytes::Bytes;
use flatbuffers::WIPOffset;
use siltstone_base::limits::MAX_MANIFEST_BYTES;
use siltstone_base::{
    AttemptId, Envelope, Error, ObjectId, ObjectKind, Result, SstDescriptor, SstId,
};
use siltstone_fbs::compactions as fb;

impl Compactions {
    /// Encodes a record with the identity `object`, written by `attempt`. Equal arguments give
    /// equal bytes.
    ///
    /// # Errors
    /// Invalid if the object could exceed the size limit of a manifest, above which no process
    /// reads it; Unsupported if data of a newer version would be lost.
    pub fn encode(&self, object: ObjectId, attempt: AttemptId) -> Result<Bytes> {
        self.carried.check_committable()?;
        let most = bytes_at_most(self).saturating_add(FRAME_BYTES);
        if most > MAX_MANIFEST_BYTES {
            return Err(Error::invalid("the record of compaction jobs would be too large")
                .with("bytes at most", most)
                .with("limit", MAX_MANIFEST_BYTES));
        }
        let body = body(self);
        let envelope = Envelope::new(ObjectKind::Compactions, self.database, object, attempt);
        let envelope = self.carried.onto(envelope);
        Ok(seal(&envelope, body.len() as u64, &body))
    }
}

/// An upper bound for the size of [`body`].
fn bytes_at_most(record: &Compactions) -> u64 {
    let ids = |ids: &[SstId]| 16 * ids.len() as u64;
    let output = |table: &SstDescriptor| {
        let visible = [&table.visible_start, &table.visible_end];
        let visible = visible.into_iter().flatten().map(Bytes::len).sum::<usize>();
        TABLE_BYTES_AT_MOST + (table.first_key.len() + table.last_key.len() + visible) as u64 + 64
    };
    let range = |range: &JobRange| {
        let keys = range.keys.start.len() + range.keys.end.as_ref().map_or(0, Bytes::len);
        let outputs: u64 = range.outputs.iter().map(output).sum();
        2 * TABLE_BYTES_AT_MOST + keys as u64 + ids(&range.reserved) + outputs
    };
    let job = |job: &Job| {
        let inputs = job.inputs.iter().map(|(_, tables)| TABLE_BYTES_AT_MOST + ids(tables));
        let snapshots = job.parameters.snapshots.as_ref().map_or(0, |all| 8 * all.len() as u64);
        let facts = TABLE_BYTES_AT_MOST + job.parameters.codec.len() as u64 + snapshots;
        let ranges: u64 = job.ranges.iter().map(range).sum();
        TABLE_BYTES_AT_MOST
            + ids(&job.drops)
            + ids(&job.moves)
            + facts
            + ranges
            + inputs.sum::<u64>()
    };
    TABLE_BYTES_AT_MOST + record.jobs.iter().map(job).sum::<u64>()
}

fn body(record: &Compactions) -> Vec<u8> {
    let mut builder = Builder::new();
    let b = &mut builder;
    let jobs = list(b, &record.jobs, job);
    let args = fb::CompactionsArgs { number: record.number, epoch: record.epoch.get(), jobs };
    let root = fb::Compactions::create(b, &args);
    b.finish(root, None);
    b.finished_data().to_vec()
}

fn job(b: &mut Builder, job: &Job) -> Offset<fb::Job<'static>> {
    // The schema requires the lists: an empty list must be written too.
    let inputs: Vec<_> = job.inputs.iter().map(|each| input(b, each)).collect();
    let inputs = WIPOffset::new(b.create_vector(&inputs).value());
    let args = fb::JobArgs {
        id: Some(&id128(job.id.get())),
        why: number_of(job.reason),
        planned_on: job.planned_on.get(),
        started_at: job.started_at.0,
        inputs: Some(inputs),
        destination: job.destination,
        drops: names(b, &job.drops),
        moves: names(b, &job.moves),
        facts: Some(facts(b, &job.parameters)),
        ranges: list(b, &job.ranges, range),
        cancelled: job.cancelled,
    };
    fb::Job::create(b, &args)
}

/// Its place in [`PlanReason::ALL`].
fn number_of(reason: PlanReason) -> u8 {
    PlanReason::ALL.iter().position(|one| *one == reason).unwrap_or_default() as u8
}

fn input(
    b: &mut Builder,
    (layer, tables): &(Layer, Vec<SstId>),
) -> Offset<fb::InputLayer<'static>> {
    let tables: Vec<_> = tables.iter().map(|id| id128(id.get())).collect();
    let tables = WIPOffset::new(b.create_vector(&tables).value());
    let (l0, run) = match layer {
        Layer::L0(order) => (Some(*order), None),
        Layer::Run(id) => (None, Some(*id)),
    };
    fb::InputLayer::create(b, &fb::InputLayerArgs { l0, run, tables: Some(tables) })
}

fn facts(b: &mut Builder, facts: &JobParameters) -> Offset<fb::Facts<'static>> {
    let codec = b.create_string(&facts.codec);
    let snapshots = facts.snapshots.as_ref().map(|all| {
        let all: Vec<u64> = all.iter().map(|seq| seq.get()).collect();
        WIPOffset::new(b.create_vector(&all).value())
    });
    let args = fb::FactsArgs {
        now: facts.now.0,
        floor: facts.floor.get(),
        snapshots,
        codec: Some(codec),
        filter_bits_per_key: facts.filter_bits_per_key,
        block_bytes: facts.block_bytes,
        target_sst_bytes: facts.target_sst_bytes,
        zero_seqs: facts.zero_seqs,
        cut_prefix_bytes: facts.cut_prefix_bytes,
    };
    fb::Facts::create(b, &args)
}

fn range(b: &mut Builder, range: &JobRange) -> Offset<fb::KeyRange<'static>> {
    let claim = range.claim.map(|claim| {
        let args =
            fb::ClaimArgs { worker: Some(&id128(claim.worker.get())), beats: claim.heartbeats };
        fb::Claim::create(b, &args)
    });
    let args = fb::KeyRangeArgs {
        start: Some(byte_list(b, &range.keys.start)),
        end: range.keys.end.as_ref().map(|end| byte_list(b, end)),
        bottom: range.keys.bottom,
        claim,
        reserved: names(b, &range.reserved),
        outputs: list(b, &range.outputs, table),
        done: range.done,
    };
    fb::KeyRange::create(b, &args)
}
