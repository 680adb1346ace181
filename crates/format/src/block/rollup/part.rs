//! Part of a section: the list of its windows as runs without gaps, then a column of values per method.

use std::ops::Range;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::TimeRange;
use chronolith_model::rollup::{RolledWindows, RollupMethod, RollupMethods};

use crate::chunk::dense::{DenseScratch, decode_column, encode_column};

/// Windows with samples of a part at most.
pub const PART_WINDOWS_MAX: usize = 1024;

const WHAT: &str = "roll-up part";

/// Selection of windows and methods to read from a part.
pub(super) struct PartRead {
    /// Numbers of its first and last window.
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) span_ms: i64,
    /// Methods of its columns.
    pub(super) methods: RollupMethods,
    /// Windows that start in it are read.
    pub(super) range: TimeRange,
}

/// Appends the windows `range` of `windows`, at least one.
pub(super) fn encode_part(
    windows: &RolledWindows,
    range: Range<usize>,
    span_ms: i64,
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) {
    let starts = windows.starts().get(range.clone()).unwrap_or_default();
    let runs: Vec<&[i64]> = starts.chunk_by(|a, b| b.wrapping_sub(*a) == span_ms).collect();
    put_uvarint(out, runs.len() as u64);
    let mut end = starts.first().copied().unwrap_or(0);
    for run in runs {
        let first = run.first().copied().unwrap_or(end);
        let last = run.last().copied().unwrap_or(end);
        put_uvarint(out, (first.wrapping_sub(end) / span_ms).cast_unsigned());
        put_uvarint(out, run.len() as u64);
        end = last.wrapping_add(span_ms);
    }
    let mut column = Vec::new();
    let mut before: Vec<(RollupMethod, &[f64])> = Vec::new();
    for method in windows.methods().iter() {
        let values = windows.column(method).and_then(|values| values.get(range.clone())).unwrap_or_default();
        let is_same = |other: &&(RollupMethod, &[f64])| {
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            other.1.first().map(|v| v.to_bits()) == values.first().map(|v| v.to_bits())
                && bits(other.1) == bits(values)
        };
        // The newest value of a counter is its largest one.
        if let Some((same, _)) = before.iter().find(is_same) {
            put_uvarint(out, 0);
            out.push(*same as u8);
            continue;
        }
        before.push((method, values));
        column.clear();
        encode_column(values, scratch, &mut column);
        put_uvarint(out, column.len() as u64);
        out.extend_from_slice(&column);
    }
}

/// Windows of a part, by their numbers.
struct Numbers {
    runs: Vec<Range<i64>>,
    count: usize,
}

impl Numbers {
    /// Reads the runs between the windows `first` and `last`, both of which are there.
    fn read(reader: &mut ByteReader<'_>, first: i64, last: i64) -> Result<Numbers, DecodeError> {
        let run_count = reader.length(WHAT)?;
        let mut numbers = Numbers { runs: Vec::new(), count: 0 };
        let mut next = first;
        for _ in 0..run_count {
            let gap = i64::try_from(reader.uvarint(WHAT)?).ok();
            let len = i64::try_from(reader.uvarint(WHAT)?).ok().filter(|len| *len > 0);
            let start = gap.and_then(|gap| next.checked_add(gap));
            let end = start.zip(len).and_then(|(start, len)| start.checked_add(len));
            let (Some(start), Some(end)) = (start, end.filter(|end| *end - 1 <= last)) else {
                return Err(numbers_error(reader.offset(), numbers.count));
            };
            numbers.count = numbers.count.saturating_add(usize::try_from(end - start).unwrap_or(usize::MAX));
            if numbers.count > PART_WINDOWS_MAX {
                return Err(numbers_error(reader.offset(), numbers.count));
            }
            numbers.runs.push(start..end);
            next = end;
        }
        let ends = (numbers.runs.first().map(|run| run.start), numbers.runs.last().map(|run| run.end - 1));
        if ends != (Some(first), Some(last)) {
            return Err(numbers_error(reader.offset(), numbers.count));
        }
        Ok(numbers)
    }
}

fn numbers_error(offset: usize, count: usize) -> DecodeError {
    let expected = "at most 1024 windows, of them those of the head";
    DecodeError::Invalid { what: WHAT, offset, expected, found: count as u64 }
}

/// Appends the selected windows to `out`, for its methods, a subset of the part's; appends nothing when it
/// fails.
pub(super) fn decode_part(bytes: &[u8], part: &PartRead, out: &mut RolledWindows) -> Result<(), DecodeError> {
    let PartRead { first, last, span_ms, methods, range } = *part;
    let mut reader = ByteReader::new(bytes);
    let numbers = Numbers::read(&mut reader, first, last)?;
    let mut columns = Vec::with_capacity(methods.len());
    for method in methods.iter() {
        let offset = reader.offset();
        let len = reader.length(WHAT)?;
        let bytes = match len {
            0 => {
                let number = reader.u8(WHAT)?;
                let same = columns.iter().find(|(of, _): &&(RollupMethod, _)| *of as u8 == number);
                let expected = "a method with a column before";
                same.map(|(_, bytes)| *bytes).ok_or(DecodeError::Invalid {
                    what: WHAT,
                    offset,
                    expected,
                    found: u64::from(number),
                })?
            }
            _ => reader.bytes(WHAT, len)?,
        };
        columns.push((method, bytes));
    }
    let all = numbers.runs.iter().flat_map(|run| run.clone()).map(|number| number * span_ms);
    let starts: Vec<i64> = all.collect();
    // Windows ascend, so those in the range are next to one another.
    let skipped = starts.partition_point(|start| *start < range.start);
    let count = starts.partition_point(|start| *start < range.end).saturating_sub(skipped);
    if count == 0 {
        return Ok(());
    }
    let starts = starts.into_iter().skip(skipped).take(count);
    let mut values = Vec::new();
    let appended = out.extend_columns(starts, |method, column| {
        let (_, bytes) = columns.iter().find(|(of, _)| *of == method).copied().unwrap_or((method, &[]));
        values.clear();
        decode_column(bytes, numbers.count, &mut values)?;
        column.extend_from_slice(values.get(skipped..skipped + count).unwrap_or_default());
        Ok(())
    })?;
    debug_assert!(appended, "a column has a value per window");
    Ok(())
}
