//! Batches as text, in the form of the golden file.

use std::fmt::Write as _;

use chronolith_model::histogram::{BucketWalk, SCHEMA_CUSTOM};
use chronolith_model::quote::write_quoted;
use chronolith_model::{Histogram, IntHistogram, Labels, LabelsBuilder, MetricKind, WriteBatch, sample};

/// Text of a batch, in the form of the golden file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Text {
    pub(super) series: Vec<String>,
    pub(super) samples: Vec<String>,
    pub(super) exemplars: Vec<String>,
    pub(super) metadata: Vec<String>,
}

fn labels_text(labels: &Labels) -> String {
    let mut out = String::from("{");
    for (name, value) in labels.iter() {
        out.push_str(if out.len() > 1 { ", " } else { "" });
        if chronolith_model::labels::is_legacy_label_name(name) {
            out.push_str(name);
        } else {
            write_quoted(&mut out, name).expect("a string");
        }
        out.push('=');
        write_quoted(&mut out, value).expect("a string");
    }
    out + "}"
}

fn histogram_text(histogram: &Histogram) -> String {
    if sample::is_stale(histogram.sum()) {
        return "stale histogram".to_owned();
    }
    let Histogram::Int(IntHistogram {
        schema,
        zero_threshold,
        zero_count,
        count,
        sum,
        positive,
        negative,
        custom_values,
        ..
    }) = histogram
    else {
        panic!("OTLP has integer histograms")
    };
    let side = |walk: BucketWalk<'_, u64>| -> String {
        walk.filter(|(_, count)| *count > 0).map(|(idx, count)| format!("{idx}:{count} ")).collect()
    };
    // Prometheus's translator has a zero threshold for custom buckets, too, where it means nothing.
    let threshold = if *schema == SCHEMA_CUSTOM { 0.0 } else { *zero_threshold };
    let bounds: String = custom_values.iter().map(|bound| format!("{:016x} ", bound.to_bits())).collect();
    format!(
        "schema={schema} zero={:016x}:{zero_count} count={count} sum={:016x} positive=[{}] negative=[{}] bounds=[{bounds}]",
        threshold.to_bits(),
        sum.to_bits(),
        side(positive.walk()),
        side(negative.walk()),
    )
}

pub(super) fn text(batches: &[&WriteBatch]) -> Text {
    let mut samples = Vec::new();
    let mut exemplars = Vec::new();
    let mut out = Text::default();
    for batch in batches {
        let mut names = Vec::new();
        for (idx, series) in batch.series.iter().enumerate() {
            let mut builder = LabelsBuilder::new();
            (batch.source.parse)(batch.key_of(idx), &mut builder).expect("a key of labels");
            assert!(builder.iter().is_sorted_by(|a, b| a.0 <= b.0), "labels of a key are sorted");
            let name = labels_text(&builder.finish());
            let histograms = batch.histograms_of(series);
            for at in series.samples.clone() {
                let value = match histograms.iter().find(|(idx, _)| *idx == at) {
                    Some((_, histogram)) => histogram_text(histogram),
                    None => format!("{:016x}", batch.values[at as usize].to_bits()),
                };
                let start = batch.start_times.get(at as usize).copied().unwrap_or(0);
                samples.push((name.clone(), format!("{} {start} {value}", batch.times[at as usize])));
            }
            names.push(name);
        }
        for entry in &batch.exemplars {
            let exemplar = &entry.exemplar;
            let mut line = format!("{} {:016x} ", exemplar.time_ms, exemplar.value.to_bits());
            write!(line, "{}", labels_text(&exemplar.labels)).expect("a string");
            exemplars.push((names[entry.series_idx as usize].clone(), line));
        }
        for entry in &batch.metadata {
            let kind = if entry.kind == MetricKind::Unknown { "" } else { entry.kind.as_str() };
            out.metadata.push(format!("{}|{kind}|{}|{}", entry.metric, entry.unit, entry.help));
        }
    }
    out.series = samples.iter().map(|(name, _)| name.clone()).collect();
    out.series.sort();
    out.series.dedup();
    let number = |lines: Vec<(String, String)>| -> Vec<String> {
        let idx = |name: &String| out.series.binary_search(name).expect("a series");
        let mut lines: Vec<String> =
            lines.into_iter().map(|(name, line)| format!("{} {line}", idx(&name))).collect();
        lines.sort();
        lines
    };
    out.samples = number(samples);
    out.exemplars = number(exemplars);
    out.metadata.sort();
    out.metadata.dedup();
    out
}
