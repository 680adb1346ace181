//! Payload of WAL frames with native histograms that were folded into the overflow table of one tenant.
//!
//! Invariants: as for floats (`overflow`); histograms come back bit for bit, reset hints included; a payload
//! is at most [`FRAME_PAYLOAD_BYTES_MAX`] long.
//! Not here: the table (`head`), its checkpoint (`overflow_file`). Layout: `docs/head/wal.md`.

use std::sync::Arc;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::Histogram;

use super::histograms::{HistogramDecoder, HistogramEncoder, encoded_len_max};
use super::overflow::{OverflowSlot, count_of, put_text, read_key, read_slot};
use super::payload::text;

/// Samples at which a frame is full.
const FRAME_SAMPLES_MAX: usize = 1 << 16;
/// Bytes of histograms, as estimated by [`encoded_len_max`], at which a frame is full.
const FRAME_HISTOGRAM_BYTES: usize = 4 << 20;
/// Bytes of the smallest sample: slot, key, time, histogram.
const SAMPLE_BYTES_MIN: usize = 1 + 16 + 1 + 9;

/// Folded histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct OverflowHistogram {
    /// Index into the slots of the frame.
    pub slot: u32,
    /// Hash of the wire key of the series.
    pub key: u128,
    /// Time in the unit of the tenant.
    pub time: i64,
    /// The histogram as it was sent.
    pub histogram: Arc<Histogram>,
}

/// Folded histograms of one tenant, collected for a frame.
#[derive(Debug, Default)]
pub struct OverflowHistogramChanges {
    /// Encoded slots to which the samples refer.
    slots: Vec<u8>,
    slot_count: u32,
    samples: Vec<OverflowHistogram>,
    /// Upper bound of the encoded histograms.
    histogram_bytes: usize,
}

impl OverflowHistogramChanges {
    /// Adds a slot; returns its number for the samples.
    pub fn push_slot(&mut self, slot: &OverflowSlot<'_>) -> u32 {
        slot.encode(&mut self.slots);
        self.slot_count += 1;
        self.slot_count - 1
    }

    /// Adds a sample, in the order in which samples are folded.
    pub fn push(&mut self, sample: OverflowHistogram) {
        self.histogram_bytes += encoded_len_max(&sample.histogram);
        self.samples.push(sample);
    }

    /// Returns true if no sample was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns true if the samples must be encoded before others are added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.samples.len() >= FRAME_SAMPLES_MAX || self.histogram_bytes >= FRAME_HISTOGRAM_BYTES
    }

    /// Replaces `out` by the payload.
    pub fn encode(&self, tenant: &str, out: &mut Vec<u8>) {
        out.clear();
        put_text(tenant, out);
        put_uvarint(out, u64::from(self.slot_count));
        out.extend_from_slice(&self.slots);
        put_overflow_histograms(&self.samples, out);
    }

    /// Empties the changes, keeping their memory.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.slot_count = 0;
        self.samples.clear();
        self.histogram_bytes = 0;
    }

    /// Returns the bytes of heap memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() + self.samples.capacity() * size_of::<OverflowHistogram>()
    }
}

/// Decoded payload.
#[derive(Debug, PartialEq)]
pub struct OverflowHistogramsRef<'a> {
    /// Tenant name as stored; the caller validates it.
    pub tenant: &'a str,
    /// Slots of the samples.
    pub slots: Vec<OverflowSlot<'a>>,
    /// Samples in order; each refers to a slot.
    pub samples: Vec<OverflowHistogram>,
}

impl<'a> OverflowHistogramsRef<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<OverflowHistogramsRef<'a>, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let tenant = text(&mut reader, "tenant")?;
        let slot_count = count_of(&mut reader, "overflow slots", 2)?;
        let mut slots = Vec::with_capacity(slot_count);
        for _ in 0..slot_count {
            slots.push(OverflowSlot::decode(&mut reader)?);
        }
        let samples = read_overflow_histograms(&mut reader, slots.len())?;
        Ok(OverflowHistogramsRef { tenant, slots, samples })
    }
}

/// Appends samples: their count, a column of slots, keys and times, then the histograms.
pub(in super::super) fn put_overflow_histograms(samples: &[OverflowHistogram], out: &mut Vec<u8>) {
    put_uvarint(out, samples.len() as u64);
    let mut last = 0i64;
    for sample in samples {
        put_uvarint(out, u64::from(sample.slot));
        out.extend_from_slice(&sample.key.to_le_bytes());
        put_varint(out, sample.time.wrapping_sub(last));
        last = sample.time;
    }
    let mut encoder = HistogramEncoder::new(out);
    samples.iter().for_each(|sample| encoder.put(&sample.histogram));
}

/// Reads samples of `slot_count` slots.
///
/// # Errors
/// [`DecodeError`].
pub(in super::super) fn read_overflow_histograms(
    reader: &mut ByteReader<'_>,
    slot_count: usize,
) -> Result<Vec<OverflowHistogram>, DecodeError> {
    let count = count_of(reader, "overflow histograms", SAMPLE_BYTES_MIN)?;
    let mut columns = Vec::with_capacity(count);
    let mut last = 0i64;
    for _ in 0..count {
        let slot = read_slot(reader, slot_count)?;
        let key = read_key(reader)?;
        last = last.wrapping_add(reader.varint("overflow time")?);
        columns.push((slot, key, last));
    }
    let mut decoder = HistogramDecoder::default();
    let mut samples = Vec::with_capacity(count);
    for (slot, key, time) in columns {
        samples.push(OverflowHistogram { slot, key, time, histogram: decoder.next(reader)? });
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use chronolith_model::FloatHistogram;
    use chronolith_model::histogram::{Buckets, IntHistogram, ResetHint, SCHEMA_CUSTOM, Span};

    use super::*;
    use crate::head::wal::{put_histogram, read_histogram};

    fn histograms() -> Vec<Histogram> {
        let spans = vec![Span { offset: -2, length: 2 }, Span { offset: 5, length: 1 }];
        let ints = IntHistogram {
            reset_hint: ResetHint::NotReset,
            schema: 3,
            zero_threshold: 1e-9,
            zero_count: 2,
            count: 9,
            sum: -0.25,
            positive: Buckets { spans: spans.clone(), counts: vec![1, 4, 2] },
            ..IntHistogram::default()
        };
        let floats = FloatHistogram {
            reset_hint: ResetHint::Gauge,
            schema: SCHEMA_CUSTOM,
            count: 1.5,
            sum: 7.0,
            positive: Buckets { spans: vec![Span { offset: 0, length: 2 }], counts: vec![0.5, 1.0] },
            custom_values: Arc::from([0.1, 5.0]),
            ..FloatHistogram::default()
        };
        vec![Histogram::Int(ints.clone()), Histogram::Float(floats), Histogram::stale(), Histogram::Int(ints)]
    }

    #[test]
    fn folded_histograms_round_trip_and_every_cut_is_an_error() {
        let mut changes = OverflowHistogramChanges::default();
        changes.push_slot(&OverflowSlot { metric: "h", le: None, kind: 3 });
        changes.push_slot(&OverflowSlot { metric: "c", le: None, kind: 6 });
        let times = [1_000, i64::MAX, i64::MIN, 0];
        let samples: Vec<OverflowHistogram> = (0..)
            .zip(histograms())
            .zip(times)
            .map(|((at, histogram), time)| OverflowHistogram {
                slot: at % 2,
                key: 1 << (40 * at),
                time,
                histogram: Arc::new(histogram),
            })
            .collect();
        samples.iter().cloned().for_each(|sample| changes.push(sample));
        let mut bytes = vec![9; 3];
        changes.encode("team", &mut bytes);
        let found = OverflowHistogramsRef::decode(&bytes).unwrap();
        assert_eq!((found.tenant, found.slots.len()), ("team", 2));
        // NaN of a staleness marker is compared bit for bit.
        assert_eq!(found.samples, samples);
        for len in 0..bytes.len() {
            assert!(OverflowHistogramsRef::decode(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_frame_is_full_before_its_payload_is_too_long() {
        let mut changes = OverflowHistogramChanges::default();
        let histogram = Arc::new(histograms().remove(0));
        while !changes.is_full() {
            changes.push(OverflowHistogram { slot: 0, key: 0, time: 0, histogram: histogram.clone() });
        }
        let columns = FRAME_SAMPLES_MAX * (5 + 16 + 10);
        // One histogram of the longest kind may follow a frame that is nearly full.
        let largest = columns + FRAME_HISTOGRAM_BYTES + (5 << 20);
        assert!(largest < super::super::FRAME_PAYLOAD_BYTES_MAX, "{largest}");
        assert!(changes.samples.len() > 1000);
    }

    #[test]
    fn a_histogram_without_its_bounds_keeps_everything_else() {
        for histogram in histograms() {
            let mut bytes = Vec::new();
            put_histogram(&histogram, true, &mut bytes);
            let mut found = read_histogram(&mut ByteReader::new(&bytes)).unwrap();
            if let (Histogram::Float(found), Histogram::Float(sent)) = (&mut found, &histogram) {
                assert!(found.custom_values.is_empty());
                found.custom_values = sent.custom_values.clone();
            }
            assert_eq!(found, histogram);
        }
    }
}
