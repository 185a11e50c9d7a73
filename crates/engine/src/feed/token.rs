//! Tokens: positions in a change feed, encoded as text that a program can store.
//!
//! Decoding must never accept an altered token.

use siltstone_base::bytes_io::Reader;
use siltstone_base::checksum::crc32c;
use siltstone_base::{DatabaseId, Error, Result, Seq, TimelineId, WalId};
use siltstone_manifest::{HistoryUndone, LogPlace, Manifest};
use std::fmt;
use std::str::FromStr;

/// Prefix of a token: the version of its encoding.
const PREFIX: &str = "c1-";
const BYTES: usize = 16 + 16 + 8 + 8 + 4 + 4 + 4;

/// A position between two batches or inside an ingest (rule W2). Its text is `c1-` and hexadecimal
/// digits: database (16 bytes), timeline (16), sequence number, WAL id (8 each), table and row of
/// an ingest (4 each), and CRC32C of all that; numbers are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChangeToken {
    /// The database.
    pub database: DatabaseId,
    /// The timeline; `None`: the first one.
    pub timeline: Option<TimelineId>,
    /// The last sequence number that the feed has returned. A partially returned ingest is above
    /// it.
    pub seq: Seq,
    /// The WAL id to read next.
    pub wal: WalId,
    /// Number of completely returned tables of the ingest after `seq`.
    pub table: u32,
    /// Number of returned rows of the next table.
    pub row: u32,
}

impl ChangeToken {
    /// The token of a position between two batches, in the database and timeline of `state`.
    pub(crate) fn of(state: &Manifest, place: LogPlace) -> ChangeToken {
        let timeline = state.history_behind(place.seq);
        let LogPlace { seq, wal } = place;
        ChangeToken { database: state.database, timeline, seq, wal, table: 0, row: 0 }
    }

    /// The position in the log, without the position inside an ingest.
    #[must_use]
    pub fn place(&self) -> LogPlace {
        LogPlace { seq: self.seq, wal: self.wal }
    }

    /// Sort key of the position.
    pub(crate) fn order(&self) -> (Seq, u32, u32) {
        (self.seq, self.table, self.row)
    }

    /// Whether the position is inside an ingest.
    pub(crate) fn is_inside(&self) -> bool {
        (self.table, self.row) != (0, 0)
    }

    /// The restore that has undone changes before this position, if any (rule S3). Inside an
    /// ingest, rows of the next sequence number are among these changes.
    pub(crate) fn undone_in(&self, state: &Manifest) -> Option<HistoryUndone> {
        let undone = |seq| state.undone(self.timeline, seq);
        undone(self.seq).or_else(|| self.is_inside().then(|| undone(self.seq.next())).flatten())
    }
}

impl fmt::Display for ChangeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&self.database.to_bytes());
        bytes.extend_from_slice(&self.timeline.map_or([0; 16], TimelineId::to_bytes));
        bytes.extend_from_slice(&self.seq.get().to_be_bytes());
        bytes.extend_from_slice(&self.wal.get().to_be_bytes());
        bytes.extend_from_slice(&self.table.to_be_bytes());
        bytes.extend_from_slice(&self.row.to_be_bytes());
        let sum = crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_be_bytes());
        f.write_str(PREFIX)?;
        f.write_str(&hex::encode(bytes))
    }
}

impl FromStr for ChangeToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<ChangeToken> {
        parse(text).ok_or_else(|| {
            Error::invalid(
                "the text is not a token of a change feed, or was altered; pass a token unchanged",
            )
        })
    }
}

fn parse(text: &str) -> Option<ChangeToken> {
    let mut bytes = [0; BYTES];
    hex::decode_to_slice(text.strip_prefix(PREFIX)?, &mut bytes).ok()?;
    let (covered, sum) = bytes.split_at_checked(BYTES - 4)?;
    if crc32c(covered).to_be_bytes() != sum {
        return None;
    }
    let mut reader = Reader::new(covered);
    let database = DatabaseId(reader.u128_be().ok()?);
    let timeline = TimelineId(reader.u128_be().ok()?);
    let seq = Seq(u64::from_be_bytes(reader.array().ok()?));
    let wal = WalId(u64::from_be_bytes(reader.array().ok()?));
    let table = u32::from_be_bytes(reader.array().ok()?);
    let row = u32::from_be_bytes(reader.array().ok()?);
    let timeline = (!timeline.is_none()).then_some(timeline);
    Some(ChangeToken { database, timeline, seq, wal, table, row })
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::{ManifestId, UnixMillis};
    use siltstone_manifest::Timeline;

    fn token() -> ChangeToken {
        let timeline = Some(TimelineId(5));
        let (seq, wal) = (Seq(70), WalId(8));
        ChangeToken { database: DatabaseId(9), timeline, seq, wal, table: 3, row: 41 }
    }

    #[test]
    fn a_token_comes_back_as_it_was_and_no_other_text_does() {
        for each in [token(), ChangeToken { timeline: None, ..token() }] {
            assert_eq!(each.to_string().parse::<ChangeToken>().unwrap(), each);
        }
        let text = token().to_string();
        for at in 0..text.len() {
            let mut altered = text.clone().into_bytes();
            altered[at] = if altered[at] == b'1' { b'2' } else { b'1' };
            assert!(String::from_utf8(altered).unwrap().parse::<ChangeToken>().is_err(), "{at}");
            assert!(text[..at].parse::<ChangeToken>().is_err());
        }
    }

    /// W6: what lies between a cut and where the next history begins is undone, for those of an
    /// older one; inside an ingest the number behind the place counts.
    #[test]
    fn a_restore_undoes_what_lies_beyond_its_cut() {
        let mut state = Manifest::new_database(DatabaseId(9), Default::default());
        state.timelines = vec![Timeline {
            id: TimelineId(5),
            cut: Seq(10),
            begins: Seq(21),
            manifest_id: ManifestId(7),
            began_at: UnixMillis(1),
        }];
        let undone = |seq, row| {
            let token = ChangeToken { timeline: None, seq: Seq(seq), table: 0, row, ..token() };
            token.undone_in(&state).and_then(|one| one.remains)
        };
        assert_eq!([undone(9, 1), undone(10, 0), undone(21, 0)], [None; 3]);
        assert_eq!([undone(10, 1), undone(11, 0), undone(20, 1)], [Some(Seq(10)); 3]);
        let history = |seq| {
            let place = LogPlace { seq: Seq(seq), wal: WalId(8) };
            ChangeToken::of(&state, place).timeline
        };
        assert_eq!([history(10), history(20)], [None, Some(TimelineId(5))]);
    }
}
