//! Points of a metric, read from their messages; borrowed.
//!
//! Invariants: fields may come in any order, missing ones have proto3's defaults, unknown ones are skipped;
//! the last one of a repeated field that is single counts.
//! Not here: samples that points become (`number`, `explicit`, `exponential`, `summary`).

use chronolith_base::bytes::unzigzag;

use chronolith_model::histogram::BUCKET_COUNT_MAX;

use super::attributes::Attributes;
use super::key_memory::{Identity, KeyMemory, Part};
use crate::remote_write::WireError;
use crate::remote_write::wire::{Cursor, FIXED64, LEN, VARINT};

/// Bit of the flags of a point that has no value.
const NO_RECORDED_VALUE: u32 = 1;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Fields that points of all types have.
#[derive(Clone, Copy)]
pub(super) struct PointHead<'a> {
    message: Cursor<'a>,
    /// Number of the field of attributes.
    field: u64,
    /// The message from the first attribute on, and the length of the attributes that follow each other.
    attributes: &'a [u8],
    attributes_len: usize,
    is_scattered: bool,
    pub(super) time_ns: u64,
    pub(super) start_ns: u64,
    pub(super) flags: u32,
}

impl<'a> PointHead<'a> {
    fn new(message: Cursor<'a>, field: u64) -> PointHead<'a> {
        PointHead {
            message,
            field,
            attributes: &[],
            attributes_len: 0,
            is_scattered: false,
            time_ns: 0,
            start_ns: 0,
            flags: 0,
        }
    }

    /// Skips an attribute, whose tag is read; `from` is the message from this tag on.
    fn attribute(&mut self, from: &'a [u8], at: &mut Cursor<'a>) -> Result<(), WireError> {
        at.message()?;
        let len = from.len() - at.rest().len();
        if self.attributes.is_empty() {
            self.attributes = from;
        } else if self.attributes.len() - self.attributes_len != from.len() {
            self.is_scattered = true;
        }
        self.attributes_len += len;
        Ok(())
    }

    /// The attributes, which may lie anywhere in the point.
    pub(super) fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, self.field)
    }

    /// Returns the identity of the point within its metric.
    pub(super) fn identity(&self, metric: Identity, memory: &KeyMemory) -> Identity {
        if self.is_scattered {
            return self.scattered_identity(metric, memory);
        }
        debug_assert!(self.attributes_len <= self.attributes.len(), "attributes follow each other");
        let bytes = self.attributes.get(..self.attributes_len).unwrap_or(&[]);
        memory.within(metric, Part::Attributes, bytes)
    }

    /// Attributes with other fields between them are hashed one by one.
    #[cold]
    fn scattered_identity(&self, metric: Identity, memory: &KeyMemory) -> Identity {
        let mut identity = metric;
        let mut at = self.message;
        while let Ok((field, wire)) = at.tag() {
            if (field, wire) != (self.field, LEN) {
                _ = at.skip(wire);
            } else if let Ok(attribute) = at.message() {
                identity = memory.within(identity, Part::ScatteredAttributes, attribute.rest());
            }
        }
        identity
    }

    /// Time in milliseconds.
    pub(super) fn time_ms(&self) -> i64 {
        millis(self.time_ns)
    }

    /// Start time in milliseconds, 0 if unknown.
    pub(super) fn start_ms(&self) -> i64 {
        millis(self.start_ns)
    }

    /// Returns true if the point says that there is no value.
    pub(super) fn is_stale(&self) -> bool {
        self.flags & NO_RECORDED_VALUE != 0
    }
}

/// Converts a time as Prometheus does.
pub(super) fn millis(nanos: u64) -> i64 {
    nanos.cast_signed() / NANOS_PER_MILLI
}

/// Value of a number point or an exemplar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Double(f64),
}

impl Number {
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Double(value) => value,
        }
    }

    /// Returns true if the conversion to a float changes the number.
    pub(super) fn is_rounded(self) -> bool {
        match self {
            Number::Int(value) => value as f64 as i128 != i128::from(value),
            Number::Double(_) => false,
        }
    }
}

/// Point of a gauge or a sum.
pub(super) struct NumberPoint<'a> {
    pub(super) head: PointHead<'a>,
    pub(super) value: Option<Number>,
    pub(super) exemplars: Exemplars<'a>,
}

/// Exemplars of a point: the fields of a number.
#[derive(Clone, Copy)]
pub(super) struct Exemplars<'a> {
    message: Cursor<'a>,
    field: u64,
    pub(super) count: usize,
}

impl<'a> Exemplars<'a> {
    fn new(message: Cursor<'a>, field: u64) -> Exemplars<'a> {
        Exemplars { message, field, count: 0 }
    }

    /// Calls `each` with the message of every exemplar.
    ///
    /// # Errors
    /// Errors of `each`.
    pub(super) fn for_each<E: From<WireError>>(
        self,
        mut each: impl FnMut(Cursor<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = self.message;
        while self.count > 0 && !at.is_empty() {
            match at.tag()? {
                (field, LEN) if field == self.field => each(at.message()?)?,
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }
}

impl<'a> NumberPoint<'a> {
    pub(super) fn read(message: Cursor<'a>) -> Result<NumberPoint<'a>, WireError> {
        let mut at = message;
        let exemplars = Exemplars::new(message, 5);
        let mut out = NumberPoint { head: PointHead::new(message, 7), value: None, exemplars };
        while !at.is_empty() {
            let from = at.rest();
            match at.tag()? {
                (2, FIXED64) => out.head.start_ns = at.fixed64()?,
                (3, FIXED64) => out.head.time_ns = at.fixed64()?,
                (4, FIXED64) => out.value = Some(Number::Double(double(&mut at)?)),
                (5, LEN) => out.exemplars.add(&mut at)?,
                (6, FIXED64) => out.value = Some(Number::Int(at.fixed64()?.cast_signed())),
                (7, LEN) => out.head.attribute(from, &mut at)?,
                (8, VARINT) => out.head.flags = at.varint_u32()?,
                (2..=8, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }
}

impl Exemplars<'_> {
    fn add(&mut self, at: &mut Cursor<'_>) -> Result<(), WireError> {
        self.count += 1;
        at.message().map(drop)
    }
}

/// Point of a histogram with explicit bounds. Bounds and counts are in [`Buckets`] of the caller.
pub(super) struct ExplicitPoint<'a> {
    pub(super) head: PointHead<'a>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) exemplars: Exemplars<'a>,
}

/// Counts and bounds of a point, in memory that points share.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    pub(super) counts: Vec<u64>,
    pub(super) bounds: Vec<f64>,
}

impl<'a> ExplicitPoint<'a> {
    pub(super) fn read(message: Cursor<'a>, buckets: &mut Buckets) -> Result<ExplicitPoint<'a>, WireError> {
        let mut at = message;
        buckets.counts.clear();
        buckets.bounds.clear();
        let exemplars = Exemplars::new(message, 8);
        let mut out = ExplicitPoint { head: PointHead::new(message, 9), count: 0, sum: None, exemplars };
        while !at.is_empty() {
            let from = at.rest();
            match at.tag()? {
                (2, FIXED64) => out.head.start_ns = at.fixed64()?,
                (3, FIXED64) => out.head.time_ns = at.fixed64()?,
                (4, FIXED64) => out.count = at.fixed64()?,
                (5, FIXED64) => out.sum = Some(double(&mut at)?),
                (6, wire) => push_fixed(&mut at, wire, u64::from_le_bytes, &mut buckets.counts)?,
                (7, wire) => push_fixed(&mut at, wire, f64::from_le_bytes, &mut buckets.bounds)?,
                (8, LEN) => out.exemplars.add(&mut at)?,
                (9, LEN) => out.head.attribute(from, &mut at)?,
                (10, VARINT) => out.head.flags = at.varint_u32()?,
                (2..=10, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }
}

/// Point of an exponential histogram. Counts are in [`Side`]s of the caller.
pub(super) struct ExponentialPoint<'a> {
    pub(super) head: PointHead<'a>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) exemplars: Exemplars<'a>,
}

/// Buckets of one sign, in memory that points share.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) offset: i32,
    pub(super) counts: Vec<u64>,
}

impl<'a> ExponentialPoint<'a> {
    pub(super) fn read(
        message: Cursor<'a>,
        positive: &mut Side,
        negative: &mut Side,
    ) -> Result<ExponentialPoint<'a>, WireError> {
        let mut at = message;
        positive.clear();
        negative.clear();
        let mut out = ExponentialPoint {
            head: PointHead::new(message, 1),
            count: 0,
            sum: None,
            scale: 0,
            zero_count: 0,
            zero_threshold: 0.0,
            exemplars: Exemplars::new(message, 11),
        };
        while !at.is_empty() {
            let from = at.rest();
            match at.tag()? {
                (1, LEN) => out.head.attribute(from, &mut at)?,
                (2, FIXED64) => out.head.start_ns = at.fixed64()?,
                (3, FIXED64) => out.head.time_ns = at.fixed64()?,
                (4, FIXED64) => out.count = at.fixed64()?,
                (5, FIXED64) => out.sum = Some(double(&mut at)?),
                (6, VARINT) => out.scale = sint32(&mut at)?,
                (7, FIXED64) => out.zero_count = at.fixed64()?,
                (8, LEN) => positive.read(at.message()?)?,
                (9, LEN) => negative.read(at.message()?)?,
                (10, VARINT) => out.head.flags = at.varint_u32()?,
                (11, LEN) => out.exemplars.add(&mut at)?,
                (14, FIXED64) => out.zero_threshold = double(&mut at)?,
                (1..=11 | 14, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }
}

impl Side {
    fn clear(&mut self) {
        self.offset = 0;
        self.counts.clear();
    }

    fn read(&mut self, mut at: Cursor<'_>) -> Result<(), WireError> {
        while !at.is_empty() {
            match at.tag()? {
                (1, VARINT) => self.offset = sint32(&mut at)?,
                (2, VARINT) => {
                    room_for(&at, self.counts.len(), 1)?;
                    self.counts.push(at.varint()?);
                }
                (2, LEN) => {
                    let mut packed = at.message()?;
                    while !packed.is_empty() {
                        room_for(&packed, self.counts.len(), 1)?;
                        self.counts.push(packed.varint()?);
                    }
                }
                (1 | 2, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }
}

/// Point of a summary.
pub(super) struct SummaryPoint<'a> {
    pub(super) head: PointHead<'a>,
    pub(super) count: u64,
    pub(super) sum: f64,
    message: Cursor<'a>,
}

/// A quantile and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quantile {
    pub(super) quantile: f64,
    pub(super) value: f64,
}

impl<'a> SummaryPoint<'a> {
    pub(super) fn read(message: Cursor<'a>) -> Result<SummaryPoint<'a>, WireError> {
        let mut at = message;
        let mut out = SummaryPoint { head: PointHead::new(message, 7), count: 0, sum: 0.0, message };
        while !at.is_empty() {
            let from = at.rest();
            match at.tag()? {
                (2, FIXED64) => out.head.start_ns = at.fixed64()?,
                (3, FIXED64) => out.head.time_ns = at.fixed64()?,
                (4, FIXED64) => out.count = at.fixed64()?,
                (5, FIXED64) => out.sum = double(&mut at)?,
                (6, LEN) => drop(quantile(at.message()?)?),
                (7, LEN) => out.head.attribute(from, &mut at)?,
                (8, VARINT) => out.head.flags = at.varint_u32()?,
                (2..=8, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }

    /// Calls `each` with every quantile.
    ///
    /// # Errors
    /// Errors of `each`.
    pub(super) fn for_each_quantile<E: From<WireError>>(
        &self,
        mut each: impl FnMut(Quantile) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = self.message;
        while !at.is_empty() {
            match at.tag()? {
                (6, LEN) => each(quantile(at.message()?)?)?,
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }
}

fn quantile(mut at: Cursor<'_>) -> Result<Quantile, WireError> {
    let mut out = Quantile { quantile: 0.0, value: 0.0 };
    while !at.is_empty() {
        match at.tag()? {
            (1, FIXED64) => out.quantile = double(&mut at)?,
            (2, FIXED64) => out.value = double(&mut at)?,
            (1 | 2, _) => return Err(at.wrong_type()),
            (_, other) => at.skip(other)?,
        }
    }
    Ok(out)
}

pub(super) fn double(at: &mut Cursor<'_>) -> Result<f64, WireError> {
    at.fixed64().map(f64::from_bits)
}

fn sint32(at: &mut Cursor<'_>) -> Result<i32, WireError> {
    // The field has 32 bits, so the number fits.
    Ok(unzigzag(u64::from(at.varint_u32()?)) as i32)
}

/// Numbers of a repeated field of 8 bytes each: packed or one by one.
fn push_fixed<T>(
    at: &mut Cursor<'_>,
    wire: u64,
    convert: fn([u8; 8]) -> T,
    out: &mut Vec<T>,
) -> Result<(), WireError> {
    match wire {
        FIXED64 => {
            let bytes = at.fixed64()?.to_le_bytes();
            room_for(at, out.len(), 1)?;
            out.push(convert(bytes));
        }
        LEN => {
            let packed = at.message()?;
            let (numbers, rest) = packed.rest().as_chunks::<8>();
            if !rest.is_empty() {
                return Err(packed.error("packed numbers are cut off"));
            }
            room_for(at, out.len(), numbers.len())?;
            out.extend(numbers.iter().copied().map(convert));
        }
        _ => return Err(at.wrong_type()),
    }
    Ok(())
}

fn room_for(at: &Cursor<'_>, len: usize, more: usize) -> Result<(), WireError> {
    if len + more > BUCKET_COUNT_MAX {
        Err(at.error("histogram has more than 65536 buckets"))
    } else {
        Ok(())
    }
}
