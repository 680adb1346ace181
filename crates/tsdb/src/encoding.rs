//! The way from the head's XOR chunks to samples, for blocks in another encoding.
//! Holds: bit-exact. Not here: the encodings (`format`), chunks of blocks (`block`).

use chronolith_base::DecodeError;
use chronolith_format::xor::{self, ENCODING_XOR, EncodedChunk};
use chronolith_model::{Columns, TimeRange};

/// Decodes one series after the other with memory used again.
#[derive(Default)]
pub(crate) struct XorDecoder {
    columns: Columns,
}

impl XorDecoder {
    /// The samples of `chunks`, which ascend and do not overlap.
    pub(crate) fn decode(&mut self, chunks: &[EncodedChunk]) -> Result<&Columns, DecodeError> {
        self.columns.clear();
        for chunk in chunks {
            assert_eq!(chunk.encoding, ENCODING_XOR, "the head seals XOR chunks");
            xor::decode(&chunk.bytes, TimeRange::ALL, &mut self.columns)?;
        }
        Ok(&self.columns)
    }
}
