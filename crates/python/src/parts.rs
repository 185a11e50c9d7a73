//! A long scan read by several threads: each reads every n-th part of the range and puts batches
//! of rows into a queue of its own; whoever consumes them takes the queues in turn, so that rows
//! come in order.
//!
//! ```text
//! parts:     0 1 2 3 4 5      thread 0 reads 0 2 4, thread 1 reads 1 3 5
//! consumer:  queue 0 until part 0 ends, queue 1 until part 1 ends, queue 0 …
//! ```
//! A queue holds [`QUEUE`] batches and then blocks its thread, so memory is bounded by six batches
//! a thread however slow the consumer is.

use crate::process::Process;
use crate::wait::{PollOutcome, SIGNAL_INTERVAL, poll_for};
use siltstone::{Error, ErrorKind, Fill, Result, Rows, Scan};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};

/// Stored bytes of a part: enough that its start, a seek in every table, costs nothing a row.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Batches a queue holds.
const QUEUE: usize = 4;
/// Bytes of a batch at most: few enough that allocators hand the memory of batches that were
/// consumed out again, in place of fresh pages that must be cleared.
const BATCH_BYTES: usize = 1 << 20;
/// Threads at most; reading is bound by memory before that many.
const MAX_THREADS: usize = 4;

/// What a thread says.
enum Message {
    /// Rows of the part at hand.
    Rows(Rows),
    /// The part at hand has no more.
    PartEnd,
    /// The scan is over.
    Failed(Error),
}

/// What waiting for rows came to.
pub(crate) enum RowWait {
    /// The next rows.
    Rows(Rows),
    /// There are no more.
    End,
    /// Nothing yet: look for signals, then ask again.
    Later,
}

/// The consumer's end.
pub(crate) struct Parts {
    queues: Vec<Receiver<Message>>,
    /// Whose part is consumed.
    turn: usize,
    /// Parts that have not ended.
    left: usize,
    /// Rows that are still wanted.
    rows_left: u64,
}

/// How many threads a scan may use.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS))
}

impl Parts {
    /// Starts threads that read `parts`, of which `rows` rows are wanted.
    ///
    /// # Errors
    /// Unavailable when threads cannot be started.
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

    /// Waits for the next rows, for a while.
    ///
    /// # Errors
    /// What reading gave; Closed when the interpreter exits. The scan is over then.
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

    /// As many of `rows` as are wanted. With the last one the threads are let go.
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

/// Reads a thread's parts one after another. Ends early when nobody listens any more.
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

/// The next rows of a part, none at its end; `None` when the runtime has ended.
fn read_batch(
    process: &'static Process,
    part: &mut Scan,
    batch_rows: usize,
    size: &mut BatchSize,
) -> Result<Option<Rows>> {
    let mut rows = size.empty_rows();
    loop {
        match part.fill(&mut rows, batch_rows, BATCH_BYTES)? {
            Fill::Full | Fill::End => break,
            Fill::NeedsBlocks => {
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

/// The size of the largest batch so far: the next one is likely as large.
#[derive(Default)]
pub(crate) struct BatchSize {
    rows: usize,
    key_bytes: usize,
    value_bytes: usize,
}

impl BatchSize {
    /// No rows, with room for a batch of this size.
    pub(crate) fn empty_rows(&self) -> Rows {
        Rows::with_capacity(self.rows, self.key_bytes, self.value_bytes)
    }

    /// Takes `rows` for the next batch's measure.
    pub(crate) fn note(&mut self, rows: &Rows) {
        self.rows = self.rows.max(rows.len());
        self.key_bytes = self.key_bytes.max(rows.keys.bytes.len());
        self.value_bytes = self.value_bytes.max(rows.values.bytes.len());
    }
}
