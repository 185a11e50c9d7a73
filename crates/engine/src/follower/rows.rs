//! Rows of the log that a reader has in memory. Their bytes are bounded by `max_memtable_bytes`.

use crate::options::Options;
use crate::read::queue::QueuedIngest;
use crate::wal::replay::{ingest_of, insert_rows};
use siltstone_base::{Error, Result, Seq};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalIngest, WalObject};
use std::sync::Arc;

/// Bytes of rows in one memtable. A whole memtable is released once tables contain its rows.
const SEGMENT_BYTES: usize = 8 << 20;

/// An ingest of the log.
enum LogIngest {
    /// Read from the log. It is served once its tables are known and kept (rule Q5).
    Met(WalIngest),
    /// Reads use it.
    Served(Arc<QueuedIngest>),
}

impl LogIngest {
    fn last(&self) -> Seq {
        match self {
            LogIngest::Met(ingest) => ingest.last_seq(),
            LogIngest::Served(ingest) => ingest.last,
        }
    }
}

/// Rows and ingests in the order of their sequence numbers.
pub(crate) struct LogRows {
    /// Newest first; never empty. None spans an ingest (rule Q1): the first one, which takes the
    /// next rows, lies above all ingests.
    segments: Vec<Arc<Memtable>>,
    /// Ingests among them, newest first.
    ingests: Vec<LogIngest>,
    most: usize,
    /// Bytes by which a writer with the same options may exceed that bound: the last batch that it
    /// admitted.
    batch: usize,
}

impl LogRows {
    /// No rows yet. The bound is the memory of a writer with these options. The rows may exceed it
    /// by one WAL object, because the reader can always take one object, and by one memtable, whose
    /// older rows may be in tables too.
    pub(crate) fn of(options: &Options) -> LogRows {
        let (most, batch) = (options.max_memtable_bytes, options.max_batch_bytes);
        LogRows { segments: vec![Arc::default()], ingests: Vec::new(), most, batch }
    }

    /// Adds the rows of `body` above `flushed`, and the ingest that `body` may end with. Otherwise
    /// as [`insert_rows`].
    ///
    /// # Errors
    /// Corruption; Unsupported for a record of a newer version.
    pub(crate) fn push(
        &mut self,
        body: &WalObject,
        flushed: Seq,
        before: Seq,
    ) -> Result<Option<Seq>> {
        if self.segments.first().is_none_or(|newest| newest.bytes() >= self.segment()) {
            self.segments.insert(0, Arc::default());
        }
        let Some(active) = self.segments.first() else { return Ok(None) };
        let last = insert_rows(active, body, flushed, before)?;
        let Some(ingest) = ingest_of(body, flushed, last.unwrap_or(before))? else {
            return Ok(last);
        };
        let last = ingest.last_seq();
        self.segments.insert(0, Arc::default());
        self.ingests.insert(0, LogIngest::Met(ingest));
        Ok(Some(last))
    }

    /// The oldest ingest that is not served yet. The rows behind it are not served either.
    pub(crate) fn held_up_by(&self) -> Option<&WalIngest> {
        self.ingests.iter().rev().find_map(|one| match one {
            LogIngest::Met(ingest) => Some(ingest),
            LogIngest::Served(_) => None,
        })
    }

    /// Serves the oldest ingest that was not served.
    pub(crate) fn serve(&mut self, queued: Arc<QueuedIngest>) {
        let met = |one: &LogIngest| matches!(one, LogIngest::Met(_));
        if let Some(place) = self.ingests.iter().rposition(met)
            && let Some(one) = self.ingests.get_mut(place)
        {
            *one = LogIngest::Served(queued);
        }
    }

    /// The served ingests, newest first.
    pub(crate) fn queued(&self) -> Vec<Arc<QueuedIngest>> {
        let served = self.ingests.iter().filter_map(|one| match one {
            LogIngest::Met(_) => None,
            LogIngest::Served(ingest) => Some(Arc::clone(ingest)),
        });
        served.collect()
    }

    /// Releases rows and ingests up to `flushed`, which are in tables. A memtable is released only
    /// as a whole. An empty first one stays, because the one after it may lie below an ingest.
    pub(crate) fn release(&mut self, flushed: Seq) {
        self.ingests.retain(|one| one.last() > flushed);
        let is_in_tables = |one: &Arc<Memtable>| one.last_seq().is_some_and(|last| last <= flushed);
        let (active, mut older) = self.memtables();
        older.retain(|one| one.last_seq().is_some() && !is_in_tables(one));
        older.insert(0, if is_in_tables(&active) { Arc::default() } else { active });
        self.segments = older;
    }

    /// Releases all rows and ingests.
    pub(crate) fn clear(&mut self) {
        self.segments = vec![Arc::default()];
        self.ingests.clear();
    }

    /// The memtables, newest first: the active one, and the others.
    pub(crate) fn memtables(&self) -> (Arc<Memtable>, Vec<Arc<Memtable>>) {
        let (active, frozen) = self.segments.split_first().unzip();
        (active.cloned().unwrap_or_default(), frozen.unwrap_or_default().to_vec())
    }

    /// Whether memory is full, with `under_way` bytes of objects that were read and not added yet.
    pub(crate) fn is_full(&self, under_way: usize) -> bool {
        let most = self.most.saturating_add(self.batch).saturating_add(self.segment());
        self.bytes().saturating_add(under_way) >= most
    }

    /// Whether memory use is a reason to use newer tables.
    pub(crate) fn is_half_full(&self) -> bool {
        self.bytes() >= self.most / 2
    }

    /// Maximum bytes of objects that are read and not added yet.
    pub(crate) fn most_under_way(&self) -> usize {
        self.most / 4
    }

    /// The error for a log that does not fit into memory.
    pub(crate) fn too_much(&self) -> Error {
        Error::invalid(
            "the log holds more rows that no table has yet than this reader may keep in memory; \
             raise max_memtable_bytes, or have the writer flush its memtable (a checkpoint made \
             after that needs none of the log)",
        )
        .with("max_memtable_bytes", self.most)
        .with("bytes held", self.bytes())
    }

    fn bytes(&self) -> usize {
        self.segments.iter().map(|one| one.bytes()).sum()
    }

    fn segment(&self) -> usize {
        SEGMENT_BYTES.min(self.most / 8)
    }
}
