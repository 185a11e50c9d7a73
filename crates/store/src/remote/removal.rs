//! Deletes of one name, and of many names with as few requests as the service allows.
//!
//! | service | names per request | a request that fails as a whole |
//! | --- | --- | --- |
//! | S3 | 1,000 (`DeleteObjects`) | is repeated here, or its names are deleted one by one |
//! | Azure | 256 (a batch) | is repeated by the client |
//! | GCS | 1 | is repeated by the client |
//!
//! Every name has its own result. A repeated delete does no harm, because deleted objects are dead
//! for good. A service that speaks S3 without `DeleteObjects` is recognized by its first refusal;
//! its names are deleted one by one from then on.

use super::RemoteShared;
use crate::DELETES_AT_ONCE;
use crate::place::Provider;
use futures::{FutureExt, StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use siltstone_base::{Error, ObjectName, Result};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Names per `DeleteObjects` request of S3.
const S3_NAMES: usize = 1000;
/// Names per batch of Azure.
const AZURE_NAMES: usize = 256;
/// Attempts of a request for many names after temporary failures. A further failure is returned,
/// and the caller's next round continues with the remaining names.
const TRIES: u32 = 3;
/// Pause before the second attempt. It doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The result of a request for many names.
enum BatchRemoval {
    /// One result per name.
    Answered(Vec<Result<()>>),
    /// The request failed temporarily.
    NotNow(Error),
    /// The service does not support such requests, or has another form of them.
    Unknown,
}

impl RemoteShared {
    /// Number of names that one request deletes.
    pub(super) fn names_a_delete(&self) -> usize {
        match self.provider {
            _ if !self.deletes_many.load(Relaxed) => 1,
            Provider::S3 => S3_NAMES,
            Provider::Azure => AZURE_NAMES,
            Provider::Gcs => 1,
        }
    }

    pub(super) async fn remove(self: Arc<Self>, name: ObjectName) -> Result<()> {
        self.removed(self.clients.repeating().delete(&self.path(name)?).await)
    }

    fn removed<T>(&self, answer: object_store::Result<T>) -> Result<()> {
        match answer {
            Ok(_) => Ok(()),
            Err(object_store::Error::NotFound { source, .. }) => self.explainer.absent(&*source),
            Err(error) => {
                let explained = self.explainer.explain(&error);
                // Some servers report a missing object among many this way.
                if error.to_string().contains("(code: NoSuchKey)") {
                    Ok(())
                } else {
                    Err(explained)
                }
            }
        }
    }

    /// Deletes many names. Returns one result per name, in the order of the names.
    pub(super) async fn remove_many(self: Arc<Self>, names: Vec<ObjectName>) -> Vec<Result<()>> {
        let mut answers = Vec::with_capacity(names.len());
        let at_once = if self.provider == Provider::Azure { AZURE_NAMES } else { S3_NAMES };
        for names in names.chunks(at_once) {
            let paths: Result<Vec<Path>> = names.iter().map(|name| self.path(*name)).collect();
            match paths {
                Ok(paths) => answers.extend(self.remove_some(names, paths).await),
                Err(error) => answers.extend(names.iter().map(|_| Err(error.clone()))),
            }
        }
        answers
    }

    /// Deletes at most as many names as one request takes.
    async fn remove_some(
        self: &Arc<Self>,
        names: &[ObjectName],
        paths: Vec<Path>,
    ) -> Vec<Result<()>> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        while self.deletes_many.load(Relaxed) && names.len() > 1 {
            tries += 1;
            match self.remove_at_once(paths.clone()).await {
                BatchRemoval::Answered(answers) => return answers,
                BatchRemoval::NotNow(error) if tries >= TRIES => {
                    return names.iter().map(|_| Err(error.clone())).collect();
                }
                BatchRemoval::NotNow(_) => {
                    self.effects.clock.sleep(pause).await;
                    pause *= 2;
                }
                BatchRemoval::Unknown => {
                    let answers = self.remove_one_by_one(names).await;
                    if answers.iter().all(Result::is_ok) {
                        self.deletes_many.store(false, Relaxed);
                    }
                    return answers;
                }
            }
        }
        self.remove_one_by_one(names).await
    }

    async fn remove_one_by_one(self: &Arc<Self>, names: &[ObjectName]) -> Vec<Result<()>> {
        let names = names.to_vec();
        let one_by_one = names.into_iter().map(|name| Arc::clone(self).remove(name));
        stream::iter(one_by_one).buffered(DELETES_AT_ONCE).collect().await
    }

    async fn remove_at_once(&self, paths: Vec<Path>) -> BatchRemoval {
        let count = paths.len();
        let wanted = stream::iter(paths.into_iter().map(Ok)).boxed();
        let client = match self.provider {
            // With this client a request deletes many names, and is sent once.
            Provider::S3 => self.clients.once(),
            Provider::Azure | Provider::Gcs => self.clients.repeating(),
        };
        // The client panics on an answer about a name that it did not send.
        let answers = AssertUnwindSafe(client.delete_stream(wanted).collect::<Vec<_>>());
        let Ok(mut answers) = answers.catch_unwind().await else { return BatchRemoval::Unknown };
        if answers.len() == count && count > 1 {
            return BatchRemoval::Answered(
                answers.into_iter().map(|one| self.removed(one)).collect(),
            );
        }
        let Some(Err(error)) = answers.pop() else { return BatchRemoval::Unknown };
        let explained = self.explainer.explain(&error);
        // An answer that cannot be decoded is not temporary.
        let is_read = !error.to_string().contains("invalid DeleteObjects response");
        if explained.kind().is_transient() && is_read {
            return BatchRemoval::NotNow(explained);
        }
        BatchRemoval::Unknown
    }
}
