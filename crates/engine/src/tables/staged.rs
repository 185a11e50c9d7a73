//! A part of an ingest job (RFC 0035): rows in any order become sorted tables in the job's folder.
//! Any process can do this, without access to the database.

use super::sorter::Sorter;
use super::spare::SpareBuffers;
use super::writer::{Duplicates, PushResult, equal_keys};
use crate::options::Options;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::entry::{check_key, check_value};
use siltstone_base::{
    AttemptId, DatabaseId, Entry, Envelope, Error, JobId, Kind, MergeOperator, ObjectId,
    ObjectKind, ObjectName, Result, Seq, SstDescriptor, SstId, UnixMillis,
};
use siltstone_manifest::ingest::{ClosedJob, layered};
use siltstone_merge::built_in;
use siltstone_sst::TableBuilder;
use siltstone_store::Upload;
use siltstone_store::env::{Effects, Env};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Chunk size of an upload, and bytes that are built before other tasks may run: about 10 ms of one
/// core.
pub(super) const SLICE_BYTES: usize = 4 << 20;

/// How a part is staged.
#[derive(Clone, Debug)]
pub struct PartOptions {
    /// Block size, codec and filter; other options have no effect.
    pub options: Options,
    /// The treatment of equal keys.
    pub duplicates: Duplicates,
    /// Memory for sorting, in bytes; further rows go to temporary files.
    pub sort_memory_bytes: usize,
    /// The existing folder of these files.
    pub scratch: PathBuf,
    /// A table is complete at this many bytes of rows.
    pub table_bytes: u64,
}

/// A staged part of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedPart {
    pub(crate) job: JobId,
    pub(crate) database: DatabaseId,
    /// Its tables in key order.
    pub(crate) tables: Vec<SstDescriptor>,
    /// Whether they hold merge operands.
    pub(crate) operands: bool,
}

impl StagedPart {
    /// Number of rows in its tables.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.entries).sum()
    }

    /// Size of its tables in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.object_bytes).sum()
    }

    /// Number of its tables.
    #[must_use]
    pub fn tables(&self) -> u64 {
        self.tables.len() as u64
    }

    /// Encodes the part, in the form of a closed job, so that a task can send it to the process
    /// that closes the job.
    ///
    /// # Errors
    /// Invalid if the part has too many tables.
    pub fn to_bytes(&self) -> Result<Bytes> {
        let StagedPart { job, database, ref tables, operands } = *self;
        let (attempt, timeline, app, behind) = (AttemptId::NONE, None, None, false);
        let layers = layered(tables.clone());
        ClosedJob { job, database, attempt, timeline, app, layers, behind, operands }.encode()
    }

    /// Decodes a part.
    ///
    /// # Errors
    /// Corruption, Unsupported.
    pub fn from_bytes(bytes: &[u8]) -> Result<StagedPart> {
        let ClosedJob { job, database, layers, operands, .. } = ClosedJob::decode(bytes)?;
        let tables = layers.into_iter().flatten().collect();
        Ok(StagedPart { job, database, tables, operands })
    }
}

/// The merge operands that a part accepts.
pub(crate) enum Operands {
    /// None, for this reason.
    Refused(&'static str),
    /// Those of a built-in operator.
    Checked(Arc<dyn MergeOperator>),
    /// All: only the processes of the database have the operator.
    Any,
}

impl Operands {
    /// Those of a part of a job.
    ///
    /// `operator` is the name of the database's merge operator.
    pub(crate) fn of(operator: Option<&str>, behind: bool, duplicates: Duplicates) -> Operands {
        match operator {
            None => Operands::Refused(
                "the database had no merge operator when the job began: open it once with \
                 merge_operator, and begin another job",
            ),
            Some(_) if behind => Operands::Refused(
                "a job whose rows are older than the database takes no merge operands",
            ),
            Some(_) if duplicates == Duplicates::KeepLast => Operands::Refused(
                "a part that keeps the last of equal keys takes no merge operands, because it \
                 would drop some: combine the operands of each key first, and set \
                 duplicates=\"error\"",
            ),
            Some(name) => built_in(name).map_or(Operands::Any, Operands::Checked),
        }
    }

    fn check(&self, operand: &[u8]) -> Result<()> {
        match self {
            Operands::Refused(reason) => Err(Error::invalid(*reason)),
            Operands::Checked(operator) => operator.check(operand),
            Operands::Any => Ok(()),
        }
    }
}

/// Stages one part of a job.
pub struct PartWriter {
    env: Env,
    job: JobId,
    database: DatabaseId,
    operands: Operands,
    how: PartOptions,
    sorter: Sorter,
    rows: u64,
    has_operands: bool,
    /// A call has failed or was cancelled, and rows may be lost, so further calls fail.
    broken: bool,
}

impl PartWriter {
    /// A part of `job`, which belongs to `database`, in the store of `env`.
    pub(crate) fn new(
        env: Env,
        (job, database): (JobId, DatabaseId),
        how: PartOptions,
        operands: Operands,
    ) -> PartWriter {
        let Env { clock, random, spawn, .. } = env.clone();
        let effects = Effects { clock, random, spawn };
        let sorter = Sorter::new(effects, how.sort_memory_bytes, how.scratch.clone());
        let (rows, has_operands, broken) = (0, false, false);
        PartWriter { env, job, database, operands, how, sorter, rows, has_operands, broken }
    }

    /// Number of added rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row of kind put, merge or delete (without a value).
    ///
    /// # Errors
    /// Invalid for an invalid key or value, and for a merge operand that the database's operator or
    /// the kind of job does not accept: the writer is unchanged then. Invalid too after an earlier
    /// failure.
    pub fn push(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> Result<PushResult> {
        self.check_whole()?;
        check_key(key)?;
        check_value(value)?;
        if kind == Kind::Merge {
            self.operands.check(value)?;
            self.has_operands = true;
        }
        let entry = Entry { key, seq: Seq(self.rows + 1), kind, expires_at, value };
        let full = self.sorter.push(&entry)?;
        self.rows += 1;
        Ok(if full { PushResult::Full } else { PushResult::Room })
    }

    /// Frees memory by writing its rows to a file.
    ///
    /// # Errors
    /// Errors of the file system. The writer cannot be used any more then.
    pub fn relieve(&mut self) -> BoxFuture<'_, Result<()>> {
        async move {
            self.check_whole()?;
            // It stays set if this future is dropped.
            self.broken = true;
            self.sorter.spill().await?;
            self.broken = false;
            Ok(())
        }
        .boxed()
    }

    /// Makes all later calls fail, because rows were refused halfway.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// Completes the part: its tables are whole and durable, in key order. There are none without
    /// rows.
    ///
    /// # Errors
    /// Invalid for equal keys that are refused; Unavailable, Denied, as the store reports. Uploaded
    /// tables are deleted with the job.
    pub fn finish(self) -> BoxFuture<'static, Result<StagedPart>> {
        async move {
            self.check_whole()?;
            let PartWriter { env, job, database, how, sorter, has_operands: operands, .. } = self;
            let mut sorted = sorter.finish().await?;
            let (mut tables, mut open): (Vec<SstDescriptor>, Option<OpenPart>) = (Vec::new(), None);
            let mut last: Option<(Vec<u8>, Seq)> = None;
            let spare = SpareBuffers::new(SLICE_BYTES);
            while sorted.advance().await? {
                let Some(entry) = sorted.entry() else {
                    return Err(Error::internal("a sort has no current row"));
                };
                if let Some((key, before)) = &last
                    && key.as_slice() == entry.key
                {
                    if how.duplicates == Duplicates::Refuse {
                        return Err(equal_keys(*before, entry.seq));
                    }
                    continue;
                }
                if let Some(full) = open.take_if(|open| open.bytes >= how.table_bytes) {
                    tables.push(full.finish(job).await?);
                }
                let part = match &mut open {
                    Some(open) => open,
                    None => open.insert(
                        OpenPart::begin(&env, (job, database), &how.options, &spare).await?,
                    ),
                };
                last = Some((entry.key.to_vec(), entry.seq));
                if let Some(chunk) = part.add(&entry)? {
                    part.upload.write(chunk).await?;
                    // Let other tasks run between two slices.
                    env.clock.sleep(Duration::ZERO).await;
                }
            }
            if let Some(rest) = open {
                tables.push(rest.finish(job).await?);
            }
            Ok(StagedPart { job, database, tables, operands })
        }
        .boxed()
    }

    fn check_whole(&self) -> Result<()> {
        if self.broken {
            return Err(Error::invalid("an earlier call of this writer failed; begin another one"));
        }
        Ok(())
    }
}

impl fmt::Debug for PartWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartWriter")
            .field("job", &self.job)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

/// A table that is being built.
pub(super) struct OpenPart {
    pub(super) builder: TableBuilder,
    pub(super) upload: Box<dyn Upload>,
    /// Bytes of its rows.
    pub(super) bytes: u64,
    /// The pool of its memory.
    pub(super) spare: SpareBuffers,
}

impl OpenPart {
    /// Begins a table. Each table has a fresh name, so that a late upload of an earlier attempt
    /// cannot overwrite it (rule N7).
    pub(super) async fn begin(
        env: &Env,
        (job, database): (JobId, DatabaseId),
        options: &Options,
        spare: &SpareBuffers,
    ) -> Result<OpenPart> {
        let (name, attempt) = (SstId(env.new_ulid()), AttemptId(env.random_u128()));
        let object = ObjectId(name.get());
        let envelope = Envelope::new(ObjectKind::Table, database, object, attempt);
        let open = env.store.upload(ObjectName::IngestSst(job, name));
        let upload = env.deadline(options.deadline, "begin upload", open).await?;
        let builder = spare.builder(options.table_options(), envelope);
        Ok(OpenPart { builder, upload, bytes: 0, spare: spare.clone() })
    }

    /// Adds a row at sequence number 0: the whole table counts at the number of its ingest (rule
    /// P4).
    pub(super) fn add(&mut self, entry: &Entry<'_>) -> Result<Option<Bytes>> {
        self.builder.add(&Entry { seq: Seq::NONE, ..*entry })?;
        self.bytes += (entry.key.len() + entry.value.len()) as u64;
        Ok(self.spare.chunk(&mut self.builder))
    }

    /// Completes the table.
    pub(super) async fn finish(mut self, job: JobId) -> Result<SstDescriptor> {
        let (rest, descriptor) = self.spare.finish(self.builder)?;
        self.upload.write(rest).await?;
        self.upload.finish().await?;
        Ok(SstDescriptor { job: Some(job), ..descriptor })
    }
}
