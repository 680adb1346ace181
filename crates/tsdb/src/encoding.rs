//! The way from the head's chunks to blocks in another encoding.
//! Holds: bit-exact, start times included; chunks of histograms are copied. Not here: the encodings (`format`), chunks of blocks (`block`).

use chronolith_base::DecodeError;
use chronolith_block::{BlockError, BlockWriter};
use chronolith_format::kinds;
use chronolith_format::xor::EncodedChunk;
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
        let is_histogram = |chunk: &EncodedChunk| kinds::is_histogram(chunk.encoding);
        for run in chunks.chunk_by(|a, b| is_histogram(a) == is_histogram(b)) {
            if run.first().is_none_or(is_histogram) {
                for chunk in run {
                    out.push_chunk(chunk)?;
                }
                continue;
            }
            self.columns.clear();
            for chunk in run {
                kinds::decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut self.columns)?;
            }
            let Columns { times, values, start_times, .. } = &self.columns;
            out.push_floats(times, values, start_times)?;
        }
        Ok(out.end_series(labels)?)
    }
}
