//! Answers of remote read: `prometheus.ReadResponse`, and frames of `prometheus.ChunkedReadResponse`.
//!
//! Invariants: fields in the order of their numbers, zero values left out, as Prometheus writes them.
//! Not here: the bytes of chunks (the store gives them), sizes of sent pieces (`server`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_model::Columns;

pub use crate::remote_write::encode::{compress, put_labels};
use crate::remote_write::encode::{put_bytes, put_double, put_histogram, put_int};

/// Builds a `ReadResponse`.
#[derive(Default)]
pub struct SamplesEncoder {
    body: Vec<u8>,
    result: Vec<u8>,
    series: Vec<u8>,
    field: Vec<u8>,
}

impl SamplesEncoder {
    /// Adds a series to the result of the current query.
    ///
    /// Floats come before native histograms, whatever their times: the message has a list of each.
    pub fn push_series<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        samples: &Columns,
    ) {
        self.series.clear();
        put_labels(&mut self.series, labels);
        let mut histograms = samples.histograms.iter().peekable();
        for (idx, (&time_ms, &value)) in samples.times.iter().zip(&samples.values).enumerate() {
            if histograms.next_if(|(at, _)| *at as usize == idx).is_some() {
                continue;
            }
            self.field.clear();
            put_double(&mut self.field, 1, value);
            put_int(&mut self.field, 2, time_ms.cast_unsigned());
            put_bytes(&mut self.series, 2, &self.field);
        }
        for (idx, histogram) in &samples.histograms {
            let Some(&time_ms) = samples.times.get(*idx as usize) else { continue };
            self.field.clear();
            put_histogram(&mut self.field, time_ms, 0, histogram);
            put_bytes(&mut self.series, 4, &self.field);
        }
        put_bytes(&mut self.result, 1, &self.series);
    }

    /// Ends the result of a query; the next series belong to the next one.
    pub fn end_query(&mut self) {
        put_bytes(&mut self.body, 1, &self.result);
        self.result.clear();
    }

    /// Bytes of the message so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.len() + self.result.len()
    }

    /// Returns true if there is no byte yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in use.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.body.capacity() + self.result.capacity() + self.series.capacity() + self.field.capacity()
    }

    /// The message as it is sent: a snappy block.
    ///
    /// # Panics
    /// Beyond 4 GiB.
    #[must_use]
    pub fn compressed(&self) -> Vec<u8> {
        compress(&self.body)
    }
}

/// A chunk on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkOut<'a> {
    /// Time of the first sample.
    pub min_time_ms: i64,
    /// Time of the last one.
    pub max_time_ms: i64,
    /// Number of the encoding, as Prometheus counts them.
    pub encoding: u8,
    /// Bytes of the chunk.
    pub bytes: &'a [u8],
}

/// Appends a chunk to the chunks of a series.
pub fn put_chunk(out: &mut Vec<u8>, chunk: ChunkOut<'_>) {
    let mut head = Vec::with_capacity(32);
    put_int(&mut head, 1, chunk.min_time_ms.cast_unsigned());
    put_int(&mut head, 2, chunk.max_time_ms.cast_unsigned());
    put_int(&mut head, 3, u64::from(chunk.encoding));
    if !chunk.bytes.is_empty() {
        head.push(4 << 3 | 2);
        put_uvarint(&mut head, chunk.bytes.len() as u64);
    }
    out.push(2 << 3 | 2);
    put_uvarint(out, (head.len() + chunk.bytes.len()) as u64);
    out.extend_from_slice(&head);
    out.extend_from_slice(chunk.bytes);
}

/// Appends a frame with chunks of one series: length, CRC-32C (big-endian), message. `labels` are what
/// [`put_labels`] has written, `chunks` what [`put_chunk`] has.
pub fn put_frame(out: &mut Vec<u8>, query_idx: usize, labels: &[u8], chunks: &[u8]) {
    let mut message = Vec::with_capacity(labels.len() + chunks.len() + 32);
    message.push(1 << 3 | 2);
    put_uvarint(&mut message, (labels.len() + chunks.len()) as u64);
    message.extend_from_slice(labels);
    message.extend_from_slice(chunks);
    put_int(&mut message, 2, query_idx as u64);
    put_uvarint(out, message.len() as u64);
    out.extend_from_slice(&crc32c(&message).to_be_bytes());
    out.extend_from_slice(&message);
}
