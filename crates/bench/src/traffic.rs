//! The series of the load and how their values move: half counters, half gauges with two decimals.
//! Invariants: reproducible; the same series and values for every server.

use std::ops::Range;

use crate::body::Body;

/// Time between two samples of a series.
pub(crate) const STEP_MS: i64 = 15_000;
/// Selects the series of the load and none of those that a server writes about itself.
pub(crate) const SELECTOR: &str = "{cluster=\"bench-eu-1\"}";

/// Series of one pod: the metrics, some of them by mode.
pub(crate) const POD_SERIES: usize = 500;
const METRIC_COUNT: usize = 200;
/// Values of the label `namespace`, dealt to pods in turn.
pub(crate) const NAMESPACES: [&str; 8] = [
    "default",
    "kube-system",
    "monitoring",
    "checkout",
    "payments",
    "search-frontend",
    "catalogue",
    "batch-jobs",
];
const MODES: [&str; 3] = ["user", "system", "iowait"];
const SUBSYSTEMS: [&str; 10] = [
    "node_cpu",
    "node_disk",
    "node_network",
    "container_memory",
    "container_fs",
    "http_server",
    "http_client",
    "go_memstats",
    "process",
    "kubelet_runtime",
];
const SUFFIXES: [&str; 5] = ["seconds", "bytes", "requests", "errors", "operations"];

/// The ten labels of a series, sorted by name.
pub(crate) fn labels(series_idx: usize) -> [(&'static str, String); 10] {
    let pod = series_idx / POD_SERIES;
    let within = series_idx % POD_SERIES;
    let metric = within % METRIC_COUNT;
    let mode = within / METRIC_COUNT;
    let namespace = NAMESPACES[pod % NAMESPACES.len()];
    let hash = mix(pod as u64);
    let kind = if is_counter(series_idx) { "total" } else { "current" };
    let subsystem = SUBSYSTEMS[metric % SUBSYSTEMS.len()];
    let suffix = SUFFIXES[metric / SUBSYSTEMS.len() % SUFFIXES.len()];
    [
        ("__name__", format!("{subsystem}_{suffix}_{}_{kind}", metric / 50)),
        ("cluster", "bench-eu-1".to_owned()),
        ("container", format!("{namespace}-server")),
        (
            "id",
            format!(
                "/kubepods/burstable/pod{:08x}-{:04x}-{:04x}",
                hash >> 32,
                hash >> 16 & 0xffff,
                hash & 0xffff
            ),
        ),
        ("instance", instance(pod)),
        ("job", format!("kubernetes-{namespace}")),
        // Tells series of a pod apart when a query has dropped their names.
        ("mode", format!("{}{metric}", MODES[mode])),
        ("namespace", namespace.to_owned()),
        ("pod", format!("{namespace}-server-{:08x}-{:05x}", hash as u32, hash >> 44)),
        ("region", "eu-central-1".to_owned()),
    ]
}

/// Value of the label `instance`, which all series of a pod share and no others.
fn instance(pod: usize) -> String {
    format!("10.{}.{}.{}:9100", pod >> 16 & 255, pod >> 8 & 255, pod & 255)
}

/// Selects the pods of the series from `first_idx` to before `end`, which has to be where a pod ends.
pub(crate) fn pods_selector(first_idx: usize, end: usize) -> String {
    let pods = first_idx / POD_SERIES..end.div_ceil(POD_SERIES);
    let instances: Vec<String> = pods.map(|pod| instance(pod).replace('.', "\\\\.")).collect();
    format!("{{cluster=\"bench-eu-1\",instance=~\"{}\"}}", instances.join("|"))
}

/// Selects one series.
pub(crate) fn series_selector(series_idx: usize) -> String {
    let labels = labels(series_idx);
    let matchers: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", matchers.join(","))
}

/// Returns true if the series is a counter.
fn is_counter(series_idx: usize) -> bool {
    series_idx.is_multiple_of(2)
}

/// State of a part of the series.
pub(crate) struct Values {
    first_idx: usize,
    /// Counters in units, gauges in hundredths: integers, so that a sum is exact.
    current: Vec<i64>,
    random: u64,
}

impl Values {
    /// Series `first_idx..first_idx + count`, before their first step.
    pub(crate) fn new(first_idx: usize, count: usize) -> Values {
        let current = (first_idx..first_idx + count).map(|idx| (mix(idx as u64) % 100_000) as i64).collect();
        Values { first_idx, current, random: mix(!(first_idx as u64)) }
    }

    /// Moves all series one step and yields their values in order.
    pub(crate) fn step(&mut self) -> impl Iterator<Item = f64> {
        let first_idx = self.first_idx;
        let random = &mut self.random;
        self.current.iter_mut().enumerate().map(move |(at, current)| {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = (*random >> 33) as i64;
            if is_counter(first_idx + at) {
                *current += draw % 1000;
                *current as f64
            } else {
                *current += draw % 201 - 100;
                *current as f64 / 100.0
            }
        })
    }
}

/// Some series and the request with one sample of each.
pub(crate) struct SeriesBody {
    values: Values,
    body: Body,
}

impl SeriesBody {
    /// The series of `range`, before their first step.
    pub(crate) fn new(range: Range<usize>) -> SeriesBody {
        SeriesBody { values: Values::new(range.start, range.len()), body: Body::new(range.map(labels)) }
    }

    /// The series of `range` with the label `tenant`, before their first step.
    pub(crate) fn of_tenant(range: Range<usize>, tenant: &str) -> SeriesBody {
        let values = Values::new(range.start, range.len());
        let of_tenant = |idx| {
            let mut all = labels(idx).to_vec();
            // No name of the others sorts after it.
            all.push(("tenant", tenant.to_owned()));
            all
        };
        SeriesBody { values, body: Body::new(range.map(of_tenant)) }
    }

    /// Number of series.
    pub(crate) fn len(&self) -> usize {
        self.values.current.len()
    }

    /// Moves all series one step; returns the body with their samples at `time_ms`.
    pub(crate) fn step(&mut self, time_ms: i64) -> &[u8] {
        self.body.set(time_ms, self.values.step());
        self.body.bytes()
    }
}

/// SplitMix64: spreads an index over 64 bits.
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Values, labels};

    #[test]
    fn label_sets_differ_and_are_sorted() {
        let all: std::collections::BTreeSet<_> = (0..3000).map(labels).collect();
        assert_eq!(all.len(), 3000);
        assert!(all.iter().all(|set| set.is_sorted_by_key(|(name, _)| *name)));
    }

    #[test]
    fn selectors_name_pods_and_series() {
        assert_eq!(
            super::pods_selector(500, 1500),
            r#"{cluster="bench-eu-1",instance=~"10\\.0\\.0\\.1:9100|10\\.0\\.0\\.2:9100"}"#
        );
        assert!(super::series_selector(7).starts_with(r#"{__name__=""#));
    }

    #[test]
    fn counters_rise() {
        let mut values = Values::new(0, 1);
        let steps: Vec<f64> = (0..50).flat_map(|_| values.step().collect::<Vec<f64>>()).collect();
        assert!(steps.is_sorted(), "{steps:?}");
    }
}
