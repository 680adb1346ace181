//! Counts of the points of a file per series and field, and their comparison with what the target has.
//!
//! Invariants: a point that a file has twice is one point, so each count is a range: points that are
//! certainly distinct, and lines. Memory is bounded by [`SERIES_COUNT_MAX`].
//! Not here: counts of a server (`count`).

use std::collections::{BTreeMap, BTreeSet};

use chronolith_base::hash::HashMap;
use chronolith_ingest::line_protocol::parse_labels;
use chronolith_model::{
    FIELD_LABEL, KIND_LABEL, Labels, LabelsBuilder, METRIC_NAME, SeriesKey, WordKind, WriteBatch,
};

use super::count::{SeriesCounts, count_points};
use super::line;
use super::report::Report;
use super::server::{InfluxServer, PolicyName};
use super::time::Period;

/// Fields of series that are counted at most.
const SERIES_COUNT_MAX: usize = 2_000_000;
/// Runs of ascending times of a series that are kept apart.
const RUN_COUNT_MAX: usize = 16;

/// Times of the points of one field of a series.
#[derive(Debug, Default)]
struct PointTimes {
    line_count: u64,
    /// Lines whose time may have been there before.
    ambiguous_count: u64,
    /// First and last time of the run of ascending times that goes on.
    run: Option<(i64, i64)>,
    /// Runs before it.
    ended: Vec<(i64, i64)>,
}

impl PointTimes {
    fn add(&mut self, time_ns: i64) {
        self.line_count += 1;
        let Some((first, last)) = self.run else {
            self.run = Some((time_ns, time_ns));
            return;
        };
        let contains = |(first, last): &(i64, i64)| (*first..=*last).contains(&time_ns);
        if contains(&(first, last)) || self.ended.iter().any(contains) {
            self.ambiguous_count += 1;
            return;
        }
        let is_free = |(start, _): &(i64, i64)| !(last..time_ns).contains(start);
        if time_ns > last && self.ended.iter().all(is_free) {
            self.run = Some((first, time_ns));
            return;
        }
        self.ended.push((first, last));
        if self.ended.len() > RUN_COUNT_MAX {
            let first = self.ended.iter().map(|run| run.0).min().unwrap_or(first);
            let last = self.ended.iter().map(|run| run.1).max().unwrap_or(last);
            self.ended = vec![(first, last)];
        }
        self.run = Some((time_ns, time_ns));
    }
}

/// Counts of one retention policy.
#[derive(Default)]
struct PolicyCounts {
    /// By measurement and tags, after their length as 4 bytes, and the field, all as sent.
    series: HashMap<Box<[u8]>, PointTimes>,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
}

/// Counts of a file.
#[derive(Default)]
pub(crate) struct FileCounts {
    policies: BTreeMap<PolicyName, PolicyCounts>,
    series_count: usize,
    /// Set if there were more series than are counted.
    is_cut: bool,
}

/// Least and greatest number of points that one field of a series can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CountRange {
    min: u64,
    max: u64,
}

/// Ranges by measurement, then by key of the series and field.
type Expected = BTreeMap<String, BTreeMap<(Vec<u8>, Vec<u8>), CountRange>>;

impl FileCounts {
    /// Counts the points of a batch.
    pub(crate) fn add(&mut self, target: &PolicyName, batch: &WriteBatch) {
        if !self.policies.contains_key(target) {
            self.policies.insert(target.clone(), PolicyCounts::default());
        }
        let Some(counts) = self.policies.get_mut(target) else { return };
        let mut key = Vec::new();
        for (idx, series) in batch.series.iter().enumerate() {
            key.clear();
            let raw = batch.raw_of(series);
            key.extend_from_slice(&(raw.len() as u32).to_le_bytes());
            key.extend_from_slice(raw);
            key.extend_from_slice(batch.field_of(idx));
            let times = batch.times.get(series.samples.start as usize..series.samples.end as usize);
            for &time_ns in times.unwrap_or(&[]) {
                counts.first_ns = Some(counts.first_ns.map_or(time_ns, |first| first.min(time_ns)));
                counts.last_ns = Some(counts.last_ns.map_or(time_ns, |last| last.max(time_ns)));
                if let Some(found) = counts.series.get_mut(&*key) {
                    found.add(time_ns);
                } else if self.series_count < SERIES_COUNT_MAX {
                    self.series_count += 1;
                    let mut first = PointTimes::default();
                    first.add(time_ns);
                    counts.series.insert(key.clone().into_boxed_slice(), first);
                } else {
                    self.is_cut = true;
                }
            }
        }
    }

    /// Compares the counts with the counts of the target.
    pub(crate) fn compare(self, server: &InfluxServer, report: &mut Report) -> anyhow::Result<()> {
        if self.is_cut {
            let text = format!("only {SERIES_COUNT_MAX} fields of series were compared, the file has more");
            report.notes.push(text);
        }
        let mut compared_count = 0;
        let mut ambiguous_count = 0;
        for (target, counts) in self.policies {
            let (Some(first_ns), Some(last_ns)) = (counts.first_ns, counts.last_ns) else { continue };
            let period = Period { first_ns, last_ns };
            for (measurement, expected) in expected(&counts) {
                let found = count_points(server, &target, &measurement, period)?;
                compared_count += expected.len() as u64;
                ambiguous_count += expected.values().filter(|range| range.min < range.max).count();
                compare_measurement(&target, &expected, &found, report);
            }
        }
        report.compared = Some(compared_count);
        if ambiguous_count > 0 {
            let text = format!(
                "{ambiguous_count} fields of series have lines with times in no order, of which some may be equal: \
                 their counts were compared with a lower and an upper bound"
            );
            report.notes.push(text);
        }
        Ok(())
    }
}

/// Returns the counts by the names that a server reports.
fn expected(counts: &PolicyCounts) -> Expected {
    let mut expected = Expected::new();
    let mut builder = LabelsBuilder::new();
    for (key, times) in &counts.series {
        let Some((raw_bytes, key)) = key.split_first_chunk() else { continue };
        let Some((raw, field)) = key.split_at_checked(u32::from_le_bytes(*raw_bytes) as usize) else {
            continue;
        };
        builder.clear();
        let series_key = SeriesKey { raw, field, kind: WordKind::Float };
        if parse_labels(series_key, &mut builder).is_err() {
            continue;
        }
        builder.sort();
        let labels = builder.finish();
        let range = CountRange { min: times.line_count - times.ambiguous_count, max: times.line_count };
        let measurement = labels.metric_name().unwrap_or("").to_owned();
        let name = (key_of(&labels), labels.get(FIELD_LABEL).unwrap_or("").as_bytes().to_vec());
        // Two spellings of one series may have the same points.
        let all =
            expected.entry(measurement).or_default().entry(name).or_insert(CountRange { min: 0, max: 0 });
        *all = CountRange { min: all.min.max(range.min), max: all.max + range.max };
    }
    expected
}

/// Returns the key of the series, as `count::series_key` does.
fn key_of(labels: &Labels) -> Vec<u8> {
    let mut key = Vec::new();
    line::put_measurement(labels.metric_name().unwrap_or("").as_bytes(), &mut key);
    let is_tag = |name: &str| !matches!(name, METRIC_NAME | FIELD_LABEL | KIND_LABEL);
    for (name, value) in labels.iter().filter(|(name, _)| is_tag(name)) {
        line::put_tag(name.as_bytes(), value.as_bytes(), &mut key);
    }
    key
}

fn compare_measurement(
    target: &PolicyName,
    expected: &BTreeMap<(Vec<u8>, Vec<u8>), CountRange>,
    found: &SeriesCounts,
    report: &mut Report,
) {
    let mut names: BTreeSet<(Vec<u8>, Vec<u8>)> = expected.keys().cloned().collect();
    for (key, fields) in found {
        names.extend(fields.keys().map(|field| (key.clone(), field.clone())));
    }
    for name in names {
        let (key, field) = &name;
        let range = expected.get(&name).copied().unwrap_or(CountRange { min: 0, max: 0 });
        let count = found.get(key).and_then(|fields| fields.get(field)).copied().unwrap_or(0);
        if (range.min..=range.max).contains(&count) {
            continue;
        }
        report.differences.add(1, || {
            let source = match range.min == range.max {
                true => range.max.to_string(),
                false => format!("{} to {}", range.min, range.max),
            };
            difference(target, key, field, &source, count)
        });
    }
}

/// Words a difference of counts.
pub(crate) fn difference(
    target: &PolicyName,
    key: &[u8],
    field: &[u8],
    source: &str,
    found_count: u64,
) -> String {
    let PolicyName { database, policy } = target;
    let key = String::from_utf8_lossy(key);
    let field = String::from_utf8_lossy(field);
    format!("{database}.{policy}: {key} {field}: source {source}, target {found_count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(times: &[i64]) -> (u64, u64) {
        let mut points = PointTimes::default();
        times.iter().for_each(|time| points.add(*time));
        (points.line_count - points.ambiguous_count, points.line_count)
    }

    #[test]
    fn distinct_times_are_told_from_repeated_ones() {
        assert_eq!(counted(&[1, 2, 3]), (3, 3));
        assert_eq!(counted(&[1, 2, 2]), (2, 3));
        assert_eq!(counted(&[10, 11, 1, 2, 3]), (5, 5), "a shard before another");
        assert_eq!(counted(&[10, 12, 1, 2, 11]), (4, 5), "within a run that ended");
        assert_eq!(counted(&[10, 11, 1, 20, 21]), (5, 5), "a run over another one");
        assert_eq!(counted(&[10, 20, 1, 15, 30, 25]), (5, 6));
        let descending: Vec<i64> = (0..100).rev().collect();
        let (min, max) = counted(&descending);
        assert!(min >= 1 && min <= max && max == 100, "{min}");
    }
}
