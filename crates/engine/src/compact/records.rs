//! The chain of job records as one process knows it, and its changes: the machine says what to ask
//! the store for, this asks. One change of a process at a time, so that its ranges and jobs do not
//! race each other for the next number.

use crate::io::supervise::closed;
use crate::manifests::client::ManifestClient;
use crate::manifests::conditional_create::Creating;
use crate::manifests::rules;
use parking_lot::RwLock;
use siltstone_base::{AttemptId, Error, JobId, ObjectId, ObjectName, Result};
use siltstone_manifest::compaction::record::{RecordAnswer, RecordRequest};
use siltstone_manifest::compaction::{
    Append, AppendAction, Change, ChangeRefusal, Compactions, Job,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks by one read that find nothing, before a listing is asked: a read may be of a number that
/// was freed long ago (rule M4).
const LOOKS_BY_READ: u32 = 15;

/// The chain of job records of one database.
#[derive(Default)]
pub(super) struct Chain {
    turn: tokio::sync::Mutex<ChainTurn>,
    /// The newest record this process knows; `None` when it must look: at first, and after an
    /// error, when the outcome of a change may be open.
    known: RwLock<Option<Arc<Compactions>>>,
    /// Somebody waits until nothing is at work: what is missing is not waited for.
    leaving: AtomicUsize,
}

#[derive(Default)]
struct ChainTurn {
    /// Looks since the last listing.
    looks: u32,
}

impl Chain {
    /// Until it is dropped, answers that contradict each other are not worth another look.
    pub(super) fn leaves(&self) -> DrainWaiter<'_> {
        self.leaving.fetch_add(1, Ordering::Relaxed);
        DrainWaiter(&self.leaving)
    }

    /// # Errors
    /// Closed for who leaves.
    fn check_patience(&self) -> Result<()> {
        if self.leaving.load(Ordering::Relaxed) > 0 { Err(closed()) } else { Ok(()) }
    }

    /// The newest record this process knows.
    pub(super) fn known(&self) -> Option<Arc<Compactions>> {
        self.known.read().clone()
    }

    /// As [`Chain::known`]; looked for where none is.
    ///
    /// # Errors
    /// The store's; Corruption and Unsupported for what was read.
    pub(super) async fn newest(&self, manifests: &ManifestClient) -> Result<Arc<Compactions>> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let _turn = self.turn.lock().await;
        self.newest_in_turn(manifests).await
    }

    /// What others have changed since: one read where that is nothing.
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

    /// As [`Chain::look`], by a listing.
    ///
    /// # Errors
    /// As [`Chain::newest`].
    pub(super) async fn list(&self, manifests: &ManifestClient) -> Result<Arc<Compactions>> {
        let mut turn = self.turn.lock().await;
        turn.looks = 0;
        *self.known.write() = None;
        self.newest_in_turn(manifests).await
    }

    /// Brings `change` into the chain.
    ///
    /// # Errors
    /// The store's; Corruption and Unsupported for what was read: the outcome is not known then.
    /// Within: why it does not fit.
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

/// Somebody waits until nothing is at work.
pub(super) struct DrainWaiter<'a>(&'a AtomicUsize);

impl Drop for DrainWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One run of the machine.
struct Driver<'a> {
    manifests: &'a ManifestClient,
    /// While the same record is asked for, the same bytes go out.
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
            return Err(Error::internal("a record is created from nothing"));
        };
        let name = ObjectName::Compactions(record.number);
        Ok(RecordAnswer::Created(creating.once(objects, name).await?))
    }
}
