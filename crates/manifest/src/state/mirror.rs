//! The parts of a manifest that belong to a mirror (RFC 0033): its source, the export that is
//! filling it, and the origin of its head.
//!
//! They are stored in an extension, and a feature says that every committer must know it: a program
//! that does not would write to a mirror, and the next export would overwrite these writes.
//!
//! ```text
//!  0  1 version, 1                    then, with flag 2:     then, with flag 4:
//!  1  1 flags: 1 made by an import,     16 job                 8 manifest   16 its attempt
//!       2 a job runs, 4 it has a head                          8 flushed     8 last number
//!  2 16 source                        at the end:            16 timeline   16 claim
//! 18 16 claim                           4 length, location     2 count, 16 each: tables of the log
//! ```
//! Numbers are little-endian, identities big-endian.

use crate::features::{Audience, Feature, Features};
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::{
    AttemptId, DatabaseId, Error, JobId, ManifestId, Result, Seq, SstId, TimelineId,
};

/// The feature, and the extension.
const NAME: &str = "mirror";
/// The version of Siltstone that introduced mirrors.
const SINCE: &str = "0.1.0";
const VERSION: u8 = 1;
const OF_AN_IMPORT: u8 = 1;
const HAS_JOB: u8 = 2;
const HAS_HEAD: u8 = 4;

/// A database that is filled by exports and has no writer (rules X1 to X4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The database that is exported.
    pub source: DatabaseId,
    /// The URL of the source, for information.
    pub location: String,
    /// Whether it is filled by an import, which promotes it at its end.
    pub is_import: bool,
    /// Identity of the newest exporter, random: an older exporter can no longer commit (rule X2).
    pub claim: AttemptId,
    /// The folder that is being filled, until a head references its objects.
    pub job: Option<JobId>,
    /// The last exported state; `None` before the first export has ended.
    pub head: Option<MirrorHead>,
}

/// The origin of the state of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MirrorHead {
    /// The manifest of the source.
    pub manifest: ManifestId,
    /// The attempt that wrote that manifest.
    pub attempt: AttemptId,
    /// The `flushed_seq` of that manifest; later rows were in the log.
    pub flushed: Seq,
    /// The last sequence number.
    pub last_seq: Seq,
    /// The history of the source; none for the first history.
    pub timeline: TimelineId,
    /// The exporter that committed it.
    pub claim: AttemptId,
    /// Tables that hold the rows of the log, the oldest first.
    pub log: Vec<SstId>,
}

impl Mirror {
    /// Adds the extension to `features`.
    pub(crate) fn onto(&self, features: &Features) -> Features {
        let mut stored = features.with_extension(NAME, self.encode());
        let (name, since) = (NAME.to_owned(), SINCE.to_owned());
        stored.named.push(Feature { name, audience: Audience::Committers, since });
        stored
    }

    /// Removes the extension from `features` and decodes it; `None` if the database is not a
    /// mirror.
    ///
    /// # Errors
    /// Corruption for invalid bytes; Unsupported for data of a newer exporter.
    pub(crate) fn out_of(features: &mut Features) -> Result<Option<Mirror>> {
        let mut named = features.named.iter();
        let Some(feature) = named.position(|one| one.name == NAME) else { return Ok(None) };
        features.named.remove(feature);
        let value = features.take_extension(NAME);
        let value =
            value.ok_or_else(|| Error::corruption("a mirror has no record of its source"))?;
        Mirror::decode(&value).map(Some)
    }

    fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(
            flag(self.is_import, OF_AN_IMPORT)
                | flag(self.job.is_some(), HAS_JOB)
                | flag(self.head.is_some(), HAS_HEAD),
        );
        out.extend_from_slice(&self.source.to_bytes());
        out.extend_from_slice(&self.claim.to_bytes());
        if let Some(job) = self.job {
            out.extend_from_slice(&job.to_bytes());
        }
        if let Some(head) = &self.head {
            head.encode(&mut out);
        }
        out.extend_from_slice(&(self.location.len() as u32).to_le_bytes());
        out.extend_from_slice(self.location.as_bytes());
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<Mirror> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(Error::unsupported(
                "the mirror was written by a newer version of Siltstone; upgrade this program",
            )
            .with("version of mirrors", version));
        }
        let flags = reader.u8()?;
        if flags & !(OF_AN_IMPORT | HAS_JOB | HAS_HEAD) != 0 {
            return Err(Error::unsupported("the mirror has flags unknown to this version")
                .with("flags", flags));
        }
        let source = DatabaseId(reader.u128_be()?);
        let claim = AttemptId(reader.u128_be()?);
        let job = match flags & HAS_JOB {
            0 => None,
            _ => Some(JobId(reader.u128_be()?)),
        };
        let head = match flags & HAS_HEAD {
            0 => None,
            _ => Some(MirrorHead::decode(&mut reader)?),
        };
        let length = reader.u32()?;
        let location = reader.take(length as usize)?.to_vec();
        let location = String::from_utf8(location)
            .map_err(|_| Error::corruption("the location of a mirror's source is not UTF-8"))?;
        if !reader.is_empty() {
            return Err(Error::corruption("the record of a mirror has extra bytes"));
        }
        let is_import = flags & OF_AN_IMPORT != 0;
        Ok(Mirror { source, location, is_import, claim, job, head })
    }
}

impl MirrorHead {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.manifest.get().to_le_bytes());
        out.extend_from_slice(&self.attempt.to_bytes());
        out.extend_from_slice(&self.flushed.get().to_le_bytes());
        out.extend_from_slice(&self.last_seq.get().to_le_bytes());
        out.extend_from_slice(&self.timeline.to_bytes());
        out.extend_from_slice(&self.claim.to_bytes());
        out.extend_from_slice(&(self.log.len() as u16).to_le_bytes());
        for table in &self.log {
            out.extend_from_slice(&table.to_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<MirrorHead> {
        let mut head = MirrorHead {
            manifest: ManifestId(reader.u64()?),
            attempt: AttemptId(reader.u128_be()?),
            flushed: Seq(reader.u64()?),
            last_seq: Seq(reader.u64()?),
            timeline: TimelineId(reader.u128_be()?),
            claim: AttemptId(reader.u128_be()?),
            log: Vec::new(),
        };
        for _ in 0..reader.u16()? {
            head.log.push(SstId(reader.u128_be()?));
        }
        Ok(head)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::manifest;
    use siltstone_base::{ErrorKind, ObjectId};

    /// A mirror with every field set.
    pub(crate) fn mirror() -> Mirror {
        let head = MirrorHead {
            manifest: ManifestId(9),
            attempt: AttemptId(90),
            flushed: Seq(40),
            last_seq: Seq(60),
            timeline: TimelineId(7),
            claim: AttemptId(5),
            log: vec![SstId(14), SstId(15)],
        };
        Mirror {
            source: DatabaseId(78),
            location: "memory://source".to_owned(),
            is_import: false,
            claim: AttemptId(6),
            job: Some(JobId::of_an_export(4)),
            head: Some(head),
        }
    }

    #[test]
    fn it_comes_back_as_it_was() {
        let begun = Mirror { head: None, job: None, is_import: true, ..mirror() };
        for each in [mirror(), begun] {
            assert_eq!(Mirror::decode(&each.encode()).unwrap(), each);
        }
    }

    #[test]
    fn any_bytes_give_a_mirror_or_an_error() {
        let bytes = mirror().encode();
        for length in 0..bytes.len() {
            assert!(Mirror::decode(&bytes[..length]).is_err(), "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            drop(Mirror::decode(&flipped));
        }
        let newer = [&[2], &bytes[1..]].concat();
        assert_eq!(Mirror::decode(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    /// X4: a program that does not know mirrors can read a mirror, and cannot change it.
    #[test]
    fn every_committer_must_know_the_feature() {
        let state = Manifest { mirror: Some(mirror()), ..manifest() };
        let bytes = state.encode(ObjectId(1), AttemptId(2)).unwrap();
        let (_, read) = Manifest::decode(&bytes).unwrap();
        assert_eq!(read.mirror, state.mirror);
        assert_eq!(read.features, state.features);
        let stored = mirror().onto(&state.features);
        let [feature] = stored.named.as_slice() else { panic!("{stored:?}") };
        assert_eq!((feature.name.as_str(), feature.audience), (NAME, Audience::Committers));
    }

    use crate::state::Manifest;
}
