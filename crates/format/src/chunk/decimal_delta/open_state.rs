//! State of an open chunk in either encoding, XOR or decimal-delta, in the 32 bytes that an XOR state takes.
//!
//! Invariants: the byte that counts leading zeros in an XOR state (0 to 31, or 255) marks a decimal-delta
//! state by 128 plus its scale, so that no state is valid in both encodings.

use chronolith_base::DecodeError;

use super::{DecimalDeltaState, ENCODING_DECIMAL_DELTA, Misfit, append_part, is_marked};
use crate::chunk::xor::{ENCODING_XOR, STATE_BYTES, XorState};

/// Either an [`XorState`] or a [`DecimalDeltaState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenState(XorState);

const _: () = assert!(size_of::<OpenState>() == size_of::<XorState>(), "fits the record of a series");

impl Default for OpenState {
    fn default() -> OpenState {
        OpenState::new()
    }
}

impl From<XorState> for OpenState {
    fn from(state: XorState) -> OpenState {
        OpenState(state)
    }
}

impl From<DecimalDeltaState> for OpenState {
    fn from(state: DecimalDeltaState) -> OpenState {
        OpenState(state.0)
    }
}

impl OpenState {
    /// An XOR chunk without samples and bytes.
    #[must_use]
    pub const fn new() -> OpenState {
        OpenState(XorState::new())
    }

    /// The state as decimal-delta; none if the chunk is XOR.
    #[must_use]
    pub fn as_decimal_delta(&self) -> Option<DecimalDeltaState> {
        is_marked(&self.0).then_some(DecimalDeltaState(self.0))
    }

    /// The state as XOR; none if the chunk is decimal-delta.
    #[must_use]
    pub fn as_xor(&self) -> Option<XorState> {
        (!is_marked(&self.0)).then_some(self.0)
    }

    /// Encoding byte of the chunk.
    #[must_use]
    pub fn encoding(&self) -> u8 {
        if is_marked(&self.0) { ENCODING_DECIMAL_DELTA } else { ENCODING_XOR }
    }

    /// Time of the last sample; 0 if there is none.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.0.time()
    }

    /// Bits of the last value.
    #[must_use]
    pub fn value_bits(&self) -> u64 {
        self.as_decimal_delta().map_or(self.0.value_bits, |state| state.value_bits())
    }

    /// Time between the last two samples; 0 if there are fewer.
    #[must_use]
    pub fn step_ms(&self) -> i64 {
        self.0.step_ms()
    }

    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.0.count()
    }

    /// Bytes in use, with the header.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    /// Length of the buffer that one more append requires.
    #[must_use]
    pub fn byte_len_needed(&self) -> usize {
        self.0.byte_len_needed()
    }

    /// Appends a sample in the encoding of the chunk, as [`XorState::append_part`].
    ///
    /// # Errors
    /// [`Misfit`] if the chunk is decimal-delta and the value does not fit; state and bytes are unchanged.
    ///
    /// # Panics
    /// As [`XorState::append_part`].
    pub fn append_part(&mut self, buf: &mut [u8], base: usize, time: i64, value: f64) -> Result<(), Misfit> {
        if is_marked(&self.0) {
            return append_part(&mut self.0, buf, base, time, value);
        }
        self.0.append_part(buf, base, time, value);
        Ok(())
    }

    /// The empty state of the chunk after this one: decimal-delta if this one is and `value` fits its scale.
    #[must_use]
    pub fn next_chunk(&self, value: f64) -> OpenState {
        match self.as_decimal_delta() {
            Some(state) if state.scale().integer_of(value).is_some() => state.next_chunk().into(),
            _ => OpenState::new(),
        }
    }

    /// The state as stored in a checkpoint slice.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STATE_BYTES] {
        self.0.to_bytes()
    }

    /// Reads the bytes of [`OpenState::to_bytes`]: the state of a chunk with samples.
    ///
    /// # Errors
    /// [`DecodeError`] for a state that no chunk has.
    pub fn from_bytes(bytes: &[u8]) -> Result<OpenState, DecodeError> {
        let record = XorState::from_bytes_unchecked(bytes)?;
        if is_marked(&record) {
            return DecimalDeltaState::from_bytes(bytes).map(OpenState::from);
        }
        XorState::from_bytes(bytes).map(OpenState::from)
    }
}
