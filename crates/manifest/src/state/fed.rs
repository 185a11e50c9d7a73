//! The encoding of ingests whose source tables a change feed still reads (RFC 0041, rule W4). It is
//! an extension, because version 1 of the format has no field for it.
//!
//! ```text
//!  0  1  version: 1
//!  1  4  number of ingests
//!  5     each, number ascending:  1  kind: 0, a job's folder; 1, a table of the database's own
//!                                 8  its last sequence number, little-endian
//!                                16  the job, or the table
//! ```

use crate::features::Features;
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::{Error, JobId, Result, Seq, SstId};

/// Name of the extension.
const NAME: &str = "siltstone.fed-ingests";
const VERSION: u8 = 1;
const KIND_JOB: u8 = 0;
const KIND_TABLE: u8 = 1;

/// An ingest that was installed while a consumer held the log, and that not every holder has passed
/// yet: its source tables are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FedIngest {
    /// The last sequence number of its entries.
    pub seq: Seq,
    /// The source tables.
    pub source: FedSource,
}

/// The source of an ingest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FedSource {
    /// The objects staged by a job.
    Job(JobId),
    /// A table of a large batch.
    Table(SstId),
}

impl FedIngest {
    /// Adds the extension to `features`.
    pub(crate) fn onto(fed: &[FedIngest], features: &Features) -> Features {
        features.with_extension(NAME, encode(fed))
    }

    /// Removes the extension from `features` and decodes it.
    ///
    /// # Errors
    /// Corruption for invalid bytes; Unsupported for data of a newer version.
    pub(crate) fn out_of(features: &mut Features) -> Result<Vec<FedIngest>> {
        features.take_extension(NAME).map_or_else(|| Ok(Vec::new()), |value| decode(&value))
    }
}

fn encode(fed: &[FedIngest]) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&(fed.len() as u32).to_le_bytes());
    for one in fed {
        let (kind, name) = match one.source {
            FedSource::Job(job) => (KIND_JOB, job.to_bytes()),
            FedSource::Table(table) => (KIND_TABLE, table.to_bytes()),
        };
        out.push(kind);
        out.extend_from_slice(&one.seq.get().to_le_bytes());
        out.extend_from_slice(&name);
    }
    out.into()
}

fn decode(bytes: &[u8]) -> Result<Vec<FedIngest>> {
    let newer = |what: &'static str, number: u8| {
        Error::unsupported("the record of a change feed needs a newer version of Siltstone")
            .with(what, number)
    };
    let mut reader = Reader::new(bytes);
    let version = reader.u8()?;
    if version != VERSION {
        return Err(newer("version", version));
    }
    let mut fed = Vec::new();
    for _ in 0..reader.u32()? {
        let kind = reader.u8()?;
        if !matches!(kind, KIND_JOB | KIND_TABLE) {
            return Err(newer("kind", kind));
        }
        let (seq, name) = (Seq(reader.u64()?), reader.u128_be()?);
        let source = match kind {
            KIND_JOB => FedSource::Job(JobId(name)),
            _ => FedSource::Table(SstId(name)),
        };
        fed.push(FedIngest { seq, source });
    }
    if !reader.is_empty() {
        return Err(Error::corruption("the record of a change feed has extra bytes"));
    }
    Ok(fed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Manifest;
    use crate::testing::manifest;
    use siltstone_base::{AttemptId, ErrorKind, ObjectId};

    fn fed() -> Vec<FedIngest> {
        let sources = [(7, FedSource::Job(JobId(70))), (9, FedSource::Table(SstId(90)))];
        sources.map(|(seq, source)| FedIngest { seq: Seq(seq), source }).to_vec()
    }

    #[test]
    fn they_come_back_with_the_manifest() {
        let state = Manifest { fed: fed(), ..manifest() };
        let bytes = state.encode(ObjectId(1), AttemptId(2)).unwrap();
        let (_, read) = Manifest::decode(&bytes).unwrap();
        assert_eq!((read.fed, read.features), (state.fed, state.features));
    }

    #[test]
    fn any_bytes_give_them_or_an_error() {
        let bytes = encode(&fed());
        assert_eq!(decode(&bytes).unwrap(), fed());
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            drop(decode(&flipped));
        }
        let newer = [&[2], &bytes[1..]].concat();
        assert_eq!(decode(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
