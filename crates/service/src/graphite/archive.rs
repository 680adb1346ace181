//! Archives of a path by its schema: which one answers a range, and its points.
//!
//! Invariants: as in whisper, the finest archive that covers the time since the start of the range answers
//! it, and nothing before the coarsest one is returned. A point of an archive is what its method makes of all
//! raw points in its interval; of several raw points in an interval of the finest archive the last counts.
//! Points are the same whether the store has roll-ups of them or not.
//! Not here: rules (`ingest::carbon`), windows of samples (`model::rollup`).

use chronolith_base::{BudgetExceeded, Reservation};
use chronolith_graphite::Consolidation;
use chronolith_graphite::storage::FetchRequest;
use chronolith_ingest::carbon::{AggregationMethod, Archive, Schema, X_FILES_FACTOR_DEFAULT};
use chronolith_model::rollup::{RolledWindows, RollupArchive, RollupMethod, RollupRead, RollupSpan};
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

use crate::carbon::rules::{PathRules, rollup_methods};

/// Bytes of a sample while a series is read: time and value.
const SAMPLE_BYTES: u64 = 16;

/// Samples that are looked at together: mostly they are one step apart.
const EVEN_SAMPLES: usize = 256;

/// Archive that answers a range of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChosenArchive {
    /// Seconds per point.
    pub(super) step_s: i64,
    /// Seconds per point of the finest archive.
    fine_step_s: i64,
    pub(super) method: AggregationMethod,
    /// Part of the points of the finest archive that a point needs.
    x_files_factor: f64,
    /// The range, cut to the time that the archives cover. Exclusive start and inclusive end, in seconds.
    pub(super) from_s: i64,
    pub(super) until_s: i64,
}

/// An archive with the schema that has it.
pub(super) struct Choice<'a> {
    pub(super) schema: &'a Schema,
    /// Index of the archive in the schema; 0 is the finest.
    pub(super) archive_idx: usize,
    pub(super) archive: ChosenArchive,
}

/// Returns the archive of `path` for a range; `None` if no schema applies to it. It is the finest archive
/// that covers the range with at most `points_max` points, or else the coarsest.
pub(super) fn choose<'a>(
    rules: &'a PathRules,
    path: &str,
    request: &FetchRequest,
    now_s: i64,
    points_max: u64,
) -> Option<Choice<'a>> {
    let schema = rules.schemas().match_path(path)?;
    let finest = schema.archives().first()?;
    let Answering { archive_idx, from_s } = answering(schema.archives(), request, now_s, points_max)?;
    let chosen = schema.archives().get(archive_idx)?;
    let rule = rules.aggregations().match_path(path);
    let kept = rule.map_or(&[AggregationMethod::Average][..], |rule| rule.methods());
    let archive = ChosenArchive {
        step_s: i64::from(chosen.step_s),
        fine_step_s: i64::from(finest.step_s),
        method: method_of(kept, request.consolidation_hint.as_ref()),
        x_files_factor: rule.map_or(X_FILES_FACTOR_DEFAULT, |rule| rule.x_files_factor()),
        from_s,
        until_s: request.until,
    };
    Some(Choice { schema, archive_idx, archive })
}

/// Index of the archive that answers a range, and the start of the range within its retention.
struct Answering {
    archive_idx: usize,
    from_s: i64,
}

fn answering(archives: &[Archive], request: &FetchRequest, now_s: i64, points_max: u64) -> Option<Answering> {
    let coarsest = archives.last()?;
    let oldest_s = now_s.saturating_sub(to_i64(coarsest.retention_s()));
    let from_s = request.from.max(oldest_s);
    let range_s = u64::try_from(request.until.saturating_sub(from_s)).unwrap_or(0);
    let answers = |archive: &Archive| {
        now_s.saturating_sub(from_s) <= to_i64(archive.retention_s())
            && range_s / u64::from(archive.step_s) <= points_max
    };
    let archive_idx = archives.iter().position(answers).unwrap_or(archives.len() - 1);
    Some(Answering { archive_idx, from_s })
}

/// Returns the archives that [`choose`] may choose for any path, but for the finest ones.
pub(super) fn candidates(
    rules: &PathRules,
    request: &FetchRequest,
    now_s: i64,
    points_max: u64,
) -> Vec<RollupSpan> {
    let mut spans = Vec::new();
    for schema in rules.schemas().rules() {
        let archives = schema.archives();
        let found = answering(archives, request, now_s, points_max);
        let chosen = found.and_then(|found| archives.get(found.archive_idx).zip(archives.first()));
        let Some((chosen, finest)) = chosen.filter(|(chosen, finest)| chosen.step_s > finest.step_s) else {
            continue;
        };
        let in_ms = |step_s: u32| i64::from(step_s) * 1000;
        let span = RollupSpan { span_ms: in_ms(chosen.step_s), slot_ms: in_ms(finest.step_s) };
        if !spans.contains(&span) {
            spans.push(span);
        }
    }
    spans
}

/// Returns the method that was asked for if it is kept or follows from kept ones, else the first.
fn method_of(kept: &[AggregationMethod], asked: Option<&Consolidation>) -> AggregationMethod {
    let asked = match asked {
        Some(Consolidation::Average) => Some(AggregationMethod::Average),
        Some(Consolidation::AverageZero) => Some(AggregationMethod::AverageZero),
        Some(Consolidation::Sum) => Some(AggregationMethod::Sum),
        Some(Consolidation::Max) => Some(AggregationMethod::Max),
        Some(Consolidation::Min) => Some(AggregationMethod::Min),
        Some(Consolidation::First) => Some(AggregationMethod::First),
        Some(Consolidation::Last) => Some(AggregationMethod::Last),
        Some(Consolidation::Unknown(_)) | None => None,
    };
    // Sums are kept for averages, and the number of points for each method.
    let is_kept = |method: &AggregationMethod| {
        kept.contains(method)
            || kept.iter().any(|of| rollup_methods(&[*of]).has_all(rollup_methods(&[*method])))
    };
    asked.filter(is_kept).or_else(|| kept.first().copied()).unwrap_or(AggregationMethod::Average)
}

fn to_i64(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

impl ChosenArchive {
    /// Returns true if the range ends before the time that the archives cover.
    pub(super) fn is_before_retention(&self) -> bool {
        self.from_s > self.until_s
    }

    /// Samples that a point of the archive can have.
    fn slot_count(&self) -> i64 {
        self.step_s / self.fine_step_s
    }

    /// Windows of the archive, with what its method is made of.
    fn windows(&self) -> Option<RollupArchive> {
        RollupArchive::new(self.step_s * 1000, self.fine_step_s * 1000, rollup_methods(&[self.method]))
    }

    /// Fills `out`, whose first point is at `start_s`, with the points of `windows`.
    fn fill(&self, windows: &RolledWindows, start_s: i64, out: &mut [f64]) {
        let slot_count = self.slot_count() as f64;
        let of_method = match self.method {
            AggregationMethod::Average | AggregationMethod::AverageZero | AggregationMethod::Sum => {
                RollupMethod::Sum
            }
            AggregationMethod::Count => RollupMethod::Count,
            AggregationMethod::Max => RollupMethod::Max,
            AggregationMethod::Min => RollupMethod::Min,
            AggregationMethod::AbsMax => RollupMethod::AbsMax,
            AggregationMethod::AbsMin => RollupMethod::AbsMin,
            AggregationMethod::First => RollupMethod::First,
            AggregationMethod::Last => RollupMethod::Last,
        };
        let columns = windows.column(RollupMethod::Count).zip(windows.column(of_method));
        let Some((counts, values)) = columns else { return };
        let span_ms = self.step_s * 1000;
        let mut next_start = start_s * 1000;
        let mut slot_idx = 0i64;
        for ((start, count), value) in windows.starts().iter().zip(counts).zip(values) {
            // Most windows follow one another.
            slot_idx += if *start == next_start { 0 } else { (start - next_start).div_euclid(span_ms) };
            let slot = usize::try_from(slot_idx).ok().and_then(|idx| out.get_mut(idx));
            next_start = start + span_ms;
            slot_idx += 1;
            let known = count / slot_count;
            let Some(slot) = slot.filter(|_| known >= self.x_files_factor) else { continue };
            *slot = match self.method {
                AggregationMethod::Average => value / count,
                AggregationMethod::AverageZero => value / slot_count,
                _ => *value,
            };
        }
    }
}

/// Buffers of the points of a series, and the memory that they take.
pub(super) struct PointReader {
    pub(super) samples: Columns,
    windows: RolledWindows,
    reservation: Reservation,
}

/// Points of a series by their origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PointCounts {
    /// Windows of roll-ups.
    pub rolled_up: usize,
    /// Samples that were read.
    pub samples: usize,
}

/// Returns true if neighbours are one step apart.
fn is_even(times: &[i64], step_ms: i64) -> bool {
    let pairs = times.iter().zip(times.get(1..).unwrap_or_default());
    pairs.fold(true, |even, (before, after)| even & (after.wrapping_sub(*before) == step_ms))
}

/// Fills `slots`, the first of which is at `start_ms`, with the last value of each.
fn fill_slots(times: &[i64], values: &[f64], start_ms: i64, step_ms: i64, slots: &mut [f64]) {
    // Times ascend, so a step is left for good: no division per sample.
    let mut slots = slots.iter_mut();
    let mut slot = slots.next();
    let mut slot_end = start_ms.saturating_add(step_ms);
    for (time, value) in times.iter().zip(values) {
        while *time >= slot_end && slot.is_some() {
            slot = slots.next();
            slot_end = slot_end.saturating_add(step_ms);
        }
        match &mut slot {
            // Staleness markers of other protocols are no values.
            Some(slot) if !value.is_nan() => **slot = *value,
            Some(_) => {}
            None => break,
        }
    }
}

impl PointReader {
    /// Empty buffers; `reservation` grows with them.
    pub(super) fn new(reservation: Reservation) -> PointReader {
        PointReader { samples: Columns::default(), windows: RolledWindows::default(), reservation }
    }

    /// Reads all samples in `range` into the buffer.
    pub(super) fn read_samples(
        &mut self,
        source: &dyn SampleSource,
        range: TimeRange,
    ) -> Result<(), QueryError> {
        self.reserve(source.sample_count_hint())?;
        self.samples.clear();
        source.read(range, &mut self.samples)
    }

    fn reserve(&mut self, sample_count: usize) -> Result<(), BudgetExceeded> {
        let needed = sample_count as u64 * SAMPLE_BYTES;
        self.reservation.grow(needed.saturating_sub(self.reservation.bytes()))
    }

    /// Fills `out` with the last sample of each step.
    fn read_finest(
        &mut self,
        archive: &ChosenArchive,
        source: &dyn SampleSource,
        start_s: i64,
        out: &mut [f64],
    ) -> Result<PointCounts, QueryError> {
        let step_ms = archive.step_s.saturating_mul(1000);
        let start_ms = start_s.saturating_mul(1000);
        let end_ms = start_ms.saturating_add(step_ms.saturating_mul(out.len() as i64));
        self.read_samples(source, TimeRange::new(start_ms, end_ms))?;
        let Columns { times, values, .. } = &self.samples;
        for (times, values) in times.chunks(EVEN_SAMPLES).zip(values.chunks(EVEN_SAMPLES)) {
            let (Some(first_time), Some(first_value)) = (times.first(), values.first()) else { continue };
            let first = usize::try_from((first_time - start_ms).div_euclid(step_ms)).unwrap_or(0);
            let Some(slots) = out.get_mut(first..) else { break };
            // A NaN leaves its point as it is: empty, but for one that the samples before may have filled.
            let is_copied = is_even(times, step_ms) && !first_value.is_nan();
            match slots.get_mut(..values.len()).filter(|_| is_copied) {
                Some(slots) => slots.copy_from_slice(values),
                None => fill_slots(times, values, start_ms + step_ms * first as i64, step_ms, slots),
            }
        }
        Ok(PointCounts { rolled_up: 0, samples: self.samples.len() })
    }

    /// Fills `out`, whose first point is at `start_s`, with the points of an archive.
    pub(super) fn read_archive(
        &mut self,
        archive: &ChosenArchive,
        source: &dyn SampleSource,
        start_s: i64,
        out: &mut [f64],
    ) -> Result<PointCounts, QueryError> {
        if archive.slot_count() <= 1 {
            return self.read_finest(archive, source, start_s, out);
        }
        let Some(windows) = archive.windows() else { return Ok(PointCounts::default()) };
        let range_ms = archive.step_s.saturating_mul(1000).saturating_mul(out.len() as i64);
        let start_ms = start_s.saturating_mul(1000);
        let range = TimeRange::new(start_ms, start_ms.saturating_add(range_ms));
        let mut read = RollupRead::new(windows.methods);
        source.read_rollup(&windows, range, &mut read)?;
        let read = RollupRead::merged(&windows, vec![read]);
        archive.fill(&read.windows, start_s, out);
        let mut counts = PointCounts { rolled_up: read.windows.len(), samples: 0 };
        for raw in &read.raw {
            // Samples are about evenly spread.
            let part = (raw.end - raw.start) as f64 / range_ms.max(1) as f64;
            self.reserve((source.sample_count_hint() as f64 * part.min(1.0)) as usize)?;
            self.samples.clear();
            source.read(*raw, &mut self.samples)?;
            counts.samples += self.samples.len();
            if self.windows.methods() != windows.methods {
                self.windows = RolledWindows::new(windows.methods);
            }
            self.windows.clear();
            windows.roll_up(&self.samples, &mut self.windows);
            archive.fill(&self.windows, start_s, out);
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests;
