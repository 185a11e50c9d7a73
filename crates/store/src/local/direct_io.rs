//! Direct I/O: files that bypass the page cache of the system, if the file system allows it
//! (`O_DIRECT`).
//!
//! ```text
//! write:  chunk ─► buffer of 1 MiB ─► file ... the last block filled up, then cut to its length
//! ```
//! For files that exceed memory, are written once and are not read soon: in the cache they would
//! displace files that are read often. Fresh pages also cost more than the disk if a hypervisor
//! lends memory to the machine page by page, as it does for small virtual machines: 0.5 GB/s, while
//! the disk took 3.0. In return, buffers, offsets and lengths must be whole blocks.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Unit of offsets and lengths. No disk in use has larger blocks.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Number of bytes per write.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// The flag that opens such a file; empty if the system has none.
pub(super) const FLAG: OFlags = {
    #[cfg(target_os = "linux")]
    let flag = OFlags::DIRECT;
    #[cfg(not(target_os = "linux"))]
    let flag = OFlags::empty();
    flag
};

/// Whether the file system cannot bypass the cache, or not with such blocks.
pub(super) fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// Makes further operations on an open file bypass the cache. Returns whether that is possible.
pub(super) fn begin(file: &File) -> bool {
    !FLAG.is_empty() && rustix::fs::fcntl_setfl(file, FLAG).is_ok()
}

/// Runs `what` on the file. Repeats it after a signal, and once more through the cache if bypassing
/// is refused.
///
/// # Errors
/// Errors of `what`.
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

/// Writes whole blocks at an offset that is a multiple of the block size.
///
/// # Errors
/// Errors of the file system.
pub(super) fn write_at(file: &File, blocks: &[u8], at: u64) -> io::Result<()> {
    settled(file, || file.write_all_at(blocks, at))
}

/// The first offset in `bytes` at which a block may begin.
pub(super) fn aligned(bytes: &[u8]) -> usize {
    // If the alignment is unknown, the file goes through the cache.
    bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES)
}

/// Writes whole blocks at an offset of a file.
pub(super) type Put<'a> = &'a mut dyn FnMut(&[u8], u64) -> io::Result<()>;

/// Collects pieces and writes them in blocks.
pub(super) struct Blocks {
    /// Number of bytes in the file: whole blocks.
    written: u64,
    /// From `start` on it has room for one write.
    buffer: Vec<u8>,
    start: usize,
    /// Number of bytes that it holds.
    held: usize,
}

impl Blocks {
    /// For a new file.
    pub(super) fn new() -> Blocks {
        let buffer = vec![0; BUFFER_BYTES + BLOCK_BYTES];
        let start = aligned(&buffer);
        Blocks { written: 0, buffer, start, held: 0 }
    }

    /// The next `bytes` bytes of the buffer, after those that it holds.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let from = self.start + self.held;
        self.buffer.get_mut(from..from + bytes).unwrap_or_default()
    }

    /// Appends `chunk`. Passes full buffers and their offset to `put`.
    ///
    /// # Errors
    /// Errors of `put`. No further write is allowed after one.
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

    /// Writes the held bytes, which are whole blocks.
    fn flush(&mut self, put: Put<'_>) -> io::Result<()> {
        let held = self.buffer.get(self.start..self.start + self.held).unwrap_or_default();
        put(held, self.written)?;
        self.written += self.held as u64;
        self.held = 0;
        Ok(())
    }

    /// Writes the rest. Returns the length to which the file has to be cut.
    ///
    /// # Errors
    /// Errors of `put`.
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
