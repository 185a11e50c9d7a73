//! Ingests whose originals a change feed still reads (RFC 0041, rule W4), as a manifest carries
//! them: an extension, since version 1 of the format has no field for them.
//!
//! ```text
//!  0  1  version: 1
//!  1  4  how many
//!  5     each, number ascending:  1  kind: 0, a job's folder
//!                                 8  its last sequence number, little-endian
//!                                16  the job
//! ```

use crate::features::{Extension, Features};
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::{Error, JobId, Result, Seq};

/// Name of the extension.
const NAME: &str = "siltstone.fed-ingests";
const VERSION: u8 = 1;
const KIND_JOB: u8 = 0;

/// An ingest that was installed while somebody held the log, and that not every holder has passed:
/// what its job staged stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FedIngest {
    /// The last sequence number of its entries.
    pub seq: Seq,
    /// The job.
    pub job: JobId,
}

impl FedIngest {
    /// `features` as they are stored with these.
    pub(crate) fn onto(fed: &[FedIngest], features: &Features) -> Features {
        let mut stored = features.clone();
        let value = Some(encode(fed));
        stored.extensions.push(Extension { name: NAME.to_owned(), value });
        stored
    }

    /// Takes them out of what was stored.
    ///
    /// # Errors
    /// Corruption for bytes that nobody wrote; Unsupported for those of a newer version.
    pub(crate) fn out_of(features: &mut Features) -> Result<Vec<FedIngest>> {
        let place = features.extensions.iter().position(|one| one.name == NAME);
        let Some(place) = place else { return Ok(Vec::new()) };
        decode(&features.extensions.remove(place).value.unwrap_or_default())
    }
}

fn encode(fed: &[FedIngest]) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&(fed.len() as u32).to_le_bytes());
    for one in fed {
        out.push(KIND_JOB);
        out.extend_from_slice(&one.seq.get().to_le_bytes());
        out.extend_from_slice(&one.job.to_bytes());
    }
    out.into()
}

fn decode(bytes: &[u8]) -> Result<Vec<FedIngest>> {
    let newer = |what: &'static str, number: u8| {
        Error::unsupported("what a change feed keeps was written by a newer version of Siltstone")
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
        if kind != KIND_JOB {
            return Err(newer("kind", kind));
        }
        fed.push(FedIngest { seq: Seq(reader.u64()?), job: JobId(reader.u128_be()?) });
    }
    if !reader.is_empty() {
        return Err(Error::corruption("bytes are left over behind what a change feed keeps"));
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
        [(7, 70), (9, 90)].map(|(seq, job)| FedIngest { seq: Seq(seq), job: JobId(job) }).to_vec()
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
