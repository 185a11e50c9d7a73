//! A memtable as a table: what survives of it goes into a builder, and from there into the store.

use crate::io::env::Env;
use crate::io::store::Upload;
use bytes::Bytes;
use siltstone_base::{Envelope, Error, MergeOperator, Result, SstDescriptor, Step, UnixMillis};
use siltstone_memtable::{MemCursor, Memtable};
use siltstone_merge::{Retain, Retention};
use siltstone_sst::{TableBuilder, TableOptions};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are built between two chances for other tasks, and the size of an upload's chunk:
/// some 10 ms of one core.
const SLICE_BYTES: usize = 4 << 20;

/// A table under construction. Everything that decides its bytes is fixed when it is begun.
pub(crate) struct TableInProgress {
    rows: Retain<MemCursor>,
    builder: Option<TableBuilder>,
}

impl TableInProgress {
    /// The newest version of each key, with its number: whoever reads older ones holds the memtable
    /// itself. Operands are folded where `operator` is there.
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

    /// Adds rows until about [`SLICE_BYTES`] are ready; `None` once there are no more.
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
                None => return Err(Error::internal("retention stands on no entry")),
            }
        }
    }

    /// Builds the table and uploads it. What was sent of an upload that fails is freed: a store
    /// bills parts that nobody sees, and a folder holds them. An end that fails is the upload's
    /// own to free: only it knows what of it may stand.
    pub(crate) async fn stream(
        mut self,
        env: &Env,
        mut upload: Box<dyn Upload>,
    ) -> Result<SstDescriptor> {
        match self.send(env, &mut *upload).await {
            Ok(descriptor) => upload.finish().await.map(|()| descriptor),
            Err(error) => {
                // What failed first is what the caller must know.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    async fn send(&mut self, env: &Env, upload: &mut dyn Upload) -> Result<SstDescriptor> {
        while let Some(chunk) = self.slice()? {
            upload.write(chunk).await?;
            // A chance for others between two slices.
            env.clock.sleep(Duration::ZERO).await;
        }
        let builder = self.builder.take();
        let builder = builder.ok_or_else(|| Error::internal("a table is finished once"))?;
        let (rest, descriptor) = builder.finish()?;
        upload.write(rest).await?;
        Ok(descriptor)
    }
}
