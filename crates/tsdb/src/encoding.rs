//! The way from the head's chunks to blocks in another encoding.
//! Holds: bit-exact; chunks of histograms are copied. Not here: the encodings (`format`), chunks of blocks (`block`).

use chronolith_base::DecodeError;
use chronolith_block::{BlockError, BlockWriter};
use chronolith_format::xor::{self, ENCODING_XOR, EncodedChunk};
use chronolith_model::{Columns, Labels, TimeRange};

/// Encodes one series after the other with memory used again.
#[derive(Default)]
pub(crate) struct SeriesEncoder {
    columns: Columns,
}

impl SeriesEncoder {
    /// Adds the series of `chunks`, which ascend and do not overlap, to `out`.
    pub(crate) fn put<E: From<DecodeError> + From<BlockError>>(
        &mut self,
        labels: &Labels,
        chunks: &[EncodedChunk],
        out: &mut BlockWriter,
    ) -> Result<(), E> {
        for run in chunks.chunk_by(|a, b| (a.encoding == ENCODING_XOR) == (b.encoding == ENCODING_XOR)) {
            if run.first().is_none_or(|chunk| chunk.encoding != ENCODING_XOR) {
                for chunk in run {
                    out.push_chunk(chunk)?;
                }
                continue;
            }
            self.columns.clear();
            for chunk in run {
                xor::decode(&chunk.bytes, TimeRange::ALL, &mut self.columns)?;
            }
            out.push_floats(&self.columns.times, &self.columns.values)?;
        }
        Ok(out.end_series(labels)?)
    }
}
