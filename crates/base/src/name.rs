//! The names of all objects under the root of a database, parsed and formatted. Names are parsed to
//! fixed types and never concatenated from text, so no name can leave the root. RFC 0002 has the
//! table.

use crate::id::{AttemptId, JobId, ManifestId, SstId, WalId};
use std::fmt;

/// The name of an object. Every process, collectors included, ignores names that
/// [`ObjectName::parse`] does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectName {
    /// `manifest/<20 digits>.manifest`
    Manifest(ManifestId),
    /// `manifest/boundary/<20 digits>`: every manifest with an id at or below has been freed.
    ManifestBoundary(ManifestId),
    /// `wal/<20 digits>.sst`
    Wal(WalId),
    /// `wal/boundary/<20 digits>`: every WAL object with an id at or below has been freed, except
    /// kept fences.
    WalBoundary(WalId),
    /// `compacted/<ULID>.sst`: tables of L0 and of sorted runs.
    Compacted(SstId),
    /// `compactions/<20 digits>.compactions`: job records of the compactor.
    Compactions(u64),
    /// `compactions/boundary/<20 digits>`
    CompactionsBoundary(u64),
    /// `ingest/<ULID>/manifest`: the only commit point of an ingest job.
    IngestManifest(JobId),
    /// `ingest/<ULID>/<ULID>.sst`: a staged table of a job.
    IngestSst(JobId, SstId),
    /// `probe/record`: the detected capabilities of the store.
    ProbeRecord,
    /// `probe/<ULID>`: scratch of a running probe.
    ProbeScratch(JobId),
    /// `damaged/<ULID>/<20 digits>.manifest`: a copy of an object that a repair skips.
    DamagedManifest(JobId, ManifestId),
    /// `damaged/<ULID>/<20 digits>.sst`: the same for the WAL.
    DamagedWal(JobId, WalId),
    /// `damaged/<ULID>/<ULID>.sst`: the same for a table.
    DamagedTable(JobId, SstId),
    /// `damaged/<ULID>/<20 digits>.compactions`: the same for job records of the compactor.
    DamagedCompactions(JobId, u64),
    /// `two-phase/namespace`: which records of a transactional store belong to the database.
    TwoPhaseNamespace,
    /// `two-phase/<32 hex digits>.<8 hex digits>`: the bytes of a two-phase create, by a random
    /// number of that try and their CRC-32C.
    TwoPhaseSource(AttemptId, u32),
    /// `encryption/<20 digits>.key`: a data key of the database, wrapped by a key of the user.
    EncryptionKey(u64),
    /// `log/identity`: in a separate store of the log, which log it has.
    LogIdentity,
}

/// Folders, as prefixes to list.
pub mod prefix {
    /// Manifests and their boundary.
    pub const MANIFEST: &str = "manifest/";
    /// The manifests' boundary objects.
    pub const MANIFEST_BOUNDARY: &str = "manifest/boundary/";
    /// WAL objects and their boundary.
    pub const WAL: &str = "wal/";
    /// The WAL's boundary objects.
    pub const WAL_BOUNDARY: &str = "wal/boundary/";
    /// Tables.
    pub const COMPACTED: &str = "compacted/";
    /// Compaction job records.
    pub const COMPACTIONS: &str = "compactions/";
    /// Staged ingest jobs.
    pub const INGEST: &str = "ingest/";
    /// The store probe's objects.
    pub const PROBE: &str = "probe/";
    /// Copies that repairs made.
    pub const DAMAGED: &str = "damaged/";
    /// Objects of two-phase creates.
    pub const TWO_PHASE: &str = "two-phase/";
    /// Wrapped data keys.
    pub const ENCRYPTION: &str = "encryption/";
    /// The identity of a log in a separate store.
    pub const LOG: &str = "log/";
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectName::Manifest(id) => write!(f, "manifest/{:020}.manifest", id.0),
            ObjectName::ManifestBoundary(id) => write!(f, "manifest/boundary/{:020}", id.0),
            ObjectName::Wal(id) => write!(f, "wal/{:020}.sst", id.0),
            ObjectName::WalBoundary(id) => write!(f, "wal/boundary/{:020}", id.0),
            ObjectName::Compacted(id) => write!(f, "compacted/{id}.sst"),
            ObjectName::Compactions(id) => write!(f, "compactions/{id:020}.compactions"),
            ObjectName::CompactionsBoundary(id) => write!(f, "compactions/boundary/{id:020}"),
            ObjectName::IngestManifest(job) => write!(f, "ingest/{job}/manifest"),
            ObjectName::IngestSst(job, sst) => write!(f, "ingest/{job}/{sst}.sst"),
            ObjectName::ProbeRecord => f.write_str("probe/record"),
            ObjectName::ProbeScratch(id) => write!(f, "probe/{id}"),
            ObjectName::DamagedManifest(repair, id) => {
                write!(f, "damaged/{repair}/{:020}.manifest", id.0)
            }
            ObjectName::DamagedWal(repair, id) => write!(f, "damaged/{repair}/{:020}.sst", id.0),
            ObjectName::DamagedTable(repair, id) => write!(f, "damaged/{repair}/{id}.sst"),
            ObjectName::DamagedCompactions(repair, id) => {
                write!(f, "damaged/{repair}/{id:020}.compactions")
            }
            ObjectName::EncryptionKey(number) => write!(f, "encryption/{number:020}.key"),
            ObjectName::LogIdentity => f.write_str("log/identity"),
            ObjectName::TwoPhaseNamespace => f.write_str("two-phase/namespace"),
            ObjectName::TwoPhaseSource(attempt, crc) => {
                write!(f, "two-phase/{:032x}.{crc:08x}", attempt.0)
            }
        }
    }
}

impl ObjectName {
    /// The name for `path` (relative to the database's root, `/` between parts), or `None`. Strict:
    /// every name has one spelling.
    #[must_use]
    pub fn parse(path: &str) -> Option<ObjectName> {
        let (folder, rest) = path.split_once('/')?;
        match folder {
            "manifest" => match rest.strip_prefix("boundary/") {
                Some(id) => digits(id).map(|id| ObjectName::ManifestBoundary(ManifestId(id))),
                None => digits(rest.strip_suffix(".manifest")?)
                    .map(|id| ObjectName::Manifest(ManifestId(id))),
            },
            "wal" => match rest.strip_prefix("boundary/") {
                Some(id) => digits(id).map(|id| ObjectName::WalBoundary(WalId(id))),
                None => digits(rest.strip_suffix(".sst")?).map(|id| ObjectName::Wal(WalId(id))),
            },
            "compacted" => SstId::parse(rest.strip_suffix(".sst")?).map(ObjectName::Compacted),
            "compactions" => match rest.strip_prefix("boundary/") {
                Some(id) => digits(id).map(ObjectName::CompactionsBoundary),
                None => digits(rest.strip_suffix(".compactions")?).map(ObjectName::Compactions),
            },
            "ingest" => {
                let (job, file) = rest.split_once('/')?;
                let job = JobId::parse(job)?;
                if file == "manifest" {
                    return Some(ObjectName::IngestManifest(job));
                }
                let sst = SstId::parse(file.strip_suffix(".sst")?)?;
                Some(ObjectName::IngestSst(job, sst))
            }
            "damaged" => {
                let (repair, file) = rest.split_once('/')?;
                let repair = JobId::parse(repair)?;
                if let Some(id) = file.strip_suffix(".manifest") {
                    return digits(id)
                        .map(|id| ObjectName::DamagedManifest(repair, ManifestId(id)));
                }
                if let Some(id) = file.strip_suffix(".compactions") {
                    return digits(id).map(|id| ObjectName::DamagedCompactions(repair, id));
                }
                // Names of tables are longer than 20 digits.
                let id = file.strip_suffix(".sst")?;
                match SstId::parse(id) {
                    Some(table) => Some(ObjectName::DamagedTable(repair, table)),
                    None => digits(id).map(|id| ObjectName::DamagedWal(repair, WalId(id))),
                }
            }
            "probe" if rest == "record" => Some(ObjectName::ProbeRecord),
            "probe" => JobId::parse(rest).map(ObjectName::ProbeScratch),
            "encryption" => digits(rest.strip_suffix(".key")?).map(ObjectName::EncryptionKey),
            "log" => (rest == "identity").then_some(ObjectName::LogIdentity),
            "two-phase" if rest == "namespace" => Some(ObjectName::TwoPhaseNamespace),
            "two-phase" => {
                let (attempt, crc) = rest.split_once('.')?;
                let attempt = AttemptId(u128::from_str_radix(hex(attempt, 32)?, 16).ok()?);
                let crc = u32::from_str_radix(hex(crc, 8)?, 16).ok()?;
                Some(ObjectName::TwoPhaseSource(attempt, crc))
            }
            _ => None,
        }
    }
}

/// `text`, if it is so many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_digit)).then_some(text)
}

fn digits(text: &str) -> Option<u64> {
    let well_formed = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    // 20 digits exceed 2^64; parse refuses larger numbers. Ids count from 1.
    if well_formed { text.parse().ok().filter(|id| *id > 0) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let names = [
            ObjectName::Manifest(ManifestId(1)),
            ObjectName::ManifestBoundary(ManifestId(7)),
            ObjectName::Wal(WalId(u64::MAX)),
            ObjectName::WalBoundary(WalId(2)),
            ObjectName::Compacted(SstId(5)),
            ObjectName::Compactions(3),
            ObjectName::CompactionsBoundary(3),
            ObjectName::IngestManifest(JobId(9)),
            ObjectName::IngestSst(JobId(9), SstId(8)),
            ObjectName::ProbeRecord,
            ObjectName::ProbeScratch(JobId(4)),
            ObjectName::DamagedManifest(JobId(6), ManifestId(2)),
            ObjectName::DamagedWal(JobId(6), WalId(2)),
            ObjectName::DamagedTable(JobId(6), SstId(2)),
            ObjectName::DamagedCompactions(JobId(6), 2),
            ObjectName::LogIdentity,
            ObjectName::TwoPhaseNamespace,
            ObjectName::TwoPhaseSource(AttemptId(u128::MAX), 0xC),
            ObjectName::EncryptionKey(1),
        ];
        for name in names {
            assert_eq!(ObjectName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn other_spellings_are_nobodys() {
        for path in [
            "",
            "manifest",
            "manifest/1.manifest",
            "manifest/00000000000000000000.manifest",
            "manifest/99999999999999999999.manifest",
            "manifest/00000000000000000001.manifest.tmp",
            "manifest/+0000000000000000001.manifest",
            "wal/../manifest/00000000000000000001.manifest",
            "compacted/01arz3ndektsv4rrffq69g5fav.sst",
            "ingest/x/manifest",
            "damaged/x/00000000000000000001.sst",
            "damaged/0000000000000000000000000D/1.sst",
            "damaged/0000000000000000000000000D/0000000000000000000000000d.sst",
            "else/00000000000000000001",
            "two-phase/0000000000000000000000000000000F.0000000c",
            "two-phase/+000000000000000000000000000000f.0000000c",
            "two-phase/f.c",
        ] {
            assert_eq!(ObjectName::parse(path), None, "{path}");
        }
    }
}
