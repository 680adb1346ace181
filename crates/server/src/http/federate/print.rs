//! Families of latest samples as text or protobuf, handed over part by part.
//! Not here: bytes of protobuf messages (`ingest`), lines of text (`metrics::exposition`).

use chronolith_ingest::metric_family::{
    FamilyType, MetricValue, classic_buckets, metric_field_bytes, put_family_head, put_metric,
    put_metric_field,
};
use chronolith_model::labels::is_legacy_metric_name;
use chronolith_model::quote::write_quoted;
use chronolith_model::{Histogram, METRIC_NAME, ReadContext};

use super::accept::{Format, Negotiated};
use super::latest::{LatestSample, LatestValue, Samples, SeriesKey};
use crate::exposition::text::put_line;
use crate::http::error::ApiError;
use crate::http::stream::Parts;
use crate::json::{put_display, put_float_general};
use crate::limits::ANSWER_PART_BYTES;

/// Prints all samples, family after family.
pub(super) fn print(
    samples: &Samples,
    negotiated: Negotiated,
    ctx: &ReadContext,
    parts: &Parts,
) -> Result<(), ApiError> {
    let mut out = Output { bytes: Vec::new(), ctx, parts };
    let mut rest = samples.iter();
    while let Some((first, _)) = rest.clone().next() {
        let metric = first.metric();
        let family_type = first.family_type;
        let of_family = |key: &SeriesKey| key.family_type == family_type && key.metric() == metric;
        let family = rest.clone().take_while(|(key, _)| of_family(key));
        let exposed = negotiated.escaping.metric_name(metric);
        match negotiated.format {
            Format::Text => print_text(&exposed, family_type, family, &mut out)?,
            Format::Protobuf => print_protobuf(&exposed, family_type, family, &mut out)?,
        }
        while rest.clone().next().is_some_and(|(key, _)| of_family(key)) {
            rest.next();
        }
    }
    out.finish()
}

/// Bytes on their way to the client.
struct Output<'a> {
    bytes: Vec<u8>,
    ctx: &'a ReadContext,
    parts: &'a Parts,
}

impl Output<'_> {
    /// Hands a part over if there is a whole one.
    fn settle(&mut self) -> Result<(), ApiError> {
        if self.bytes.len() < ANSWER_PART_BYTES {
            return Ok(());
        }
        let next = Vec::with_capacity(ANSWER_PART_BYTES + ANSWER_PART_BYTES / 8);
        self.parts.send(std::mem::replace(&mut self.bytes, next), self.ctx)
    }

    fn finish(self) -> Result<(), ApiError> {
        if self.bytes.is_empty() { Ok(()) } else { self.parts.send(self.bytes, self.ctx) }
    }
}

/// All labels but the name. A scraper that honours labels must not put its own instance onto series that have
/// none.
fn exposed_labels<'a>(
    key: &'a SeriesKey,
    sample: &'a LatestSample,
) -> impl Iterator<Item = (&'a str, &'a str)> + Clone {
    let stored = sample.escaped.is_none().then(|| key.labels.iter().filter(|(name, _)| *name != METRIC_NAME));
    let escaped = sample.escaped.iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()));
    stored
        .into_iter()
        .flatten()
        .chain(escaped)
        .chain(key.labels.get("instance").is_none().then_some(("instance", "")))
}

/// Prints a family. Each metric is encoded twice: its length stands before it, and the length of the family
/// before all.
fn print_protobuf<'a>(
    metric: &str,
    family_type: FamilyType,
    family: impl Iterator<Item = (&'a SeriesKey, &'a LatestSample)> + Clone,
    out: &mut Output<'_>,
) -> Result<(), ApiError> {
    let mut message = Vec::new();
    let encode = |key: &SeriesKey, sample: &LatestSample, message: &mut Vec<u8>| {
        let value = match &sample.value {
            LatestValue::Float(value) => MetricValue::Untyped(*value),
            LatestValue::Histogram(histogram) => MetricValue::Histogram(histogram),
        };
        message.clear();
        put_metric(message, exposed_labels(key, sample), sample.time_ms, value);
    };
    let mut metrics_bytes = 0;
    for (key, sample) in family.clone() {
        encode(key, sample, &mut message);
        metrics_bytes += metric_field_bytes(message.len());
    }
    put_family_head(&mut out.bytes, metric, family_type, metrics_bytes);
    for (key, sample) in family {
        encode(key, sample, &mut message);
        put_metric_field(&mut out.bytes, &message);
        out.settle()?;
    }
    Ok(())
}

fn print_text<'a>(
    metric: &str,
    family_type: FamilyType,
    family: impl Iterator<Item = (&'a SeriesKey, &'a LatestSample)>,
    out: &mut Output<'_>,
) -> Result<(), ApiError> {
    out.bytes.extend_from_slice(b"# TYPE ");
    put_family_name(&mut out.bytes, metric);
    out.bytes.extend_from_slice(match family_type {
        FamilyType::Untyped => b" untyped\n".as_slice(),
        // Text has no gauge histograms.
        FamilyType::Histogram | FamilyType::GaugeHistogram => b" histogram\n",
    });
    for (key, sample) in family {
        match &sample.value {
            LatestValue::Float(value) => {
                put_line(&mut out.bytes, metric, exposed_labels(key, sample), *value);
                put_time(&mut out.bytes, sample.time_ms);
            }
            LatestValue::Histogram(histogram) => {
                put_classic(metric, key, sample, histogram, out)?;
            }
        }
        out.settle()?;
    }
    Ok(())
}

/// Prints a histogram with custom bounds as a classic one.
fn put_classic(
    metric: &str,
    key: &SeriesKey,
    sample: &LatestSample,
    histogram: &Histogram,
    out: &mut Output<'_>,
) -> Result<(), ApiError> {
    let name = format!("{metric}_bucket");
    let mut bound_text = Vec::new();
    let mut put_bucket = |bound: f64, cumulative: f64| {
        bound_text.clear();
        put_float_general(&mut bound_text, bound);
        let bound = std::str::from_utf8(&bound_text).unwrap_or("NaN");
        put_line(&mut out.bytes, &name, exposed_labels(key, sample).chain([("le", bound)]), cumulative);
        put_time(&mut out.bytes, sample.time_ms);
        out.settle()
    };
    let count = match histogram {
        Histogram::Int(histogram) => {
            classic_buckets(histogram).try_for_each(|(bound, count)| put_bucket(bound, count as f64))?;
            histogram.count as f64
        }
        Histogram::Float(histogram) => {
            classic_buckets(histogram).try_for_each(|(bound, count)| put_bucket(bound, count))?;
            histogram.count
        }
    };
    put_bucket(f64::INFINITY, count)?;
    for (suffix, value) in [("_sum", histogram.sum()), ("_count", count)] {
        put_line(&mut out.bytes, &format!("{metric}{suffix}"), exposed_labels(key, sample), value);
        put_time(&mut out.bytes, sample.time_ms);
    }
    Ok(())
}

fn put_time(out: &mut Vec<u8>, time_ms: i64) {
    put_display(out, format_args!(" {time_ms}\n"));
}

fn put_family_name(out: &mut Vec<u8>, metric: &str) {
    if is_legacy_metric_name(metric) {
        out.extend_from_slice(metric.as_bytes());
    } else {
        let mut quoted = String::new();
        let written = write_quoted(&mut quoted, metric);
        debug_assert!(written.is_ok(), "a String takes all");
        out.extend_from_slice(quoted.as_bytes());
    }
}
