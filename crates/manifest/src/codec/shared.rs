//! Encoding and decoding of features, leases, holds, timelines and ingest jobs.

use super::decode::{bits, byte_list, list as read_list};
use super::encode::{Builder, LIST_BYTES, Offset, TABLE_BYTES_AT_MOST, attempt_of, id128};
use crate::features::{Audience, Extension, Feature};
use crate::state::{
    Hold, IngestApp, IngestOutcome, Lease, LeasedVersion, LogPlace, Manifest, PendingIngest,
    RememberedIngest, SinceLease, Timeline,
};
use flatbuffers::WIPOffset;
use siltstone_base::{AttemptId, JobId, ManifestId, Result, Seq, TimelineId, UnixMillis, WalId};
use siltstone_fbs::manifest as fb;

/// An upper bound for their encoded size.
pub(super) fn bytes_at_most(manifest: &Manifest) -> u64 {
    let text = |text: &str| text.len() as u64 + LIST_BYTES;
    let names = manifest.features.named.iter().map(|one| text(&one.name) + text(&one.since));
    let extensions = manifest.features.extensions.iter().map(|one| {
        text(&one.name) + one.value.as_ref().map_or(0, |value| value.len() as u64 + LIST_BYTES)
    });
    let leases = manifest.leases.iter().map(|one| TABLE_BYTES_AT_MOST * one.versions.len() as u64);
    let since = manifest.since_leases.iter().map(|_| 0);
    let holds = manifest.holds.iter().map(|one| text(&one.name));
    let pending = manifest.pending_ingests.iter().map(|one| {
        let app = one.app.as_ref().map_or(0, |(app, _)| text(app));
        one.digest.len() as u64 + LIST_BYTES + app
    });
    let remembered = manifest.remembered_ingests.iter();
    let remembered = remembered.map(|one| one.reason.as_deref().map_or(0, text));
    let apps = manifest.ingest_apps.iter().map(|one| text(&one.app));
    let timelines = manifest.timelines.iter().map(|_| 0);
    let all = names.chain(extensions).chain(leases).chain(since).chain(holds).chain(pending);
    let all = all.chain(remembered).chain(apps).chain(timelines);
    all.map(|bytes| TABLE_BYTES_AT_MOST + bytes).sum()
}

pub(super) fn feature(b: &mut Builder, feature: &Feature) -> Offset<fb::Feature<'static>> {
    let audience = match feature.audience {
        Audience::Readers => fb::Audience::Readers,
        Audience::Committers => fb::Audience::Committers,
        Audience::Other(number) => fb::Audience(number),
    };
    let name = Some(b.create_string(&feature.name));
    let since = (!feature.since.is_empty()).then(|| b.create_string(&feature.since));
    fb::Feature::create(b, &fb::FeatureArgs { name, audience, since })
}

pub(super) fn read_feature(feature: &fb::Feature<'_>) -> Feature {
    let audience = match feature.audience() {
        fb::Audience::Readers => Audience::Readers,
        fb::Audience::Committers => Audience::Committers,
        unknown => Audience::Other(unknown.0),
    };
    let since = feature.since().unwrap_or_default().to_owned();
    Feature { name: feature.name().to_owned(), audience, since }
}

pub(super) fn extension(b: &mut Builder, one: &Extension) -> Offset<fb::Extension<'static>> {
    let name = Some(b.create_string(&one.name));
    let value = one.value.as_ref().map(|value| b.create_vector(value));
    fb::Extension::create(b, &fb::ExtensionArgs { name, value })
}

pub(super) fn read_extension(one: &fb::Extension<'_>) -> Extension {
    Extension { name: one.name().to_owned(), value: byte_list(one.value()) }
}

pub(super) fn lease(b: &mut Builder, lease: &Lease, own: ManifestId) -> Offset<fb::Lease<'static>> {
    let versions: Vec<_> = lease.versions.iter().map(|one| leased_version(b, one, own)).collect();
    let versions = Some(WIPOffset::new(b.create_vector(&versions).value()));
    fb::Lease::create(b, &fb::LeaseArgs { expires_at: lease.expires_at.0, versions })
}

fn leased_version(
    b: &mut Builder,
    version: &LeasedVersion,
    own: ManifestId,
) -> Offset<fb::LeasedVersion<'static>> {
    let attempt = attempt_of(version.manifest_id, version.manifest_attempt, own);
    let args = fb::LeasedVersionArgs {
        manifest_id: version.manifest_id.get(),
        manifest_attempt: attempt.as_ref(),
    };
    fb::LeasedVersion::create(b, &args)
}

pub(super) fn since_lease(b: &mut Builder, one: &SinceLease) -> Offset<fb::SinceLease<'static>> {
    let args = fb::SinceLeaseArgs { from: one.from.get(), expires_at: one.expires_at.0 };
    fb::SinceLease::create(b, &args)
}

pub(super) fn read_since_lease(one: &fb::SinceLease<'_>) -> SinceLease {
    let (from, expires_at) = (ManifestId(one.from()), UnixMillis(one.expires_at()));
    SinceLease { from, expires_at }
}

pub(super) fn read_lease(lease: &fb::Lease<'_>) -> Result<Lease> {
    let versions = read_list(Some(lease.versions()), |one| {
        let manifest_attempt = AttemptId(one.manifest_attempt().map_or(0, bits));
        Ok(LeasedVersion { manifest_id: ManifestId(one.manifest_id()), manifest_attempt })
    })?;
    Ok(Lease { expires_at: UnixMillis(lease.expires_at()), versions })
}

pub(super) fn hold(b: &mut Builder, hold: &Hold) -> Offset<fb::Hold<'static>> {
    let args = fb::HoldArgs {
        name: Some(b.create_string(&hold.name)),
        generation: hold.generation,
        wal_from: hold.wal_from.get(),
        seq: hold.seq.get(),
        expires_at: hold.expires_at.map(|at| at.0),
        most_bytes: hold.most_bytes,
        unretained_wal: hold.unretained.map_or(0, |place| place.wal.get()),
        unretained_seq: hold.unretained.map_or(0, |place| place.seq.get()),
    };
    fb::Hold::create(b, &args)
}

pub(super) fn read_hold(hold: &fb::Hold<'_>) -> Hold {
    Hold {
        name: hold.name().to_owned(),
        generation: hold.generation(),
        wal_from: WalId(hold.wal_from()),
        seq: Seq(hold.seq()),
        expires_at: hold.expires_at().map(UnixMillis),
        most_bytes: hold.most_bytes(),
        unretained: (hold.unretained_wal() > 0).then(|| LogPlace {
            seq: Seq(hold.unretained_seq()),
            wal: WalId(hold.unretained_wal()),
        }),
    }
}

pub(super) fn timeline(b: &mut Builder, timeline: &Timeline) -> Offset<fb::Timeline<'static>> {
    let args = fb::TimelineArgs {
        id: Some(&id128(timeline.id.get())),
        cut: timeline.cut.get(),
        begins: timeline.begins.get(),
        manifest_id: timeline.manifest_id.get(),
        began_at: timeline.began_at.0,
    };
    fb::Timeline::create(b, &args)
}

pub(super) fn read_timeline(timeline: &fb::Timeline<'_>) -> Timeline {
    Timeline {
        id: TimelineId(bits(timeline.id())),
        cut: Seq(timeline.cut()),
        begins: Seq(timeline.begins()),
        manifest_id: ManifestId(timeline.manifest_id()),
        began_at: UnixMillis(timeline.began_at()),
    }
}

pub(super) fn pending_ingest(
    b: &mut Builder,
    pending: &PendingIngest,
) -> Offset<fb::PendingIngest<'static>> {
    let timeline = pending.timeline.map(|id| id128(id.get()));
    let args = fb::PendingIngestArgs {
        job: Some(&id128(pending.job.get())),
        requested_at: pending.requested_at.0,
        digest: (!pending.digest.is_empty()).then(|| b.create_vector(&pending.digest)),
        app: pending.app.as_ref().map(|(app, _)| b.create_string(app)),
        version: pending.app.as_ref().map_or(0, |(_, version)| *version),
        timeline: timeline.as_ref(),
    };
    fb::PendingIngest::create(b, &args)
}

pub(super) fn read_pending(pending: &fb::PendingIngest<'_>) -> PendingIngest {
    PendingIngest {
        job: JobId(bits(pending.job())),
        requested_at: UnixMillis(pending.requested_at()),
        digest: byte_list(pending.digest()).unwrap_or_default(),
        app: pending.app().map(|app| (app.to_owned(), pending.version())),
        timeline: pending.timeline().map(|id| TimelineId(bits(id))),
    }
}

pub(super) fn remembered_ingest(
    b: &mut Builder,
    remembered: &RememberedIngest,
) -> Offset<fb::RememberedIngest<'static>> {
    let (outcome, seq) = match remembered.outcome {
        IngestOutcome::Adopted(seq) => (fb::IngestOutcome::Adopted, seq),
        IngestOutcome::Refused => (fb::IngestOutcome::Refused, Seq::NONE),
        IngestOutcome::Withdrawn => (fb::IngestOutcome::Withdrawn, Seq::NONE),
        IngestOutcome::Other(number) => (fb::IngestOutcome(number), Seq::NONE),
    };
    let args = fb::RememberedIngestArgs {
        job: Some(&id128(remembered.job.get())),
        outcome,
        seq: seq.get(),
        reason: remembered.reason.as_ref().map(|reason| b.create_string(reason)),
    };
    fb::RememberedIngest::create(b, &args)
}

pub(super) fn read_remembered(remembered: &fb::RememberedIngest<'_>) -> RememberedIngest {
    let outcome = match remembered.outcome() {
        fb::IngestOutcome::Adopted => IngestOutcome::Adopted(Seq(remembered.seq())),
        fb::IngestOutcome::Refused => IngestOutcome::Refused,
        fb::IngestOutcome::Withdrawn => IngestOutcome::Withdrawn,
        unknown => IngestOutcome::Other(unknown.0),
    };
    let reason = remembered.reason().map(str::to_owned);
    RememberedIngest { job: JobId(bits(remembered.job())), outcome, reason }
}

pub(super) fn ingest_app(b: &mut Builder, app: &IngestApp) -> Offset<fb::IngestApp<'static>> {
    let args = fb::IngestAppArgs {
        app: Some(b.create_string(&app.app)),
        version: app.version,
        job: Some(&id128(app.job.get())),
        seq: app.seq.get(),
    };
    fb::IngestApp::create(b, &args)
}

pub(super) fn read_app(app: &fb::IngestApp<'_>) -> IngestApp {
    IngestApp {
        app: app.app().to_owned(),
        version: app.version(),
        job: JobId(bits(app.job())),
        seq: Seq(app.seq()),
    }
}
