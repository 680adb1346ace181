//! Checkpoint of the overflow tables of all tenants: totals per metric, and the last sample of each folded
//! series.
//!
//! Invariants: the last frame counts all others, so a file is used as a whole or not at all; readers take
//! untrusted bytes and never panic. Layout: `docs/head/overflow_file.md`.
//! Not here: changes after the checkpoint (`wal`), schedule of writing a file (`head`).

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

use chronolith_model::{FloatHistogram, Histogram};

use super::wal::{
    FRAME_HEADER_BYTES, FrameHeader, OverflowHistogram, OverflowSample, OverflowSlot, STRIPE_NONE,
};
use super::wal::{encoded_len_max, read_key, read_slot, text};
use super::wal::{put_histogram, put_overflow_histograms, read_histogram, read_overflow_histograms};

/// Frame kind: tenant, position in the WAL, and totals of its slots.
pub const KIND_STORE: u8 = 84;
/// Frame kind: last samples of folded series of the tenant before.
pub const KIND_SERIES: u8 = 85;
/// Frame kind: end of the file.
pub const KIND_END: u8 = 86;

/// Frame kind: totals of slots of native histograms of the tenant before.
pub const KIND_HISTOGRAM_SLOTS: u8 = 87;
/// Frame kind: last native histograms of folded series of the tenant before.
pub const KIND_HISTOGRAM_SERIES: u8 = 88;

/// Frame kind: estimates of distinct label values of folded series of the tenant before.
pub const KIND_LABEL_VALUES: u8 = 89;

/// Bytes at which a frame of histograms ends; one histogram is at most 5 MiB.
const HISTOGRAM_FRAME_BYTES: usize = 4 << 20;

/// Estimates of distinct label values of the folded series of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelValuesState<'a> {
    /// The metric.
    pub metric: &'a str,
    /// Clock time at which a series of the metric was folded for the first time, in milliseconds.
    pub since_ms: i64,
    /// Labels with the registers of their estimates.
    pub labels: Vec<(&'a str, &'a [u8])>,
}

/// State of a slot of native histograms.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSlotState<'a> {
    /// The slot.
    pub slot: OverflowSlot<'a>,
    /// Time of the newest sample of the overflow series, in the unit of the tenant.
    pub time: i64,
    /// Sum of increases; `None` before the first histogram, and of gauges.
    pub total: Option<FloatHistogram>,
}

/// State of a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotState<'a> {
    /// The slot.
    pub slot: OverflowSlot<'a>,
    /// Time of the newest sample of the overflow series, in the unit of the tenant.
    pub time: i64,
    /// Sum of increases.
    pub total: f64,
}

/// Writes a file frame by frame.
pub struct OverflowFileWriter {
    key: u128,
    frame_count: u64,
    payload: Vec<u8>,
    bytes: Vec<u8>,
}

impl OverflowFileWriter {
    /// Returns the writer of an empty file under the key of the WAL.
    #[must_use]
    pub fn new(key: u128) -> OverflowFileWriter {
        OverflowFileWriter { key, frame_count: 0, payload: Vec::new(), bytes: Vec::new() }
    }

    /// Adds a tenant: the changes of its table that the WAL queued up to `sequence` are in its slots and in
    /// the series that follow.
    pub fn put_store<'a>(
        &mut self,
        tenant: &str,
        sequence: u64,
        slots: impl ExactSizeIterator<Item = SlotState<'a>>,
    ) {
        self.payload.clear();
        put_uvarint(&mut self.payload, tenant.len() as u64);
        self.payload.extend_from_slice(tenant.as_bytes());
        self.payload.extend_from_slice(&sequence.to_le_bytes());
        put_uvarint(&mut self.payload, slots.len() as u64);
        for state in slots {
            state.slot.encode(&mut self.payload);
            put_varint(&mut self.payload, state.time);
            self.payload.extend_from_slice(&state.total.to_bits().to_le_bytes());
        }
        self.put(KIND_STORE);
    }

    /// Adds series of the last tenant. The caller splits them: a frame is at most 16 MiB.
    pub fn put_series(&mut self, series: impl Iterator<Item = OverflowSample>) {
        self.payload.clear();
        let mut last = 0i64;
        for one in series {
            put_uvarint(&mut self.payload, u64::from(one.slot));
            self.payload.extend_from_slice(&one.key.to_le_bytes());
            put_varint(&mut self.payload, one.time.wrapping_sub(last));
            self.payload.extend_from_slice(&one.value.to_bits().to_le_bytes());
            last = one.time;
        }
        self.put(KIND_SERIES);
    }

    /// Adds slots of native histograms of the last tenant, in one frame or several.
    pub fn put_histogram_slots<'a>(&mut self, slots: impl Iterator<Item = HistogramSlotState<'a>>) {
        self.payload.clear();
        for state in slots {
            state.slot.encode(&mut self.payload);
            put_varint(&mut self.payload, state.time);
            self.payload.push(u8::from(state.total.is_some()));
            if let Some(total) = state.total {
                put_histogram(&Histogram::Float(total), false, &mut self.payload);
            }
            if self.payload.len() >= HISTOGRAM_FRAME_BYTES {
                self.put(KIND_HISTOGRAM_SLOTS);
                self.payload.clear();
            }
        }
        if !self.payload.is_empty() {
            self.put(KIND_HISTOGRAM_SLOTS);
        }
    }

    /// Adds a frame of histogram series of the last tenant, whose slots count from 0 in the order of
    /// [`OverflowFileWriter::put_histogram_slots`]: at most `count_max`, fewer if they are large.
    pub fn put_histogram_series(
        &mut self,
        series: &mut impl Iterator<Item = OverflowHistogram>,
        count_max: usize,
    ) {
        let mut samples = Vec::new();
        let mut bytes = 0;
        while samples.len() < count_max && bytes < HISTOGRAM_FRAME_BYTES {
            let Some(one) = series.next() else { break };
            bytes += encoded_len_max(&one.histogram);
            samples.push(one);
        }
        self.payload.clear();
        put_overflow_histograms(&samples, &mut self.payload);
        self.put(KIND_HISTOGRAM_SERIES);
    }

    /// Adds estimates of label values of the last tenant; a frame is at most 16 MiB.
    pub fn put_label_values<'a>(&mut self, metrics: impl ExactSizeIterator<Item = LabelValuesState<'a>>) {
        if metrics.len() == 0 {
            return;
        }
        self.payload.clear();
        for metric in metrics {
            put_bytes(metric.metric.as_bytes(), &mut self.payload);
            put_varint(&mut self.payload, metric.since_ms);
            put_uvarint(&mut self.payload, metric.labels.len() as u64);
            for (label, registers) in metric.labels {
                put_bytes(label.as_bytes(), &mut self.payload);
                put_bytes(registers, &mut self.payload);
            }
        }
        self.put(KIND_LABEL_VALUES);
    }

    /// Ends the file, which covers frames of all tenants up to `sequence`.
    pub fn put_end(&mut self, sequence: u64) {
        self.payload.clear();
        self.payload.extend_from_slice(&sequence.to_le_bytes());
        self.payload.extend_from_slice(&self.frame_count.to_le_bytes());
        self.put(KIND_END);
    }

    /// Takes the bytes since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn put(&mut self, kind: u8) {
        let header = FrameHeader {
            sequence: self.frame_count,
            ..FrameHeader::for_payload(kind, STRIPE_NONE, &self.payload)
        };
        header.put_frame(self.key, &self.payload, &mut self.bytes);
        self.frame_count += 1;
    }
}

/// Part of a file.
#[derive(Debug, PartialEq)]
pub enum OverflowPart<'a> {
    /// Start of a tenant.
    Store {
        /// Tenant name as stored; the caller validates it.
        tenant: &'a str,
        /// Position in the WAL.
        sequence: u64,
        /// Slots of the tenant.
        slots: Vec<SlotState<'a>>,
    },
    /// Series of the tenant before.
    Series(Vec<OverflowSample>),
    /// Slots of native histograms of the tenant before, numbered in order over several parts.
    HistogramSlots(Vec<HistogramSlotState<'a>>),
    /// Series with native histograms of the tenant before.
    HistogramSeries(Vec<OverflowHistogram>),
    /// Estimates of label values of the tenant before.
    LabelValues(Vec<LabelValuesState<'a>>),
}

/// File whose frames are all intact.
#[derive(Debug)]
pub struct OverflowFile<'a> {
    frames: Vec<(u8, &'a [u8])>,
    /// Frames of the WAL after this position are not covered for any tenant.
    pub sequence: u64,
}

impl<'a> OverflowFile<'a> {
    /// Checks all frames of a file; `None` if one is damaged or missing.
    #[must_use]
    pub fn open(bytes: &'a [u8], key: u128) -> Option<OverflowFile<'a>> {
        let mut rest = bytes;
        let mut frames = Vec::new();
        loop {
            let header = FrameHeader::decode(rest, key)?;
            let payload = rest.get(FRAME_HEADER_BYTES..)?.get(..header.payload_len as usize)?;
            if header.payload_crc != crc32c(payload) || header.sequence != frames.len() as u64 {
                return None;
            }
            if header.kind == KIND_END {
                let mut reader = ByteReader::new(payload);
                let sequence = reader.le_u64("overflow sequence").ok()?;
                let frame_count = reader.le_u64("overflow frames").ok()?;
                return (frame_count == frames.len() as u64).then_some(OverflowFile { frames, sequence });
            }
            frames.push((header.kind, payload));
            rest = rest.get(header.frame_len()..)?;
        }
    }

    /// Visits the parts in order.
    ///
    /// # Errors
    /// [`DecodeError`] of a payload, or as `visit` returns.
    pub fn visit<E: From<DecodeError>>(
        &self,
        mut visit: impl FnMut(OverflowPart<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut slot_count = 0;
        let mut histogram_slot_count = 0;
        for &(kind, payload) in &self.frames {
            let mut reader = ByteReader::new(payload);
            match kind {
                KIND_STORE => {
                    let part = read_store(&mut reader)?;
                    if let OverflowPart::Store { slots, .. } = &part {
                        (slot_count, histogram_slot_count) = (slots.len(), 0);
                    }
                    visit(part)?;
                }
                KIND_SERIES => visit(OverflowPart::Series(read_series(&mut reader, slot_count)?))?,
                KIND_HISTOGRAM_SLOTS => {
                    let slots = read_histogram_slots(&mut reader)?;
                    histogram_slot_count += slots.len();
                    visit(OverflowPart::HistogramSlots(slots))?;
                }
                KIND_HISTOGRAM_SERIES => visit(OverflowPart::HistogramSeries(read_overflow_histograms(
                    &mut reader,
                    histogram_slot_count,
                )?))?,
                KIND_LABEL_VALUES => visit(OverflowPart::LabelValues(read_label_values(&mut reader)?))?,
                // A later version may add kinds.
                _ => {}
            }
        }
        Ok(())
    }
}

fn read_store<'a>(reader: &mut ByteReader<'a>) -> Result<OverflowPart<'a>, DecodeError> {
    let tenant = text(reader, "tenant")?;
    let sequence = reader.le_u64("overflow sequence")?;
    let count = reader.length("overflow slots")?;
    let mut slots = Vec::new();
    for _ in 0..count {
        let slot = OverflowSlot::decode(reader)?;
        let time = reader.varint("overflow slot time")?;
        let total = f64::from_bits(reader.le_u64("overflow total")?);
        slots.push(SlotState { slot, time, total });
    }
    Ok(OverflowPart::Store { tenant, sequence, slots })
}

fn read_histogram_slots<'a>(reader: &mut ByteReader<'a>) -> Result<Vec<HistogramSlotState<'a>>, DecodeError> {
    let mut slots = Vec::new();
    while !reader.is_empty() {
        let slot = OverflowSlot::decode(reader)?;
        let time = reader.varint("overflow slot time")?;
        let has_total = reader.u8("overflow total")? != 0;
        let total = if has_total { Some(read_histogram(reader)?.to_float().into_owned()) } else { None };
        slots.push(HistogramSlotState { slot, time, total });
    }
    Ok(slots)
}

fn read_label_values<'a>(reader: &mut ByteReader<'a>) -> Result<Vec<LabelValuesState<'a>>, DecodeError> {
    let mut metrics = Vec::new();
    while !reader.is_empty() {
        let metric = text(reader, "overflow metric")?;
        let since_ms = reader.varint("overflow start")?;
        let mut labels = Vec::new();
        for _ in 0..reader.length("overflow labels")? {
            let label = text(reader, "overflow label")?;
            let len = reader.length("overflow registers")?;
            labels.push((label, reader.bytes("overflow registers", len)?));
        }
        metrics.push(LabelValuesState { metric, since_ms, labels });
    }
    Ok(metrics)
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn read_series(reader: &mut ByteReader<'_>, slot_count: usize) -> Result<Vec<OverflowSample>, DecodeError> {
    let mut series = Vec::new();
    let mut last = 0i64;
    while !reader.is_empty() {
        let slot = read_slot(reader, slot_count)?;
        let key = read_key(reader)?;
        last = last.wrapping_add(reader.varint("overflow time")?);
        let value = f64::from_bits(reader.le_u64("overflow value")?);
        series.push(OverflowSample { slot, key, time: last, value });
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(first: u128) -> Vec<OverflowSample> {
        (0..3)
            .map(|at| OverflowSample {
                slot: at % 2,
                key: first + u128::from(at),
                time: 9 - i64::from(at),
                value: 0.5,
            })
            .collect()
    }

    fn slots() -> Vec<SlotState<'static>> {
        let slot = |metric, le, kind| OverflowSlot { metric, le, kind };
        vec![
            SlotState { slot: slot("a_total", None, 0), time: -3, total: 1e300 },
            SlotState { slot: slot("h_bucket", Some("0.5"), 1), time: i64::MAX, total: 0.0 },
        ]
    }

    fn histogram_slots() -> Vec<HistogramSlotState<'static>> {
        let total = Some(FloatHistogram { count: 2.5, sum: -1e300, ..FloatHistogram::default() });
        let slot = |metric, kind| OverflowSlot { metric, le: None, kind };
        vec![
            HistogramSlotState { slot: slot("h", 3), time: 5, total },
            HistogramSlotState { slot: slot("g", 4), time: -5, total: None },
        ]
    }

    fn label_values() -> Vec<LabelValuesState<'static>> {
        let labels = vec![("user", &[1, 2, 3][..]), ("le", &[])];
        let one = LabelValuesState { metric: "a_total", since_ms: -7, labels };
        vec![one, LabelValuesState { metric: "b", since_ms: 0, labels: Vec::new() }]
    }

    fn histogram_series() -> Vec<OverflowHistogram> {
        let histogram = FloatHistogram { count: 2.0, zero_count: 2.0, ..FloatHistogram::default() };
        let one = |slot, histogram| OverflowHistogram {
            slot,
            key: 1 << 99,
            time: i64::MIN,
            histogram: std::sync::Arc::new(histogram),
        };
        vec![one(1, Histogram::Float(histogram)), one(0, Histogram::stale())]
    }

    fn file() -> Vec<u8> {
        let mut writer = OverflowFileWriter::new(5);
        writer.put_store("x", 70, slots().into_iter());
        writer.put_series(series(1).into_iter());
        writer.put_series(series(1 << 99).into_iter());
        writer.put_store("y", 80, slots().into_iter());
        writer.put_histogram_slots(histogram_slots().into_iter());
        writer.put_histogram_series(&mut histogram_series().into_iter(), 1);
        writer.put_label_values(label_values().into_iter());
        writer.put_label_values(Vec::new().into_iter());
        writer.put_end(60);
        writer.take()
    }

    #[test]
    fn a_file_is_read_as_a_whole_or_not_at_all() {
        let bytes = file();
        let found = OverflowFile::open(&bytes, 5).unwrap();
        assert_eq!(found.sequence, 60);
        let mut parts = Vec::new();
        found
            .visit(|part| {
                parts.push(part);
                Ok::<(), DecodeError>(())
            })
            .unwrap();
        let store = |tenant, sequence| OverflowPart::Store { tenant, sequence, slots: slots() };
        let want = [
            store("x", 70),
            OverflowPart::Series(series(1)),
            OverflowPart::Series(series(1 << 99)),
            store("y", 80),
            OverflowPart::HistogramSlots(histogram_slots()),
            OverflowPart::HistogramSeries(histogram_series()[..1].to_vec()),
            OverflowPart::LabelValues(label_values()),
        ];
        assert_eq!(parts, want);
        assert!(OverflowFile::open(&bytes, 6).is_none(), "of another log");
        // Padding after the last payload is no part of the file.
        for len in 0..bytes.len() - 8 {
            assert!(OverflowFile::open(&bytes[..len], 5).is_none(), "{len}");
        }
    }

    #[test]
    fn a_series_of_an_unknown_slot_is_an_error() {
        let mut writer = OverflowFileWriter::new(5);
        writer.put_store("x", 1, slots()[..1].to_vec().into_iter());
        writer.put_series(series(1).into_iter());
        writer.put_end(1);
        let bytes = writer.take();
        let found = OverflowFile::open(&bytes, 5).unwrap();
        assert!(found.visit(|_| Ok::<(), DecodeError>(())).is_err());
    }
}
