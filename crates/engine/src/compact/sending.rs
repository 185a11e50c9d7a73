//! Chunks of a table on their way to the store, while the next ones are made.

use crate::store::Upload;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use siltstone_base::{Error, ErrorKind, Result};
use std::future::Future;

/// Chunks that wait while one is being written: a store that halts for a moment does not halt the
/// merge.
const WAITING: usize = 2;

/// Where chunks are handed in.
pub(super) struct Sender {
    chunks: mpsc::Sender<Next>,
}

enum Next {
    Chunk(Bytes),
    /// There are no more, and all are right.
    Complete,
}

impl Sender {
    /// Hands over a chunk; waits while too many are on their way.
    ///
    /// # Errors
    /// Closed, when the upload has failed: [`sending`]'s future tells why.
    pub(super) async fn send(&mut self, chunk: Bytes) -> Result<()> {
        self.give(Next::Chunk(chunk)).await
    }

    /// Nothing follows. Without it the upload is given up.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub(super) async fn complete(mut self) -> Result<()> {
        self.give(Next::Complete).await
    }

    async fn give(&mut self, next: Next) -> Result<()> {
        let gone = |_| Error::new(ErrorKind::Closed, "the upload has failed");
        self.chunks.send(next).await.map_err(gone)
    }
}

/// Sends what is handed in, until it is complete or the sender is gone. The object is durable when
/// this ends well; otherwise what was sent is freed, as far as the store lets one.
pub(super) fn sending(upload: Box<dyn Upload>) -> (Sender, impl Future<Output = Result<()>>) {
    // The channel holds one more than its bound for every sender.
    let (chunks, mut handed_in) = mpsc::channel(WAITING - 1);
    let mut upload = upload;
    let sending = async move {
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
    };
    (Sender { chunks }, sending)
}
