//! Sends the chunks of a table to the store while the next chunks are built, and completes an
//! upload while the next table is built.

use bytes::Bytes;
use futures::channel::{mpsc, oneshot};
use futures::{SinkExt, StreamExt};
use siltstone_base::{Error, ErrorKind, Result};
use siltstone_store::Upload;
use siltstone_store::env::{Env, Spawn};
use siltstone_store::supervise::caught;
use std::future::ready;
use std::sync::Arc;

/// Chunks that wait while one is written, so that a short pause of the store does not stop the
/// merge.
const WAITING: usize = 2;

/// Accepts the chunks of an upload.
pub(super) struct Sender {
    spawn: Arc<dyn Spawn>,
    way: UploadRoute,
}

enum UploadRoute {
    /// A separate task sends the chunks, for a remote store.
    Beside { chunks: mpsc::Sender<Next>, sent: UploadResult },
    /// The caller's thread writes a chunk, for a store that answers immediately. `None` while the
    /// upload is lent.
    Here(Option<Box<dyn Upload>>),
}

/// The result of an upload, once it has ended.
pub(super) struct UploadResult(oneshot::Receiver<Result<()>>);

enum Next {
    Chunk(Bytes),
    /// There are no more chunks, and the table is complete.
    Complete,
}

impl Sender {
    /// Begins to send the chunks of `upload`.
    pub(super) fn begin(env: &Env, upload: Box<dyn Upload>) -> Sender {
        let spawn = Arc::clone(&env.spawn);
        if env.store.profile().answers_at_once {
            return Sender { spawn, way: UploadRoute::Here(Some(upload)) };
        }
        // The channel holds one more than its bound for each sender.
        let (chunks, handed_in) = mpsc::channel(WAITING - 1);
        let sent = UploadResult::of(&*spawn, send(upload, handed_in));
        Sender { spawn, way: UploadRoute::Beside { chunks, sent } }
    }

    /// Lends the upload to the code that builds the chunks, if [`Upload::write_now`] may apply.
    pub(super) fn lend(&mut self) -> Option<Box<dyn Upload>> {
        match &mut self.way {
            UploadRoute::Here(upload) => upload.take(),
            UploadRoute::Beside { .. } => None,
        }
    }

    /// Takes the lent upload back.
    pub(super) fn take_back(&mut self, lent: Option<Box<dyn Upload>>) {
        if let UploadRoute::Here(upload) = &mut self.way {
            *upload = lent;
        }
    }

    /// Hands over a chunk. Waits while too many are on their way.
    ///
    /// # Errors
    /// Errors of the store; Closed if the upload has failed: [`Sender::give_up`] returns why.
    pub(super) async fn send(&mut self, chunk: Bytes) -> Result<()> {
        match &mut self.way {
            UploadRoute::Beside { chunks, .. } => {
                chunks.send(Next::Chunk(chunk)).await.map_err(|_| failed())
            }
            UploadRoute::Here(Some(upload)) => upload.write(chunk).await,
            UploadRoute::Here(None) => Err(failed()),
        }
    }

    /// Completes the upload. Returns its result.
    pub(super) async fn complete(self) -> UploadResult {
        match self.way {
            UploadRoute::Beside { mut chunks, sent } => {
                // If the task does not receive this, the upload has failed, and its result tells
                // why.
                drop(chunks.send(Next::Complete).await);
                sent
            }
            UploadRoute::Here(Some(upload)) => UploadResult::of(&*self.spawn, upload.finish()),
            UploadRoute::Here(None) => UploadResult::of(&*self.spawn, ready(Err(failed()))),
        }
    }

    /// Gives up the table. The sent bytes are freed, as far as the store allows, before this
    /// returns.
    ///
    /// # Errors
    /// Why the upload had failed before.
    pub(super) async fn give_up(self) -> Result<()> {
        match self.way {
            UploadRoute::Beside { chunks, sent } => {
                drop(chunks);
                sent.done().await
            }
            UploadRoute::Here(upload) => {
                // The first error matters, not that of the abort.
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
    /// Runs the rest of an upload as a separate task.
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

    /// Waits for the end of the upload. The object is durable if this succeeds and all chunks were
    /// sent.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn done(self) -> Result<()> {
        let gone = || Error::internal("an upload of a compaction was dropped before its end");
        self.0.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Sends chunks until the upload is complete or the sender is dropped.
async fn send(mut upload: Box<dyn Upload>, mut handed_in: mpsc::Receiver<Next>) -> Result<()> {
    while let Some(next) = handed_in.next().await {
        let Next::Chunk(chunk) = next else { return upload.finish().await };
        if let Err(error) = upload.write(chunk).await {
            drop(handed_in);
            // The first error matters, not that of the abort.
            let _ = upload.abort().await;
            return Err(error);
        }
    }
    // The sender was dropped, so its owner has given up and needs no error.
    let _ = upload.abort().await;
    Ok(())
}
