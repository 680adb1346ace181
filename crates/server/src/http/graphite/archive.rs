//! Archives of a path by its schema: which one answers a range, and its points from raw ones.
//!
//! Invariants: as in whisper, the finest archive that covers the time since the start of the range answers
//! it, and nothing before the coarsest one is returned. A point of an archive is what its method makes of all
//! raw points in its interval; of several raw points in an interval of the finest archive the last counts.
//! Not here: rules (`ingest::carbon`), reading of points (`source`).

use chronolith_graphite::Consolidation;
use chronolith_graphite::storage::FetchRequest;
use chronolith_ingest::carbon::{AggregationMethod, Archive, X_FILES_FACTOR_DEFAULT};
use chronolith_model::Columns;

use crate::carbon::rules::PathRules;

/// Archive that answers a range of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChosenArchive {
    /// Seconds per point.
    pub(super) step_s: i64,
    /// Seconds per point of the finest archive.
    pub(super) fine_step_s: i64,
    pub(super) method: AggregationMethod,
    /// Part of the points of the finest archive that a point needs.
    pub(super) x_files_factor: f64,
    /// The range, cut to the time that the archives cover. Exclusive start and inclusive end, in seconds.
    pub(super) from_s: i64,
    pub(super) until_s: i64,
}

/// Returns the archive of `path` for a range; `None` if no schema applies to it. Of those that cover the
/// range it is the finest with at most `points_max` points, or else the coarsest.
pub(super) fn choose(
    rules: &PathRules,
    path: &str,
    request: &FetchRequest,
    now_s: i64,
    points_max: u64,
) -> Option<ChosenArchive> {
    let schema = rules.schemas().match_path(path)?;
    let archives = schema.archives();
    let finest = archives.first()?;
    let coarsest = archives.last()?;
    let oldest_s = now_s.saturating_sub(to_i64(coarsest.retention_s()));
    let from_s = request.from.max(oldest_s);
    let range_s = u64::try_from(request.until.saturating_sub(from_s)).unwrap_or(0);
    let answers = |archive: &Archive| {
        now_s.saturating_sub(from_s) <= to_i64(archive.retention_s())
            && range_s / u64::from(archive.step_s) <= points_max
    };
    let chosen = archives.iter().find(|archive| answers(archive)).unwrap_or(coarsest);
    let rule = rules.aggregations().match_path(path);
    let kept = rule.map_or(&[AggregationMethod::Average][..], |rule| rule.methods());
    Some(ChosenArchive {
        step_s: i64::from(chosen.step_s),
        fine_step_s: i64::from(finest.step_s),
        method: method_of(kept, request.consolidation_hint.as_ref()),
        x_files_factor: rule.map_or(X_FILES_FACTOR_DEFAULT, |rule| rule.x_files_factor()),
        from_s,
        until_s: request.until,
    })
}

/// Returns the method that was asked for if it is kept, else the first.
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
    let is_kept = |method: &AggregationMethod| kept.contains(method);
    asked.filter(is_kept).or_else(|| kept.first().copied()).unwrap_or(AggregationMethod::Average)
}

fn to_i64(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Fills `out`, whose first point is at `start_s`, with the points of an archive.
pub(super) fn fill(archive: &ChosenArchive, columns: &Columns, start_s: i64, out: &mut [f64]) {
    let mut interval = Interval::default();
    let mut current = None;
    let first = columns.times.partition_point(|time| *time < start_s.saturating_mul(1000));
    for (time, value) in columns.times.iter().zip(&columns.values).skip(first) {
        let time_s = time.div_euclid(1000);
        let idx = (time_s - start_s).div_euclid(archive.step_s);
        let Some(idx) = usize::try_from(idx).ok().filter(|idx| *idx < out.len()) else { break };
        // Staleness markers of other protocols are no values.
        if value.is_nan() {
            continue;
        }
        if let Some(done) = current.filter(|done| *done != idx) {
            put(archive, &mut interval, out, done);
        }
        current = Some(idx);
        interval.push(time_s.div_euclid(archive.fine_step_s), *value);
    }
    if let Some(done) = current {
        put(archive, &mut interval, out, done);
    }
}

/// Ends an interval: stores its point and empties it.
fn put(archive: &ChosenArchive, interval: &mut Interval, out: &mut [f64], idx: usize) {
    let slot_count = archive.step_s / archive.fine_step_s;
    let known = interval.values.len() as f64 / slot_count as f64;
    if let Some(slot) = out.get_mut(idx).filter(|_| slot_count <= 1 || known >= archive.x_files_factor) {
        *slot = point(archive.method, &interval.values, slot_count);
    }
    interval.values.clear();
    interval.last_slot = None;
}

/// Raw points of one interval of an archive.
#[derive(Default)]
struct Interval {
    values: Vec<f64>,
    last_slot: Option<i64>,
}

impl Interval {
    /// Adds a point of the finest archive, or replaces that of the same slot.
    fn push(&mut self, slot: i64, value: f64) {
        if self.last_slot.replace(slot) == Some(slot) {
            self.values.pop();
        }
        self.values.push(value);
    }
}

/// Returns what a method makes of the points of an interval that has `slot_count` slots, ascending.
fn point(method: AggregationMethod, values: &[f64], slot_count: i64) -> f64 {
    let sum = || values.iter().fold(0.0, |sum, value| sum + value);
    let best = |is_better: fn(f64, f64) -> bool| {
        values.iter().copied().reduce(|best, value| if is_better(value, best) { value } else { best })
    };
    match method {
        AggregationMethod::Average => sum() / values.len() as f64,
        AggregationMethod::AverageZero => sum() / slot_count as f64,
        AggregationMethod::Sum => sum(),
        AggregationMethod::Count => values.len() as f64,
        AggregationMethod::Max => best(|value, best| value > best).unwrap_or(f64::NAN),
        AggregationMethod::Min => best(|value, best| value < best).unwrap_or(f64::NAN),
        AggregationMethod::AbsMax => best(|value, best| value.abs() > best.abs()).unwrap_or(f64::NAN),
        AggregationMethod::AbsMin => best(|value, best| value.abs() < best.abs()).unwrap_or(f64::NAN),
        AggregationMethod::First => values.first().copied().unwrap_or(f64::NAN),
        AggregationMethod::Last => values.last().copied().unwrap_or(f64::NAN),
    }
}

#[cfg(test)]
mod tests;
