//! Report of an analysis as text, with the headings of `promtool tsdb analyze`, and as JSON.
//!
//! Invariant: lists are sorted by their number, descending, then by name, so that equal blocks give equal
//! reports.

use std::fmt::Write as _;

use chronolith_block::Block;
use chronolith_format::chunk::{dense, histogram, xor, xor2};
use serde_json::{Value, json};

use super::counts::{BlockCounts, CHUNK_SAMPLES_MAX, Cost, LabelCount};

/// A number and what it counts.
type Row = (u64, String);

/// Lists of a report, each with its heading and its key in JSON.
struct Lists {
    lists: Vec<(&'static str, &'static str, Vec<Row>)>,
}

/// Returns the `limit` greatest rows.
fn top(rows: impl Iterator<Item = Row>, limit: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    rows.truncate(limit);
    rows
}

impl Lists {
    fn of(block: &Block, counts: &BlockCounts, limit: usize) -> Lists {
        let range = block.range();
        let block_ticks = range.end.saturating_sub(range.start).unsigned_abs().max(1);
        // The number of series that could have been one: what they miss of the block's time, in blocks.
        let churn = |count: &LabelCount| {
            count.series.saturating_mul(block_ticks).saturating_sub(count.covered) / block_ticks
        };
        let pairs = || {
            let of_name = |(name, of_name): (_, &super::counts::NameCount)| {
                let name: &String = name;
                let pair = |(value, count): (&String, &LabelCount)| (format!("{name}={value}"), *count);
                of_name.values.iter().map(pair).collect::<Vec<_>>()
            };
            counts.names.iter().flat_map(of_name)
        };
        let names = || counts.names.iter();
        let churning_pairs = top(pairs().map(|(pair, count)| (churn(&count), pair)), limit);
        let churning_names = top(names().map(|(name, of)| (churn(&of.count), name.clone())), limit);
        let common_pairs = top(pairs().map(|(pair, count)| (count.series, pair)), limit);
        let value_bytes = names()
            .map(|(name, of)| (of.values.keys().map(|value| value.len() as u64).sum::<u64>(), name.clone()));
        let value_bytes = top(value_bytes, limit);
        let cardinality = top(names().map(|(name, of)| (of.values.len() as u64, name.clone())), limit);
        let metrics = counts.metrics.iter().map(|(name, cost)| (cost.series, name.clone()));
        let metrics = top(metrics, limit);
        Lists {
            lists: vec![
                ("Label pairs most involved in churning", "churningLabelPairs", churning_pairs),
                ("Label names most involved in churning", "churningLabelNames", churning_names),
                ("Most common label pairs", "commonLabelPairs", common_pairs),
                ("Label names with highest cumulative label value length", "labelValueBytes", value_bytes),
                ("Highest cardinality labels", "labelCardinality", cardinality),
                ("Highest cardinality metric names", "metricSeries", metrics),
            ],
        }
    }
}

/// Metrics with the most bytes.
fn largest_metrics(counts: &BlockCounts, limit: usize) -> Vec<(String, Cost)> {
    let mut metrics: Vec<(String, Cost)> =
        counts.metrics.iter().map(|(name, cost)| (name.clone(), *cost)).collect();
    metrics.sort_unstable_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
    metrics.truncate(limit);
    metrics
}

/// Returns the name of an encoding.
fn encoding_name(encoding: u8) -> String {
    let name = match encoding {
        xor::ENCODING_XOR => "XOR",
        histogram::ENCODING_HISTOGRAM => "histogram",
        histogram::ENCODING_FLOAT_HISTOGRAM => "float histogram",
        xor2::ENCODING_XOR2 => "XOR2",
        histogram::ENCODING_HISTOGRAM_STARTS => "histogram with start times",
        histogram::ENCODING_FLOAT_HISTOGRAM_STARTS => "float histogram with start times",
        dense::ENCODING_DENSE => "dense",
        dense::ENCODING_PACKED => "dense packed",
        dense::ENCODING_DENSE_STARTS => "dense with start times",
        dense::ENCODING_BOOLEAN => "dense boolean",
        dense::ENCODING_INTEGERS => "dense integers",
        dense::ENCODING_TEXTS => "dense texts",
        other => return format!("encoding {other:#04x}"),
    };
    name.to_owned()
}

/// Returns the bounds of bucket `idx` of the histogram of chunk lengths: `31-60`.
fn bucket_text(idx: usize) -> String {
    let first = idx.checked_sub(1).and_then(|before| CHUNK_SAMPLES_MAX.get(before)).map_or(1, |max| max + 1);
    match CHUNK_SAMPLES_MAX.get(idx).copied() {
        Some(u64::MAX) | None => format!("{first} and more"),
        Some(last) if last == first => last.to_string(),
        Some(last) => format!("{first}-{last}"),
    }
}

/// Sum over all series of their labels.
fn pair_entries(counts: &BlockCounts) -> u64 {
    counts.names.values().map(|of| of.count.series).sum()
}

fn pair_count(counts: &BlockCounts) -> u64 {
    counts.names.values().map(|of| of.values.len() as u64).sum()
}

pub(super) fn text(block: &Block, counts: &BlockCounts, limit: usize) -> String {
    let meta = block.meta();
    let seconds = meta.time_unit().range_to_ms(block.range());
    let seconds = (seconds.end - seconds.start) / 1000;
    let mut text = format!(
        "Block ID: {}\nDuration: {}h{}m{}s\nTotal Series: {}\nLabel names: {}\n\
         Postings (unique label pairs): {}\nPostings entries (total label pairs): {}\n",
        meta.ulid,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        counts.series,
        counts.names.len(),
        pair_count(counts),
        pair_entries(counts),
    );
    let Cost { chunks, samples, bytes, .. } = counts.total;
    let per_sample = counts.total.bytes_per_sample();
    // A string takes everything.
    let _ = writeln!(
        text,
        "Chunks: {chunks}\nSamples: {samples}\nChunk bytes: {bytes}\nBytes per sample: {per_sample:.3}"
    );
    for (heading, _, rows) in &Lists::of(block, counts, limit).lists {
        let _ = writeln!(text, "\n{heading}:");
        rows.iter().for_each(|(count, name)| text.push_str(&format!("{count} {name}\n")));
    }
    let cost_line = |name: &str, cost: &Cost| {
        let Cost { series, chunks, samples, bytes } = cost;
        let per_sample = cost.bytes_per_sample();
        format!("{bytes:>14} {samples:>14} {chunks:>10} {series:>10} {per_sample:>10.3}  {name}\n")
    };
    let columns =
        format!("{:>14} {:>14} {:>10} {:>10} {:>10}", "bytes", "samples", "chunks", "series", "per sample");
    let _ = writeln!(text, "\nMetrics with most bytes:\n{columns}  metric");
    largest_metrics(counts, limit).iter().for_each(|(name, cost)| text.push_str(&cost_line(name, cost)));
    let _ = writeln!(text, "\nChunk encodings:\n{columns}  encoding");
    counts.encodings.iter().for_each(|(encoding, cost)| {
        text.push_str(&cost_line(&encoding_name(*encoding), cost));
    });
    let _ = writeln!(text, "\nChunks by number of samples:");
    for (idx, count) in counts.chunk_lengths.iter().enumerate().filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "{count} {}", bucket_text(idx));
    }
    text.push('\n');
    text
}

pub(super) fn json(block: &Block, counts: &BlockCounts, limit: usize) -> String {
    let cost = |cost: &Cost| {
        json!({ "series": cost.series, "chunks": cost.chunks, "samples": cost.samples,
            "bytes": cost.bytes, "bytesPerSample": cost.bytes_per_sample() })
    };
    let with_name = |key: &str, name: String, counted: &Cost| {
        let mut value = cost(counted);
        if let Some(object) = value.as_object_mut() {
            object.insert(key.to_owned(), Value::from(name));
        }
        value
    };
    let metrics = largest_metrics(counts, limit);
    let metrics: Vec<_> = metrics.into_iter().map(|(name, cost)| with_name("metric", name, &cost)).collect();
    let encodings = counts.encodings.iter();
    let encodings: Vec<_> =
        encodings.map(|(e, cost)| with_name("encoding", encoding_name(*e), cost)).collect();
    let lengths = counts.chunk_lengths.iter().enumerate();
    let lengths: Vec<_> =
        lengths.map(|(idx, count)| json!({ "samples": bucket_text(idx), "chunks": count })).collect();
    let meta = block.meta();
    let mut value = json!({ "ulid": meta.ulid.to_string(), "minTime": meta.min_time, "maxTime": meta.max_time,
        "labelNames": counts.names.len(), "labelPairs": pair_count(counts),
        "postingsEntries": pair_entries(counts), "total": cost(&counts.total),
        "metrics": metrics, "encodings": encodings, "chunksBySamples": lengths });
    if let Some(object) = value.as_object_mut() {
        for (_, key, rows) in Lists::of(block, counts, limit).lists {
            let rows: Vec<_> =
                rows.into_iter().map(|(count, name)| json!({ "count": count, "name": name })).collect();
            object.insert(key.to_owned(), Value::from(rows));
        }
    }
    format!("{value}\n")
}
