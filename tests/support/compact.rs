//! A compactor for tests: merges everything into one table, by the real edits, without a job
//! record. So no collector may run meanwhile.

use crate::gc::{commit, newest};
use siltstone::store::conditional;
use siltstone::{Env, Error};
use siltstone_base::{
    AttemptId, BlockAddr, Envelope, JobId, ObjectId, ObjectKind, ObjectName, PutOutcome,
    SstDescriptor, SstId, Step, TablePart,
};
use siltstone_manifest::{Edit, FinishCompaction, Manifest};
use siltstone_merge::{Direction, Merge, Retain, Retention};
use siltstone_sst::{Block, BlockSource, Table, TableBuilder, TableCursor, TableOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rewrites every table into one. Returns the number of merged tables; 0 without a database or a
/// table.
///
/// # Errors
/// Errors of the store, and refusals of the commits; it may stop at any point without harm.
pub async fn everything(env: &Env) -> Result<usize, Error> {
    let Some(known) = newest(env).await? else { return Ok(0) };
    let claim = AttemptId(env.random_u128());
    let claimed = Edit::ClaimCompactor { writer: None, expected: known.compactor_epoch, claim };
    let state = commit(env, claimed, known).await?;
    let remove: Vec<TablePart> = state.tables().map(SstDescriptor::part).collect();
    if remove.is_empty() {
        return Ok(0);
    }
    let finish = FinishCompaction {
        epoch: state.compactor_epoch,
        job: JobId(env.random_u128()),
        planned_on: state.id,
        add: merged(env, &state).await?.into_iter().collect(),
        destination: 0,
        retire: state.finished_jobs.iter().map(|done| done.job).collect(),
        remove,
    };
    let gone = finish.remove.len();
    commit(env, Edit::FinishCompaction(finish), state).await?;
    Ok(gone)
}

/// The newest version of every key, uploaded as one table.
async fn merged(env: &Env, state: &Manifest) -> Result<Option<SstDescriptor>, Error> {
    let (mut sources, mut range_deletes) = (Vec::new(), Vec::new());
    for descriptor in state.tables() {
        let (table, blocks) = load(env, descriptor).await?;
        range_deletes.extend_from_slice(table.range_deletes().list());
        sources.push(TableCursor::new(table, blocks));
    }
    let now = env.clock.now();
    let retention = Retention { bottom: true, now, range_deletes, ..Retention::default() };
    let mut rows = Retain::new(Merge::new(sources, Direction::Forward), retention);
    let name = SstId(env.new_ulid());
    let attempt = AttemptId(env.random_u128());
    let envelope = Envelope::new(ObjectKind::Table, state.database, ObjectId(name.get()), attempt);
    let mut builder = TableBuilder::new(TableOptions::default(), envelope);
    while rows.advance()? == Step::Ready {
        if let Some(entry) = rows.entry() {
            builder.add(&entry)?;
        }
    }
    if builder.entries() == 0 {
        return Ok(None);
    }
    let (bytes, descriptor) = builder.finish()?;
    let created = conditional::create(env, ObjectName::Compacted(name), bytes, attempt).await;
    match (created.outcome, created.error) {
        (PutOutcome::Committed, _) => Ok(Some(descriptor)),
        (_, Some(error)) => Err(error),
        (_, None) => Err(Error::internal("a fresh name is taken")),
    }
}

/// Every block of one table.
struct Blocks(BTreeMap<BlockAddr, Arc<Block>>);

impl BlockSource for Blocks {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        self.0.get(&addr).cloned()
    }
}

async fn load(env: &Env, descriptor: &SstDescriptor) -> Result<(Arc<Table>, Blocks), Error> {
    let name = ObjectName::Compacted(descriptor.id);
    let gone = || Error::corruption("a table that the newest manifest names is gone");
    let bytes = env.store.get(name, Some(0..descriptor.object_bytes)).await?.ok_or_else(gone)?;
    if bytes.len() as u64 != descriptor.object_bytes {
        return Err(Error::corruption("a table was read short"));
    }
    let part = |range: std::ops::Range<u64>| bytes.slice(range.start as usize..range.end as usize);
    let table = Table::open(descriptor.clone(), part(Table::tail_range(descriptor)))?;
    let mut blocks = BTreeMap::new();
    for block in 0..table.block_count() {
        let range = table.block_range(block).ok_or_else(gone)?;
        let addr = BlockAddr { sst: descriptor.id, block };
        blocks.insert(addr, Arc::new(table.decode_block(block, part(range))?));
    }
    Ok((Arc::new(table), Blocks(blocks)))
}
