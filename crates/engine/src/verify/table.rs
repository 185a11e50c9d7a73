//! Verifies a table: reads every byte of the object once.

use super::{CHUNK_BYTES, Report, is_damage};
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{
    DatabaseId, Envelope, Error, ErrorKind, Kind, ObjectKind, ObjectName, Result, Seq,
    SstDescriptor, UnixMillis, checksum,
};
use siltstone_bloom::key_hash;
use siltstone_sst::{Block, Table};
use siltstone_store::progress::Progress;
use siltstone_store::retry::{limit_of, with_retries};
use siltstone_store::span;
use std::ops::Range;
use std::sync::Arc;

/// The result for one table.
pub(super) struct Checked {
    pub(super) name: ObjectName,
    /// Whether the object does not exist.
    pub(super) gone: bool,
    /// Set if the table is not damaged, but has the format of a newer version.
    pub(super) newer: Option<Error>,
    pub(super) report: Report,
}

impl Checked {
    fn gone(name: ObjectName) -> Checked {
        Checked { name, gone: true, newer: None, report: Report::default() }
    }
}

/// A table that is being read from its start to its end.
struct Reading {
    name: ObjectName,
    database: DatabaseId,
    table: Arc<Table>,
    /// CRC32C of all bytes so far.
    checksum: u32,
    counts: Counts,
    report: Report,
    /// Blocks of the last chunk that could not be decoded. They are read once more, because bytes
    /// may be damaged in transit.
    damaged: Vec<u32>,
    newer: Option<Error>,
}

/// Counts that are compared with the properties of the table.
#[derive(Default, PartialEq, Eq)]
struct Counts {
    entries: u64,
    tombstones: u64,
    merge_operands: u64,
    key_bytes: u64,
    value_bytes: u64,
    seqs: Option<(Seq, Seq)>,
    min_expiry: Option<UnixMillis>,
    max_expiry: Option<UnixMillis>,
    expiring: u64,
}

/// Reads and checks the whole table of `descriptor`. `listed` is its length in the listing, if it
/// was listed.
pub(super) async fn check(
    objects: &Objects,
    progress: &Progress,
    database: DatabaseId,
    descriptor: SstDescriptor,
    listed: Option<u64>,
) -> Result<Checked> {
    // The whole object is checked, even if the manifest makes only a part visible.
    let descriptor = descriptor.whole();
    let name = descriptor.name();
    let mut report = Report { tables: 1, ..Report::default() };
    if let Some(bytes) = listed.filter(|bytes| *bytes != descriptor.object_bytes) {
        let named = descriptor.object_bytes;
        report.problem(name, None, format_args!("has {bytes} bytes, and {named} by its manifest"));
    }
    let tail_range = Table::tail_range(&descriptor);
    let tail = match read(objects, name, tail_range.clone()).await {
        Ok(Some(tail)) => tail,
        Ok(None) => return Ok(Checked::gone(name)),
        Err(error) if is_damage(error.kind()) => return Ok(damaged(name, report, &error)),
        Err(error) => return Err(error),
    };
    progress.add(tail.len() as u64);
    report.bytes_read += tail.len() as u64;
    let opened = match Table::open(descriptor.clone(), tail.clone()) {
        Err(error) if error.kind() == ErrorKind::Corruption => {
            let again = read(objects, name, tail_range).await?.unwrap_or_default();
            Table::open(descriptor, again)
        }
        opened => opened,
    };
    let table = match opened {
        Ok(table) => Arc::new(table),
        Err(error) => return Ok(damaged(name, report, &error)),
    };
    let mut reading = Reading {
        name,
        database,
        table,
        checksum: checksum::crc32c(&[]),
        counts: Counts::default(),
        report,
        damaged: Vec::new(),
        newer: None,
    };
    let mut at = 0;
    while let Some((blocks, range)) = reading.chunk(at) {
        let bytes = match read(objects, name, range.clone()).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Checked::gone(name)),
            Err(error) if is_damage(error.kind()) => {
                return Ok(damaged(name, reading.report, &error));
            }
            Err(error) => return Err(error),
        };
        progress.add(bytes.len() as u64);
        at = blocks.end;
        let work = move || {
            reading.check_chunk(blocks, range.start, &bytes);
            reading
        };
        reading = objects.env.blocking("verify", work).await?;
        reading.read_again(objects).await?;
    }
    reading.finish(&tail);
    Ok(Checked { name, gone: false, newer: reading.newer, report: reading.report })
}

fn damaged(name: ObjectName, mut report: Report, error: &Error) -> Checked {
    report.problem(name, None, error);
    Checked { name, gone: false, newer: newer(error), report }
}

/// The error, if it reports the format of a newer version.
fn newer(error: &Error) -> Option<Error> {
    (error.kind() == ErrorKind::Unsupported).then(|| error.clone())
}

async fn read(objects: &Objects, name: ObjectName, range: Range<u64>) -> Result<Option<Bytes>> {
    if range.start >= range.end {
        return Err(
            Error::corruption("a part of the table has an empty range").with("range", span(&range))
        );
    }
    let get = || objects.env.store.get(name, Some(range.clone()));
    let limit = limit_of(objects.limit, range.end - range.start);
    with_retries(&objects.env, limit, "read", get).await
}

impl Reading {
    /// The blocks from number `from` on that one request reads, and the range of their bytes. The
    /// first chunk includes the envelope.
    fn chunk(&self, from: u32) -> Option<(Range<u32>, Range<u64>)> {
        let first = self.table.block_range(from)?;
        let start = if from == 0 { 0 } else { first.start };
        let mut end = first.end;
        let mut to = from + 1;
        while let Some(next) = self.table.block_range(to) {
            if next.end - start > CHUNK_BYTES {
                break;
            }
            end = next.end;
            to += 1;
        }
        Some((from..to, start..end))
    }

    fn check_chunk(&mut self, blocks: Range<u32>, start: u64, bytes: &Bytes) {
        self.report.bytes_read += bytes.len() as u64;
        self.checksum = checksum::extend(self.checksum, bytes);
        if blocks.start == 0 {
            self.check_envelope(bytes);
        }
        self.damaged.clear();
        for number in blocks {
            let Some(range) = self.table.block_range(number) else { continue };
            let (from, to) = (range.start - start, range.end - start);
            // A store returns the requested bytes or an error.
            let part = bytes.slice(from as usize..(to as usize).min(bytes.len()));
            match self.table.decode_block(number, part) {
                Ok(block) => self.count(number, &block),
                Err(_) => self.damaged.push(number),
            }
        }
    }

    /// Checks the envelope at the front, which readers of the tail never see. A table of a job's
    /// folder has the envelope of the process that built it; the checksum of the whole object
    /// proves that it is the one in the manifest.
    fn check_envelope(&mut self, bytes: &Bytes) {
        let head = bytes.get(..ENVELOPE_BYTES).unwrap_or_default();
        match Envelope::decode(head, ObjectKind::Table) {
            Err(error) => self.report.problem(self.name, Some(0), error),
            Ok(envelope) if envelope != *self.table.envelope() => {
                self.report.problem(self.name, Some(0), "the envelopes at both ends differ");
            }
            Ok(envelope) if envelope.database != self.database && !self.is_of_a_job() => {
                self.report.problem(self.name, Some(0), "belongs to another database");
            }
            Ok(_) => {}
        }
    }

    fn is_of_a_job(&self) -> bool {
        self.table.descriptor().job.is_some()
    }

    /// Reads damaged blocks once more, and reports those that are damaged in the store.
    async fn read_again(&mut self, objects: &Objects) -> Result<()> {
        for number in std::mem::take(&mut self.damaged) {
            let Some(range) = self.table.block_range(number) else { continue };
            let offset = range.start;
            let decoded = match read(objects, self.name, range).await {
                Ok(bytes) => self.table.decode_block(number, bytes.unwrap_or_default()),
                Err(error) => Err(error),
            };
            match decoded {
                Ok(block) => self.count(number, &block),
                Err(error) if is_damage(error.kind()) => {
                    self.newer = self.newer.take().or_else(|| newer(&error));
                    self.report.problem(self.name, Some(offset), error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts the entries of a block and looks each key up in the filter. Decoding has checked
    /// their order within the block and against the neighbouring blocks.
    fn count(&mut self, number: u32, block: &Block) {
        self.report.blocks += 1;
        let mut denied = 0u64;
        let mut position = 0;
        while let Some(entry) = block.entry(position) {
            self.counts.add(&entry);
            denied += u64::from(!self.table.may_contain(key_hash(entry.key)));
            position += 1;
        }
        if denied > 0 {
            let offset = self.table.block_range(number).map(|range| range.start);
            let text = format_args!("the filter denies {denied} keys of the block");
            self.report.problem(self.name, offset, text);
        }
    }

    /// Compares the counts with the properties of the table, and the checksum of the whole object
    /// with that of the manifest.
    fn finish(&mut self, tail: &Bytes) {
        self.report.entries = self.counts.entries;
        self.report.tombstones = self.counts.tombstones;
        self.checksum = checksum::extend(self.checksum, tail);
        if self.report.problem_count > 0 {
            // The counts of the readable blocks say nothing then.
            return;
        }
        let descriptor = self.table.descriptor();
        if self.checksum != descriptor.checksum {
            let what = "the checksum of the whole object is not the manifest's";
            self.report.problem(self.name, None, what);
        }
        for range in self.table.range_deletes().list() {
            self.counts.seen(range.seq);
        }
        let properties = self.table.properties();
        let counts = &self.counts;
        // If the manifest overrides sequence numbers, decoded blocks have those of the manifest.
        let seqs = descriptor.seq_override.is_some()
            || counts.seqs == Some((properties.min_seq, properties.max_seq));
        let all_expire = counts.expiring == counts.entries;
        let max_expiry = counts.max_expiry.filter(|_| all_expire);
        let pairs = [
            ("entries", counts.entries == properties.entries),
            ("tombstones", counts.tombstones == properties.tombstones),
            ("merge operands", counts.merge_operands == properties.merge_operands),
            ("bytes of keys", counts.key_bytes == properties.key_bytes),
            ("bytes of values", counts.value_bytes == properties.value_bytes),
            ("sequence numbers", seqs),
            ("earliest expiry", counts.min_expiry == properties.min_expiry),
            ("latest expiry", max_expiry == properties.max_expiry),
        ];
        for (what, _) in pairs.iter().filter(|(_, right)| !right) {
            let text = format_args!("the properties are wrong about its {what}");
            self.report.problem(self.name, None, text);
        }
    }
}

impl Counts {
    fn seen(&mut self, seq: Seq) {
        let (min, max) = self.seqs.unwrap_or((seq, seq));
        self.seqs = Some((min.min(seq), max.max(seq)));
    }

    fn add(&mut self, entry: &siltstone_base::Entry<'_>) {
        self.entries += 1;
        self.tombstones += u64::from(entry.kind == Kind::Delete);
        self.merge_operands += u64::from(entry.kind == Kind::Merge);
        self.key_bytes += entry.key.len() as u64;
        self.value_bytes += entry.value.len() as u64;
        self.seen(entry.seq);
        if let Some(at) = entry.expires_at {
            self.expiring += 1;
            self.min_expiry = Some(self.min_expiry.map_or(at, |min| min.min(at)));
            self.max_expiry = self.max_expiry.max(Some(at));
        }
    }
}
