//! Metrics of rule groups that clients configure.

use chronolith_service::metrics::definition::Metric;
use chronolith_service::rules::configured::ConfiguredRules;

pub(crate) static CONFIGURED_RULES: &[Metric<ConfiguredRules>] = &[
    Metric::gauges(
        "chronolith_rules_configured_groups",
        &[],
        "Rule groups of all tenants that were configured by /config/v1/rules.",
        |rules, samples| samples.push(&[], rules.group_count() as f64),
    ),
    Metric::gauges(
        "chronolith_rules_configured_damaged_namespaces",
        &[],
        "Namespaces of configured rules whose files cannot be read; the log names them.",
        |rules, samples| samples.push(&[], rules.damaged_count() as f64),
    ),
    Metric::counters(
        "chronolith_rules_configured_write_failures_total",
        &[],
        "Changes of configured rules that failed, as a file could not be written or removed.",
        |rules, samples| samples.push(&[], rules.write_failures().as_f64()),
    ),
];
