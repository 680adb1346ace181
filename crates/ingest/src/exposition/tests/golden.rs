//! Bodies of `tools/exposition-golden` against the results of Prometheus's parsers.
//!
//! A difference is allowed only if it is one of `docs/exposition-formats.md`, by its number there.

use std::collections::BTreeMap;

use chronolith_base::hash::HashMap;
use chronolith_model::Labels;
use serde::Deserialize;

use super::*;

const CASES: &str = include_str!("../../../testdata/exposition.jsonl");

#[derive(Deserialize)]
struct Case {
    format: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    hex: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    samples: Vec<GoldenSample>,
    /// "type", "help" or "unit"; metric; text.
    #[serde(default)]
    metadata: Vec<[String; 3]>,
}

#[derive(Deserialize)]
struct GoldenSample {
    labels: Vec<[String; 2]>,
    #[serde(default)]
    value: String,
    #[serde(default)]
    histogram: String,
    #[serde(default)]
    time: Option<i64>,
    #[serde(default)]
    start: i64,
    #[serde(default)]
    exemplars: Vec<GoldenExemplar>,
}

#[derive(Deserialize)]
struct GoldenExemplar {
    labels: Vec<[String; 2]>,
    value: String,
    #[serde(default)]
    time: Option<i64>,
}

/// One sample, in the form that is compared.
#[derive(Debug, PartialEq)]
struct Flat {
    labels: String,
    value: String,
    time_ms: i64,
    start_ms: i64,
    /// Labels, bits and time.
    exemplars: Vec<(String, u64, i64)>,
}

impl Case {
    fn format(&self) -> Format {
        match self.format.as_str() {
            "text" => Format::Text,
            "openmetrics" => Format::OpenMetrics,
            _ => Format::Protobuf,
        }
    }

    fn body(&self) -> Vec<u8> {
        match &self.text {
            Some(text) => text.clone().into_bytes(),
            None => {
                let hex = self.hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
                hex.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
            }
        }
    }
}

fn labels_of(pairs: &[[String; 2]]) -> String {
    Labels::from_pairs(pairs.iter().map(|[name, value]| (name.as_str(), value.as_str()))).to_string()
}

fn bits(text: &str) -> u64 {
    let bits = u64::from_str_radix(text, 16).expect("bits");
    // Protobuf may have any NaN, of which the usual one is stored.
    if f64::from_bits(bits).is_nan() { chronolith_model::sample::NORMAL_NAN_BITS } else { bits }
}

impl GoldenSample {
    fn flat(&self) -> Flat {
        let time_ms = self.time.unwrap_or(NOW_MS);
        let exemplar = |exemplar: &GoldenExemplar| {
            (labels_of(&exemplar.labels), bits(&exemplar.value), exemplar.time.unwrap_or(time_ms))
        };
        let value =
            if self.value.is_empty() { self.histogram.clone() } else { format!("{:x}", bits(&self.value)) };
        Flat {
            labels: labels_of(&self.labels),
            value,
            time_ms,
            start_ms: self.start.max(0),
            exemplars: self.exemplars.iter().map(exemplar).collect(),
        }
    }
}

/// Decodes a body strictly. A repeated label is an error too, which storage finds.
fn decode_flat(format: Format, body: &[u8]) -> Result<(Vec<Flat>, WriteBatch), String> {
    let mut decoder = Decoder::new(format, strict());
    let mut batch = WriteBatch::new(decoder.source());
    let read = decoder.feed(body, &mut batch).map_err(|error| error.to_string())?;
    assert_eq!(read, body.len(), "one batch");
    let refused = decoder.finish(&mut batch).map_err(|error| error.to_string())?;
    assert!(refused.is_empty());
    let mut out = Vec::new();
    for (idx, series) in batch.series.iter().enumerate() {
        let mut builder = LabelsBuilder::new();
        (batch.source.parse)(batch.key_of(idx), &mut builder).expect("a key is parsed");
        builder.sort();
        if let Some(name) = builder.repeated_name() {
            return Err(format!("label {name} is repeated"));
        }
        let sample = series.samples.start as usize;
        let value = match batch.histograms_of(series).first() {
            Some((_, histogram)) => {
                let kind =
                    if matches!(**histogram, chronolith_model::Histogram::Int(_)) { "int" } else { "float" };
                format!("{kind} {}", histogram.to_float())
            }
            None => format!("{:x}", batch.values[sample].to_bits()),
        };
        let exemplars = batch.exemplars.iter().filter(|exemplar| exemplar.series_idx as usize == idx);
        let exemplar = |exemplar: &chronolith_model::Exemplar| {
            (exemplar.labels.to_string(), exemplar.value.to_bits(), exemplar.time_ms)
        };
        out.push(Flat {
            labels: builder.finish().to_string(),
            value,
            time_ms: batch.times[sample],
            start_ms: batch.start_times.get(sample).copied().unwrap_or(0),
            exemplars: exemplars.map(|of_series| exemplar(&of_series.exemplar)).collect(),
        });
    }
    Ok((out, batch))
}

/// Type, help and unit by metric; of several the last counts.
type Texts = BTreeMap<String, [String; 3]>;

fn put(texts: &mut Texts, metric: &str, at: usize, text: &str) {
    texts.entry(metric.to_owned()).or_default()[at] = text.to_owned();
}

fn golden_metadata(case: &Case) -> Texts {
    let mut out = Texts::new();
    for [what, metric, text] in &case.metadata {
        let at = match what.as_str() {
            "type" => 0,
            "help" => 1,
            _ => 2,
        };
        out.entry(metric.clone()).or_default();
        if !text.is_empty() && text != "unknown" {
            put(&mut out, metric, at, text);
        }
    }
    out
}

fn our_metadata(batch: &WriteBatch) -> Texts {
    let mut out = Texts::new();
    for entry in &batch.metadata {
        let kind = if entry.kind == chronolith_model::MetricKind::Unknown { "" } else { entry.kind.as_str() };
        out.entry(entry.metric.clone()).or_default();
        for (at, text) in [(0, kind), (1, entry.help.as_str()), (2, entry.unit.as_str())] {
            if !text.is_empty() {
                put(&mut out, &entry.metric, at, text);
            }
        }
    }
    out
}

/// Returns true if both are equal but for a millisecond of OpenMetrics, difference 5.
fn is_same(ours: &Flat, golden: &Flat, format: Format) -> bool {
    let slack = i64::from(format == Format::OpenMetrics);
    let is_near = |a: i64, b: i64| (a - b).abs() <= slack;
    let exemplars = ours.exemplars.iter().zip(&golden.exemplars);
    ours.labels == golden.labels
        && ours.value == golden.value
        && is_near(ours.time_ms, golden.time_ms)
        && is_near(ours.start_ms, golden.start_ms)
        && ours.exemplars.len() == golden.exemplars.len()
        && exemplars.into_iter().all(|(a, b)| a.0 == b.0 && a.1 == b.1 && is_near(a.2, b.2))
}

/// Returns the number of the difference of a body that Prometheus judges in another way.
fn difference(case: &Case, result: &Result<(Vec<Flat>, WriteBatch), String>) -> Option<u8> {
    let error = case.error.as_deref().unwrap_or("");
    match result {
        Err(ours) if ours.starts_with("timestamp out of range") && error.is_empty() => Some(5),
        Err(ours) if ours.starts_with("group or unknown wire type") && error.is_empty() => Some(12),
        Ok(_) if error.contains("invalid schema") && error.ends_with("got schema 9") => Some(10),
        Ok(_) if error.starts_with("proto: wrong wireType") && case.format() == Format::Protobuf => Some(11),
        Ok((samples, _)) if error.is_empty() && samples.len() == case.samples.len() => {
            let golden = case.samples.iter().map(GoldenSample::flat);
            let is_near = |(ours, golden): (&Flat, Flat)| {
                let is_native = golden.value.contains("{count:");
                let is_skipped = is_native && golden.exemplars.is_empty();
                let exemplars = if is_skipped { ours.exemplars.clone() } else { golden.exemplars.clone() };
                is_same(ours, &Flat { exemplars, ..golden }, case.format())
            };
            samples.iter().zip(golden).all(is_near).then_some(13)
        }
        _ => None,
    }
}

#[test]
fn bodies_are_judged_and_read_as_prometheus_does() {
    let mut counts: HashMap<String, u32> = HashMap::default();
    let mut faults = Vec::new();
    for (number, line) in CASES.lines().enumerate() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let body = case.body();
        let result = decode_flat(case.format(), &body);
        let is_equal = match (&result, &case.error) {
            (Err(_), Some(_)) => true,
            (Ok((samples, batch)), None) => {
                let golden: Vec<Flat> = case.samples.iter().map(GoldenSample::flat).collect();
                samples.len() == golden.len()
                    && samples.iter().zip(&golden).all(|(a, b)| is_same(a, b, case.format()))
                    && our_metadata(batch) == golden_metadata(&case)
            }
            _ => false,
        };
        let outcome = match (is_equal, difference(&case, &result)) {
            (true, _) if case.error.is_some() => "refused".to_owned(),
            (true, _) => "read".to_owned(),
            (false, Some(number)) => format!("difference {number}"),
            (false, None) => {
                let golden: Vec<Flat> = case.samples.iter().map(GoldenSample::flat).collect();
                let ours = result.as_ref().map(|(samples, batch)| (samples, our_metadata(batch)));
                faults.push(format!(
                    "case {number}, {}: {}\n  ours:       {ours:?}\n  Prometheus: {:?} {golden:?} {:?}",
                    case.format,
                    body.escape_ascii(),
                    case.error,
                    golden_metadata(&case)
                ));
                continue;
            }
        };
        *counts.entry(format!("{} {outcome}", case.format)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort();
    println!("{counts:?}");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
