//! Splits the keys of a job into ranges that are merged in parallel. The indexes of the inputs tell
//! where the bytes are.

use super::host::{Host, KnownTables};
use crate::cache::metadata::MetadataBudget;
use bytes::Bytes;
use siltstone_base::{Result, SstDescriptor};
use siltstone_manifest::compaction::{Anchor, KeyRange, Work};
use std::cmp::Reverse;

/// Anchors from the indexes per range. Ranges differ in size by some percent at most if keys are
/// spread alike in all inputs.
const ANCHORS_A_RANGE: u64 = 32;
/// Ranges of even size per parallel merge. Cores differ in speed, and a core that is done takes the
/// next range. The last range runs alone for half a range on average, which is at most an eighth of
/// a core's time with this number.
const RANGES_AT_ONCE: usize = 4;
/// Maximum number of units of a job. Each takes about 500 bytes in every record of the job
/// (RFC 0018).
const MOST_UNITS: u64 = 4096;
/// Maximum number of tables whose indexes are read. For further inputs their first and last keys
/// suffice.
const INDEXES: usize = 64;

/// Number of ranges that are merged in parallel.
pub(super) fn parallelism(host: &dyn Host) -> usize {
    let wanted = host.options().compaction.compaction_ranges.map(|ranges| ranges as usize);
    let cores = host.env().spawn.cores();
    let own = if cores > 1 { host.env().store.profile().ranges_a_core * cores } else { cores };
    wanted.unwrap_or(own).max(1)
}

/// The ranges of `work`: several per parallel merge, of even size. No range is smaller than the
/// largest input, or than the size from which tables are moved instead of merged, so that a table
/// per range is worth its cost. For units of other processes: ranges of about `unit_bytes` each.
///
/// # Errors
/// Errors of the store; Corruption.
pub(super) async fn ranges(
    host: &dyn Host,
    work: &Work,
    unit_bytes: Option<u64>,
) -> Result<Vec<KeyRange>> {
    let tables = || work.groups.iter().flat_map(|group| &group.tables);
    let (parts, least) = match unit_bytes {
        // The last range of a group may be half as large.
        Some(bytes) => (in_units(work.read_bytes(), bytes), (bytes / 2).max(1)),
        None => {
            // Workers in other processes have cores too; assume as many as here.
            let at_once = parallelism(host) * (host.parts().workers + 1);
            let parts = if at_once == 1 { 1 } else { at_once * RANGES_AT_ONCE };
            let options = &host.options().compaction;
            let largest = tables().map(|table| table.object_bytes).max().unwrap_or_default();
            let least = largest.min(options.target_sst_bytes).max(options.min_move_bytes).max(1);
            (parts, least)
        }
    };
    if parts == 1 || work.read_bytes() < least.saturating_mul(2) {
        return Ok(work.ranges(&[], 1, u64::MAX));
    }
    let every = work.read_bytes() / (parts as u64).saturating_mul(ANCHORS_A_RANGE);
    let mut by_size: Vec<&SstDescriptor> = tables().collect();
    by_size.sort_by_key(|table| (Reverse(table.object_bytes), table.id));
    let (asked, rest) = by_size.split_at(by_size.len().min(INDEXES));
    let rest: Vec<SstDescriptor> = rest.iter().copied().cloned().collect();
    let mut anchors = Anchor::of_tables(&rest);
    let known = host.known_tables();
    for table in asked {
        anchors.extend(of_index(&known, host, table, every.max(1)).await?);
    }
    Ok(work.ranges(&Anchor::sum(anchors), parts, least))
}

/// Number of units of `unit` bytes in `bytes` bytes.
fn in_units(bytes: u64, unit: u64) -> usize {
    let units = bytes.div_ceil(unit.max(1)).clamp(1, MOST_UNITS);
    usize::try_from(units).unwrap_or(usize::MAX)
}

/// Keys of one table, each with the bytes of the table up to the next key.
async fn of_index(
    known: &KnownTables,
    host: &dyn Host,
    table: &SstDescriptor,
    every: u64,
) -> Result<Vec<Anchor>> {
    let budget = MetadataBudget::new(usize::MAX);
    let open = host.context().table_once(&known.handle(table, &budget)).await?;
    let mut key = table.first_key.clone();
    let (mut anchors, mut left) = (Vec::new(), table.tail_offset);
    // The index gives the bytes before a key.
    for (next, bytes) in open.table.anchors(every) {
        let next = Bytes::from(next);
        if next > *table.first_visible() {
            let key = key.max(table.first_visible().clone());
            anchors.push(Anchor { key, bytes });
        }
        (key, left) = (next, left.saturating_sub(bytes));
    }
    let key = key.max(table.first_visible().clone());
    anchors.push(Anchor { key, bytes: left });
    let ends = |key: &Bytes| table.visible_end.as_ref().is_some_and(|end| end <= key);
    anchors.retain(|anchor| !ends(&anchor.key));
    Ok(anchors)
}
