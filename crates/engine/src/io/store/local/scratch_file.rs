//! One file that need not outlive its process: a sorted run of what was too large for memory.
//!
//! ```text
//! write:  chunk ─► buffer of 1 MiB ─► file ... the last block filled up, then cut to its length
//! read:   the blocks that hold the range ─► buffer ─► a slice of it
//! ```
//! It goes around the system's cache of pages, where the file system has such a way (`O_DIRECT`):
//! a run is written once and read once, and there are runs only since there is more than memory, so
//! that in the cache they would take the place of what is read often. Fresh pages cost more than
//! the disk, besides: where a machine's memory is lent to it page by page, as that of small virtual
//! machines is, 0.5 GB/s where the disk took 3.0. The price is that buffers, offsets and lengths
//! are whole blocks.

use super::errors::explain;
use super::lone_reader::LoneReader;
use crate::io::buffers::Buffers;
use crate::io::env::Effects;
use crate::io::store::profile::Profile;
use crate::io::store::{Listed, PutAnswer, Store, Upload};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::fs::OFlags;
use rustix::io::Errno;
use siltstone_base::{Error, ObjectName, Result};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What offsets and lengths are multiples of: no disk in use has larger blocks.
const BLOCK_BYTES: usize = 4096;
/// What is written at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// What is read at a time, at most: the disk itself is waited for, and not the cache of pages. With
/// the blocks around it, it takes 1 MiB.
const READ_BYTES: u64 = (1 << 20) - 3 * BLOCK_BYTES as u64;

/// The store of one such file, which every name means.
pub(in crate::io::store) struct ScratchFile {
    reader: Arc<LoneReader>,
    effects: Effects,
}

impl ScratchFile {
    /// The file at `path`, in a folder that nobody else writes to. It is read into `buffers`.
    pub(in crate::io::store) fn new(path: &Path, effects: Effects, buffers: Buffers) -> Self {
        let open = |path: &Path| open(path, OpenOptions::new().read(true));
        let read = Box::new(move |file: &File, range: &Range<u64>| read_at(file, range, &buffers));
        ScratchFile { reader: Arc::new(LoneReader::new(path.to_owned(), open, read)), effects }
    }
}

impl fmt::Debug for ScratchFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.reader.path.display())
    }
}

/// A file around the cache of pages, or through it where there is no other way.
fn open(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        match how.custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path) {
            Err(error) if is_refused(&error) => {}
            opened => return opened,
        }
        how.custom_flags(0);
    }
    how.open(path)
}

/// Whether the file system has no way around the cache, or none in such blocks.
fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// Does `what` with the file; again where a signal came, and once more through the cache where that
/// is refused.
fn settled<T>(file: &File, mut what: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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

/// Where in `bytes` a block may begin: the first place or one of those after it.
fn aligned(bytes: &[u8]) -> usize {
    // Where nothing can be said of the address, the file goes through the cache.
    bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES)
}

/// The blocks that hold `range`.
fn blocks_of(range: &Range<u64>) -> Range<u64> {
    let block = BLOCK_BYTES as u64;
    range.start / block * block..range.end.next_multiple_of(block)
}

/// Memory for what is read of several such files side by side, of which `most` pieces are kept for
/// the next reads: what was in use need not be cleared.
pub(in crate::io::store) fn read_buffers(most: usize) -> Buffers {
    Buffers::keeping(most, READ_BYTES as usize + 3 * BLOCK_BYTES)
}

/// Exactly the bytes of `range`, which lies in the file.
fn read_at(file: &File, range: &Range<u64>, buffers: &Buffers) -> io::Result<Bytes> {
    let blocks = blocks_of(range);
    let bytes = usize::try_from(blocks.end - blocks.start);
    let bytes = bytes.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let wanted = bytes - (blocks.end - range.end) as usize;
    let mut buffer = buffers.take();
    if buffer.len() < bytes + BLOCK_BYTES {
        buffer.resize(bytes + BLOCK_BYTES, 0);
    }
    let start = aligned(&buffer);
    let mut held = 0;
    while held < wanted {
        let room = buffer.get_mut(start + held..start + bytes).unwrap_or_default();
        let read = settled(file, || file.read_at(room, blocks.start + held as u64))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        held += read;
    }
    let skipped = (range.start - blocks.start) as usize;
    Ok(buffers.lend(buffer).slice(start + skipped..start + wanted))
}

impl Store for ScratchFile {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let reader = Arc::clone(&self.reader);
        async move { self.effects.blocking("read", move || reader.read(name, range)).await? }
            .boxed()
    }

    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        Some(self.reader.read(name, range))
    }

    fn profile(&self) -> Profile {
        Profile { input_bytes: READ_BYTES, ..Profile::FOLDER }
    }

    fn put_if_absent(&self, _: ObjectName, _: Bytes) -> BoxFuture<'_, PutAnswer> {
        let refused = Error::internal("a scratch file is written by an upload");
        futures::future::ready(PutAnswer::Refused(refused)).boxed()
    }

    fn upload(&self, _: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let (reader, effects) = (Arc::clone(&self.reader), self.effects.clone());
        async move {
            let begin = move || ScratchWriter::begin(&reader.path);
            let writer = Some(effects.blocking("begin", begin).await??);
            let upload: Box<dyn Upload> = Box::new(ScratchUpload { effects, writer });
            Ok(upload)
        }
        .boxed()
    }

    fn list(&self, _: &'static str, _: Option<ObjectName>) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let (reader, now) = (Arc::clone(&self.reader), self.effects.clock.now());
        let look = move || reader.listed(now);
        async move { self.effects.blocking("look", look).await? }.boxed()
    }

    fn delete(&self, _: ObjectName) -> BoxFuture<'_, Result<()>> {
        let reader = Arc::clone(&self.reader);
        let delete = move || match std::fs::remove_file(&reader.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(explain(error, &reader.path))
            }
            _ => Ok(()),
        };
        async move { self.effects.blocking("delete", delete).await? }.boxed()
    }
}

/// A file that is being written.
struct ScratchWriter {
    path: PathBuf,
    file: File,
    /// What is in the file: whole blocks.
    written: u64,
    /// Has room for so much as is written at a time, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// Bytes that it holds.
    held: usize,
}

impl ScratchWriter {
    fn begin(path: &Path) -> Result<ScratchWriter> {
        let opened = open(path, OpenOptions::new().write(true).create(true).truncate(true));
        let file = opened.map_err(|error| explain(error, path))?;
        let buffer = vec![0; BUFFER_BYTES + BLOCK_BYTES];
        let start = aligned(&buffer);
        Ok(ScratchWriter { path: path.to_owned(), file, written: 0, buffer, start, held: 0 })
    }

    /// The next `bytes` of the buffer, from those on that it holds.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let from = self.start + self.held;
        self.buffer.get_mut(from..from + bytes).unwrap_or_default()
    }

    fn write(&mut self, mut chunk: &[u8]) -> io::Result<()> {
        while !chunk.is_empty() {
            let (now, later) = chunk.split_at(chunk.len().min(BUFFER_BYTES - self.held));
            self.room(now.len()).copy_from_slice(now);
            self.held += now.len();
            chunk = later;
            if self.held == BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes what is held: whole blocks.
    fn flush(&mut self) -> io::Result<()> {
        let held = self.buffer.get(self.start..self.start + self.held).unwrap_or_default();
        settled(&self.file, || self.file.write_all_at(held, self.written))?;
        self.written += self.held as u64;
        self.held = 0;
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let bytes = self.written + self.held as u64;
        let whole = self.held.next_multiple_of(BLOCK_BYTES);
        self.room(whole - self.held).fill(0);
        self.held = whole;
        self.flush()?;
        self.file.set_len(bytes)
    }

    fn explained(&self, done: io::Result<()>) -> Result<()> {
        done.map_err(|error| explain(error, &self.path))
    }
}

struct ScratchUpload {
    effects: Effects,
    /// Gone once a write has failed, or was dropped on its way.
    writer: Option<ScratchWriter>,
}

impl ScratchUpload {
    fn take(&mut self) -> Result<ScratchWriter> {
        self.writer.take().ok_or_else(|| Error::internal("an upload goes on after a write failed"))
    }
}

impl Upload for ScratchUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut writer = self.take()?;
            let write = move || {
                let written = writer.write(&chunk);
                (writer.explained(written), writer)
            };
            let (written, writer) = self.effects.blocking("write", write).await?;
            written?;
            self.writer = Some(writer);
            Ok(())
        }
        .boxed()
    }

    fn write_now(&mut self, chunk: &[u8]) -> Option<Result<()>> {
        let mut write = || {
            let mut writer = self.take()?;
            let written = writer.write(chunk);
            writer.explained(written)?;
            self.writer = Some(writer);
            Ok(())
        };
        Some(write())
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let mut writer = self.take()?;
            let finish = move || {
                let finished = writer.finish();
                writer.explained(finished)
            };
            self.effects.blocking("complete", finish).await?
        }
        .boxed()
    }

    /// The file goes with its folder.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let effects = self.effects.clone();
            effects.blocking("abort", move || drop(self.writer)).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of lengths about blocks and buffers, read in ranges about blocks; in a folder of the
    /// disk, and in one of memory, which may have no way around the cache.
    #[test]
    fn what_was_written_is_read_wherever_it_begins() {
        let folders = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
        let buffers = read_buffers(1);
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            let folder = tempfile::tempdir_in(folder).unwrap();
            for length in [0, 1, 4095, 4096, 4097, BUFFER_BYTES, BUFFER_BYTES + 5, 3_000_001] {
                let path = folder.path().join(format!("{length}"));
                let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
                let mut writer = ScratchWriter::begin(&path).unwrap();
                bytes.chunks(70_001).for_each(|chunk| writer.write(chunk).unwrap());
                writer.finish().unwrap();
                let file = open(&path, OpenOptions::new().read(true)).unwrap();
                assert_eq!(file.metadata().unwrap().len(), length as u64);
                for start in
                    [0, 1, 4095, 4096, 5000, 1_048_575].map(|start: usize| start.min(length))
                {
                    for end in [start, start + 1, start + 4096, start + 100_000, length] {
                        let range = start..end.clamp(start, length);
                        let read = range.start as u64..range.end as u64;
                        let read = read_at(&file, &read, &buffers).unwrap();
                        assert_eq!(read, &bytes[range], "{length}");
                    }
                }
                let beyond = read_at(&file, &(0..length as u64 + 1), &buffers).unwrap_err();
                assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }
}
