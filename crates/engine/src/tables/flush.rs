//! Writes a memtable as a table: the entries that retention keeps go through a builder into the
//! store.

use bytes::Bytes;
use siltstone_base::{Envelope, Error, MergeOperator, Result, SstDescriptor, Step, UnixMillis};
use siltstone_memtable::{MemCursor, Memtable};
use siltstone_merge::{Retain, Retention};
use siltstone_sst::{TableBuilder, TableOptions};
use siltstone_store::Upload;
use siltstone_store::env::Env;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are built before other tasks may run, and the chunk size of an upload: about 10 ms of
/// one core.
const SLICE_BYTES: usize = 4 << 20;

/// A table under construction. Everything that determines its bytes is fixed at the beginning.
pub(crate) struct TableInProgress {
    rows: Retain<MemCursor>,
    builder: Option<TableBuilder>,
}

impl TableInProgress {
    /// Writes the newest version of each key, with its sequence number. Readers of older versions
    /// hold the memtable itself. Operands are folded if there is an `operator`.
    pub(crate) fn new(
        memtable: &Arc<Memtable>,
        envelope: Envelope,
        options: TableOptions,
        now: UnixMillis,
        operator: Option<&Arc<dyn MergeOperator>>,
    ) -> Result<Self> {
        let retention = Retention {
            now,
            operator: operator.cloned(),
            range_deletes: memtable.range_deletes(),
            ..Retention::default()
        };
        let rows = Retain::new(memtable.cursor().passing_once(), retention);
        let mut builder = TableBuilder::new(options, envelope).expecting(memtable.len());
        builder.add_range_deletes(&rows.range_deletes())?;
        Ok(TableInProgress { rows, builder: Some(builder) })
    }

    /// Adds rows until about [`SLICE_BYTES`] are ready. Returns `None` once there are no more rows.
    fn slice(&mut self) -> Result<Option<Bytes>> {
        let Some(builder) = self.builder.as_mut() else { return Ok(None) };
        loop {
            if let Some(chunk) = builder.take_chunk(SLICE_BYTES) {
                return Ok(Some(chunk));
            }
            match self.rows.advance()? {
                Step::Ready => {}
                Step::End => return Ok(None),
                Step::NeedBlock(_) => return Err(Error::internal("a memtable has no blocks")),
            }
            match self.rows.entry() {
                Some(entry) => builder.add(&entry)?,
                None => return Err(Error::internal("retention has no current entry")),
            }
        }
    }

    /// Builds the table and uploads it. The sent bytes of a failed upload are freed, because a
    /// store bills invisible parts, and a folder keeps them. If finishing fails, the upload frees
    /// them itself: only it knows which of them may exist.
    pub(crate) async fn stream(
        mut self,
        env: &Env,
        mut upload: Box<dyn Upload>,
    ) -> Result<SstDescriptor> {
        match self.send(env, &mut *upload).await {
            Ok(descriptor) => upload.finish().await.map(|()| descriptor),
            Err(error) => {
                // The first error matters, not that of the abort.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    async fn send(&mut self, env: &Env, upload: &mut dyn Upload) -> Result<SstDescriptor> {
        while let Some(chunk) = self.slice()? {
            upload.write(chunk).await?;
            // Let other tasks run between two slices.
            env.clock.sleep(Duration::ZERO).await;
        }
        let builder = self.builder.take();
        let builder = builder.ok_or_else(|| Error::internal("a table was finished twice"))?;
        let (rest, descriptor) = builder.finish()?;
        upload.write(rest).await?;
        Ok(descriptor)
    }
}
