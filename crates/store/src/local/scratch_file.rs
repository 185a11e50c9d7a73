//! A file that need not outlive its process: a sorted run of rows that exceed memory.
//!
//! ```text
//! read:  the blocks that hold the range ─► buffer ─► a slice of it
//! ```
//! It bypasses the page cache of the system: a run is written once and read once, and runs exist
//! only if the rows exceed memory.

use super::direct_io::{self, BLOCK_BYTES, Blocks, aligned, is_refused, settled};
use super::errors::explain;
use super::lone_reader::LoneReader;
use crate::buffers::Buffers;
use crate::env::Effects;
use crate::profile::Profile;
use crate::{SingleObject, Upload};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Error, Result};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of bytes per read, because reads wait for the disk and not for the page cache.
/// Including the surrounding blocks it is 1 MiB.
const READ_BYTES: u64 = (1 << 20) - 3 * BLOCK_BYTES as u64;

/// One such file.
pub(crate) struct ScratchFile {
    reader: Arc<LoneReader>,
    effects: Effects,
}

impl ScratchFile {
    /// The file at `path`, in a folder that no other process writes to. Reads use `buffers`.
    pub(crate) fn new(path: &Path, effects: Effects, buffers: Buffers) -> Self {
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

/// Opens a file without the page cache, or with it if the file system does not allow that.
fn open(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    match how.custom_flags(direct_io::FLAG.bits().cast_signed()).open(path) {
        Err(error) if is_refused(&error) => how.custom_flags(0).open(path),
        opened => opened,
    }
}

/// The blocks that hold `range`.
fn blocks_of(range: &Range<u64>) -> Range<u64> {
    let block = BLOCK_BYTES as u64;
    range.start / block * block..range.end.next_multiple_of(block)
}

/// Buffers for parallel reads of several such files. At most `most` buffers are kept for further
/// reads, because used buffers need not be cleared.
pub(crate) fn read_buffers(most: usize) -> Buffers {
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

impl SingleObject for ScratchFile {
    fn get(&self, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let reader = Arc::clone(&self.reader);
        async move { self.effects.blocking("read", move || reader.read(range)).await? }.boxed()
    }

    fn get_now(&self, range: Option<Range<u64>>) -> Option<Result<Option<Bytes>>> {
        Some(self.reader.read(range))
    }

    fn profile(&self) -> Profile {
        Profile { input_bytes: READ_BYTES, ..Profile::FOLDER }
    }

    fn length(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        let reader = Arc::clone(&self.reader);
        async move { self.effects.blocking("look", move || reader.length()).await? }.boxed()
    }

    fn upload(&self) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let (reader, effects) = (Arc::clone(&self.reader), self.effects.clone());
        async move {
            let begin = move || ScratchWriter::begin(&reader.path);
            let writer = Some(effects.blocking("begin", begin).await??);
            let upload: Box<dyn Upload> = Box::new(ScratchUpload { effects, writer });
            Ok(upload)
        }
        .boxed()
    }
}

/// A file that is being written.
struct ScratchWriter {
    path: PathBuf,
    file: File,
    blocks: Blocks,
}

impl ScratchWriter {
    fn begin(path: &Path) -> Result<ScratchWriter> {
        let opened = open(path, OpenOptions::new().write(true).create(true).truncate(true));
        let file = opened.map_err(|error| explain(error, path))?;
        Ok(ScratchWriter { path: path.to_owned(), file, blocks: Blocks::new() })
    }

    fn write(&mut self, chunk: &[u8]) -> Result<()> {
        let file = &self.file;
        let written =
            self.blocks.write(chunk, &mut |blocks, at| direct_io::write_at(file, blocks, at));
        written.map_err(|error| explain(error, &self.path))
    }

    fn finish(self) -> Result<()> {
        let file = &self.file;
        let ended = self.blocks.end(&mut |blocks, at| direct_io::write_at(file, blocks, at));
        let cut = ended.and_then(|bytes| file.set_len(bytes));
        cut.map_err(|error| explain(error, &self.path))
    }
}

struct ScratchUpload {
    effects: Effects,
    /// `None` once a write has failed or was cancelled.
    writer: Option<ScratchWriter>,
}

impl ScratchUpload {
    fn take(&mut self) -> Result<ScratchWriter> {
        self.writer
            .take()
            .ok_or_else(|| Error::internal("an upload continues after a failed write"))
    }
}

impl Upload for ScratchUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut writer = self.take()?;
            let write = move || {
                let written = writer.write(&chunk);
                (written, writer)
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
            writer.write(chunk)?;
            self.writer = Some(writer);
            Ok(())
        };
        Some(write())
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let writer = self.take()?;
            self.effects.blocking("complete", move || writer.finish()).await?
        }
        .boxed()
    }

    /// The file is deleted with its folder.
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
    use super::super::direct_io::BUFFER_BYTES;
    use super::*;

    /// Files with lengths near block and buffer sizes, read in ranges near block boundaries; in a
    /// folder on the disk, and in one in memory, which may not allow bypassing the cache.
    #[test]
    fn written_bytes_are_read_from_any_offset() {
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
