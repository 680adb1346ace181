//! Metrics of admission: requests and memory by class.

use super::definition::Metric;
use crate::admission::Admission;

/// Requests that run, are queued and were refused, of the class in the field `$class`, or of the field after
/// `in`.
macro_rules! class_metrics {
    ($class:ident) => {
        class_metrics!($class in $class)
    };
    ($class:ident in $($field:ident).+) => {
        [
            Metric::gauge(
                concat!("chronolith_", stringify!($class), "_active"),
                "Requests that run.",
                |admission| admission.$($field).+.queue.running() as f64,
            ),
            Metric::gauge(
                concat!("chronolith_", stringify!($class), "_waiting"),
                "Requests in the queue.",
                |admission| admission.$($field).+.queue.waiting() as f64,
            ),
            Metric::counter(
                concat!("chronolith_", stringify!($class), "_refused_total"),
                "Requests refused in the queue.",
                |admission| admission.$($field).+.queue.refused() as f64,
            ),
        ]
    };
}

/// Memory of the requests of the budget in the field `$budget`.
macro_rules! memory_metrics {
    ($class:literal, $($budget:ident).+) => {
        [
            Metric::gauge(concat!("chronolith_", $class, "_memory_bytes"), "Memory reserved.", |admission| {
                admission.$($budget).+.total.used_bytes() as f64
            }),
            Metric::gauge(
                concat!("chronolith_", $class, "_memory_peak_bytes"),
                "Most memory reserved since start.",
                |admission| admission.$($budget).+.total.peak_bytes() as f64,
            ),
            Metric::gauge(
                concat!("chronolith_", $class, "_memory_limit_bytes"),
                "Memory that may be reserved.",
                |admission| admission.$($budget).+.total.limit_bytes() as f64,
            ),
        ]
    };
}

static CLASSES: [[Metric<Admission>; 3]; 13] = [
    class_metrics!(write),
    class_metrics!(write_apply),
    class_metrics!(query),
    class_metrics!(remote_read),
    class_metrics!(select in streams.select),
    class_metrics!(continuous),
    class_metrics!(rules),
    class_metrics!(rule_repairs in rule_work.repairs),
    class_metrics!(rule_backfills in rule_work.backfills),
    class_metrics!(self_scrape),
    class_metrics!(federate in streams.federate),
    class_metrics!(status),
    class_metrics!(admin),
];

static MEMORY: [[Metric<Admission>; 3]; 3] = [
    memory_metrics!("write", write_memory),
    memory_metrics!("query", query_memory),
    memory_metrics!("rules", rule_work.memory),
];

static WAIT: &[Metric<Admission>] = &[Metric::histograms(
    "chronolith_admission_wait_seconds",
    &["class"],
    "Time in the queue of admission, by class, of requests that ran.",
    |admission, samples| {
        for class in admission.classes() {
            samples.push_histogram(&[class.name], &class.queue.wait);
        }
    },
)];

static TIME_SLICES: &[Metric<Admission>] = &[
    Metric::gauge(
        "chronolith_query_paused",
        "Queries that gave their permit to another one and wait for the next.",
        |admission| admission.query.queue.paused() as f64,
    ),
    Metric::counter(
        "chronolith_query_yields_total",
        "Times that a long query gave its permit to a waiting one.",
        |admission| admission.query.queue.yielded() as f64,
    ),
];

/// All tables of admission.
pub fn tables() -> [&'static [Metric<Admission>]; 4] {
    [CLASSES.as_flattened(), WAIT, TIME_SLICES, MEMORY.as_flattened()]
}
