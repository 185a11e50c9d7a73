//! The chain of job records as one process knows it, and changes to it. The state machine decides
//! the requests, and this module sends them. A process makes one change at a time, so that its
//! ranges and jobs do not compete for the next number.

use crate::manifests::client::ManifestClient;
use crate::manifests::conditional_create::Creating;
use crate::manifests::rules;
use parking_lot::RwLock;
use siltstone_base::{AttemptId, Error, JobId, ObjectId, ObjectName, Result};
use siltstone_manifest::compaction::record::{RecordAnswer, RecordRequest};
use siltstone_manifest::compaction::{
    Append, AppendAction, Change, ChangeRefusal, Compactions, Job,
};
use siltstone_store::supervise::closed;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks by one read that find nothing before a listing. A read may ask for a number that was freed
/// long ago (rule M4).
const LOOKS_BY_READ: u32 = 15;

/// The chain of job records of one database.
#[derive(Default)]
pub(super) struct Chain {
    turn: tokio::sync::Mutex<ChainTurn>,
    /// The newest record that this process knows. `None` if it has to look: at first, and after an
    /// error, when the outcome of a change may be unknown.
    known: RwLock<Option<Arc<Compactions>>>,
    /// Number of callers that wait until no job runs. While there are any, missing records are not
    /// waited for.
    leaving: AtomicUsize,
}

#[derive(Default)]
struct ChainTurn {
    /// Looks since the last listing.
    looks: u32,
}

impl Chain {
    /// While the result lives, contradictory answers of the store are not retried.
    pub(super) fn leaves(&self) -> DrainWaiter<'_> {
        self.leaving.fetch_add(1, Ordering::Relaxed);
        DrainWaiter(&self.leaving)
    }

    /// # Errors
    /// Closed if a caller waits for the end of all jobs.
    fn check_patience(&self) -> Result<()> {
        if self.leaving.load(Ordering::Relaxed) > 0 { Err(closed()) } else { Ok(()) }
    }

    /// The newest record that this process knows.
    pub(super) fn known(&self) -> Option<Arc<Compactions>> {
        self.known.read().clone()
    }

    /// As [`Chain::known`], but looks for the record if none is known.
    ///
    /// # Errors
    /// Errors of the store; Corruption and Unsupported for a record that was read.
    pub(super) async fn newest(&self, manifests: &ManifestClient) -> Result<Arc<Compactions>> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let _turn = self.turn.lock().await;
        self.newest_in_turn(manifests).await
    }

    /// Looks for changes of other processes. Costs one read if there are none.
    ///
    /// # Errors
    /// As [`Chain::newest`].
    pub(super) async fn look(&self, manifests: &ManifestClient) -> Result<Arc<Compactions>> {
        let mut turn = self.turn.lock().await;
        turn.looks += 1;
        if let Some(known) = self.known()
            && turn.looks <= LOOKS_BY_READ
            && manifests.objects().record(known.number + 1, known.database).await?.is_none()
        {
            return Ok(known);
        }
        turn.looks = 0;
        *self.known.write() = None;
        self.newest_in_turn(manifests).await
    }

    /// As [`Chain::look`], with a listing.
    ///
    /// # Errors
    /// As [`Chain::newest`].
    pub(super) async fn list(&self, manifests: &ManifestClient) -> Result<Arc<Compactions>> {
        let mut turn = self.turn.lock().await;
        turn.looks = 0;
        *self.known.write() = None;
        self.newest_in_turn(manifests).await
    }

    /// Appends `change` to the chain.
    ///
    /// # Errors
    /// Errors of the store; Corruption and Unsupported for a record that was read: the outcome is
    /// unknown then. The inner result tells why the change is refused.
    pub(super) async fn append(
        &self,
        manifests: &ManifestClient,
        change: Change,
    ) -> Result<Result<Arc<Compactions>, ChangeRefusal>> {
        let _turn = self.turn.lock().await;
        let newest = self.newest_in_turn(manifests).await?;
        *self.known.write() = None;
        let appended =
            self.drive(manifests, Append::new(change, newest, rules::in_force())).await?;
        if let Ok(record) = &appended {
            *self.known.write() = Some(Arc::clone(record));
        }
        Ok(appended)
    }

    /// A job of the newest record.
    ///
    /// # Errors
    /// As [`Chain::newest`].
    pub(super) async fn job(&self, manifests: &ManifestClient, id: JobId) -> Result<Option<Job>> {
        Ok(self.newest(manifests).await?.job(id).cloned())
    }

    async fn newest_in_turn(&self, manifests: &ManifestClient) -> Result<Arc<Compactions>> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let look = Append::look(manifests.database(), rules::in_force());
        let newest = self.drive(manifests, look).await?.map_err(Error::from)?;
        *self.known.write() = Some(Arc::clone(&newest));
        Ok(newest)
    }

    async fn drive(
        &self,
        manifests: &ManifestClient,
        mut machine: Append,
    ) -> Result<Result<Arc<Compactions>, ChangeRefusal>> {
        let (objects, database) = (manifests.objects(), manifests.database());
        let mut driver = Driver { manifests, creating: None };
        loop {
            let answer = match machine.action() {
                AppendAction::Done(record) => return Ok(Ok(record)),
                AppendAction::Failed(refusal) => return Ok(Err(refusal)),
                AppendAction::Request(RecordRequest::List) => {
                    let goes_on = || self.check_patience();
                    RecordAnswer::Listed(objects.list_records(database, goes_on).await?)
                }
                AppendAction::Request(RecordRequest::Read(number)) => {
                    RecordAnswer::Read(objects.record(number, database).await?)
                }
                AppendAction::Request(RecordRequest::Create(record)) => {
                    driver.create(record).await?
                }
            };
            machine.on_answer(answer);
        }
    }
}

/// A caller that waits until no job runs.
pub(super) struct DrainWaiter<'a>(&'a AtomicUsize);

impl Drop for DrainWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One run of the state machine.
struct Driver<'a> {
    manifests: &'a ManifestClient,
    /// The record that is being created. Each attempt for one record uploads the same bytes.
    creating: Option<(Arc<Compactions>, Creating)>,
}

impl Driver<'_> {
    async fn create(&mut self, record: Arc<Compactions>) -> Result<RecordAnswer> {
        let objects = self.manifests.objects();
        let env = &objects.env;
        if self.creating.as_ref().is_none_or(|(creating, _)| *creating != record) {
            let attempt = AttemptId(env.random_u128());
            let bytes = record.encode(ObjectId(env.random_u128()), attempt)?;
            self.creating = Some((record, Creating::new(objects, bytes, attempt)));
        }
        let Some((record, creating)) = &mut self.creating else {
            return Err(Error::internal("the record to create is missing"));
        };
        let name = ObjectName::Compactions(record.number);
        Ok(RecordAnswer::Created(creating.once(objects, name).await?))
    }
}
