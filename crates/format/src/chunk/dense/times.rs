//! The times of a dense chunk: a grid with gaps, residuals to it, deltas, or deltas of deltas.
//!
//! Invariant: the head alone has the first and the last time; arithmetic wraps, so any bytes decode to some
//! times; those that are handed out are checked to ascend.
//! Times of a store in nanoseconds are written in the largest power of ten that divides all of them.
//! Not here: values.

use std::ops::{ControlFlow, Range};

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::TimeRange;

use super::block::{BLOCK_ITEMS, estimate_bits, put_blocks};
use super::entropy::{self, NumberType};
use super::items::{Ending, Items, Packing};
use super::scratch::DenseScratch;
use super::sequence::{ascends, put_deltas, read_count};

const WHAT: &str = "dense chunk times";
/// Bits 0 and 1 of the first byte.
const MODE_MASK: u8 = 3;
const MODE_GRID: u8 = 0;
const MODE_RESIDUALS: u8 = 1;
const MODE_DELTAS: u8 = 2;
const MODE_DELTAS_OF_DELTAS: u8 = 3;
/// A list of gaps follows the step.
const HAS_GAPS: u8 = 1 << 2;
/// The step is in seconds.
const STEP_IN_SECONDS: u8 = 1 << 3;
/// Bits 4 to 7 of the first byte: all times, steps and residuals are in units of ten to this power.
const EXPONENT_SHIFT: u32 = 4;
/// A second in nanoseconds.
const EXPONENT_MAX: u8 = 9;
const SECOND_MS: u64 = 1000;

/// Estimated bits of a gap: one or two bytes of index, one of length.
const GAP_BITS: usize = 20;
/// A grid is not tried for columns with fewer samples per gap.
const SAMPLES_PER_GAP_MIN: usize = 4;
/// Deltas that the first guess of the step looks at.
const GUESS_DELTAS: usize = 15;
/// Chunks that last longer (292 million years / 2) have no grid, so that its arithmetic cannot overflow.
const GRID_SPAN_MAX: u64 = 1 << 62;
/// Steps in configurations are multiples of this; jitter must not hide it.
const ROUND_STEP_MS: u64 = 500;

/// Times as they have been written.
#[derive(Clone, Copy)]
pub(super) struct Written {
    mode: u8,
    /// Start of the blocks.
    pub(super) head_end: usize,
}

/// Appends the times, which ascend strictly.
pub(super) fn encode(times: &[i64], scratch: &mut DenseScratch, out: &mut Vec<u8>) -> Written {
    let exponent = if scratch.scales_times { exponent_of(times) } else { 0 };
    if exponent == 0 {
        return encode_unscaled(times, scratch, out);
    }
    let flags_at = out.len();
    let mut scaled = std::mem::take(&mut scratch.scaled_times);
    scaled.clear();
    scaled.extend(times.iter().map(|time| time / unit_of(exponent)));
    let written = encode_unscaled(&scaled, scratch, out);
    scratch.scaled_times = scaled;
    if let Some(flags) = out.get_mut(flags_at) {
        *flags |= exponent << EXPONENT_SHIFT;
    }
    written
}

/// Returns the largest exponent of ten that divides all times.
fn exponent_of(times: &[i64]) -> u8 {
    let mut exponent = EXPONENT_MAX;
    for time in times {
        while time % unit_of(exponent) != 0 {
            exponent -= 1;
        }
    }
    exponent
}

/// Ten to the power of an exponent of at most [`EXPONENT_MAX`].
fn unit_of(exponent: u8) -> i64 {
    10i64.pow(u32::from(exponent))
}

fn encode_unscaled(times: &[i64], scratch: &mut DenseScratch, out: &mut Vec<u8>) -> Written {
    let first = times[0];
    let step = find_grid(times, scratch);
    let residuals = &scratch.series;
    if let Some(step) = step
        && residuals.iter().all(|&residual| residual == 0)
    {
        put_grid_head(MODE_GRID, times, step, &scratch.gaps, out);
        return Written { mode: MODE_GRID, head_end: out.len() };
    }
    put_deltas(times, &mut scratch.deltas);
    let delta_bits = estimate_bits(&scratch.deltas);
    if let Some(step) = step
        && estimate_bits(residuals) + scratch.gaps.len() * GAP_BITS <= delta_bits
    {
        put_grid_head(MODE_RESIDUALS, times, step, &scratch.gaps, out);
        put_varint(out, residuals.last().copied().unwrap_or(0));
        let head_end = out.len();
        put_blocks(residuals, out);
        return Written { mode: MODE_RESIDUALS, head_end };
    }
    put_deltas(&scratch.deltas, &mut scratch.deltas_of_deltas);
    let second_bits = estimate_bits(&scratch.deltas_of_deltas) + 16;
    let span = times[times.len() - 1].wrapping_sub(first).cast_unsigned();
    if delta_bits <= second_bits {
        out.push(MODE_DELTAS);
        put_varint(out, first);
        put_uvarint(out, span);
        let head_end = out.len();
        put_blocks(&scratch.deltas, out);
        Written { mode: MODE_DELTAS, head_end }
    } else {
        out.push(MODE_DELTAS_OF_DELTAS);
        put_varint(out, first);
        put_uvarint(out, span);
        put_uvarint(out, scratch.deltas[0].cast_unsigned());
        let head_end = out.len();
        put_blocks(&scratch.deltas_of_deltas, out);
        Written { mode: MODE_DELTAS_OF_DELTAS, head_end }
    }
}

/// Writes the blocks of the last [`encode`] to `scratch.entropy`; none when they have no such form.
pub(super) fn put_entropy(written: Written, scratch: &mut DenseScratch) -> Option<NumberType> {
    let DenseScratch { series, deltas, deltas_of_deltas, entropy: out, .. } = scratch;
    let items: &[i64] = match written.mode {
        MODE_RESIDUALS => series,
        MODE_DELTAS => deltas,
        MODE_DELTAS_OF_DELTAS => deltas_of_deltas,
        _ => return None,
    };
    out.clear();
    if items.is_empty() { None } else { entropy::put(items, out) }
}

fn put_grid_head(mode: u8, times: &[i64], step: u64, gaps: &[(u16, i64)], out: &mut Vec<u8>) {
    let has_gaps = if gaps.is_empty() { 0 } else { HAS_GAPS };
    let in_seconds = step.is_multiple_of(SECOND_MS);
    out.push(mode | has_gaps | if in_seconds { STEP_IN_SECONDS } else { 0 });
    put_varint(out, times[0]);
    if times.len() > 1 {
        put_uvarint(out, if in_seconds { step / SECOND_MS } else { step });
    }
    if gaps.is_empty() {
        return;
    }
    put_uvarint(out, gaps.len() as u64);
    let mut before = 0;
    for &(sample_idx, missing) in gaps {
        put_uvarint(out, u64::from(sample_idx - before - 1));
        put_varint(out, missing);
        before = sample_idx;
    }
}

/// The step of a grid that the times are on or near, if there is one: its gaps go to `scratch.gaps`, the
/// distances of all times but the first to `scratch.series`, none if all are 0.
fn find_grid(times: &[i64], scratch: &mut DenseScratch) -> Option<u64> {
    scratch.gaps.clear();
    scratch.series.clear();
    if times.len() < 2 {
        return Some(0);
    }
    let span = times[times.len() - 1].wrapping_sub(times[0]).cast_unsigned();
    if span > GRID_SPAN_MAX {
        return None;
    }
    let guess = guess_step(times);
    if is_regular(times, guess.cast_signed()) {
        return Some(guess);
    }
    if !find_gaps(times, guess, &mut scratch.gaps) {
        return None;
    }
    put_residuals(times, guess, &scratch.gaps, &mut scratch.series);
    if scratch.series.iter().all(|&residual| residual == 0) {
        return Some(guess);
    }
    let fitted = fit_step(guess, &scratch.gaps, &scratch.series);
    put_residuals(times, fitted, &scratch.gaps, &mut scratch.series);
    let round = (fitted + ROUND_STEP_MS / 2) / ROUND_STEP_MS * ROUND_STEP_MS;
    if round == fitted || round.abs_diff(fitted) > fitted / 512 {
        return Some(fitted);
    }
    put_residuals(times, round, &scratch.gaps, &mut scratch.deltas);
    if estimate_bits(&scratch.deltas) <= estimate_bits(&scratch.series) {
        std::mem::swap(&mut scratch.deltas, &mut scratch.series);
        return Some(round);
    }
    Some(fitted)
}

/// Returns true if all times are on the grid.
///
/// Looks at all of them without a branch, and spares most chunks the search for gaps and the residuals.
fn is_regular(times: &[i64], step: i64) -> bool {
    let differs = |(before, after): (&i64, &i64)| after.wrapping_sub(*before) ^ step;
    times.iter().zip(times.iter().skip(1)).map(differs).fold(0, |all, differs| all | differs) == 0
}

/// The median of some deltas; at least 1.
fn guess_step(times: &[i64]) -> u64 {
    let delta_count = times.len() - 1;
    let sampled = delta_count.min(GUESS_DELTAS);
    let mut deltas = [0u64; GUESS_DELTAS];
    for (idx, delta) in deltas[..sampled].iter_mut().enumerate() {
        let at = idx * delta_count / sampled;
        *delta = (times[at + 1] - times[at]).cast_unsigned();
    }
    deltas[..sampled].sort_unstable();
    deltas[sampled / 2]
}

/// Lists the samples that are not one step after the one before; returns false when they are too many.
fn find_gaps(times: &[i64], step: u64, gaps: &mut Vec<(u16, i64)>) -> bool {
    let gap_count_max = times.len() / SAMPLES_PER_GAP_MIN + 1;
    for (sample_idx, pair) in (1..=u16::MAX).zip(times.windows(2)) {
        let delta = (pair[1] - pair[0]).cast_unsigned();
        if 2 * delta > step && 2 * delta < 3 * step {
            continue;
        }
        let steps = ((delta + step / 2) / step).cast_signed();
        if steps != 1 {
            gaps.push((sample_idx, steps - 1));
            if gaps.len() > gap_count_max {
                return false;
            }
        }
    }
    true
}

fn put_residuals(times: &[i64], step: u64, gaps: &[(u16, i64)], out: &mut Vec<i64>) {
    out.clear();
    out.resize(times.len(), 0);
    fill_grid(times[0], step.cast_signed(), gaps.iter().copied(), out);
    for (grid, &time) in out.iter_mut().zip(times) {
        *grid = time.wrapping_sub(*grid);
    }
    out.remove(0);
}

/// Least squares through the residuals, so that the step does not hang on two jittered times.
fn fit_step(guess: u64, gaps: &[(u16, i64)], residuals: &[i64]) -> u64 {
    let mut gaps = gaps.iter().peekable();
    let (mut grid, mut sums) = (0.0f64, [0.0f64; 4]);
    for (sample_idx, &residual) in (1..=u16::MAX).zip(residuals) {
        grid += 1.0;
        if let Some(&(_, missing)) = gaps.next_if(|gap| gap.0 == sample_idx) {
            grid += missing as f64;
        }
        let y = residual as f64;
        sums[0] += grid;
        sums[1] += grid * grid;
        sums[2] += y;
        sums[3] += grid * y;
    }
    // The first sample is the point (0, 0) and adds nothing but to the count.
    let count = residuals.len() as f64 + 1.0;
    let spread = count * sums[1] - sums[0] * sums[0];
    let slope = (count * sums[3] - sums[0] * sums[2]) / spread;
    // A wild fit does no harm beyond size: residuals take up whatever the step leaves.
    let step = guess as f64 + slope.round();
    if step >= 1.0 && step < 2.0 * guess as f64 { step as u64 } else { guess }
}

/// Fills `out` with grid times; a gap moves its sample and all later ones.
fn fill_grid(first: i64, step: i64, gaps: impl Iterator<Item = (u16, i64)>, out: &mut [i64]) {
    let (mut time, mut rest) = (first, out);
    let mut filled = 0;
    for (sample_idx, missing) in gaps {
        let run_len = usize::from(sample_idx).saturating_sub(filled).min(rest.len());
        let (run, after) = rest.split_at_mut(run_len);
        fill_run(time, step, run);
        time = time.wrapping_add(step.wrapping_mul(missing.wrapping_add(run_len as i64)));
        filled += run_len;
        rest = after;
    }
    fill_run(time, step, rest);
}

fn fill_run(first: i64, step: i64, out: &mut [i64]) {
    for (idx, time) in (0i64..).zip(out) {
        *time = first.wrapping_add(step.wrapping_mul(idx));
    }
}

/// All before the blocks. Times are in units of the chunk.
pub(super) struct TimesHead<'a> {
    pub(super) count: u16,
    /// Ticks of the store per unit.
    unit: i64,
    first: i64,
    last: i64,
    mode: u8,
    step: i64,
    gap_count: usize,
    /// Stands at the first gap; the list has been checked.
    gaps: ByteReader<'a>,
    first_delta: i64,
}

impl<'a> TimesHead<'a> {
    /// Reads the count and the head of the times.
    pub(super) fn read(reader: &mut ByteReader<'a>) -> Result<TimesHead<'a>, DecodeError> {
        let count = read_count(reader)?;
        TimesHead::read_for(count, reader)
    }

    /// Reads the head of the times of a chunk of `count` samples, at least one.
    pub(super) fn read_for(count: u16, reader: &mut ByteReader<'a>) -> Result<TimesHead<'a>, DecodeError> {
        let offset = reader.offset();
        let flags = reader.u8(WHAT)?;
        let mode = flags & MODE_MASK;
        let grid_flags = if mode <= MODE_RESIDUALS { HAS_GAPS | STEP_IN_SECONDS } else { 0 };
        let exponent = flags >> EXPONENT_SHIFT;
        let known_flags = MODE_MASK | grid_flags | exponent << EXPONENT_SHIFT;
        if exponent > EXPONENT_MAX || flags & !known_flags != 0 {
            let expected = "an exponent of at most 9 and flags that fit the mode";
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: u64::from(flags) });
        }
        let first = reader.varint(WHAT)?;
        let gaps = reader.clone();
        let unit = unit_of(exponent);
        let mut head =
            TimesHead { count, unit, first, last: first, mode, step: 0, gap_count: 0, gaps, first_delta: 0 };
        if mode <= MODE_RESIDUALS {
            head.read_grid(flags, reader)?;
        } else {
            head.last = first.wrapping_add_unsigned(reader.uvarint(WHAT)?);
        }
        if mode == MODE_DELTAS_OF_DELTAS {
            head.first_delta = reader.uvarint(WHAT)?.cast_signed();
        }
        if head.last < first {
            let (expected, found) = ("a last time not before the first", head.last.cast_unsigned());
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
        }
        if head.first.checked_mul(unit).and(head.last.checked_mul(unit)).is_none() {
            let found = head.last.cast_unsigned();
            return Err(DecodeError::Invalid { what: WHAT, offset, expected: "times of 64 bits", found });
        }
        Ok(head)
    }

    /// Returns the first and the last time.
    pub(super) fn bounds(&self) -> (i64, i64) {
        // Verified by `read_for`.
        (self.first.wrapping_mul(self.unit), self.last.wrapping_mul(self.unit))
    }

    /// Returns true if the times from the first to the last share one with `range`.
    pub(super) fn overlaps(&self, range: TimeRange) -> bool {
        let (first, last) = self.bounds();
        range.overlaps_inclusive(first, last)
    }

    /// Returns a range of ticks as one of units that contains the same times of the chunk.
    fn in_units(&self, range: TimeRange) -> TimeRange {
        let ceil = |ticks: i64| ticks.div_euclid(self.unit) + i64::from(ticks.rem_euclid(self.unit) != 0);
        TimeRange { start: ceil(range.start), end: ceil(range.end) }
    }

    fn read_grid(&mut self, flags: u8, reader: &mut ByteReader<'a>) -> Result<(), DecodeError> {
        if self.count > 1 {
            let unit = if flags & STEP_IN_SECONDS != 0 { SECOND_MS } else { 1 };
            self.step = reader.uvarint(WHAT)?.wrapping_mul(unit).cast_signed();
        }
        let mut steps = i64::from(self.count) - 1;
        if flags & HAS_GAPS != 0 {
            self.gap_count = reader.length(WHAT)?;
            self.gaps = reader.clone();
            let mut gaps = Gaps { reader: reader.clone(), before: 0, left: self.gap_count };
            while gaps.left > 0 {
                let offset = gaps.reader.offset();
                let (sample_idx, missing) = gaps.read()?;
                if sample_idx >= u64::from(self.count) {
                    let expected = "the index of a sample";
                    return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: sample_idx });
                }
                steps = steps.wrapping_add(missing);
            }
            *reader = gaps.reader;
        }
        self.last = self.first.wrapping_add(self.step.wrapping_mul(steps));
        if self.mode == MODE_RESIDUALS {
            self.last = self.last.wrapping_add(reader.varint(WHAT)?);
        }
        Ok(())
    }

    /// Number of times that the head alone determines.
    fn known_count(&self) -> usize {
        let known = match self.mode {
            MODE_GRID => usize::from(self.count),
            MODE_DELTAS_OF_DELTAS => 2,
            _ => 1,
        };
        known.min(usize::from(self.count))
    }

    fn gaps(&self) -> Gaps<'a> {
        Gaps { reader: self.gaps.clone(), before: 0, left: self.gap_count }
    }
}

/// The list of gaps; as an iterator it ends at the first that cannot be read, which a checked list has not.
struct Gaps<'a> {
    reader: ByteReader<'a>,
    before: u64,
    left: usize,
}

impl Gaps<'_> {
    fn read(&mut self) -> Result<(u64, i64), DecodeError> {
        let distance = self.reader.uvarint(WHAT)?;
        let missing = self.reader.varint(WHAT)?;
        self.before = self.before.saturating_add(distance).saturating_add(1);
        self.left -= 1;
        Ok((self.before, missing))
    }
}

impl Iterator for Gaps<'_> {
    type Item = (u16, i64);

    fn next(&mut self) -> Option<(u16, i64)> {
        if self.left == 0 {
            return None;
        }
        let (sample_idx, missing) = self.read().ok()?;
        Some((u16::try_from(sample_idx).ok()?, missing))
    }
}

/// The points of the grid, one per sample, as runs between gaps.
struct GridWalk<'a> {
    gaps: Gaps<'a>,
    next_gap: Option<(u16, i64)>,
    step: i64,
    /// The next sample and its point.
    sample_idx: usize,
    time: i64,
    count: usize,
}

impl<'a> GridWalk<'a> {
    fn new(head: &TimesHead<'a>) -> GridWalk<'a> {
        let mut gaps = head.gaps();
        let next_gap = gaps.next();
        let count = usize::from(head.count);
        GridWalk { gaps, next_gap, step: head.step, sample_idx: 0, time: head.first, count }
    }

    /// The next samples up to a gap, `len_max` at most: their number, and the point of the first.
    fn next_run(&mut self, len_max: usize) -> (usize, i64) {
        let first = self.time;
        let end = self.next_gap.map_or(self.count, |gap| usize::from(gap.0).min(self.count));
        let len = end.saturating_sub(self.sample_idx).min(len_max);
        self.sample_idx += len;
        self.time = self.point_after(first, len as i64);
        if self.sample_idx == end
            && let Some((_, missing)) = self.next_gap
        {
            self.time = self.point_after(self.time, missing);
            self.next_gap = self.gaps.next();
        }
        (len, first)
    }

    fn point_after(&self, from: i64, steps: i64) -> i64 {
        from.wrapping_add(self.step.wrapping_mul(steps))
    }

    /// Fills `out` with the next points.
    fn fill(&mut self, out: &mut [i64]) {
        let mut rest = out;
        while !rest.is_empty() && self.sample_idx < self.count {
            let (len, first) = self.next_run(rest.len());
            let (run, after) = rest.split_at_mut(len);
            fill_run(first, self.step, run);
            rest = after;
        }
    }
}

/// Appends the times in `range` to `out`; returns the indices of their samples in the chunk. Columns that end
/// before something else are read to their end, but only what may be in the range is unpacked.
pub(super) fn append(
    head: &TimesHead<'_>,
    layout: (Packing, Ending),
    reader: &mut ByteReader<'_>,
    range: TimeRange,
    out: &mut Vec<i64>,
) -> Result<Range<usize>, DecodeError> {
    if head.unit == 1 {
        return append_units(head, layout, reader, range, out);
    }
    let start = out.len();
    let wanted = append_units(head, layout, reader, head.in_units(range), out)?;
    // Times within the range do not overflow, whatever the bytes are.
    out.iter_mut().skip(start).for_each(|time| *time = time.wrapping_mul(head.unit));
    Ok(wanted)
}

/// As [`append`], with range and times in units of the chunk.
fn append_units(
    head: &TimesHead<'_>,
    (packing, ending): (Packing, Ending),
    reader: &mut ByteReader<'_>,
    range: TimeRange,
    out: &mut Vec<i64>,
) -> Result<Range<usize>, DecodeError> {
    let start = out.len();
    let mut picked = Picked { range, times: out, idx: 0, skipped: 0, last: head.first };
    let item_count = usize::from(head.count) - head.known_count();
    if item_count > 0 {
        let items = Items { packing, ending, count: item_count };
        match head.mode {
            MODE_RESIDUALS => append_near_grid(head, items, reader, &mut picked)?,
            _ => append_sums(head, items, reader, &mut picked)?,
        }
    } else if packing != Packing::Blocks {
        let (offset, expected, found) = (reader.offset(), "times beyond the head", u64::from(head.mode));
        return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
    } else if head.mode == MODE_GRID {
        append_grid(head, &mut picked)?;
    } else {
        picked.take_known(head);
    }
    let (count, skipped, last) = (picked.idx, picked.skipped, picked.last);
    let taken = out.get(start..).unwrap_or_default();
    let is_whole = count == usize::from(head.count);
    // The steps of a grid have been checked.
    let in_order = head.mode == MODE_GRID || ascends(taken);
    if !in_order || (is_whole && last != head.last) {
        let (expected, found) = ("ascending times up to the last one", head.last.cast_unsigned());
        return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found });
    }
    Ok(skipped..skipped + taken.len())
}

/// Times that are picked from a chunk as they pass by.
struct Picked<'o> {
    range: TimeRange,
    times: &'o mut Vec<i64>,
    /// Samples that have passed.
    idx: usize,
    /// Samples before the range.
    skipped: usize,
    /// The time of the last one.
    last: i64,
}

impl Picked<'_> {
    /// Appends the `times` within the range, which should ascend; breaks at the first time after it.
    fn take(&mut self, times: &[i64]) -> ControlFlow<()> {
        let Some(&last) = times.last() else { return ControlFlow::Continue(()) };
        self.last = last;
        let before = if last < self.range.start {
            times.len()
        } else {
            times.partition_point(|&time| time < self.range.start)
        };
        let end = if last < self.range.end {
            times.len()
        } else {
            times.partition_point(|&time| time < self.range.end)
        };
        self.times.extend_from_slice(times.get(before..end).unwrap_or_default());
        self.pass(times.len(), before);
        if last < self.range.end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Counts samples of which the first `before` are before the range.
    fn pass(&mut self, count: usize, before: usize) {
        // Times that do not ascend (forged ones) are found out later; they must not shift the times taken
        // before.
        if self.skipped == self.idx {
            self.skipped += before;
        }
        self.idx += count;
    }

    /// Takes the times in the head, for the modes that count differences.
    fn take_known(&mut self, head: &TimesHead<'_>) {
        let second = head.first.wrapping_add(head.first_delta);
        let known = [head.first, second];
        // The next ones decide if more is wanted.
        let _ = self.take(known.get(..head.known_count().min(usize::from(head.count))).unwrap_or_default());
    }
}

/// Appends times that are all on the grid: the ones in the range follow by arithmetic.
fn append_grid(head: &TimesHead<'_>, picked: &mut Picked<'_>) -> Result<(), DecodeError> {
    let mut walk = GridWalk::new(head);
    let step = i128::from(head.step);
    let mut before = None;
    while walk.sample_idx < walk.count {
        let (len, first) = walk.next_run(usize::MAX);
        let last = i128::from(first) + step * (len as i128 - 1);
        let in_order = before.is_none_or(|before| before < i128::from(first));
        if len == 0 {
            continue;
        }
        if !in_order || (len > 1 && step <= 0) || last > i128::from(i64::MAX) {
            let (expected, found) = ("ascending times up to the last one", head.last.cast_unsigned());
            return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found });
        }
        let index_of = |time: i64| {
            let distance = if time > first { time.abs_diff(first) } else { 0 };
            // A single sample may have any step.
            let at = distance.div_ceil(head.step.max(1).cast_unsigned());
            usize::try_from(at).unwrap_or(len).min(len)
        };
        let (start, end) = (index_of(picked.range.start), index_of(picked.range.end));
        if start < end {
            let time_at = |idx: i64| first.wrapping_add(head.step.wrapping_mul(idx));
            picked.times.extend((start as i64..end as i64).map(time_at));
        }
        picked.pass(len, start);
        before = Some(last);
        picked.last = last as i64;
    }
    Ok(())
}

fn append_near_grid(
    head: &TimesHead<'_>,
    items: Items,
    reader: &mut ByteReader<'_>,
    picked: &mut Picked<'_>,
) -> Result<(), DecodeError> {
    let mut walk = GridWalk::new(head);
    let mut points = [0i64; BLOCK_ITEMS];
    walk.fill(&mut points[..1]);
    let _ = picked.take(&points[..1]);
    items.for_each_piece(reader, 0, &mut |residuals| {
        let points = points.get_mut(..residuals.len()).unwrap_or_default();
        walk.fill(points);
        points.iter_mut().zip(residuals).for_each(|(time, residual)| *time = time.wrapping_add(*residual));
        picked.take(points)
    })
}

/// Differences, or differences of differences.
fn append_sums(
    head: &TimesHead<'_>,
    items: Items,
    reader: &mut ByteReader<'_>,
    picked: &mut Picked<'_>,
) -> Result<(), DecodeError> {
    picked.take_known(head);
    let (mut time, mut delta) = (head.first.wrapping_add(head.first_delta), head.first_delta);
    let is_second = head.mode == MODE_DELTAS_OF_DELTAS;
    items.for_each_piece(reader, 0, &mut |piece| {
        for item in &mut *piece {
            delta = if is_second { delta.wrapping_add(*item) } else { *item };
            time = time.wrapping_add(delta);
            *item = time;
        }
        picked.take(piece)
    })
}
