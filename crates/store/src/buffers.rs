//! Pools of reusable buffers. A buffer returns to its pool when its last slice is dropped.
//!
//! Compactions and loads move their bytes through a few buffers of the same size. The allocator
//! would return fresh pages for each of them. The system clears every fresh page, and a virtual
//! machine may have to request it from its hypervisor, which takes as much time as the merge
//! itself.

use bytes::Bytes;
use parking_lot::Mutex;
use std::mem::take;
use std::sync::Arc;

type FreeBuffers = Arc<Mutex<Vec<Vec<u8>>>>;

/// Free buffers. Clones share one pool.
#[derive(Clone)]
pub struct Buffers {
    free: FreeBuffers,
    most: usize,
    most_bytes: usize,
}

impl Buffers {
    /// An empty pool. It keeps at most `most` buffers and none larger than `most_bytes`, so that
    /// one large value does not make all of them large.
    pub fn keeping(most: usize, most_bytes: usize) -> Buffers {
        Buffers { free: FreeBuffers::default(), most, most_bytes }
    }

    /// Takes a buffer, which still holds its last content.
    #[inline]
    pub fn take(&self) -> Vec<u8> {
        self.free.lock().pop().unwrap_or_default()
    }

    /// Takes an empty buffer with room for `bytes` bytes.
    #[inline]
    pub fn take_empty(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.take();
        buffer.clear();
        buffer.reserve_exact(bytes);
        buffer
    }

    /// The bytes of a buffer, which returns to the pool when their last slice is dropped.
    #[inline]
    pub fn lend(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(LentBuffer { buffer, home: self.clone() })
    }

    /// Frees all free buffers.
    pub fn clear(&self) {
        drop(take(&mut *self.free.lock()));
    }
}

struct LentBuffer {
    buffer: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        let buffer = take(&mut self.buffer);
        let mut free = self.home.free.lock();
        if free.len() < self.home.most && buffer.capacity() <= self.home.most_bytes {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_with_its_last_slice() {
        let buffers = Buffers::keeping(1, 1000);
        let mut first = buffers.take_empty(100);
        let place = first.as_ptr();
        first.extend_from_slice(b"abc");
        let lent = buffers.lend(first);
        let slice = lent.slice(1..);
        drop(lent);
        let other = buffers.take_empty(100);
        assert_ne!(other.as_ptr(), place, "it is still read");
        assert_eq!(slice, b"bc".as_slice());
        drop(slice);
        let again = buffers.take();
        assert_eq!((again.as_ptr(), again.as_slice()), (place, b"abc".as_slice()));
        drop(buffers.lend(again));
        let again = buffers.take_empty(50);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn no_more_are_kept_than_wanted() {
        let buffers = Buffers::keeping(2, 100);
        drop(buffers.lend(buffers.take_empty(200)));
        assert!(buffers.free.lock().is_empty(), "too large");
        let lent: Vec<Bytes> = (0..5).map(|_| buffers.lend(buffers.take_empty(10))).collect();
        drop(lent);
        assert_eq!(buffers.free.lock().len(), 2);
        buffers.clear();
        assert!(buffers.free.lock().is_empty());
    }
}
