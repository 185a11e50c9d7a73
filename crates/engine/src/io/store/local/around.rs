//! Files around the system's cache of pages, where the file system has such a way (`O_DIRECT`).
//!
//! ```text
//! write:  chunk ─► buffer of 1 MiB ─► file ... the last block filled up, then cut to its length
//! ```
//! For what is written once and not read soon, of more than fits into memory: in the cache it would
//! take the place of what is read often. Fresh pages cost more than the disk, besides: where a
//! machine's memory is lent to it page by page, as that of small virtual machines is, 0.5 GB/s
//! where the disk took 3.0. The price is that buffers, offsets and lengths are whole blocks.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What offsets and lengths are multiples of: no disk in use has larger blocks.
pub(super) const BLOCK_BYTES: usize = 4096;
/// What is written at a time.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// The flag that opens a file so; none where the system has none.
pub(super) const FLAG: OFlags = {
    #[cfg(target_os = "linux")]
    let flag = OFlags::DIRECT;
    #[cfg(not(target_os = "linux"))]
    let flag = OFlags::empty();
    flag
};

/// Whether the file system has no way around the cache, or none in such blocks.
pub(super) fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// From now on what is done with an open file goes around the cache. Whether there is a way.
pub(super) fn begin(file: &File) -> bool {
    !FLAG.is_empty() && rustix::fs::fcntl_setfl(file, FLAG).is_ok()
}

/// Does `what` with the file; again where a signal came, and once more through the cache where that
/// is refused.
///
/// # Errors
/// Those of `what`.
pub(super) fn settled<T>(file: &File, mut what: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut again = || loop {
        match what() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    };
    match again() {
        Err(error) if is_refused(&error) => {
            rustix::fs::fcntl_setfl(file, OFlags::empty())?;
            again()
        }
        done => done,
    }
}

/// Writes whole blocks at a block's place.
///
/// # Errors
/// Those of the file system.
pub(super) fn write_at(file: &File, blocks: &[u8], at: u64) -> io::Result<()> {
    settled(file, || file.write_all_at(blocks, at))
}

/// Where in `bytes` a block may begin: the first place or one of those after it.
pub(super) fn aligned(bytes: &[u8]) -> usize {
    // Where nothing can be said of the address, the file goes through the cache.
    bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES)
}

/// Writes whole blocks at a place of a file.
pub(super) type Put<'a> = &'a mut dyn FnMut(&[u8], u64) -> io::Result<()>;

/// What comes in pieces and is written in blocks.
pub(super) struct Blocks {
    /// What is in the file: whole blocks.
    written: u64,
    /// Has room for so much as is written at a time, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// Bytes that it holds.
    held: usize,
}

impl Blocks {
    /// Of a new file.
    pub(super) fn new() -> Blocks {
        let buffer = vec![0; BUFFER_BYTES + BLOCK_BYTES];
        let start = aligned(&buffer);
        Blocks { written: 0, buffer, start, held: 0 }
    }

    /// The next `bytes` of the buffer, from those on that it holds.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let from = self.start + self.held;
        self.buffer.get_mut(from..from + bytes).unwrap_or_default()
    }

    /// Appends; `put` is handed what is full, and its place.
    ///
    /// # Errors
    /// Those of `put`, after which nothing goes on.
    pub(super) fn write(&mut self, mut chunk: &[u8], put: Put<'_>) -> io::Result<()> {
        while !chunk.is_empty() {
            let (now, later) = chunk.split_at(chunk.len().min(BUFFER_BYTES - self.held));
            self.room(now.len()).copy_from_slice(now);
            self.held += now.len();
            chunk = later;
            if self.held == BUFFER_BYTES {
                self.flush(put)?;
            }
        }
        Ok(())
    }

    /// Writes what is held: whole blocks.
    fn flush(&mut self, put: Put<'_>) -> io::Result<()> {
        let held = self.buffer.get(self.start..self.start + self.held).unwrap_or_default();
        put(held, self.written)?;
        self.written += self.held as u64;
        self.held = 0;
        Ok(())
    }

    /// The length that the file is to be cut to, after the rest of it.
    ///
    /// # Errors
    /// Those of `put`.
    pub(super) fn end(mut self, put: Put<'_>) -> io::Result<u64> {
        let bytes = self.written + self.held as u64;
        let whole = self.held.next_multiple_of(BLOCK_BYTES);
        self.room(whole - self.held).fill(0);
        self.held = whole;
        if whole > 0 {
            self.flush(put)?;
        }
        Ok(bytes)
    }
}
