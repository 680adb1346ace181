//! Frames of a byte stream: a big-endian u32 length, then as many bytes.
//!
//! Invariant: the buffer has at most one unfinished frame and one input. Not here: the pickle in a frame.

/// Bytes of a frame at most, as in carbon.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Bytes of the length before a frame.
const LENGTH_BYTES: usize = 4;

/// A frame is longer than [`FRAME_BYTES_MAX`]: the stream has no frames that could be read after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pickle frame has {found} bytes, at most {FRAME_BYTES_MAX}")]
pub struct FrameTooLong {
    /// Length of the frame in bytes.
    pub found: usize,
}

/// Bytes of a connection until their frame is complete.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    /// Start of the first frame that is not returned.
    start: usize,
}

impl FrameBuffer {
    /// A buffer at the start of a frame.
    #[must_use]
    pub fn new() -> FrameBuffer {
        FrameBuffer::default()
    }

    /// Adds bytes of the stream. All complete frames are taken before the next call.
    pub fn push(&mut self, input: &[u8]) {
        self.bytes.drain(..self.start.min(self.bytes.len()));
        self.start = 0;
        self.bytes.extend_from_slice(input);
    }

    /// Returns the next complete frame, without its length.
    ///
    /// # Errors
    /// [`FrameTooLong`], also at every later call: the caller ends the connection.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameTooLong> {
        let rest = self.bytes.get(self.start..).unwrap_or(&[]);
        let Some(length) = rest.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let found = u32::from_be_bytes(*length) as usize;
        if found > FRAME_BYTES_MAX {
            return Err(FrameTooLong { found });
        }
        let Some(frame) = rest.get(LENGTH_BYTES..LENGTH_BYTES + found) else { return Ok(None) };
        self.start += LENGTH_BYTES + found;
        Ok(Some(frame))
    }

    /// Returns true if the stream may end here: no frame is unfinished.
    #[must_use]
    pub fn is_at_frame_start(&self) -> bool {
        self.start >= self.bytes.len()
    }
}
