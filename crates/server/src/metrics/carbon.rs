//! Metrics of carbon input: points, refused points by reason, connections; per listener and for HTTP.

use chronolith_ingest::carbon::RefusedReason;
use chronolith_service::metrics::definition::{Metric, Samples};

use chronolith_service::carbon::{CarbonContext, CarbonInput};

pub(crate) static CARBON: &[Metric<CarbonContext>] = &[
    Metric::counters(
        "chronolith_carbon_points_total",
        &["input"],
        "Points read by carbon listeners and requests and handed to the store.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.points.as_f64()),
    ),
    Metric::counters(
        "chronolith_carbon_points_refused_total",
        &["input", "reason"],
        "Points that could not be read or that a rule drops, by reason.",
        |carbon, samples| {
            for input in carbon.inputs() {
                for reason in RefusedReason::ALL {
                    samples.push(&[&input.name, reason.label()], input.refused_count(reason) as f64);
                }
            }
        },
    ),
    Metric::counters(
        "chronolith_carbon_connections_total",
        &["input"],
        "Connections that carbon listeners accepted.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.connections_opened.as_f64()),
    ),
    Metric::counters(
        "chronolith_carbon_connections_refused_total",
        &["input"],
        "Connections that carbon listeners closed at once since too many were open.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.connections_refused.as_f64()),
    ),
    Metric::counters(
        "chronolith_carbon_connections_not_allowed_total",
        &["input"],
        "Connections that carbon listeners closed at once since carbon.allow does not have their address.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.connections_not_allowed.as_f64()),
    ),
    Metric::counters(
        "chronolith_carbon_datagrams_not_allowed_total",
        &["input"],
        "Datagrams that carbon listeners dropped since carbon.allow does not have their address.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.datagrams_not_allowed.as_f64()),
    ),
    Metric::counters(
        "chronolith_carbon_connections_reset_total",
        &["input"],
        "Connections that carbon listeners reset since points were not stored or could not be found.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.connections_reset.as_f64()),
    ),
    Metric::counters(
        "chronolith_carbon_points_not_stored_total",
        &["input"],
        "Points of reset carbon connections that the store refused or may not have made durable.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.points_not_stored.as_f64()),
    ),
    Metric::counters(
        "chronolith_carbon_gzip_connections_total",
        &["input"],
        "Connections of carbon listeners whose first bytes were those of gzip.",
        |carbon, samples| of_inputs(carbon, samples, |input| input.gzip_connections.as_f64()),
    ),
    Metric::gauges(
        "chronolith_carbon_open_connections",
        &["input"],
        "Open connections of carbon listeners.",
        |carbon, samples| {
            let open = |input: &CarbonInput| input.open_connections() as f64;
            of_inputs(carbon, samples, open);
        },
    ),
    Metric::gauge(
        "chronolith_graphite_rule_cache_entries",
        "Paths whose rule of storage-schemas.conf is cached.",
        |carbon| carbon.rules().cached_count() as f64,
    ),
    Metric::counter(
        "chronolith_graphite_pattern_searches_exceeded_total",
        "Searches of patterns of Graphite's rules that were given up since the last reload: too many steps.",
        |carbon| carbon.rules().exceeded_count() as f64,
    ),
];

fn of_inputs(carbon: &CarbonContext, samples: &mut Samples, value: impl Fn(&CarbonInput) -> f64) {
    carbon.inputs().iter().for_each(|input| samples.push(&[&input.name], value(input)));
}
