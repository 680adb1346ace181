//! Receiver of the bytes of a sidecar while it is made: pieces that go to the cache one after the other.
//!
//! Invariants: at most one piece waits in memory; after a piece that the cache refuses, or beyond the limit,
//! the others are dropped.

use bytes::Bytes;
use parking_lot::Mutex;

use super::error::BuildError;
use crate::remote::RemoteFiles;

/// Bytes of a piece, as of an entry of the cache directory.
const PIECE_BYTES: usize = 256 << 10;

/// Writes a sidecar to the cache.
pub(super) struct PieceWriter {
    target: RemoteFiles,
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    piece: Vec<u8>,
    /// Bytes before the piece.
    written_bytes: u64,
    is_refused: bool,
    is_too_long: bool,
}

impl PieceWriter {
    /// Writes at most `bytes_max` bytes of the sidecar of `target`.
    pub(super) fn new(target: RemoteFiles, bytes_max: u64) -> PieceWriter {
        PieceWriter { target, bytes_max, state: Mutex::default() }
    }

    /// Appends bytes. May wait for the disk.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.piece.extend_from_slice(bytes);
        if state.piece.len() >= PIECE_BYTES {
            self.write(&mut state);
        }
    }

    /// Writes the rest. Returns the length of the sidecar.
    pub(super) fn finish(&self) -> Result<u64, BuildError> {
        self.write(&mut self.state.lock());
        self.check()?;
        Ok(self.state.lock().written_bytes)
    }

    /// Returns an error if the cache does not have all that was written.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        let state = self.state.lock();
        if state.is_too_long {
            let bytes_max = self.bytes_max;
            return Err(BuildError::Refused(format!("it would be longer than {bytes_max} bytes")));
        }
        match state.is_refused {
            true => Err(BuildError::Failed("the cache has no room for it".to_owned())),
            false => Ok(()),
        }
    }

    fn write(&self, state: &mut State) {
        let bytes = Bytes::from(std::mem::take(&mut state.piece));
        let start = state.written_bytes;
        state.written_bytes += bytes.len() as u64;
        state.is_too_long |= state.written_bytes > self.bytes_max;
        if bytes.is_empty() || state.is_refused || state.is_too_long {
            return;
        }
        state.is_refused = !self.target.keep_sidecar(start, &bytes);
    }
}
