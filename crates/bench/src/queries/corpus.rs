//! The series that are queried, and their values.
//!
//! Invariants: a value is a function of series and step, so that every server gets the same without
//! storing it; counters are whole numbers and only rise. Samples lie 15 s apart, half a second off every
//! second: no step of a query or subquery meets one, so that servers agree about which samples are in a
//! window, whether they count its first moment or not.
//! Not here: sending (`feed`).

use crate::traffic::mix;

/// Distance of samples.
pub(super) const STEP_MS: i64 = 15_000;
/// Offset of the samples from multiples of their distance.
const OFF_SECONDS_MS: i64 = 3_500;
/// Lifetime of a series of the churned metric, in steps.
const CHURN_LIFE_STEPS: usize = 40;
const BOUNDS: [&str; 10] = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "+Inf"];
const HANDLERS: [&str; 5] = ["/api/query", "/api/write", "/login", "/static", "/health"];
const CODES: [&str; 4] = ["200", "404", "500", "503"];

/// Family of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// `http_requests_total`: counters by instance, handler and code.
    Requests,
    /// `http_request_duration_seconds_bucket`: ten bounds an instance.
    Latency,
    /// `unique_requests`: a gauge for every value of `path`.
    Unique,
    /// `pod_memory_bytes`: gauges that live ten minutes each, one after the other.
    Churned,
    /// `node_info`: 1, one an instance.
    Info,
    /// `object_reads`: gauges, each with a value of `path` of its own, all of them alive.
    Objects,
}

/// Series and the time they cover.
#[derive(Debug, Clone)]
pub(super) struct Corpus {
    pub(super) name: &'static str,
    pub(super) start_ms: i64,
    pub(super) step_count: usize,
    families: Vec<(Family, usize)>,
}

impl Corpus {
    /// Many series for three hours: four in ten have a value of `path` of their own, the rest is what
    /// services write.
    pub(super) fn wide(series_count: usize, end_ms: i64) -> Corpus {
        let share = |part: usize| (series_count * part / 100).max(10);
        let families = vec![
            (Family::Requests, share(30)),
            (Family::Latency, share(15)),
            (Family::Unique, share(40)),
            (Family::Churned, share(13)),
            (Family::Info, share(2)),
        ];
        Corpus::new("wide", 3 * 3_600_000, end_ms, families)
    }

    /// Few series for many days.
    pub(super) fn long(series_count: usize, days: i64, end_ms: i64) -> Corpus {
        let families = vec![
            (Family::Requests, (series_count / 2).max(10)),
            (Family::Latency, (series_count / 2).max(10)),
        ];
        Corpus::new("long", days * 86_400_000, end_ms, families)
    }

    /// Series of services as scraped during the last 25 minutes: all samples are in the head.
    pub(super) fn head(series_count: usize, end_ms: i64) -> Corpus {
        let share = |part: usize| (series_count * part / 100).max(10);
        let families = vec![
            (Family::Requests, share(48)),
            (Family::Latency, share(30)),
            (Family::Unique, share(20)),
            (Family::Info, share(2)),
        ];
        Corpus::new("head", 25 * 60_000, end_ms, families)
    }

    /// Series of graphs, half of them counters, half gauges of noisy values.
    pub(super) fn graphs(name: &'static str, series_count: usize, span_ms: i64, end_ms: i64) -> Corpus {
        let share = (series_count / 2).max(10);
        Corpus::new(name, span_ms, end_ms, vec![(Family::Requests, share), (Family::Unique, share)])
    }

    /// One minute in which every series has a label value of its own: the cost of searching the values is
    /// measured, not the cost of reading samples.
    pub(super) fn values(series_count: usize, end_ms: i64) -> Corpus {
        Corpus::new("values", 60_000, end_ms, vec![(Family::Objects, series_count.max(10))])
    }

    fn new(name: &'static str, span_ms: i64, end_ms: i64, families: Vec<(Family, usize)>) -> Corpus {
        let step_count = (span_ms / STEP_MS) as usize;
        let start_ms = (end_ms - span_ms).div_euclid(STEP_MS) * STEP_MS + OFF_SECONDS_MS;
        Corpus { name, start_ms, step_count, families }
    }

    pub(super) fn series_count(&self) -> usize {
        self.families.iter().map(|(_, count)| count).sum()
    }

    pub(super) fn time_ms(&self, step: usize) -> i64 {
        self.start_ms + step as i64 * STEP_MS
    }

    /// The last time with samples.
    pub(super) fn end_ms(&self) -> i64 {
        self.time_ms(self.step_count - 1)
    }

    /// Number of instances with an info metric.
    pub(super) fn instance_count(&self) -> usize {
        self.families.iter().find(|(family, _)| *family == Family::Info).map_or(0, |(_, count)| *count)
    }

    /// Family and place in it of a series.
    fn place(&self, series: usize) -> (Family, usize) {
        let mut left = series;
        for &(family, count) in &self.families {
            if left < count {
                return (family, left);
            }
            left -= count;
        }
        panic!("series {series} of {}", self.series_count());
    }

    /// Labels at `step`, sorted by name.
    pub(super) fn labels(&self, series: usize, step: usize) -> Vec<(&'static str, String)> {
        let (family, at) = self.place(series);
        let instance = |idx: usize| format!("10.0.{}.{}:9100", idx / 250, idx % 250);
        let job = |idx: usize| format!("service-{:02}", idx % 20);
        match family {
            Family::Requests => {
                let kind = at % 20;
                let owner = at / 20;
                vec![
                    ("__name__", "http_requests_total".to_owned()),
                    ("code", CODES[kind % 4].to_owned()),
                    ("handler", HANDLERS[kind / 4].to_owned()),
                    ("instance", instance(owner)),
                    ("job", job(owner)),
                ]
            }
            Family::Latency => vec![
                ("__name__", "http_request_duration_seconds_bucket".to_owned()),
                ("instance", instance(at / BOUNDS.len())),
                ("job", job(at / BOUNDS.len())),
                ("le", BOUNDS[at % BOUNDS.len()].to_owned()),
            ],
            Family::Unique => vec![
                ("__name__", "unique_requests".to_owned()),
                ("job", job(at)),
                ("path", format!("/v1/objects/{:08x}/{at}", mix(at as u64) as u32)),
            ],
            Family::Churned => vec![
                ("__name__", "pod_memory_bytes".to_owned()),
                ("job", job(at)),
                ("pod", format!("worker-{at}-{}", step / CHURN_LIFE_STEPS)),
            ],
            Family::Info => vec![
                ("__name__", "node_info".to_owned()),
                ("instance", instance(at)),
                ("version", format!("1.{}.{}", at % 7, at % 3)),
            ],
            Family::Objects => vec![
                ("__name__", "object_reads".to_owned()),
                ("job", job(at)),
                ("path", format!("/v1/objects/{:08x}/{at}", mix(at as u64) as u32)),
            ],
        }
    }

    /// Steps from `step` on in which a series keeps its labels.
    pub(super) fn steady_steps(&self, series: usize, step: usize) -> usize {
        match self.place(series).0 {
            Family::Churned => CHURN_LIFE_STEPS - step % CHURN_LIFE_STEPS,
            _ => self.step_count - step,
        }
    }

    /// Value at `step`.
    pub(super) fn value(&self, series: usize, step: usize) -> f64 {
        let (family, at) = self.place(series);
        let noise = mix((series as u64) << 32 | step as u64);
        match family {
            // A rise of at least one each step, whatever the noise.
            Family::Requests => (step as u64 * (500 + mix(at as u64) % 100_000) + noise % 5) as f64,
            Family::Latency => {
                let owner = at / BOUNDS.len();
                let bound = at % BOUNDS.len();
                // Each bound counts all lower ones; the noise depends on the instance.
                let noise = mix((owner as u64) << 32 | step as u64) % 5;
                ((step as u64 * (10 + mix(owner as u64) % 20) + noise) * (bound as u64 + 1)) as f64
            }
            Family::Unique | Family::Churned | Family::Objects => (noise % 1_000_000) as f64 / 100.0,
            Family::Info => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn series_are_distinct_and_counters_rise() {
        let corpus = Corpus::wide(1000, 1_800_000_000_000);
        let mut seen = HashSet::new();
        for series in 0..corpus.series_count() {
            let labels = corpus.labels(series, 0);
            assert!(labels.is_sorted_by(|a, b| a.0 < b.0), "{labels:?}");
            assert!(seen.insert(labels.clone()), "{labels:?}");
            if labels[0].1.ends_with("_total") || labels[0].1.ends_with("_bucket") {
                assert!(
                    (1..100).all(|k| corpus.value(series, k) >= corpus.value(series, k - 1)),
                    "{labels:?}"
                );
            }
        }
        assert_eq!(corpus.step_count, 720);
        assert_eq!(corpus.end_ms() % 1000, 500);
    }

    #[test]
    fn the_head_corpus_is_within_one_window_of_two_hours() {
        let corpus = Corpus::head(1000, 1_800_000_000_000);
        assert_eq!((corpus.series_count(), corpus.step_count, corpus.instance_count()), (1000, 100, 20));
    }

    #[test]
    fn each_object_has_a_path_of_its_own() {
        let corpus = Corpus::values(3000, 1_800_000_000_000);
        let paths: HashSet<String> = (0..3000).map(|series| corpus.labels(series, 0)[2].1.clone()).collect();
        assert_eq!((paths.len(), corpus.step_count, corpus.series_count()), (3000, 4, 3000));
    }

    #[test]
    fn churned_series_change_their_name_every_ten_minutes() {
        let corpus = Corpus::wide(1000, 1_800_000_000_000);
        let churned = (0..corpus.series_count()).find(|&s| corpus.labels(s, 0)[0].1 == "pod_memory_bytes");
        let churned = churned.expect("there are some");
        assert_eq!(corpus.labels(churned, 0), corpus.labels(churned, 39));
        assert_ne!(corpus.labels(churned, 39), corpus.labels(churned, 40));
        assert_eq!((corpus.steady_steps(churned, 0), corpus.steady_steps(churned, 79)), (40, 1));
    }
}
