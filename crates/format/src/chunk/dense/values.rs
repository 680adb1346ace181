//! The values of a dense chunk: decimal integers, ordered float bits, or words of integers; constant, raw,
//! deltas, deltas of deltas.
//!
//! Invariant: every bit pattern survives; a value of a decimal column that is no decimal is listed as an
//! exception.
//! Not here: the search for decimals (`decimal`), packing (`block`).

use std::ops::{ControlFlow, Range};

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::kind::{integer_of_word, unsigned_of_word, word_of_integer, word_of_unsigned};
use chronolith_model::sample::{NORMAL_NAN_BITS, STALE_NAN_BITS};

use super::block::{BLOCK_ITEMS, estimate_bits, glance_bits, put_blocks};
use super::decimal;
use super::entropy::{self, NumberType};
use super::items::{Ending, Items, Packing};
use super::scratch::DenseScratch;
use super::sequence::put_deltas;

const WHAT: &str = "dense chunk values";
/// Bits 0 and 1 of the first byte.
const TRANSFORM_MASK: u8 = 3;
const CONSTANT: u8 = 0;
const RAW: u8 = 1;
const DELTAS: u8 = 2;
const DELTAS_OF_DELTAS: u8 = 3;
/// Bits 2 to 5: a decimal exponent, or [`KIND_BITS`].
const KIND_SHIFT: u32 = 2;
const KIND_MASK: u8 = 15;
/// Ordered float bits instead of decimals.
const KIND_BITS: u8 = 15;
/// Words of integers, by the encoding of the chunk; the column has 0 in these bits.
const KIND_INTEGER: u8 = 16;
const KIND_UNSIGNED: u8 = 17;
/// Largest shift of integers: one bit must be left.
const INTEGER_SHIFT_MAX: u8 = 63;
/// A byte with the common power of two follows.
const HAS_SHIFT: u8 = 1 << 6;
/// A list of exceptions follows; for decimals only.
const HAS_EXCEPTIONS: u8 = 1 << 7;

const SIGN_BIT: u64 = 1 << 63;
const MAGNITUDE: u64 = !SIGN_BIT;
/// Largest shift of ordered bits: a bit besides the sign must be left.
const BITS_SHIFT_MAX: u8 = 62;

/// Low bits of an exception's first number: its kind of value.
const CODE_BITS: u32 = 3;
const CODE_RAW: u64 = 0;
const CODE_REPEAT: u64 = 7;
/// Values of codes 1 to 6.
const CODED: [u64; 6] = [
    STALE_NAN_BITS,
    NORMAL_NAN_BITS,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x8000_0000_0000_0000,
];

/// With more bits per value, decimals are compared with ordered bits.
const DECIMAL_BITS_SURE: usize = 20;
/// With fewer values per exception, decimals are compared with ordered bits, too.
const VALUES_PER_EXCEPTION_SURE: usize = 8;
/// With fewer values per misfit, the exponent is computed for all values.
const VALUES_PER_MISFIT_SURE: usize = 32;

/// An encoding is skipped if its estimate exceeds the best one by more than 1 / `FAR_PART`.
const FAR_PART: usize = 16;

/// Meaning of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueType {
    /// Any `f64`, bit for bit.
    Float,
    /// Words of `i64`.
    Integer,
    /// Words of `u64`.
    Unsigned,
}

/// Coding of a series of integers, with the estimated number of bits.
#[derive(Clone, Copy)]
struct Choice {
    transform: u8,
    cost_bits: usize,
}

/// Values as they have been written.
#[derive(Clone, Copy)]
pub(super) struct Written {
    transform: u8,
    /// Start of the series.
    pub(super) head_end: usize,
}

/// Appends the values; there is at least one.
pub(super) fn encode(values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) -> Written {
    let Some((exponent, shift, choice)) = try_decimals(values, scratch) else {
        return encode_bits(values, scratch, out);
    };
    let is_sure = choice.cost_bits <= values.len() * DECIMAL_BITS_SURE
        && scratch.exceptions.len() * VALUES_PER_EXCEPTION_SURE <= values.len();
    if !is_sure {
        let bits_choice = put_ordered(values, bits_shift(values), scratch);
        if bits_choice.cost_bits < choice.cost_bits {
            return encode_bits(values, scratch, out);
        }
        decimals(values, exponent, scratch);
    }
    let has_exceptions = if scratch.exceptions.is_empty() { 0 } else { HAS_EXCEPTIONS };
    put_head(choice.transform | exponent << KIND_SHIFT | has_exceptions, shift, out);
    if has_exceptions != 0 {
        put_exceptions(&scratch.exceptions, out);
    }
    let head_end = out.len();
    put_series(choice.transform, scratch, out);
    Written { transform: choice.transform, head_end }
}

/// As [`encode`], for words of integers, which have neither exponent nor exceptions.
pub(super) fn encode_integers(
    values: &[f64],
    value_type: ValueType,
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) -> Written {
    let words = values.iter().map(|value| value.to_bits());
    scratch.series.clear();
    match value_type {
        ValueType::Unsigned => scratch.series.extend(words.map(|word| unsigned_of_word(word).cast_signed())),
        _ => scratch.series.extend(words.map(integer_of_word)),
    }
    let shift = shift_out(&mut scratch.series);
    let choice = choose(scratch);
    put_head(choice.transform, shift, out);
    let head_end = out.len();
    put_series(choice.transform, scratch, out);
    Written { transform: choice.transform, head_end }
}

/// Writes the series of the last [`encode`] to `scratch.entropy`; none when it has no such form.
pub(super) fn put_entropy(written: Written, scratch: &mut DenseScratch) -> Option<NumberType> {
    let DenseScratch { series, deltas, deltas_of_deltas, entropy: out, .. } = scratch;
    out.clear();
    let items: &[i64] = match written.transform {
        RAW => series,
        DELTAS => {
            put_varint(out, series[0]);
            put_deltas(series, deltas);
            deltas
        }
        DELTAS_OF_DELTAS => {
            put_varint(out, series[0]);
            put_deltas(series, deltas);
            put_varint(out, deltas[0]);
            put_deltas(deltas, deltas_of_deltas);
            deltas_of_deltas
        }
        _ => return None,
    };
    if items.is_empty() { None } else { entropy::put(items, out) }
}

fn put_head(flags: u8, shift: u8, out: &mut Vec<u8>) {
    if shift == 0 {
        out.push(flags);
    } else {
        out.extend_from_slice(&[flags | HAS_SHIFT, shift]);
    }
}

fn encode_bits(values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) -> Written {
    if values.iter().all(|value| value.to_bits() == values[0].to_bits()) {
        out.push(CONSTANT | KIND_BITS << KIND_SHIFT);
        let head_end = out.len();
        out.extend_from_slice(&values[0].to_bits().to_le_bytes());
        return Written { transform: CONSTANT, head_end };
    }
    let shift = bits_shift(values);
    let choice = put_ordered(values, shift, scratch);
    put_head(choice.transform | KIND_BITS << KIND_SHIFT, shift, out);
    let head_end = out.len();
    put_series(choice.transform, scratch, out);
    Written { transform: choice.transform, head_end }
}

/// Writes `scratch.series`, whose differences [`choose`] has left in `scratch`.
fn put_series(transform: u8, scratch: &mut DenseScratch, out: &mut Vec<u8>) {
    let series = &scratch.series;
    match transform {
        CONSTANT => put_varint(out, series[0]),
        RAW => put_blocks(series, out),
        DELTAS => {
            put_varint(out, series[0]);
            put_deltas(series, &mut scratch.deltas);
            put_blocks(&scratch.deltas, out);
        }
        _ => {
            put_varint(out, series[0]);
            put_deltas(series, &mut scratch.deltas);
            put_varint(out, scratch.deltas[0]);
            put_deltas(&scratch.deltas, &mut scratch.deltas_of_deltas);
            put_blocks(&scratch.deltas_of_deltas, out);
        }
    }
}

/// The cheapest way to write `scratch.series`.
///
/// Two of the three codings are mostly far worse, which a rough estimate shows; only close ones are estimated
/// in full.
fn choose(scratch: &mut DenseScratch) -> Choice {
    let series = &scratch.series;
    if series.iter().all(|&item| item == series[0]) {
        return Choice { transform: CONSTANT, cost_bits: 16 };
    }
    put_deltas(series, &mut scratch.deltas);
    put_deltas(&scratch.deltas, &mut scratch.deltas_of_deltas);
    let ways =
        [(RAW, 0, series), (DELTAS, 16, &scratch.deltas), (DELTAS_OF_DELTAS, 24, &scratch.deltas_of_deltas)];
    let glances = ways.map(|(_, head_bits, items)| head_bits + glance_bits(items));
    let least = glances.into_iter().min().unwrap_or(0);
    let is_close = |glance: usize| glance <= least + least / FAR_PART;
    let close_count = glances.into_iter().filter(|&glance| is_close(glance)).count();
    let mut best = Choice { transform: RAW, cost_bits: usize::MAX };
    for ((transform, head_bits, items), glance) in ways.into_iter().zip(glances) {
        if !is_close(glance) {
            continue;
        }
        let cost_bits = if close_count == 1 { glance } else { head_bits + estimate_bits(items) };
        if cost_bits < best.cost_bits {
            best = Choice { transform, cost_bits };
        }
    }
    best
}

/// Leaves decimal integers in `scratch.series`: exponent, shift and cost. None when the values are no
/// decimals.
fn try_decimals(values: &[f64], scratch: &mut DenseScratch) -> Option<(u8, u8, Choice)> {
    let mut exponent = decimal::exponent_of(values)?;
    let mut misfit_count = decimal::put_integers(values, exponent, &mut scratch.series);
    if misfit_count * VALUES_PER_MISFIT_SURE > values.len() {
        let above = decimal::exponent_above(values, &scratch.series, exponent)?;
        if above != exponent {
            exponent = above;
            misfit_count = decimal::put_integers(values, exponent, &mut scratch.series);
        }
    }
    let shift = settle(values, misfit_count, scratch);
    let choice = choose(scratch);
    let is_coded = |bits: &u64| CODED.contains(bits);
    let coded_count = scratch.exceptions.iter().filter(|(_, bits)| is_coded(bits)).count();
    let exception_bits = coded_count * 10 + (scratch.exceptions.len() - coded_count) * 74;
    Some((exponent, shift, Choice { cost_bits: choice.cost_bits + exception_bits, ..choice }))
}

/// Fills `scratch.series` and `scratch.exceptions`; returns the shift.
fn decimals(values: &[f64], exponent: u8, scratch: &mut DenseScratch) -> u8 {
    let misfit_count = decimal::put_integers(values, exponent, &mut scratch.series);
    settle(values, misfit_count, scratch)
}

/// Moves values that do not fit from `scratch.series` to `scratch.exceptions`; returns the shift.
fn settle(values: &[f64], misfit_count: usize, scratch: &mut DenseScratch) -> u8 {
    scratch.exceptions.clear();
    let series = &mut scratch.series;
    if misfit_count > 0 {
        // An exception is replaced in the series by the value with the smallest delta.
        let mut filler = series.iter().copied().find(|&item| item != decimal::MISFIT).unwrap_or(0);
        for ((sample_idx, item), value) in (0u16..=u16::MAX).zip(series.iter_mut()).zip(values) {
            if *item == decimal::MISFIT {
                scratch.exceptions.push((sample_idx, value.to_bits()));
                *item = filler;
            }
            filler = *item;
        }
    }
    shift_out(series)
}

/// Divides all items by the largest power of two that leaves them integers; returns its exponent.
fn shift_out(series: &mut [i64]) -> u8 {
    let all_bits = series.iter().fold(0, |bits, item| bits | item);
    let shift = if all_bits == 0 { 0 } else { all_bits.trailing_zeros() as u8 };
    if shift > 0 {
        series.iter_mut().for_each(|item| *item >>= shift);
    }
    shift
}

/// Trailing zeros that all values have.
fn bits_shift(values: &[f64]) -> u8 {
    let all_bits = values.iter().fold(0, |bits, value| bits | value.to_bits() & MAGNITUDE);
    (all_bits.trailing_zeros() as u8).min(BITS_SHIFT_MAX)
}

/// Leaves the values' bits in `scratch.series`, as integers in the order of the floats.
fn put_ordered(values: &[f64], shift: u8, scratch: &mut DenseScratch) -> Choice {
    scratch.series.clear();
    scratch.series.extend(values.iter().map(|value| {
        let bits = value.to_bits();
        ((bits & MAGNITUDE) >> shift).cast_signed() ^ (bits.cast_signed() >> 63)
    }));
    choose(scratch)
}

/// Turns ordered integers back into floats: the inverse of [`put_ordered`].
fn put_unordered(items: &[i64], shift: u8, out: &mut [f64]) {
    let shift = shift.min(BITS_SHIFT_MAX);
    for (value, &item) in out.iter_mut().zip(items) {
        let sign = item >> 63;
        let magnitude = (item ^ sign).cast_unsigned() << shift & MAGNITUDE;
        *value = f64::from_bits(magnitude | sign.cast_unsigned() & SIGN_BIT);
    }
}

/// Inverts the conversion in [`encode_integers`].
fn put_words(items: &[i64], shift: u8, word_of: impl Fn(i64) -> u64, out: &mut [f64]) {
    let shift = shift.min(INTEGER_SHIFT_MAX);
    for (value, &item) in out.iter_mut().zip(items) {
        *value = f64::from_bits(word_of(item << shift));
    }
}

fn put_exceptions(exceptions: &[(u16, u64)], out: &mut Vec<u8>) {
    put_uvarint(out, exceptions.len() as u64);
    let (mut next_idx, mut last_raw) = (0u64, None);
    for &(sample_idx, bits) in exceptions {
        let distance = (u64::from(sample_idx) - next_idx) << CODE_BITS;
        next_idx = u64::from(sample_idx) + 1;
        if let Some(code) = (1u64..).zip(CODED).find(|coded| coded.1 == bits) {
            put_uvarint(out, distance | code.0);
        } else if last_raw == Some(bits) {
            put_uvarint(out, distance | CODE_REPEAT);
        } else {
            put_uvarint(out, distance | CODE_RAW);
            out.extend_from_slice(&bits.to_le_bytes());
            last_raw = Some(bits);
        }
    }
}

/// Head of a column, before the series.
struct ValuesHead<'a> {
    transform: u8,
    kind: u8,
    shift: u8,
    exception_count: usize,
    /// Stands at the first exception; the list has been checked.
    exceptions: ByteReader<'a>,
}

impl<'a> ValuesHead<'a> {
    fn read(
        reader: &mut ByteReader<'a>,
        sample_count: usize,
        value_type: ValueType,
    ) -> Result<ValuesHead<'a>, DecodeError> {
        if value_type != ValueType::Float {
            return ValuesHead::read_integers(reader, value_type);
        }
        let offset = reader.offset();
        let flags = reader.u8(WHAT)?;
        let kind = flags >> KIND_SHIFT & KIND_MASK;
        let shift = if flags & HAS_SHIFT != 0 { reader.u8(WHAT)? } else { 0 };
        let shift_max = if kind == KIND_BITS { BITS_SHIFT_MAX } else { decimal::SHIFT_MAX };
        if shift > shift_max || (kind == KIND_BITS && flags & HAS_EXCEPTIONS != 0) {
            let (expected, found) = ("a shift in range, exceptions of decimals", u64::from(flags));
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
        }
        let transform = flags & TRANSFORM_MASK;
        let mut head = ValuesHead { transform, kind, shift, exception_count: 0, exceptions: reader.clone() };
        if flags & HAS_EXCEPTIONS != 0 {
            head.exception_count = reader.length(WHAT)?;
            head.exceptions = reader.clone();
            walk_exceptions(reader, head.exception_count, sample_count, |_, _| {})?;
        }
        Ok(head)
    }

    /// Reads the head of a column of integers, which has neither kind nor exceptions.
    fn read_integers(
        reader: &mut ByteReader<'a>,
        value_type: ValueType,
    ) -> Result<ValuesHead<'a>, DecodeError> {
        let offset = reader.offset();
        let flags = reader.u8(WHAT)?;
        let shift = if flags & HAS_SHIFT != 0 { reader.u8(WHAT)? } else { 0 };
        if flags & !(TRANSFORM_MASK | HAS_SHIFT) != 0 || shift > INTEGER_SHIFT_MAX {
            let expected = "a transform and a shift of integers";
            let found = u64::from(flags);
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
        }
        let kind = if value_type == ValueType::Unsigned { KIND_UNSIGNED } else { KIND_INTEGER };
        let transform = flags & TRANSFORM_MASK;
        Ok(ValuesHead { transform, kind, shift, exception_count: 0, exceptions: reader.clone() })
    }

    fn convert(&self, items: &[i64], out: &mut [f64]) {
        match self.kind {
            KIND_BITS => put_unordered(items, self.shift, out),
            KIND_INTEGER => put_words(items, self.shift, word_of_integer, out),
            KIND_UNSIGNED => {
                put_words(items, self.shift, |item| word_of_unsigned(item.cast_unsigned()), out);
            }
            exponent => decimal::put_values(items, exponent, self.shift, out),
        }
    }

    /// The one value of a constant series.
    fn read_constant(&self, reader: &mut ByteReader<'_>) -> Result<f64, DecodeError> {
        if self.kind == KIND_BITS {
            return Ok(f64::from_bits(reader.le_u64(WHAT)?));
        }
        let mut value = [0.0];
        self.convert(&[reader.varint(WHAT)?], &mut value);
        Ok(value[0])
    }
}

fn walk_exceptions(
    reader: &mut ByteReader<'_>,
    count: usize,
    sample_count: usize,
    mut visit: impl FnMut(usize, u64),
) -> Result<(), DecodeError> {
    let (mut next_idx, mut last_raw) = (0usize, 0u64);
    for _ in 0..count {
        let offset = reader.offset();
        let number = reader.uvarint(WHAT)?;
        let distance = usize::try_from(number >> CODE_BITS).unwrap_or(usize::MAX);
        let sample_idx = next_idx.saturating_add(distance);
        if sample_idx >= sample_count {
            let expected = "the index of a sample";
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: sample_idx as u64 });
        }
        next_idx = sample_idx + 1;
        let code = number & ((1 << CODE_BITS) - 1);
        if code == CODE_RAW {
            last_raw = reader.le_u64(WHAT)?;
        }
        // Codes 0 and 7 have no entry: both mean the last raw bits.
        let coded = code.checked_sub(1).and_then(|idx| CODED.get(idx as usize));
        visit(sample_idx, coded.copied().unwrap_or(last_raw));
    }
    Ok(())
}

/// Form of a column of values, from the head of its chunk.
#[derive(Clone, Copy)]
pub(super) struct ValueColumn {
    pub(super) value_type: ValueType,
    pub(super) packing: Packing,
    pub(super) sample_count: usize,
}

/// Decodes the values of the samples `wanted` (at least one) of a column into `out`, which has room for
/// just them.
pub(super) fn decode(
    reader: &mut ByteReader<'_>,
    column: ValueColumn,
    wanted: Range<usize>,
    out: &mut [f64],
) -> Result<(), DecodeError> {
    let ValueColumn { value_type, packing, sample_count } = column;
    debug_assert!(!wanted.is_empty() && wanted.len() == out.len(), "room for all, and no more");
    let offset = reader.offset();
    let head = ValuesHead::read(reader, sample_count, value_type)?;
    if head.transform == CONSTANT && packing != Packing::Blocks {
        let (expected, found) = ("a series that is not constant", u64::from(CONSTANT));
        return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
    }
    if head.transform == CONSTANT {
        out.fill(head.read_constant(reader)?);
    } else {
        decode_series(&head, reader, packing, sample_count, (wanted.clone(), &mut *out))?;
    }
    if wanted.end == sample_count && !reader.is_empty() {
        let (expected, found) = ("the end of the chunk", reader.remaining() as u64);
        return Err(DecodeError::Invalid { what: WHAT, offset: reader.offset(), expected, found });
    }
    let mut exceptions = head.exceptions.clone();
    walk_exceptions(&mut exceptions, head.exception_count, sample_count, |sample_idx, bits| {
        let idx = sample_idx.checked_sub(wanted.start);
        if let Some(value) = idx.and_then(|idx| out.get_mut(idx)) {
            *value = f64::from_bits(bits);
        }
    })
}

/// The part of a series of integers that becomes values.
struct Sink<'o, 'h> {
    head: &'o ValuesHead<'h>,
    wanted: Range<usize>,
    out: &'o mut [f64],
    /// Samples that have passed.
    done: usize,
}

impl Sink<'_, '_> {
    /// Returns true if one of the next `len` samples is wanted.
    fn wants(&self, len: usize) -> bool {
        self.done + len > self.wanted.start && self.done < self.wanted.end
    }

    /// Converts the wanted ones of the next samples.
    fn take(&mut self, items: &[i64]) {
        let (start, end) = (self.wanted.start.max(self.done), self.wanted.end.min(self.done + items.len()));
        if start < end
            && let Some(items) = items.get(start - self.done..end - self.done)
            && let Some(out) = self.out.get_mut(start - self.wanted.start..end - self.wanted.start)
        {
            self.head.convert(items, out);
        }
        self.done += items.len();
    }
}

// PERF: integers before the wanted samples are only summed up, or not even unpacked if nothing depends on
// them; later ones are not read. Twenty samples at the front, in the middle and at the end of a chunk of 4096
// of a counter: 2.6, 4.4, 6.0 -> 0.2, 1.4, 2.5 us in blocks, 5.2, 9.8, 14.0 -> 2.7, 6.4, 9.8 us
// entropy-coded. cargo bench -p chronolith-format --bench dense_speed -- partial
fn decode_series(
    head: &ValuesHead<'_>,
    reader: &mut ByteReader<'_>,
    packing: Packing,
    sample_count: usize,
    (wanted, out): (Range<usize>, &mut [f64]),
) -> Result<(), DecodeError> {
    let (mut item, mut delta, mut skipped_pieces) = (0i64, 0i64, 0);
    let mut sink = Sink { head, wanted, out, done: 0 };
    if head.transform == RAW {
        skipped_pieces = sink.wanted.start / BLOCK_ITEMS;
        sink.done = skipped_pieces * BLOCK_ITEMS;
    } else {
        item = reader.varint(WHAT)?;
        sink.take(&[item]);
    }
    if head.transform == DELTAS_OF_DELTAS {
        delta = reader.varint(WHAT)?;
        item = item.wrapping_add(delta);
        sink.take(&[item]);
    }
    let known = if head.transform == RAW { 0 } else { sink.done };
    if known >= sink.wanted.end || known >= sample_count {
        return Ok(());
    }
    let items = Items { packing, ending: Ending::WithChunk, count: sample_count - known };
    items.for_each_piece(reader, skipped_pieces, &mut |piece| {
        let is_wanted = sink.wants(piece.len());
        match head.transform {
            RAW => {}
            DELTAS if is_wanted => sum(piece, &mut item),
            DELTAS => item = piece.iter().fold(item, |item, &step| item.wrapping_add(step)),
            _ if is_wanted => {
                sum(piece, &mut delta);
                sum(piece, &mut item);
            }
            _ => (delta, item) = sum_twice(piece, delta, item),
        }
        if is_wanted {
            sink.take(piece);
        } else {
            sink.done += piece.len();
        }
        // The last piece is read to its end, where damage after it is detected.
        let is_enough = sink.done >= sink.wanted.end && sink.wanted.end < sample_count;
        if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Turns steps into what they lead to, on from `total`.
fn sum(items: &mut [i64], total: &mut i64) {
    for item in items {
        *total = total.wrapping_add(*item);
        *item = *total;
    }
}

/// Sum of deltas of deltas: the last delta and the last item.
fn sum_twice(items: &[i64], delta: i64, item: i64) -> (i64, i64) {
    items.iter().fold((delta, item), |(delta, item), &step| {
        let delta = delta.wrapping_add(step);
        (delta, item.wrapping_add(delta))
    })
}
