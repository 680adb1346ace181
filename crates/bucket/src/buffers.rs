//! Pool of buffers for fetched bytes that no cache keeps.
//!
//! A fresh buffer of megabytes costs a page fault per 4 KiB, several times the copy into it; a reused one
//! costs nothing.
//! Invariant: free buffers have at most `bytes_max` bytes together.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Buffers are of multiples of this, so that one fits more than one length.
const STEP_BYTES: usize = 1 << 20;

/// Buffers that wait for their next use.
pub(crate) struct BufferPool {
    free: Mutex<Free>,
    bytes_max: u64,
}

#[derive(Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: u64,
}

/// A buffer that goes back to its pool.
pub(crate) struct PooledBuffer {
    buffer: Vec<u8>,
    len: usize,
    pool: Weak<BufferPool>,
}

impl BufferPool {
    pub(crate) fn new(bytes_max: u64) -> Arc<BufferPool> {
        Arc::new(BufferPool { free: Mutex::default(), bytes_max })
    }

    /// Returns a buffer of `len` bytes of undefined content: the smallest free one that is large enough, or a
    /// fresh one.
    pub(crate) fn take(self: &Arc<BufferPool>, len: usize) -> PooledBuffer {
        let pool = Arc::downgrade(self);
        let mut free = self.free.lock();
        let fitting = free.buffers.iter().enumerate().filter(|(_, buffer)| buffer.len() >= len);
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.len()).map(|(idx, _)| idx);
        let reused = smallest.map(|idx| free.buffers.swap_remove(idx));
        free.bytes -= reused.as_ref().map_or(0, |buffer| buffer.len() as u64);
        drop(free);
        let buffer = reused.unwrap_or_else(|| vec![0; len.next_multiple_of(STEP_BYTES)]);
        assert!(buffer.len() >= len, "a buffer has the bytes that it was taken for");
        PooledBuffer { buffer, len, pool }
    }
}

impl PooledBuffer {
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.len).unwrap_or_default()
    }

    /// The bytes, to be sliced; the buffer goes back when the last slice is dropped.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let buffer = std::mem::take(&mut self.buffer);
        let bytes = buffer.len() as u64;
        assert!(bytes >= self.len as u64, "a buffer goes back once, with all its bytes");
        let mut free = pool.free.lock();
        if free.bytes + bytes <= pool.bytes_max {
            free.bytes += bytes;
            free.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_within_the_limit() {
        let pool = BufferPool::new(3 << 20);
        let mut first = pool.take(100);
        first.as_mut().fill(7);
        let bytes = first.freeze();
        let address = bytes.as_ptr();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(pool.take(100).as_ref().as_ptr(), address, "a slice is still read");
        assert_eq!(&part[..], &[7; 10]);
        drop(part);
        assert_eq!(pool.free.lock().bytes, 2 << 20);
        let large = pool.take(2 << 20);
        let small = pool.take(5);
        assert_eq!((large.as_ref().len(), small.as_ref().len()), (2 << 20, 5));
        let other = pool.take(1);
        drop((large, small, other));
        // 2, 1 and 1 MiB came back; the last one did not fit.
        assert_eq!(pool.free.lock().bytes, 3 << 20);
    }
}
