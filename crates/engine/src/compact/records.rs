//! Carries out changes of the job record: the machine says what to ask the store for, this asks.

use crate::create::Creating;
use crate::objects::Objects;
use siltstone_base::{AttemptId, DatabaseId, Error, ObjectId, ObjectName, Result};
use siltstone_manifest::compaction::record::{RecordAnswer, RecordRequest};
use siltstone_manifest::compaction::{Append, AppendAction, Change, ChangeRefusal, Compactions};
use std::sync::Arc;

/// The chain of job records of one database.
pub(super) struct Records<'a> {
    objects: &'a Objects,
    database: DatabaseId,
    /// While the same record is asked for, the same bytes go out.
    creating: Option<(Arc<Compactions>, Creating)>,
}

impl<'a> Records<'a> {
    pub(super) fn new(objects: &'a Objects, database: DatabaseId) -> Records<'a> {
        Records { objects, database, creating: None }
    }

    /// The newest record, proven.
    ///
    /// # Errors
    /// The store's; Corruption and Unsupported for what was read.
    pub(super) async fn newest(&mut self) -> Result<Arc<Compactions>> {
        self.drive(Append::look(self.database)).await?.map_err(Error::from)
    }

    /// Brings `change` into the chain, planned on `newest`. After an error its outcome is not
    /// known: look again.
    ///
    /// # Errors
    /// The store's; Corruption and Unsupported for what was read. Within: why it does not fit.
    pub(super) async fn append(
        &mut self,
        change: Change,
        newest: &Arc<Compactions>,
    ) -> Result<Result<Arc<Compactions>, ChangeRefusal>> {
        self.drive(Append::new(change, Arc::clone(newest))).await
    }

    async fn drive(
        &mut self,
        mut machine: Append,
    ) -> Result<Result<Arc<Compactions>, ChangeRefusal>> {
        loop {
            let answer = match machine.action() {
                AppendAction::Done(record) => return Ok(Ok(record)),
                AppendAction::Failed(refusal) => return Ok(Err(refusal)),
                AppendAction::Request(RecordRequest::List) => {
                    RecordAnswer::Listed(self.objects.list_records().await?)
                }
                AppendAction::Request(RecordRequest::Read(number)) => {
                    RecordAnswer::Read(self.read(number).await?)
                }
                AppendAction::Request(RecordRequest::Create(record)) => self.create(record).await?,
            };
            machine.on_answer(answer);
        }
    }

    async fn read(&self, number: u64) -> Result<Option<Arc<Compactions>>> {
        let record = self.objects.record(number).await?;
        if record.as_ref().is_some_and(|record| record.database != self.database) {
            let name = ObjectName::Compactions(number);
            return Err(Error::corruption("a record of another database").with("object", name));
        }
        Ok(record)
    }

    async fn create(&mut self, record: Arc<Compactions>) -> Result<RecordAnswer> {
        let env = &self.objects.env;
        if self.creating.as_ref().is_none_or(|(creating, _)| *creating != record) {
            let attempt = AttemptId(env.random_u128());
            let bytes = record.encode(ObjectId(env.random_u128()), attempt)?;
            self.creating = Some((record, Creating::new(self.objects, bytes, attempt)));
        }
        let Some((record, creating)) = &mut self.creating else {
            return Err(Error::internal("a record is created from nothing"));
        };
        let name = ObjectName::Compactions(record.number);
        Ok(RecordAnswer::Created(creating.once(self.objects, name).await?))
    }
}
