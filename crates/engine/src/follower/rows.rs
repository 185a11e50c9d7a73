//! Rows of the log that a reader holds in memory: as many as `max_memtable_bytes` allows.

use crate::options::Options;
use crate::read::queue::QueuedIngest;
use crate::wal::replay::{ingest_of, insert_rows};
use siltstone_base::{Error, Result, Seq};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalIngest, WalObject};
use std::sync::Arc;

/// Bytes of rows in one memtable; whole memtables are let go once tables cover them.
const SEGMENT_BYTES: usize = 8 << 20;

/// An ingest of the log.
enum LogIngest {
    /// It may be read once what it brings is known, and kept (rule Q5).
    Met(WalIngest),
    /// It is read.
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

/// Rows in the order of their numbers.
pub(crate) struct LogRows {
    /// Newest first; never empty. None spans an ingest (rule Q1).
    segments: Vec<Arc<Memtable>>,
    /// Ingests among them, newest first.
    ingests: Vec<LogIngest>,
    most: usize,
    /// What a writer of the same options may go over that by: the batch that it admitted last.
    batch: usize,
}

impl LogRows {
    /// None yet, and at most as many bytes as a writer of these options may have in memory. Beyond
    /// that come one object, since no object is too much, and one memtable, whose older rows tables
    /// may have as well.
    pub(crate) fn of(options: &Options) -> LogRows {
        let (most, batch) = (options.max_memtable_bytes, options.max_batch_bytes);
        LogRows { segments: vec![Arc::default()], ingests: Vec::new(), most, batch }
    }

    /// Puts the rows of `body` above `flushed` on top, and the ingest that it may end with; as
    /// [`insert_rows`].
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

    /// The oldest ingest that is not read yet: what comes behind it is not either.
    pub(crate) fn held_up_by(&self) -> Option<&WalIngest> {
        self.ingests.iter().rev().find_map(|one| match one {
            LogIngest::Met(ingest) => Some(ingest),
            LogIngest::Served(_) => None,
        })
    }

    /// From now on the oldest that was not is read.
    pub(crate) fn serve(&mut self, queued: Arc<QueuedIngest>) {
        let met = |one: &LogIngest| matches!(one, LogIngest::Met(_));
        if let Some(place) = self.ingests.iter().rposition(met)
            && let Some(one) = self.ingests.get_mut(place)
        {
            *one = LogIngest::Served(queued);
        }
    }

    /// Ingests that are read, newest first.
    pub(crate) fn queued(&self) -> Vec<Arc<QueuedIngest>> {
        let served = self.ingests.iter().filter_map(|one| match one {
            LogIngest::Met(_) => None,
            LogIngest::Served(ingest) => Some(Arc::clone(ingest)),
        });
        served.collect()
    }

    /// Lets go of what tables have up to `flushed`, as far as that is whole memtables.
    pub(crate) fn let_go(&mut self, flushed: Seq) {
        self.ingests.retain(|one| one.last() > flushed);
        self.segments.retain(|one| one.last_seq().is_some_and(|last| last > flushed));
        if self.segments.is_empty() {
            self.segments.push(Arc::default());
        }
    }

    /// Lets go of all.
    pub(crate) fn clear(&mut self) {
        self.segments = vec![Arc::default()];
        self.ingests.clear();
    }

    /// The memtables, newest first: the one that takes rows, and the others.
    pub(crate) fn memtables(&self) -> (Arc<Memtable>, Vec<Arc<Memtable>>) {
        let (active, frozen) = self.segments.split_first().unzip();
        (active.cloned().unwrap_or_default(), frozen.unwrap_or_default().to_vec())
    }

    /// Whether nothing more is to be read before something goes, with so many bytes under way.
    pub(crate) fn is_full(&self, under_way: usize) -> bool {
        let most = self.most.saturating_add(self.batch).saturating_add(self.segment());
        self.bytes().saturating_add(under_way) >= most
    }

    /// Whether memory is a reason to take newer tables up.
    pub(crate) fn is_half_full(&self) -> bool {
        self.bytes() >= self.most / 2
    }

    /// Bytes of objects that may be under way before they are put here.
    pub(crate) fn most_under_way(&self) -> usize {
        self.most / 4
    }

    /// Why no more is read.
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
