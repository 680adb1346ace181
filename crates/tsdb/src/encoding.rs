//! Which encoding the chunks of a fresh block have, and the way from the head's XOR chunks to it.
//! Holds: bit-exact; a chunk in another encoding than XOR passes as it is. Not here: the encodings (`format`).

use chronolith_base::DecodeError;
use chronolith_format::dense::{self, DenseScratch, ENCODING_DENSE};
use chronolith_format::xor::{self, ENCODING_XOR, EncodedChunk};
use chronolith_model::{Columns, TimeRange};

/// Encoding of float chunks in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockEncoding {
    /// XOR chunks of 120 samples: Prometheus, Thanos and Mimir read the block.
    #[default]
    Prometheus,
    /// Dense chunks of at most [`DENSE_SAMPLES_MAX`] samples: about a third of the bytes, faster to decode, read by
    /// Chronolith only.
    Dense,
}

/// Samples of a dense chunk at most: beyond it chunks hardly shrink, and a read decodes more than it needs.
pub const DENSE_SAMPLES_MAX: usize = 1024;

/// Encodes the chunks of one series after the other again, with memory used again.
#[derive(Default)]
pub(crate) struct DenseEncoder {
    columns: Columns,
    scratch: DenseScratch,
}

impl DenseEncoder {
    /// The samples of `chunks`, which ascend and do not overlap, in dense chunks.
    pub(crate) fn encode(&mut self, chunks: Vec<EncodedChunk>) -> Result<Vec<EncodedChunk>, DecodeError> {
        if chunks.iter().any(|chunk| chunk.encoding != ENCODING_XOR) {
            return Ok(chunks);
        }
        self.columns.clear();
        for chunk in &chunks {
            xor::decode(&chunk.bytes, TimeRange::ALL, &mut self.columns)?;
        }
        let Columns { times, values, .. } = &self.columns;
        let mut out = Vec::with_capacity(times.len().div_ceil(DENSE_SAMPLES_MAX));
        for (times, values) in times.chunks(DENSE_SAMPLES_MAX).zip(values.chunks(DENSE_SAMPLES_MAX)) {
            let mut bytes = Vec::new();
            dense::encode(times, values, &mut self.scratch, &mut bytes);
            out.push(EncodedChunk {
                encoding: ENCODING_DENSE,
                min_time: times[0],
                max_time: times[times.len() - 1],
                count: times.len() as u16,
                bytes,
            });
        }
        Ok(out)
    }
}

const _: () = assert!(DENSE_SAMPLES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_back_bit_for_bit_in_fewer_bytes() {
        let times: Vec<i64> = (0..2500).map(|k| 1_000_000 + k * 15_000).collect();
        let values: Vec<f64> =
            (0..2500).map(|k| if k == 77 { f64::NAN } else { f64::from(k % 313) / 100.0 }).collect();
        let xor_chunks = xor::encode(&times, &values);
        let xor_bytes: usize = xor_chunks.iter().map(|c| c.bytes.len()).sum();
        let chunks = DenseEncoder::default().encode(xor_chunks).expect("good chunks");
        assert_eq!(chunks.iter().map(|c| c.count).collect::<Vec<_>>(), [1024, 1024, 452]);
        assert!(chunks.iter().map(|c| c.bytes.len()).sum::<usize>() * 2 < xor_bytes);
        let mut got = Columns::default();
        for chunk in &chunks {
            dense::decode(&chunk.bytes, TimeRange::ALL, &mut got).expect("a good chunk");
        }
        assert_eq!(got.times, times);
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got.values), bits(&values));
    }
}
