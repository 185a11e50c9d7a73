//! Chunks of a table on their way to the store, while the next ones are made; and the end of an
//! upload, while the next table is made.

use crate::env::Env;
use crate::store::Upload;
use bytes::Bytes;
use futures::channel::{mpsc, oneshot};
use futures::{SinkExt, StreamExt};
use siltstone_base::{Error, ErrorKind, Result};

/// Chunks that wait while one is being written: a store that halts for a moment does not halt the
/// merge.
const WAITING: usize = 2;

/// Where chunks are handed in.
pub(super) struct Sender {
    chunks: mpsc::Sender<Next>,
    sent: Sent,
}

/// How an upload ended, once it has.
pub(super) struct Sent(oneshot::Receiver<Result<()>>);

enum Next {
    Chunk(Bytes),
    /// There are no more, and all are right.
    Complete,
}

impl Sender {
    /// Sends what will be handed in, as a task of its own.
    pub(super) fn begin(env: &Env, upload: Box<dyn Upload>) -> Sender {
        // The channel holds one more than its bound for every sender.
        let (chunks, handed_in) = mpsc::channel(WAITING - 1);
        let (answer, sent) = oneshot::channel();
        let task = async move { drop(answer.send(send(upload, handed_in).await)) };
        env.spawn.spawn("compact upload", Box::pin(task));
        Sender { chunks, sent: Sent(sent) }
    }

    /// Hands over a chunk; waits while too many are on their way.
    ///
    /// # Errors
    /// Closed, when the upload has failed: [`Sender::give_up`] tells why.
    pub(super) async fn send(&mut self, chunk: Bytes) -> Result<()> {
        self.give(Next::Chunk(chunk)).await
    }

    /// Nothing follows.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub(super) async fn complete(&mut self) -> Result<()> {
        self.give(Next::Complete).await
    }

    /// What becomes of the upload, once all is handed in.
    pub(super) fn sent(self) -> Sent {
        self.sent
    }

    /// Nobody wants the table: what was sent is freed, as far as the store lets one, before this
    /// answers.
    ///
    /// # Errors
    /// Why the upload had failed.
    pub(super) async fn give_up(self) -> Result<()> {
        drop(self.chunks);
        self.sent.done().await
    }

    async fn give(&mut self, next: Next) -> Result<()> {
        let gone = |_| Error::new(ErrorKind::Closed, "the upload has failed");
        self.chunks.send(next).await.map_err(gone)
    }
}

impl Sent {
    /// Waits for the end. The object is durable when this ends well and all was handed in.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn done(self) -> Result<()> {
        self.0.await.map_err(|_| Error::internal("an upload of a compaction died"))?
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
