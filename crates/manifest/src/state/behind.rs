//! Databases that ingest jobs may come behind (RFC 0043, rule P6), as a manifest carries it: a
//! feature that whoever commits must know, and an extension, since version 1 of the format has no
//! field for it.
//!
//! ```text
//!  0  1  version: 1
//!  1  8  how many numbers such jobs have taken, little-endian
//! ```
//!
//! Of such a database the history begins at 2^40, so that each layer of such a job has a number
//! below all that was there, and the runs below 2^16 are left for their tables.

use super::Manifest;
use crate::features::{Features, INGEST_BEHIND};
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::{Error, Result, Seq};

/// Name of the extension.
const NAME: &str = "siltstone.ingest-behind";
const VERSION: u8 = 1;
/// The version of Siltstone that brought such databases.
const SINCE: &str = "0.1.0";

/// What the first batch of a database comes after that jobs may come behind: below it are numbers
/// for as many layers.
pub const HISTORY_BEGINS: Seq = Seq(1 << 40);
/// Runs of such a database below this are for what comes behind: so many layers that share a key
/// with what lies below them find a run of their own.
pub const RESERVED_RUNS: u32 = 1 << 16;

impl Manifest {
    /// The first manifest of a new database, as one that jobs may come behind.
    #[must_use]
    pub fn allowing_behind(mut self) -> Manifest {
        self.features.name_for_committers(INGEST_BEHIND, SINCE);
        self.behind = Some(0);
        self.flushed_seq = HISTORY_BEGINS;
        self
    }

    /// As [`Manifest::allowing_behind`], with what was taken, where `source` is such a database: of
    /// one that takes over its tables, with their runs and numbers.
    #[must_use]
    pub(crate) fn behind_as(self, source: &Manifest) -> Manifest {
        match source.behind {
            Some(_) => Manifest { behind: source.behind, ..self.allowing_behind() },
            None => self,
        }
    }

    /// The oldest run that is not left for what comes behind.
    #[must_use]
    pub fn first_run(&self) -> u32 {
        if self.behind.is_some() { RESERVED_RUNS } else { 0 }
    }

    /// The run that everything may sink to.
    #[must_use]
    pub fn last_run(&self) -> u32 {
        self.runs.last().map_or(self.first_run(), |run| run.id)
    }

    /// The number of the next layer that comes behind; `None` where none may come, or all were
    /// given.
    #[must_use]
    pub fn next_behind(&self) -> Option<Seq> {
        let next = HISTORY_BEGINS.get().checked_sub(self.behind?.checked_add(1)?)?;
        (next > 0).then_some(Seq(next))
    }
}

/// `features` as they are stored, where `taken` numbers are.
pub(crate) fn onto(taken: u64, features: &Features) -> Features {
    features.with_extension(NAME, encode(taken))
}

/// Takes it out of what was stored.
///
/// # Errors
/// Corruption for bytes that nobody wrote; Unsupported for those of a newer version.
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
            "what is known of jobs that came behind was written by a newer version of Siltstone",
        )
        .with("version", version));
    }
    let taken = reader.u64()?;
    if !reader.is_empty() || taken >= HISTORY_BEGINS.get() {
        return Err(Error::corruption("impossible numbers of jobs that came behind"));
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
