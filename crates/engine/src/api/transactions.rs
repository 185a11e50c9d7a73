//! What a writer's handle does atomically: transactions, and writes on a condition.

use super::db::Database;
use crate::read::answer::Answer;
use crate::read::value::Value;
use crate::writer::commit::Commit;
use crate::writer::transaction::conditional::{Condition, ConditionOutcome, Conditional};
use crate::writer::transaction::{Isolation, Transaction};
use futures::future::BoxFuture;
use siltstone_base::batch::encode_one;
use siltstone_base::{Error, Kind, Result, UnixMillis};
use std::sync::Arc;

impl Database {
    /// Begins a transaction: it reads the database as it is now, under its own writes.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn transaction(&self, isolation: Isolation) -> Result<Transaction> {
        Transaction::begin(self.writer()?, isolation)
    }

    /// Sets `key` to `value`, until `expires_at` where given, where the condition holds.
    ///
    /// # Errors
    /// Conflict where it does not; as [`Database::put`] and [`Database::get`].
    pub fn put_if(
        &self,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
        condition: Condition,
    ) -> Result<Answer<Commit>> {
        let bytes = encode_one(Kind::Put, key, value, expires_at)?;
        self.on_condition(key, bytes, condition)
    }

    /// Deletes `key` where the condition holds.
    ///
    /// # Errors
    /// As [`Database::put_if`].
    pub fn delete_if(&self, key: &[u8], condition: Condition) -> Result<Answer<Commit>> {
        let bytes = encode_one(Kind::Delete, key, &[], None)?;
        self.on_condition(key, bytes, condition)
    }

    /// Deletes `key` and answers what was there: of several at once one gets it. `None` where the
    /// key is absent: then nothing is written.
    ///
    /// # Errors
    /// As [`Database::delete`] and [`Database::get`].
    pub fn pop(&self, key: &[u8]) -> Result<Answer<Option<(Value, Commit)>>> {
        let bytes = encode_one(Kind::Delete, key, &[], None)?;
        let pop = Conditional::new(self.writer()?, key, bytes, Condition::Present);
        Ok(mapped(pop.run()?, |(value, commit)| Ok(value.zip(commit))))
    }

    fn on_condition(
        &self,
        key: &[u8],
        bytes: Arc<[u8]>,
        condition: Condition,
    ) -> Result<Answer<Commit>> {
        let write = Conditional::new(self.writer()?, key, bytes, condition);
        Ok(mapped(write.run()?, |(_, commit)| commit.ok_or_else(no_commit)))
    }
}

/// Only a pop of an absent key has none.
fn no_commit() -> Error {
    Error::internal("a write whose condition held was not made")
}

fn mapped<T: Send + 'static>(
    answer: Answer<ConditionOutcome>,
    map: fn(ConditionOutcome) -> Result<T>,
) -> Answer<T> {
    match answer {
        Answer::Ready(outcome) => match map(outcome) {
            Ok(value) => Answer::Ready(value),
            Err(error) => Answer::Pending(failed(error)),
        },
        Answer::Pending(future) => Answer::Pending(Box::pin(async move { map(future.await?) })),
    }
}

fn failed<T: Send + 'static>(error: Error) -> BoxFuture<'static, Result<T>> {
    Box::pin(async move { Err(error) })
}
