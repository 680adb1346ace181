//! Archives of a file from the points of a series: each archive is made of the next finer one, as carbon
//! does it while points arrive.
//!
//! A step has the last of its points in the finest archive. A coarser one has a point if the finer one has
//! enough points in its interval (xFilesFactor), and also for a single point at the very start of the
//! interval: older points of a store come from coarse archives, so they are few in the fine ones.
//! Invariants: points ascend; only times that an archive keeps are in it.
//! Not here: the bytes of a file (`file`).

use chronolith_ingest::carbon::{AggregationMethod, Archive};

use super::file::FileBuilder;

/// Milliseconds per second: times are seconds in files.
const MS: i64 = 1000;

/// Archives and method of a file to make.
#[derive(Debug, Clone, PartialEq)]
pub struct FileLayout {
    /// Archives, the finest first, their steps ascending and multiples of one another.
    pub archives: Vec<Archive>,
    /// Method of all archives but the first.
    pub method: AggregationMethod,
    /// Part of the points that must be there, 0 to 1.
    pub x_files_factor: f64,
}

/// A point of an archive: time in seconds and value.
type Point = (i64, f64);

impl FileLayout {
    /// Returns the bytes of the file of a series, and how many points are too old for it. Times are in
    /// milliseconds and ascend; `now_s` is the clock, of which archives keep their retention. `None` for a
    /// method that whisper does not have.
    #[must_use]
    pub fn build(&self, times: &[i64], values: &[f64], now_s: i64) -> Option<(Vec<u8>, u64)> {
        let mut builder = FileBuilder::new(self.method, self.x_files_factor as f32, &self.archives)?;
        let mut points: Vec<Point> = Vec::new();
        let mut step_s = 0;
        for (idx, archive) in self.archives.iter().enumerate() {
            points = match idx {
                0 => last_of_steps(times, values, i64::from(archive.step_s)),
                _ => self.coarser(&points, step_s, i64::from(archive.step_s)),
            };
            step_s = i64::from(archive.step_s);
            let kept = kept(archive, now_s);
            let in_file = points.iter().filter(|point| kept.contains(&point.0));
            builder
                .put_points(idx, in_file.filter_map(|point| Some((u32::try_from(point.0).ok()?, point.1))));
        }
        let oldest_s = self.archives.last().map_or(i64::MAX, |archive| *kept(archive, now_s).start());
        let too_old = times.partition_point(|time| *time < oldest_s.saturating_mul(MS));
        Some((builder.into_bytes(), too_old as u64))
    }

    /// Makes the points of a coarser archive.
    fn coarser(&self, points: &[Point], fine_s: i64, coarse_s: i64) -> Vec<Point> {
        let start_of = |time_s: i64| time_s - time_s.rem_euclid(coarse_s);
        let expected = (coarse_s / fine_s.max(1)).max(1) as f64;
        let mut made = Vec::new();
        for of_interval in points.chunk_by(|a, b| start_of(a.0) == start_of(b.0)) {
            let Some(first) = of_interval.first() else { continue };
            let start_s = start_of(first.0);
            let is_coarse = of_interval.len() == 1 && first.0 == start_s;
            if is_coarse {
                made.push(*first);
            } else if of_interval.len() as f64 / expected >= self.x_files_factor {
                made.push((start_s, aggregate(self.method, of_interval, expected)));
            }
        }
        made
    }
}

/// Times that an archive keeps.
fn kept(archive: &Archive, now_s: i64) -> std::ops::RangeInclusive<i64> {
    let step_s = i64::from(archive.step_s);
    let last_s = now_s - now_s.rem_euclid(step_s);
    // The time 0 is an empty slot.
    (last_s - (i64::from(archive.point_count) - 1) * step_s).max(1)..=last_s
}

/// Last value of each step, at the start of the step.
fn last_of_steps(times: &[i64], values: &[f64], step_s: i64) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for (time, value) in times.iter().zip(values) {
        let time_s = time.div_euclid(MS);
        let time_s = time_s - time_s.rem_euclid(step_s);
        match points.last_mut().filter(|last| last.0 == time_s) {
            Some(last) => last.1 = *value,
            None => points.push((time_s, *value)),
        }
    }
    points
}

/// Returns the value of an interval; `points` are not empty.
fn aggregate(method: AggregationMethod, points: &[Point], expected: f64) -> f64 {
    let values = points.iter().map(|point| point.1);
    let sum = || values.clone().sum::<f64>();
    let first_by = |is_better: &dyn Fn(f64, f64) -> bool| {
        // The first of equal values, as Python's max and min.
        values.clone().reduce(|best, value| if is_better(value, best) { value } else { best })
    };
    let found = match method {
        AggregationMethod::Average => Some(sum() / points.len() as f64),
        AggregationMethod::AverageZero => Some(sum() / expected),
        AggregationMethod::Sum => Some(sum()),
        AggregationMethod::Count => Some(points.len() as f64),
        AggregationMethod::First => values.clone().next(),
        AggregationMethod::Last => values.clone().next_back(),
        AggregationMethod::Max => first_by(&|value, best| value > best),
        AggregationMethod::Min => first_by(&|value, best| value < best),
        AggregationMethod::AbsMax => first_by(&|value, best| value.abs() > best.abs()),
        AggregationMethod::AbsMin => first_by(&|value, best| value.abs() < best.abs()),
    };
    found.unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whisper::{FilePoints, TimeSelection};

    const NOW_S: i64 = 1_000_000_019;

    /// Builds a file of 10 s and 1 min archives, and reads each archive of it.
    #[track_caller]
    fn check(method: AggregationMethod, points: &[(i64, f64)], want: &str) {
        let layout = FileLayout {
            archives: vec![Archive { step_s: 10, point_count: 6 }, Archive { step_s: 60, point_count: 5 }],
            method,
            x_files_factor: 0.5,
        };
        let times: Vec<i64> = points.iter().map(|point| point.0 * MS + 999).collect();
        let values: Vec<f64> = points.iter().map(|point| point.1).collect();
        let (bytes, too_old) = layout.build(&times, &values, NOW_S).expect("a method of whisper");
        let mut read = FilePoints::default();
        read.read(&bytes, NOW_S, TimeSelection::ALL).unwrap();
        let coarse_start = 16 + 2 * 12 + 6 * 12;
        let coarse = bytes[coarse_start..].chunks(12).filter_map(|slot| {
            let time_s = i64::from(u32::from_be_bytes(slot[..4].try_into().unwrap()));
            let value = f64::from_be_bytes(slot[4..].try_into().unwrap());
            (time_s != 0).then(|| format!("{}={value}", time_s - NOW_S))
        });
        let fine = read.times.iter().zip(&read.values).filter(|(time, _)| **time / MS > NOW_S - 69);
        let fine = fine.map(|(time, value)| format!("{}={value}", time / MS - NOW_S));
        let fine: Vec<String> = fine.collect();
        let mut coarse: Vec<String> = coarse.collect();
        coarse.sort();
        assert_eq!(format!("{} | {} | {too_old}", fine.join(" "), coarse.join(" ")), want);
    }

    /// 1,000,000,000 is 40 s into its minute, which begins 59 s before [`NOW_S`].
    #[test]
    fn archives_are_made_of_finer_ones() {
        let points = [(-59, 1.0), (-49, -5.0), (-42, 2.0), (-39, 3.0), (-9, 4.0)];
        let points = points.map(|(before, value)| (NOW_S + before, value));
        let fine = "-49=2 -39=3 -9=4";
        let want = |coarse: &str| format!("-59=1 {fine} | -59={coarse} | 0");
        for (method, coarse) in [
            (AggregationMethod::Average, "2.5"),
            (AggregationMethod::Sum, "10"),
            (AggregationMethod::Last, "4"),
            (AggregationMethod::Max, "4"),
            (AggregationMethod::Min, "1"),
            (AggregationMethod::AbsMax, "4"),
            (AggregationMethod::AbsMin, "1"),
        ] {
            check(method, &points, &want(coarse));
        }
    }

    #[test]
    fn few_points_make_no_coarser_one_but_coarse_points_stay() {
        let two = [(NOW_S - 49, 1.0), (NOW_S - 39, 2.0)];
        check(AggregationMethod::Average, &two, "-49=1 -39=2 |  | 0");
        let coarse = [(NOW_S - 59 - 300, 9.0), (NOW_S - 59 - 240, 7.0), (NOW_S - 59 - 60, 8.0)];
        check(AggregationMethod::Average, &coarse, " | -119=8 -299=7 | 1");
    }
}
