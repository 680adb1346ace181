//! Queue of frames to be appended to a frame log, in order.
//!
//! Invariants: a frame has entries of one tenant; a payload ends once it has [`PAYLOAD_BYTES`].
//! Not here: bytes of payloads and headers (`format`).

use chronolith_format::head::frame_log::FrameWriter;

use super::copies::LogFormat;

/// Size at which a payload ends.
pub(crate) const PAYLOAD_BYTES: usize = 1 << 20;

/// Queue of frames to be written, in order.
pub(crate) struct LogFrames {
    format: &'static LogFormat,
    frames: FrameWriter,
    /// Entries of one tenant.
    payload: Vec<u8>,
}

impl LogFrames {
    pub(super) fn new(format: &'static LogFormat, frames: FrameWriter) -> LogFrames {
        LogFrames { format, frames, payload: Vec::new() }
    }

    /// Returns the key of the file; 0 before there is one.
    pub(super) fn key(&self) -> u128 {
        self.frames.key()
    }

    /// Bytes of whole frames.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Takes the frames; later ones continue their sequence.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.frames.take()
    }

    /// Returns the frames of an empty file under `key`.
    pub(super) fn restarted(&self, key: u128) -> LogFrames {
        LogFrames::new(self.format, FrameWriter::with_header(key, &(self.format.encode_header)(key)))
    }

    /// Adds the entries that `put` appends to a payload, which `start` begins. All entries since the last
    /// [`LogFrames::end_frame`] belong to one tenant.
    pub(crate) fn put(&mut self, start: impl FnOnce(&mut Vec<u8>), put: impl FnOnce(&mut Vec<u8>)) {
        if self.payload.is_empty() {
            start(&mut self.payload);
        }
        put(&mut self.payload);
        if self.payload.len() >= PAYLOAD_BYTES {
            self.end_frame();
        }
    }

    /// Ends the frame of the entries since the last one.
    pub(crate) fn end_frame(&mut self) {
        if !self.payload.is_empty() {
            self.frames.put(self.format.entry_kind, &self.payload);
            self.payload.clear();
        }
    }

    /// Adds a frame of another kind.
    pub(crate) fn put_frame(&mut self, kind: u8, payload: &[u8]) {
        self.frames.put(kind, payload);
    }
}
