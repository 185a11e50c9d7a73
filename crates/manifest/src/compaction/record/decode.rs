//! Decoding of job records.

use super::{Claim, Compactions, Job, JobParameters, JobRange};
use crate::codec::decode::{bits, byte_list, limits, list, names, table};
use crate::codec::unknown::{KnownFields, any, known};
use crate::codec::unseal;
use crate::compaction::plan::PlanReason;
use crate::compaction::work::KeyRange;
use crate::features::Carried;
use crate::layer::Layer;
use bytes::Bytes;
use siltstone_base::limits::MAX_MANIFEST_BYTES;
use siltstone_base::{
    AttemptId, Envelope, Epoch, Error, JobId, ManifestId, ObjectKind, Result, Seq, SstId,
    UnixMillis,
};
use siltstone_fbs::compactions as fb;

impl Compactions {
    /// Decodes a record.
    ///
    /// # Errors
    /// Corruption for damaged bytes, and for a record that breaks an invariant (with its name);
    /// Unsupported for data of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<(Envelope, Compactions)> {
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(Error::corruption("a record of jobs is larger than any can be")
                .with("bytes", bytes.len())
                .with("limit", MAX_MANIFEST_BYTES));
        }
        let (envelope, length, body) = unseal(bytes, ObjectKind::Compactions)?;
        if length != body.len() as u64 {
            return Err(Error::corruption("a record's length is not that of its body")
                .with("says", length)
                .with("has", body.len()));
        }
        let record = read(body, &envelope)?;
        match record.broken() {
            None => Ok((envelope, record)),
            Some(name) => Err(Error::corruption("a compaction record violates an invariant")
                .with("invariant", name)
                .with("record", record.number)),
        }
    }
}

fn read(body: &[u8], envelope: &Envelope) -> Result<Compactions> {
    let root = fb::root_as_compactions_with_opts(&limits(body.len()), body)
        .map_err(|invalid| Error::corruption("not a record of jobs").caused_by(invalid))?;
    Ok(Compactions {
        number: root.number(),
        database: envelope.database,
        carried: Carried::of(envelope, unknown_field(&root)),
        epoch: Epoch(root.epoch()),
        jobs: list(root.jobs(), |each| job(&each))?,
    })
}

known! {
    fb::InputLayer up to VT_TABLES;
    fb::Facts up to VT_CUT_PREFIX_BYTES;
    fb::Claim up to VT_BEATS;
    fb::KeyRange up to VT_DONE;
    fb::Job up to VT_CANCELLED;
    fb::Compactions up to VT_JOBS;
}

/// The name of a schema table with a field that this version does not know.
fn unknown_field(root: &fb::Compactions<'_>) -> Option<&'static str> {
    let of_range = |range: fb::KeyRange<'_>| {
        range
            .unknown()
            .or_else(|| range.claim().and_then(|claim| claim.unknown()))
            .or_else(|| any(range.outputs(), |table| table.unknown()))
    };
    let of_job = |job: fb::Job<'_>| {
        job.unknown()
            .or_else(|| any(Some(job.inputs()), |input| input.unknown()))
            .or_else(|| job.facts().unknown())
            .or_else(|| any(job.ranges(), of_range))
    };
    root.unknown().or_else(|| any(root.jobs(), of_job))
}

fn job(job: &fb::Job<'_>) -> Result<Job> {
    let reason = PlanReason::ALL.get(usize::from(job.why())).copied().ok_or_else(|| {
        Error::unsupported("a compaction job has an unknown reason; upgrade siltstone")
            .with("reason", job.why())
    })?;
    Ok(Job {
        id: JobId(bits(job.id())),
        reason,
        planned_on: ManifestId(job.planned_on()),
        started_at: UnixMillis(job.started_at()),
        inputs: list(Some(job.inputs()), |each| input(&each))?,
        destination: job.destination(),
        drops: names(job.drops()),
        moves: names(job.moves()),
        parameters: facts(&job.facts()),
        ranges: list(job.ranges(), |each| range(&each))?,
        cancelled: job.cancelled(),
    })
}

fn input(input: &fb::InputLayer<'_>) -> Result<(Layer, Vec<SstId>)> {
    let layer = match (input.l0(), input.run()) {
        (Some(order), None) => Layer::L0(order),
        (None, Some(id)) => Layer::Run(id),
        _ => return Err(Error::corruption("a job's input is not of one layer")),
    };
    Ok((layer, names(Some(input.tables()))))
}

fn facts(facts: &fb::Facts<'_>) -> JobParameters {
    JobParameters {
        now: UnixMillis(facts.now()),
        floor: Seq(facts.floor()),
        snapshots: facts.snapshots().map(|all| all.iter().map(Seq).collect()),
        codec: facts.codec().to_owned(),
        filter_bits_per_key: facts.filter_bits_per_key(),
        block_bytes: facts.block_bytes(),
        target_sst_bytes: facts.target_sst_bytes(),
        zero_seqs: facts.zero_seqs(),
        cut_prefix_bytes: facts.cut_prefix_bytes(),
    }
}

fn range(range: &fb::KeyRange<'_>) -> Result<JobRange> {
    let claim = range
        .claim()
        .map(|claim| Claim { worker: AttemptId(bits(claim.worker())), heartbeats: claim.beats() });
    Ok(JobRange {
        keys: KeyRange {
            start: Bytes::copy_from_slice(range.start().bytes()),
            end: byte_list(range.end()),
            bottom: range.bottom(),
        },
        claim,
        reserved: names(range.reserved()),
        outputs: list(range.outputs(), |each| table(&each))?,
        done: range.done(),
    })
}
