//! Large batches (RFC 0044): the encoding of their tables in a log record.

use crate::ingest::{decode_layer, encode_layer};
use crate::invariant::is_before;
use crate::state::Manifest;
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{Error, Result, SstDescriptor};
use std::collections::HashSet;

/// Encodes tables for a log record. Equal tables give equal bytes.
#[must_use]
pub fn encode_tables(tables: &[SstDescriptor]) -> Bytes {
    encode_layer(tables).into()
}

/// Decodes the tables of a record: disjoint, in key order, at least one.
///
/// # Errors
/// Corruption for damaged bytes, and for tables that cannot belong to a batch; Unsupported for data
/// of a newer version.
pub fn decode_tables(bytes: &[u8]) -> Result<Vec<SstDescriptor>> {
    let tables = decode_layer(bytes)?;
    let well = |table: &SstDescriptor| {
        table.job.is_none()
            && !table.id.is_none()
            && table.location == SstLocation::Own
            && table.seq_override.is_none()
            && !table.is_cut()
            && table.first_key <= table.last_key
            && table.tail_offset < table.object_bytes
    };
    let mut pairs = tables.iter().zip(tables.iter().skip(1));
    let mut names = HashSet::new();
    let mut each_once = tables.iter().map(|table| names.insert(table.id));
    let formed = !tables.is_empty()
        && tables.iter().all(well)
        && pairs.all(|(left, right)| is_before(left, right))
        && each_once.all(|new| new);
    if !formed {
        return Err(Error::corruption("impossible tables of a large batch in the log"));
    }
    Ok(tables)
}

/// Whether a process that reads by `state` can rely on the tables of a batch that is not installed
/// there (rule Q5).
#[must_use]
pub fn keeps(state: &Manifest, tables: &[SstDescriptor]) -> bool {
    tables.iter().all(|table| state.left.contains(&table.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;
    use siltstone_base::{ErrorKind, JobId, Seq, SstId};

    fn tables() -> Vec<SstDescriptor> {
        let one = |id, first: &[u8], last: &[u8]| table(SstId(id), first, last, 0, 0);
        vec![one(7, b"a", b"c"), one(8, b"d", b"d"), one(9, b"e", b"z")]
    }

    #[test]
    fn tables_come_back() {
        assert_eq!(decode_tables(&encode_tables(&tables())).unwrap(), tables());
    }

    #[test]
    fn tables_that_no_batch_has_are_corruption() {
        let with = |change: fn(&mut Vec<SstDescriptor>)| {
            let mut tables = tables();
            change(&mut tables);
            decode_tables(&encode_tables(&tables)).unwrap_err().kind()
        };
        let impossible: [fn(&mut Vec<SstDescriptor>); 7] = [
            |all| all.clear(),
            |all| all.swap(0, 1),
            |all| all[1].id = SstId(7),
            |all| all[0].id = SstId(0),
            |all| all[0].job = Some(JobId(3)),
            |all| all[2].seq_override = Some(Seq(3)),
            |all| all[0].last_key = b"d".to_vec().into(),
        ];
        for change in impossible {
            assert_eq!(with(change), ErrorKind::Corruption);
        }
    }

    /// The log's checksum detects damage; these bytes have a correct one.
    #[test]
    fn any_bytes_give_tables_or_an_error() {
        let bytes = encode_tables(&tables());
        for length in 0..bytes.len() {
            drop(decode_tables(&bytes[..length]));
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            drop(decode_tables(&flipped));
        }
    }
}
