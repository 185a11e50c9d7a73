//! The encoding of databases that accept ingest jobs behind all other data (RFC 0043, rule P6). It
//! is a feature that every committer must know, and an extension, because version 1 of the format
//! has no field for it.
//!
//! ```text
//!  0  1  version: 1
//!  1  8  sequence numbers assigned to such jobs, little-endian
//! ```
//!
//! The history of such a database begins at 2^40, so that every layer of such a job gets a sequence
//! number below all other data. The runs below 2^16 are reserved for their tables.

use super::Manifest;
use crate::features::{Features, INGEST_BEHIND};
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::{Error, Result, Seq};

/// Name of the extension.
const NAME: &str = "siltstone.ingest-behind";
const VERSION: u8 = 1;
/// The version of Siltstone that introduced such databases.
const SINCE: &str = "0.1.0";

/// The sequence number before the first batch of a database that accepts such jobs: the numbers
/// below it are assigned to the layers of such jobs.
pub const HISTORY_BEGINS: Seq = Seq(1 << 40);
/// Runs below this id are reserved for such jobs. So many layers that share a key with older layers
/// can each get a run of their own.
pub const RESERVED_RUNS: u32 = 1 << 16;

impl Manifest {
    /// This first manifest of a new database, for a database that accepts jobs behind all other
    /// data.
    #[must_use]
    pub fn allowing_behind(mut self) -> Manifest {
        self.features.name_for_committers(INGEST_BEHIND, SINCE);
        self.behind = Some(0);
        self.flushed_seq = HISTORY_BEGINS;
        self
    }

    /// As [`Manifest::allowing_behind`], with the count of `source`, if `source` is such a
    /// database: for a database that takes over its tables with their runs and sequence numbers.
    #[must_use]
    pub(crate) fn behind_as(self, source: &Manifest) -> Manifest {
        match source.behind {
            Some(_) => Manifest { behind: source.behind, ..self.allowing_behind() },
            None => self,
        }
    }

    /// The oldest run that is not reserved for jobs behind all other data.
    #[must_use]
    pub fn first_run(&self) -> u32 {
        if self.behind.is_some() { RESERVED_RUNS } else { 0 }
    }

    /// The run to which all data may sink.
    #[must_use]
    pub fn last_run(&self) -> u32 {
        self.runs.last().map_or(self.first_run(), |run| run.id)
    }

    /// The sequence number for the next layer behind all other data; `None` if the database does
    /// not accept such jobs, or all numbers were assigned.
    #[must_use]
    pub fn next_behind(&self) -> Option<Seq> {
        let next = HISTORY_BEGINS.get().checked_sub(self.behind?.checked_add(1)?)?;
        (next > 0).then_some(Seq(next))
    }
}

/// Adds the extension to `features`, with `taken` assigned numbers.
pub(crate) fn onto(taken: u64, features: &Features) -> Features {
    features.with_extension(NAME, encode(taken))
}

/// Removes the extension from `features` and decodes it.
///
/// # Errors
/// Corruption for invalid bytes; Unsupported for data of a newer version.
pub(crate) fn out_of(features: &mut Features) -> Result<Option<u64>> {
    features.take_extension(NAME).map(|value| decode(&value)).transpose()
}

fn encode(taken: u64) -> Bytes {
    [&[VERSION], taken.to_le_bytes().as_slice()].concat().into()
}

fn decode(bytes: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(bytes);
    let version = reader.u8()?;
    if version != VERSION {
        return Err(Error::unsupported(
            "the record of ingest jobs behind all data needs a newer version of Siltstone",
        )
        .with("version", version));
    }
    let taken = reader.u64()?;
    if !reader.is_empty() || taken >= HISTORY_BEGINS.get() {
        return Err(Error::corruption("invalid record of ingest jobs behind all data"));
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Settings;
    use siltstone_base::{AttemptId, DatabaseId, ErrorKind, ObjectId};

    #[test]
    fn it_comes_back_with_the_manifest() {
        let first = Manifest::new_database(DatabaseId(7), Settings::default());
        assert_eq!((first.next_behind(), first.first_run()), (None, 0));
        let state = Manifest { behind: Some(41), ..first.allowing_behind() };
        let bytes = state.encode(ObjectId(1), AttemptId(2)).unwrap();
        let (_, read) = Manifest::decode(&bytes).unwrap();
        assert_eq!((read.behind, &read.features), (Some(41), &state.features));
        assert_eq!(read.next_behind(), Some(Seq((1 << 40) - 42)));
        assert_eq!(read.last_run(), RESERVED_RUNS);
    }

    #[test]
    fn any_bytes_give_it_or_an_error() {
        let bytes = encode(41);
        assert_eq!(decode(&bytes).unwrap(), 41);
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
