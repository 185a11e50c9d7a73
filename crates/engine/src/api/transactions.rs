//! Transactions and conditional writes of the writer's handle.

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
    /// Begins a transaction. It reads the database at the current sequence number, and its own
    /// writes above that.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn transaction(&self, isolation: Isolation) -> Result<Transaction> {
        Transaction::begin(self.writer()?, isolation)
    }

    /// Sets `key` to `value` if the condition holds. With `expires_at` the value expires at that
    /// time.
    ///
    /// # Errors
    /// Conflict if the condition does not hold; as [`Database::put`] and [`Database::get`].
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

    /// Deletes `key` if the condition holds.
    ///
    /// # Errors
    /// As [`Database::put_if`].
    pub fn delete_if(&self, key: &[u8], condition: Condition) -> Result<Answer<Commit>> {
        let bytes = encode_one(Kind::Delete, key, &[], None)?;
        self.on_condition(key, bytes, condition)
    }

    /// Deletes `key` and returns its value. If several calls run at once, one of them gets the
    /// value. Returns `None` and writes nothing if the key is absent. Calls `reserve` with the
    /// length of the value before the key is deleted, for a caller that needs memory for a copy.
    ///
    /// # Errors
    /// As [`Database::delete`] and [`Database::get`]; those of `reserve`, which keep the key.
    pub fn pop(
        &self,
        key: &[u8],
        reserve: fn(usize) -> Result<()>,
    ) -> Result<Answer<Option<(Value, Commit)>>> {
        let bytes = encode_one(Kind::Delete, key, &[], None)?;
        let pop = Conditional::new(self.writer()?, key, bytes, Condition::Present);
        let pop = pop.reserving(reserve);
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
