//! Deletes: of one name, and of many with as few requests as the service has for it.
//!
//! | service | a request takes | one that fails as a whole |
//! | --- | --- | --- |
//! | S3 | 1,000 names (`DeleteObjects`) | is repeated here, or its names are asked for one by one |
//! | Azure | 256 names (a batch) | is repeated by the client |
//! | GCS | 1 name | is repeated by the client |
//!
//! Every name has an answer of its own. Deleting twice harms nobody: what is deleted is dead for
//! good. A service that speaks S3 without `DeleteObjects` is found out by its first refusal and is
//! asked name by name from then on.

use super::{Provider, RemoteShared};
use crate::io::store::DELETES_AT_ONCE;
use futures::{FutureExt, StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use siltstone_base::{Error, ObjectName, Result};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Names that one `DeleteObjects` of S3 takes.
const S3_NAMES: usize = 1000;
/// Names that one batch of Azure takes.
const AZURE_NAMES: usize = 256;
/// How often a request for many is made that the store may answer at another time. Further trouble
/// is told, and the caller's next round begins with what is left.
const TRIES: u32 = 3;
/// Before the second; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What became of a request for many.
enum BatchRemoval {
    /// One answer a name.
    Answered(Vec<Result<()>>),
    /// Nothing was answered. Another time it may be.
    NotNow(Error),
    /// The service does not know such requests, or knows them otherwise.
    Unknown,
}

impl RemoteShared {
    /// Names that one request deletes.
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
                // One of many that some servers report missing.
                if error.to_string().contains("(code: NoSuchKey)") {
                    Ok(())
                } else {
                    Err(explained)
                }
            }
        }
    }

    /// One answer a name, in their order.
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

    /// At most as many as one request takes.
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
            // With it a request is for many names, and is made once.
            Provider::S3 => self.clients.once(),
            Provider::Azure | Provider::Gcs => self.clients.repeating(),
        };
        // The client panics on an answer about a name that it did not ask for.
        let answers = AssertUnwindSafe(client.delete_stream(wanted).collect::<Vec<_>>());
        let Ok(mut answers) = answers.catch_unwind().await else { return BatchRemoval::Unknown };
        if answers.len() == count && count > 1 {
            return BatchRemoval::Answered(
                answers.into_iter().map(|one| self.removed(one)).collect(),
            );
        }
        let Some(Err(error)) = answers.pop() else { return BatchRemoval::Unknown };
        let explained = self.explainer.explain(&error);
        // An answer that cannot be read is none that comes another time.
        let is_read = !error.to_string().contains("invalid DeleteObjects response");
        if explained.kind().is_transient() && is_read {
            return BatchRemoval::NotNow(explained);
        }
        BatchRemoval::Unknown
    }
}
