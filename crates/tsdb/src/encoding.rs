//! Re-encoding: chunks of the head to the encoding of a block, and samples to chunks for remote read.
//!
//! Invariants: values are bit-exact; blocks get start timestamps too; chunks of histograms are copied into
//! blocks.
//! Not here: the encodings (`format`), chunks of blocks (`block`).

use chronolith_base::DecodeError;
use chronolith_block::{BlockError, BlockWriter};
use chronolith_format::chunk::xor::{self, EncodedChunk, SAMPLES_PER_CHUNK};
use chronolith_format::{chunk::histogram, chunk::kinds};
use chronolith_head::HeadTexts;
use chronolith_model::query::SampleKind;
use chronolith_model::{Columns, Labels, TimeRange, WordKind};

/// Encodes one series after the other, with reused buffers.
#[derive(Default)]
pub(crate) struct SeriesEncoder {
    columns: Columns,
}

impl SeriesEncoder {
    /// Adds the series of `chunks`, which ascend and do not overlap, to `out`; `texts` has the texts that
    /// words of a series of texts name.
    pub(crate) fn put<E: From<DecodeError> + From<BlockError>>(
        &mut self,
        labels: &Labels,
        chunks: &[EncodedChunk],
        texts: Option<&HeadTexts>,
        out: &mut BlockWriter,
    ) -> Result<(), E> {
        let kind = WordKind::of(labels);
        out.set_kind(kind);
        if kind == WordKind::Text {
            self.put_texts::<E>(labels, chunks, texts, out)?;
            return Ok(out.end_series(labels)?);
        }
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

    /// Adds the chunks of a series of texts. Samples without a text, which only damage leaves, are left out.
    fn put_texts<E: From<DecodeError> + From<BlockError>>(
        &mut self,
        labels: &Labels,
        chunks: &[EncodedChunk],
        texts: Option<&HeadTexts>,
        out: &mut BlockWriter,
    ) -> Result<(), E> {
        self.columns.clear();
        for chunk in chunks {
            kinds::decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut self.columns)?;
        }
        let Columns { times, values, .. } = &self.columns;
        let mut found_times = Vec::with_capacity(times.len());
        let mut found = Vec::with_capacity(times.len());
        for (&time, value) in times.iter().zip(values) {
            if let Some(text) = texts.and_then(|texts| texts.get(time, value.to_bits())) {
                found_times.push(time);
                found.push(text);
            }
        }
        if found.len() < times.len() {
            let missing = times.len() - found.len();
            tracing::error!(%labels, missing, "samples whose text is lost are left out of the block");
        }
        Ok(out.push_texts(&found_times, &found)?)
    }
}

/// Returns `samples` as chunks that every version of Prometheus reads, ascending by time and encoded on
/// demand: XOR, and its encodings of histograms with integer and float counts. Start timestamps are left out.
pub fn prometheus_chunks(samples: &Columns) -> impl Iterator<Item = EncodedChunk> {
    samples.runs().flat_map(|(places, kind)| -> Box<dyn Iterator<Item = EncodedChunk>> {
        let (times, values) = (&samples.times[places.clone()], &samples.values[places.clone()]);
        match kind {
            SampleKind::Float => {
                let parts = times.chunks(SAMPLES_PER_CHUNK).zip(values.chunks(SAMPLES_PER_CHUNK));
                Box::new(parts.flat_map(|(times, values)| xor::encode(times, values)))
            }
            SampleKind::Histogram => {
                let histograms: Vec<_> = samples.histograms_at(places).cloned().collect();
                Box::new(histogram::encode(times, &histograms, SAMPLES_PER_CHUNK as u16).into_iter())
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use chronolith_format::chunk::histogram::ENCODING_HISTOGRAM;
    use chronolith_format::chunk::xor::ENCODING_XOR;
    use chronolith_model::{Histogram, IntHistogram};

    #[test]
    fn chunks_that_go_out_hold_all_samples_bit_for_bit() {
        let mut samples = Columns::default();
        let of_count = |count| {
            Arc::new(Histogram::Int(IntHistogram { count, zero_count: count, ..IntHistogram::default() }))
        };
        for time in 0..1000i64 {
            match time {
                300..500 => samples.push_histogram(time * 1000, of_count(time.unsigned_abs())),
                // Bits that only an exact copy keeps.
                _ => {
                    samples.push(time * 1000, f64::from_bits(0x7ff0_0000_0000_0002 + time.unsigned_abs() % 3))
                }
            }
        }
        let mut found = Columns::default();
        for chunk in prometheus_chunks(&samples) {
            let before = found.len();
            match chunk.encoding {
                ENCODING_XOR => xor::decode(&chunk.bytes, TimeRange::ALL, &mut found).expect("decodes"),
                encoding => {
                    assert_eq!(encoding, ENCODING_HISTOGRAM);
                    histogram::decode(encoding, &chunk.bytes, TimeRange::ALL, &mut found).expect("decodes");
                }
            }
            let ends = (found.times[before], *found.times.last().expect("samples"));
            assert_eq!(ends, (chunk.min_time, chunk.max_time));
            assert_eq!(found.len() - before, usize::from(chunk.count));
            assert!(usize::from(chunk.count) <= SAMPLES_PER_CHUNK);
        }
        let bits = |columns: &Columns| columns.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!((&found.times, bits(&found)), (&samples.times, bits(&samples)));
        let counts = |columns: &Columns| {
            columns
                .histograms
                .iter()
                .map(|(at, h)| (*at, h.memory_bytes(), h.sum().to_bits()))
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(&found), counts(&samples));
    }
}
