//! Metrics of notifications, with Prometheus's names.

use std::sync::Arc;

use chronolith_rules::notifier::{QUEUE_ALERTS_MAX, QueueCounts};
use chronolith_service::metrics::definition::{Metric, Samples};

use crate::notifier::{Notifier, Sender};

pub(crate) static NOTIFIER: &[Metric<Notifier>] = &[
    Metric::counters(
        "chronolith_notifications_sent_total",
        &["alertmanager"],
        "Alerts sent.",
        |notifier, samples| of_counts(notifier, samples, |counts| counts.sent),
    ),
    Metric::counters(
        "chronolith_notifications_errors_total",
        &["alertmanager"],
        "Alerts of requests that failed, counted again for each retry.",
        |notifier, samples| of_counts(notifier, samples, |counts| counts.errors),
    ),
    Metric::counters(
        "chronolith_notifications_dropped_total",
        &["alertmanager"],
        "Alerts that were given up: the queue was full, they were refused, or they had waited too long.",
        |notifier, samples| of_counts(notifier, samples, |counts| counts.dropped),
    ),
    Metric::gauges(
        "chronolith_notifications_queue_length",
        &["alertmanager"],
        "Alerts that wait to be sent.",
        |notifier, samples| of_senders(notifier, samples, |sender| sender.queue_len() as f64),
    ),
    Metric::gauges(
        "chronolith_notifications_queue_capacity",
        &[],
        "Alerts that may wait for one Alertmanager.",
        |notifier, samples| of_file(notifier, samples, QUEUE_ALERTS_MAX as f64),
    ),
    Metric::histograms(
        "chronolith_notifications_latency_seconds",
        &["alertmanager"],
        "Durations of requests to Alertmanagers that succeeded.",
        |notifier, samples| {
            for (url, senders) in notifier.senders() {
                if let Some(sender) = senders.first() {
                    samples.push_histogram(&[&url], &sender.latency());
                }
            }
        },
    ),
    Metric::gauges(
        "chronolith_notifications_alertmanagers_discovered",
        &[],
        "Alertmanagers to which alerts are sent.",
        |notifier, samples| of_file(notifier, samples, notifier.summary().0 as f64),
    ),
    Metric::gauges(
        "chronolith_notifications_config_last_read_successful",
        &[],
        "1 if the alerting configuration could be used when it was last read, 0 if the one before it stays.",
        |notifier, samples| of_file(notifier, samples, f64::from(u8::from(notifier.is_read()))),
    ),
    Metric::gauges(
        "chronolith_notifications_config_last_read_success_timestamp_seconds",
        &[],
        "When the alerting configuration in use was read, since 1970.",
        |notifier, samples| of_file(notifier, samples, notifier.read_ms() as f64 / 1000.0),
    ),
    Metric::gauges(
        "chronolith_notifications_target_files_failed",
        &[],
        "Files with targets of Alertmanagers that could not be used when they last changed.",
        |notifier, samples| of_file(notifier, samples, notifier.failed_file_count() as f64),
    ),
];

/// Adds a sample if there is a file.
fn of_file(notifier: &Notifier, samples: &mut Samples, value: f64) {
    if notifier.has_file() {
        samples.push(&[], value);
    }
}

fn of_counts(notifier: &Notifier, samples: &mut Samples, value: impl Fn(QueueCounts) -> u64) {
    of_senders(notifier, samples, |sender| value(sender.counts()) as f64);
}

fn of_senders(notifier: &Notifier, samples: &mut Samples, value: impl Fn(&Arc<Sender>) -> f64) {
    for (url, senders) in notifier.senders() {
        samples.push(&[&url], senders.iter().map(&value).sum());
    }
}
