//! Chunks of a table on their way to the store, while the next ones are made; and the end of an
//! upload, while the next table is made.

use crate::io::env::{Env, Spawn};
use crate::io::store::Upload;
use crate::io::supervise::caught;
use bytes::Bytes;
use futures::channel::{mpsc, oneshot};
use futures::{SinkExt, StreamExt};
use siltstone_base::{Error, ErrorKind, Result};
use std::future::ready;
use std::sync::Arc;

/// Chunks that wait while one is being written: a store that halts for a moment does not halt the
/// merge.
const WAITING: usize = 2;

/// Where chunks are handed in.
pub(super) struct Sender {
    spawn: Arc<dyn Spawn>,
    way: UploadRoute,
}

enum UploadRoute {
    /// A task of its own sends what a store far away takes its time for.
    Beside { chunks: mpsc::Sender<Next>, sent: UploadResult },
    /// A store that answers at once takes a chunk from the hand that made it. `None` while it is
    /// lent.
    Here(Option<Box<dyn Upload>>),
}

/// How an upload ended, once it has.
pub(super) struct UploadResult(oneshot::Receiver<Result<()>>);

enum Next {
    Chunk(Bytes),
    /// There are no more, and all are right.
    Complete,
}

impl Sender {
    /// Sends what will be handed in.
    pub(super) fn begin(env: &Env, upload: Box<dyn Upload>) -> Sender {
        let spawn = Arc::clone(&env.spawn);
        if env.store.profile().answers_at_once {
            return Sender { spawn, way: UploadRoute::Here(Some(upload)) };
        }
        // The channel holds one more than its bound for every sender.
        let (chunks, handed_in) = mpsc::channel(WAITING - 1);
        let sent = UploadResult::of(&*spawn, send(upload, handed_in));
        Sender { spawn, way: UploadRoute::Beside { chunks, sent } }
    }

    /// The upload itself, for whoever makes the chunks, where [`Upload::write_now`] may do.
    pub(super) fn lend(&mut self) -> Option<Box<dyn Upload>> {
        match &mut self.way {
            UploadRoute::Here(upload) => upload.take(),
            UploadRoute::Beside { .. } => None,
        }
    }

    /// What was lent, again.
    pub(super) fn take_back(&mut self, lent: Option<Box<dyn Upload>>) {
        if let UploadRoute::Here(upload) = &mut self.way {
            *upload = lent;
        }
    }

    /// Hands over a chunk; waits while too many are on their way.
    ///
    /// # Errors
    /// The store's; Closed, when the upload has failed: [`Sender::give_up`] tells why.
    pub(super) async fn send(&mut self, chunk: Bytes) -> Result<()> {
        match &mut self.way {
            UploadRoute::Beside { chunks, .. } => {
                chunks.send(Next::Chunk(chunk)).await.map_err(|_| failed())
            }
            UploadRoute::Here(Some(upload)) => upload.write(chunk).await,
            UploadRoute::Here(None) => Err(failed()),
        }
    }

    /// Nothing follows: what becomes of the upload.
    pub(super) async fn complete(self) -> UploadResult {
        match self.way {
            UploadRoute::Beside { mut chunks, sent } => {
                // Where nobody takes that, the upload has failed: how it ended tells why.
                drop(chunks.send(Next::Complete).await);
                sent
            }
            UploadRoute::Here(Some(upload)) => UploadResult::of(&*self.spawn, upload.finish()),
            UploadRoute::Here(None) => UploadResult::of(&*self.spawn, ready(Err(failed()))),
        }
    }

    /// Nobody wants the table: what was sent is freed, as far as the store lets one, before this
    /// answers.
    ///
    /// # Errors
    /// Why the upload had failed.
    pub(super) async fn give_up(self) -> Result<()> {
        match self.way {
            UploadRoute::Beside { chunks, sent } => {
                drop(chunks);
                sent.done().await
            }
            UploadRoute::Here(upload) => {
                // What failed first is what the caller must know.
                if let Some(upload) = upload {
                    let _ = upload.abort().await;
                }
                Ok(())
            }
        }
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Closed, "the upload has failed")
}

impl UploadResult {
    /// Of an upload that goes on as a task of its own.
    fn of(
        spawn: &dyn Spawn,
        upload: impl Future<Output = Result<()>> + Send + 'static,
    ) -> UploadResult {
        let (answer, sent) = oneshot::channel();
        let task = async move {
            drop(answer.send(caught("compact upload", upload).await.flatten()));
        };
        spawn.spawn("compact upload", Box::pin(task));
        UploadResult(sent)
    }

    /// Waits for the end. The object is durable when this ends well and all was handed in.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn done(self) -> Result<()> {
        let gone = || Error::internal("an upload of a compaction was dropped before its end");
        self.0.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Sends what is handed in, until it is complete or nobody hands in any more.
async fn send(mut upload: Box<dyn Upload>, mut handed_in: mpsc::Receiver<Next>) -> Result<()> {
    while let Some(next) = handed_in.next().await {
        let Next::Chunk(chunk) = next else { return upload.finish().await };
        if let Err(error) = upload.write(chunk).await {
            drop(handed_in);
            // What failed first is what the caller must know.
            let _ = upload.abort().await;
            return Err(error);
        }
    }
    // Whoever went away knows why.
    let _ = upload.abort().await;
    Ok(())
}
