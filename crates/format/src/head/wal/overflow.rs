//! Payload of WAL frames with changes of the overflow table of one tenant: series that left it, and samples
//! that were folded.
//!
//! Invariant: applied in the order of the log, the frames give the same totals as the table that wrote them;
//! samples that changed nothing are not in a frame.
//! Not here: the table (`head`), its checkpoint (`overflow_file`). Layout: `docs/head/wal.md`.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};

use super::payload::text;

/// Samples in a frame that writers do not exceed: a frame with them fits the limit of a payload.
pub const OVERFLOW_SAMPLES_MAX: usize = 1 << 17;

/// Bytes of the smallest sample: slot, key, time, value.
const SAMPLE_BYTES_MIN: usize = 1 + 16 + 1 + 8;

/// Destination of folded samples: a metric, or one bucket of a classic histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OverflowSlot<'a> {
    /// Name of the metric.
    pub metric: &'a str,
    /// Value of the label `le`; `None` if the slot is no bucket.
    pub le: Option<&'a str>,
    /// Number of the kind of values, which `head` assigns.
    pub kind: u8,
}

impl<'a> OverflowSlot<'a> {
    /// Appends the slot to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_text(self.metric, out);
        out.push(self.kind | u8::from(self.le.is_some()) << 7);
        self.le.iter().for_each(|le| put_text(le, out));
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(reader: &mut ByteReader<'a>) -> Result<OverflowSlot<'a>, DecodeError> {
        let metric = text(reader, "overflow metric")?;
        let kind = reader.u8("overflow kind")?;
        let le = if kind & 0x80 != 0 { Some(text(reader, "overflow bucket")?) } else { None };
        Ok(OverflowSlot { metric, le, kind: kind & 0x7f })
    }
}

/// Folded sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverflowSample {
    /// Index into the slots of the frame.
    pub slot: u32,
    /// Hash of the wire key of the series.
    pub key: u128,
    /// Time in the unit of the tenant.
    pub time: i64,
    /// Value, bit for bit.
    pub value: f64,
}

/// Changes of one tenant, collected for a frame. Applied in the order of the fields.
#[derive(Debug, Default)]
pub struct OverflowChanges {
    /// Series without a sample since this time have left the table.
    pub removed_before: Option<i64>,
    /// Series that left the table because they are series of the head, by the hash of their wire key.
    pub removed: Vec<u128>,
    /// Encoded slots to which the samples refer.
    slots: Vec<u8>,
    slot_count: u32,
    /// Samples in the order in which they were folded.
    pub samples: Vec<OverflowSample>,
}

impl OverflowChanges {
    /// Adds a slot; returns its number for the samples.
    pub fn push_slot(&mut self, slot: &OverflowSlot<'_>) -> u32 {
        slot.encode(&mut self.slots);
        self.slot_count += 1;
        self.slot_count - 1
    }

    /// Returns true if nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed_before.is_none() && self.removed.is_empty() && self.samples.is_empty()
    }

    /// Replaces `out` by the payload.
    pub fn encode(&self, tenant: &str, out: &mut Vec<u8>) {
        out.clear();
        put_text(tenant, out);
        out.push(u8::from(self.removed_before.is_some()));
        self.removed_before.iter().for_each(|time| out.extend_from_slice(&time.to_le_bytes()));
        put_uvarint(out, self.removed.len() as u64);
        self.removed.iter().for_each(|key| out.extend_from_slice(&key.to_le_bytes()));
        put_uvarint(out, u64::from(self.slot_count));
        out.extend_from_slice(&self.slots);
        put_uvarint(out, self.samples.len() as u64);
        let mut last = 0i64;
        for sample in &self.samples {
            put_uvarint(out, u64::from(sample.slot));
            out.extend_from_slice(&sample.key.to_le_bytes());
            put_varint(out, sample.time.wrapping_sub(last));
            out.extend_from_slice(&sample.value.to_bits().to_le_bytes());
            last = sample.time;
        }
    }

    /// Empties the changes, keeping their memory.
    pub fn clear(&mut self) {
        self.removed_before = None;
        self.removed.clear();
        self.slots.clear();
        self.slot_count = 0;
        self.samples.clear();
    }

    /// Returns the bytes of heap memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.removed.capacity() * size_of::<u128>()
            + self.slots.capacity()
            + self.samples.capacity() * size_of::<OverflowSample>()
    }
}

/// Decoded payload.
#[derive(Debug, PartialEq)]
pub struct OverflowRef<'a> {
    /// Tenant name as stored; the caller validates it.
    pub tenant: &'a str,
    /// Series without a sample since this time leave.
    pub removed_before: Option<i64>,
    /// Series that leave.
    pub removed: Vec<u128>,
    /// Slots of the samples.
    pub slots: Vec<OverflowSlot<'a>>,
    /// Samples in order; each refers to a slot.
    pub samples: Vec<OverflowSample>,
}

impl<'a> OverflowRef<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<OverflowRef<'a>, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let tenant = text(&mut reader, "tenant")?;
        let has_time = reader.u8("overflow flags")? != 0;
        let removed_before =
            if has_time { Some(reader.le_u64("overflow removal time")?.cast_signed()) } else { None };
        let removed_count = count_of(&mut reader, "removed overflow series", size_of::<u128>())?;
        let mut removed = Vec::with_capacity(removed_count);
        for _ in 0..removed_count {
            removed.push(read_key(&mut reader)?);
        }
        let slot_count = count_of(&mut reader, "overflow slots", 2)?;
        let mut slots = Vec::with_capacity(slot_count);
        for _ in 0..slot_count {
            slots.push(OverflowSlot::decode(&mut reader)?);
        }
        let sample_count = count_of(&mut reader, "overflow samples", SAMPLE_BYTES_MIN)?;
        let mut samples = Vec::with_capacity(sample_count);
        let mut last = 0i64;
        for _ in 0..sample_count {
            let slot = read_slot(&mut reader, slots.len())?;
            let key = read_key(&mut reader)?;
            last = last.wrapping_add(reader.varint("overflow time")?);
            let value = f64::from_bits(reader.le_u64("overflow value")?);
            samples.push(OverflowSample { slot, key, time: last, value });
        }
        Ok(OverflowRef { tenant, removed_before, removed, slots, samples })
    }
}

/// Reads the index of one of `slot_count` slots.
///
/// # Errors
/// [`DecodeError`].
pub(in super::super) fn read_slot(
    reader: &mut ByteReader<'_>,
    slot_count: usize,
) -> Result<u32, DecodeError> {
    let offset = reader.offset();
    let found = reader.uvarint("overflow slot")?;
    match u32::try_from(found).ok().filter(|&slot| (slot as usize) < slot_count) {
        Some(slot) => Ok(slot),
        None => Err(DecodeError::Invalid {
            what: "overflow slot",
            offset,
            expected: "a slot of the payload",
            found,
        }),
    }
}

/// Reads a count of items of at least `item_bytes_min`, which the rest of the payload can hold.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn count_of(
    reader: &mut ByteReader<'_>,
    what: &'static str,
    item_bytes_min: usize,
) -> Result<usize, DecodeError> {
    let offset = reader.offset();
    let count = reader.length(what)?;
    if count.saturating_mul(item_bytes_min) > reader.remaining() {
        let expected = "as many as the payload holds";
        return Err(DecodeError::Invalid { what, offset, expected, found: count as u64 });
    }
    Ok(count)
}

/// Reads the hash of a wire key.
///
/// # Errors
/// [`DecodeError`].
pub(in super::super) fn read_key(reader: &mut ByteReader<'_>) -> Result<u128, DecodeError> {
    let low = reader.le_u64("overflow key")?;
    let high = reader.le_u64("overflow key")?;
    Ok(u128::from(high) << 64 | u128::from(low))
}

pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> OverflowChanges {
        let mut changes = OverflowChanges {
            removed_before: Some(-5),
            removed: vec![u128::MAX, 7],
            ..OverflowChanges::default()
        };
        let total = changes.push_slot(&OverflowSlot { metric: "m_total", le: None, kind: 0 });
        let bucket = changes.push_slot(&OverflowSlot { metric: "h_bucket", le: Some("+Inf"), kind: 1 });
        let times = [1_000, i64::MAX, i64::MIN, 0];
        for (at, time) in times.into_iter().enumerate() {
            let slot = if at % 2 == 0 { total } else { bucket };
            changes.samples.push(OverflowSample { slot, key: 1 << (40 * at), time, value: at as f64 - 0.5 });
        }
        changes
    }

    #[test]
    fn changes_round_trip_and_every_cut_is_an_error() {
        let changes = changes();
        let mut bytes = vec![9; 3];
        changes.encode("team", &mut bytes);
        let found = OverflowRef::decode(&bytes).unwrap();
        assert_eq!((found.tenant, found.removed_before), ("team", Some(-5)));
        assert_eq!(found.removed, changes.removed);
        assert_eq!(found.slots[1], OverflowSlot { metric: "h_bucket", le: Some("+Inf"), kind: 1 });
        assert_eq!(found.samples, changes.samples);
        for len in 0..bytes.len() {
            assert!(OverflowRef::decode(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_sample_without_its_slot_and_counts_beyond_the_payload_are_errors() {
        let mut changes = OverflowChanges::default();
        changes.samples.push(OverflowSample { slot: 0, key: 1, time: 2, value: 3.0 });
        let mut bytes = Vec::new();
        changes.encode("t", &mut bytes);
        assert!(OverflowRef::decode(&bytes).is_err());
        assert!(OverflowRef::decode(&[1, b't', 0, 0xff, 0xff, 3]).is_err());
    }

    #[test]
    fn the_largest_frame_fits_a_payload() {
        let largest = OVERFLOW_SAMPLES_MAX * (5 + 16 + 10 + 8);
        assert!(largest < super::super::FRAME_PAYLOAD_BYTES_MAX, "{largest}");
    }
}
