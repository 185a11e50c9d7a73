//! Reads a long scan by several threads. With n threads, each thread reads every n-th part of the
//! range and puts batches of rows into its own queue. The consumer takes from the queues in turn,
//! so rows arrive in order.
//!
//! ```text
//! parts:     0 1 2 3 4 5      thread 0 reads 0 2 4, thread 1 reads 1 3 5
//! consumer:  queue 0 until part 0 ends, queue 1 until part 1 ends, queue 0 …
//! ```
//! A queue holds [`QUEUE`] batches and then blocks its thread, so memory is bounded by six batches
//! per thread, however slow the consumer is.

use crate::process::Process;
use crate::wait::{PollOutcome, SIGNAL_INTERVAL, poll_for};
use siltstone::{Error, ErrorKind, FillOutcome, Result, Rows, Scan};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};

/// Stored bytes per part: large enough that the start of a part, a seek in every table, adds no
/// noticeable cost per row.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Capacity of a queue in batches.
const QUEUE: usize = 4;
/// Maximum bytes of a batch: small enough that the allocator reuses the memory of consumed batches
/// instead of fresh pages that must be zeroed.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of threads; memory bandwidth limits reading below that number.
const MAX_THREADS: usize = 4;

/// A message from a reading thread.
enum Message {
    /// Rows of the current part.
    Rows(Rows),
    /// The current part has no more rows.
    PartEnd,
    /// The scan has failed.
    Failed(Error),
}

/// The result of waiting for rows.
pub(crate) enum RowWait {
    /// The next rows.
    Rows(Rows),
    /// There are no more.
    End,
    /// No rows yet: check for signals, then call again.
    Later,
}

/// The consuming side of the scan.
pub(crate) struct Parts {
    queues: Vec<Receiver<Message>>,
    /// The queue that is consumed now.
    turn: usize,
    /// Parts that have not ended yet.
    left: usize,
    /// Rows that are still wanted.
    rows_left: u64,
}

/// How many threads a scan may use.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS))
}

impl Parts {
    /// Starts threads that read `parts`, up to `rows` rows in total.
    ///
    /// # Errors
    /// Unavailable if threads cannot be started.
    pub(crate) fn start(
        process: &'static Process,
        parts: Vec<Scan>,
        rows: u64,
        batch_rows: usize,
    ) -> Result<Parts> {
        let left = parts.len();
        let mut shares: Vec<Vec<Scan>> = Vec::new();
        shares.resize_with(threads().min(left), Vec::new);
        let count = shares.len();
        for (number, part) in parts.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(number % count) {
                share.push(part);
            }
        }
        let mut queues = Vec::with_capacity(count);
        for share in shares {
            let (sender, queue) = sync_channel(QUEUE);
            queues.push(queue);
            process.start_thread("siltstone-scan", move || {
                read_share(process, share, batch_rows, &sender);
            })?;
        }
        Ok(Parts { queues, turn: 0, left, rows_left: rows })
    }

    /// Waits a limited time for the next rows.
    ///
    /// # Errors
    /// The errors of reading; Closed if the interpreter is exiting. After an error the scan is
    /// over.
    pub(crate) fn next(&mut self) -> Result<RowWait> {
        while self.left > 0 {
            let Some(queue) = self.queues.get(self.turn) else { break };
            match queue.recv_timeout(SIGNAL_INTERVAL) {
                Ok(Message::Rows(rows)) => return Ok(RowWait::Rows(self.take(rows))),
                Ok(Message::PartEnd) => {
                    self.left -= 1;
                    self.turn = (self.turn + 1) % self.queues.len();
                }
                Ok(Message::Failed(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => return Ok(RowWait::Later),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Closed, "the interpreter is exiting"));
                }
            }
        }
        Ok(RowWait::End)
    }

    /// Returns as many of `rows` as are wanted. After the last wanted row the threads are released.
    fn take(&mut self, mut rows: Rows) -> Rows {
        if rows.len() as u64 >= self.rows_left {
            rows.truncate(self.rows_left as usize);
            self.left = 0;
            self.queues.clear();
        }
        self.rows_left -= rows.len() as u64;
        rows
    }
}

/// Reads the parts of one thread one after another. Ends early if the consumer has gone.
fn read_share(
    process: &'static Process,
    share: Vec<Scan>,
    batch_rows: usize,
    sender: &SyncSender<Message>,
) {
    let mut size = BatchSize::default();
    for mut part in share {
        loop {
            let message = match read_batch(process, &mut part, batch_rows, &mut size) {
                Ok(Some(rows)) if rows.is_empty() => Message::PartEnd,
                Ok(Some(rows)) => Message::Rows(rows),
                Ok(None) => return,
                Err(error) => Message::Failed(error),
            };
            let last = matches!(message, Message::PartEnd);
            if sender.send(message).is_err() {
                return;
            }
            if last {
                break;
            }
        }
    }
}

/// The next rows of a part, no rows at its end; `None` if the runtime has ended.
fn read_batch(
    process: &'static Process,
    part: &mut Scan,
    batch_rows: usize,
    size: &mut BatchSize,
) -> Result<Option<Rows>> {
    let mut rows = size.empty_rows();
    loop {
        match part.fill(&mut rows, batch_rows, BATCH_BYTES)? {
            FillOutcome::Full | FillOutcome::End => break,
            FillOutcome::NeedsBlocks => {
                let mut fetch = part.fetch();
                loop {
                    match poll_for(process, fetch.as_mut(), SIGNAL_INTERVAL) {
                        PollOutcome::Done(done) => break done?,
                        PollOutcome::Later => {}
                        PollOutcome::Over => return Ok(None),
                    }
                }
            }
        }
    }
    size.note(&rows);
    Ok(Some(rows))
}

/// The size of the largest batch so far, as an estimate for the next one.
#[derive(Default)]
pub(crate) struct BatchSize {
    rows: usize,
    key_bytes: usize,
    value_bytes: usize,
}

impl BatchSize {
    /// An empty row buffer with capacity for a batch of this size.
    pub(crate) fn empty_rows(&self) -> Rows {
        Rows::with_capacity(self.rows, self.key_bytes, self.value_bytes)
    }

    /// Includes the size of `rows` in the estimate.
    pub(crate) fn note(&mut self, rows: &Rows) {
        self.rows = self.rows.max(rows.len());
        self.key_bytes = self.key_bytes.max(rows.keys.bytes.len());
        self.value_bytes = self.value_bytes.max(rows.values.bytes.len());
    }
}
