//! Metrics of background threads and of reloads.

use chronolith_service::counter::Counter;
use chronolith_service::influx::InfluxContext;
use chronolith_service::metrics::definition::Metric;

#[derive(Default)]
pub(crate) struct BackgroundMetrics {
    pub(crate) scrape_failures: Counter,
    pub(crate) reload_failures: Counter,
    pub(crate) thread_panics: Counter,
}

pub(crate) static BACKGROUND: &[Metric<BackgroundMetrics>] = &[
    Metric::counter(
        "chronolith_config_reload_failures_total",
        "Reloads refused because of errors in the file.",
        |background| background.reload_failures.as_f64(),
    ),
    Metric::counter(
        "chronolith_background_panics_total",
        "Runs of background tasks that panicked.",
        |background| background.thread_panics.as_f64(),
    ),
    Metric::counter(
        "chronolith_self_scrape_failures_total",
        "Self-scrapes that could not be stored.",
        |background| background.scrape_failures.as_f64(),
    ),
];

pub(crate) static CONTINUOUS: &[Metric<InfluxContext>] = &[
    Metric::counter("chronolith_continuous_query_runs_total", "Runs of continuous queries.", |influx| {
        influx.continuous_runs.as_f64()
    }),
    Metric::counter(
        "chronolith_continuous_query_failures_total",
        "Runs of continuous queries that failed.",
        |influx| influx.continuous_failures.as_f64(),
    ),
];
