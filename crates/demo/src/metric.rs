//! The metrics of the world: name, type, unit, help.

use chronolith_model::MetricKind;

/// A metric family.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
}

const fn metric(name: &'static str, kind: MetricKind, unit: &'static str, help: &'static str) -> Metric {
    Metric { name, kind, unit, help }
}

pub(crate) static UP: Metric =
    metric("up", MetricKind::Gauge, "", "1 if the last scrape of the instance succeeded.");
pub(crate) static REQUESTS: Metric = metric(
    "http_requests_total",
    MetricKind::Counter,
    "",
    "Requests that were answered, by path and status code.",
);
pub(crate) static ERRORS: Metric =
    metric("app_errors_total", MetricKind::Counter, "", "Errors that the service logged, by kind.");
pub(crate) static QUEUE: Metric =
    metric("queue_length", MetricKind::Gauge, "", "Requests that wait for a worker of the instance.");
pub(crate) static MEMORY: Metric =
    metric("process_resident_memory_bytes", MetricKind::Gauge, "bytes", "Resident memory of the process.");
pub(crate) static CPU: Metric = metric(
    "process_cpu_seconds_total",
    MetricKind::Counter,
    "seconds",
    "CPU time of the process, user and system.",
);
pub(crate) static BUILD: Metric =
    metric("build_info", MetricKind::Info, "", "1, with the version of the process as a label.");
pub(crate) static LATENCY: Metric = metric(
    "http_request_duration_seconds",
    MetricKind::Histogram,
    "seconds",
    "Time from a request to its answer.",
);
pub(crate) static QUERIES: Metric = metric(
    "db_query_duration_seconds",
    MetricKind::Histogram,
    "seconds",
    "Time of a query of the service's database.",
);
pub(crate) static SIZES: Metric =
    metric("http_response_size_bytes", MetricKind::Histogram, "bytes", "Size of the body of an answer.");
pub(crate) static DEPENDENCY: Metric =
    metric("service_dependency", MetricKind::Gauge, "", "1 if the service calls the callee.");
pub(crate) static CART: Metric = metric(
    "checkout_cart_items",
    MetricKind::Gauge,
    "",
    "Items in a cart; a release labelled them by cart for an hour.",
);
pub(crate) static TEMPERATURE: Metric = metric(
    "cold_room_temperature_celsius",
    MetricKind::Gauge,
    "celsius",
    "Temperature of a cold room, by a device that sends after an outage of its network.",
);
pub(crate) static BATTERY: Metric =
    metric("device_battery_volts", MetricKind::Gauge, "volts", "Voltage of the battery of a device.");
pub(crate) static SKEWED: Metric =
    metric("batch_last_run_seconds", MetricKind::Gauge, "seconds", "Length of the last run of a batch job.");
