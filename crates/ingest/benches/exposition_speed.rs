//! Decoding of exposition formats: nanoseconds per sample, by format and by kind of line.
//!
//! `cargo bench -p chronolith-ingest --bench exposition_speed -- [row]`. `cargo test` decodes a small body
//! once.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::hash::hash_bytes;
use chronolith_base::{Clock as _, SystemClock};
use chronolith_ingest::exposition::{DecodeOptions, Decoder, Format, Mode};
use chronolith_ingest::metric_family::{
    FamilyType, MetricValue, metric_field_bytes, put_family_head, put_metric, put_metric_field,
};
use chronolith_model::WriteBatch;

/// Size of a measurement.
struct Size {
    sample_count: usize,
    round_count: usize,
}

const MEASURED: Size = Size { sample_count: 10_000, round_count: 300 };
const TESTED: Size = Size { sample_count: 40, round_count: 1 };
const NOW_MS: i64 = 1_700_000_000_000;
/// Samples per family.
const FAMILY_SAMPLES: usize = 20;

/// Lines of the sample of an index.
type Lines = fn(usize) -> String;

/// A body with its format.
type Body = (Format, Vec<u8>);

fn counter(idx: usize) -> String {
    let family = idx / FAMILY_SAMPLES;
    let head =
        format!("# HELP http_requests_{family} Requests by code.\n# TYPE http_requests_{family} counter\n");
    let head = if idx.is_multiple_of(FAMILY_SAMPLES) { head } else { String::new() };
    let labels = format!("code=\"{}\",handler=\"/api/v1/query\",method=\"post\"", 200 + idx % FAMILY_SAMPLES);
    format!("{head}http_requests_{family}_total{{{labels}}} {}\n", idx * 7919)
}

fn wide(idx: usize) -> String {
    let labels = format!(
        "cluster=\"europe-west-1\",container=\"application\",cpu=\"{}\",namespace=\"team-{}\",node=\"node-pool-{}\",\
         pod=\"application-5d8f7c9b6d-{idx:05}\"",
        idx % 8,
        idx % 20,
        idx % 100
    );
    format!("container_cpu_usage_seconds_total{{{labels}}} {}.{:02}\n", idx * 31, idx % 100)
}

fn bucket(idx: usize) -> String {
    let head = if idx == 0 { "# TYPE request_seconds histogram\n" } else { "" };
    let bound = ["0.005", "0.01", "0.025", "0.1", "1", "2.5", "10", "+Inf"][idx % 8];
    format!("{head}request_seconds_bucket{{handler=\"/{}\",le=\"{bound}\"}} {}\n", idx / 8, idx * 13)
}

fn with_created(idx: usize) -> String {
    let head = if idx == 0 { "# TYPE http_requests counter\n" } else { "" };
    let labels = format!("code=\"200\",handler=\"/{idx}\",method=\"post\"");
    format!(
        "{head}http_requests_total{{{labels}}} {}\nhttp_requests_created{{{labels}}} 1700000000.123\n",
        idx * 7919
    )
}

/// Families of untyped metrics with the labels of [`counter`].
fn protobuf(sample_count: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for family in 0..sample_count / FAMILY_SAMPLES {
        let metrics: Vec<Vec<u8>> = (0..FAMILY_SAMPLES)
            .map(|idx| {
                let code = format!("{}", 200 + idx);
                let labels = [("code", code.as_str()), ("handler", "/api/v1/query"), ("method", "post")];
                let mut metric = Vec::new();
                put_metric(&mut metric, labels, NOW_MS, MetricValue::Untyped(idx as f64));
                metric
            })
            .collect();
        let bytes = metrics.iter().map(|metric| metric_field_bytes(metric.len())).sum();
        put_family_head(&mut body, &format!("http_requests_{family}_total"), FamilyType::Untyped, bytes);
        metrics.iter().for_each(|metric| put_metric_field(&mut body, metric));
    }
    body
}

/// Classic histograms of eight buckets: eleven samples each.
fn protobuf_buckets(sample_count: usize) -> Vec<u8> {
    let mut metric = Vec::new();
    chronolith_ingest::remote_write::encode::put_labels(&mut metric, [("handler", "/api/v1/query")]);
    let mut histogram = vec![0x08, 9, 0x11];
    histogram.extend_from_slice(&4.5f64.to_le_bytes());
    for bound in [0.005, 0.01, 0.025, 0.1, 1.0, 2.5, 10.0, f64::INFINITY] {
        let mut bucket = vec![0x08, 3, 0x11];
        bucket.extend_from_slice(&f64::to_le_bytes(bound));
        histogram.push(0x1a);
        put_uvarint(&mut histogram, bucket.len() as u64);
        histogram.extend_from_slice(&bucket);
    }
    metric.push(0x3a);
    put_uvarint(&mut metric, histogram.len() as u64);
    metric.extend_from_slice(&histogram);
    let metric_count = sample_count / 10;
    let mut body = Vec::new();
    let bytes = metric_field_bytes(metric.len()) * metric_count as u64;
    put_family_head(&mut body, "request_seconds", FamilyType::Histogram, bytes);
    (0..metric_count).for_each(|_| put_metric_field(&mut body, &metric));
    body
}

fn text(size: &Size, lines: Lines) -> Vec<u8> {
    (0..size.sample_count).flat_map(|idx| lines(idx).into_bytes()).collect()
}

fn open_metrics(size: &Size, lines: Lines) -> Vec<u8> {
    [text(size, lines), b"# EOF\n".to_vec()].concat()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` passes the flag, `cargo test` does not.
    if args.iter().any(|arg| arg == "--bench") {
        measure(&MEASURED, args.iter().find(|arg| !arg.starts_with("--")).map(String::as_str));
    } else {
        measure(&TESTED, None);
    }
}

fn measure(size: &Size, only: Option<&str>) {
    let rows: [(&str, Body); 7] = [
        ("text", (Format::Text, text(size, counter))),
        ("text, 6 labels", (Format::Text, text(size, wide))),
        ("text, buckets", (Format::Text, text(size, bucket))),
        ("openmetrics", (Format::OpenMetrics, open_metrics(size, counter))),
        ("openmetrics, created", (Format::OpenMetrics, open_metrics(size, with_created))),
        ("protobuf", (Format::Protobuf, protobuf(size.sample_count))),
        ("protobuf, buckets", (Format::Protobuf, protobuf_buckets(size.sample_count))),
    ];
    for (name, body) in rows.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        run(name, size, &body, false);
        run(name, size, &body, true);
    }
}

/// Decodes the body once per round; `hashes_keys` adds the hash that a look-up of each key needs.
fn run(name: &str, size: &Size, (format, body): &Body, hashes_keys: bool) {
    let clock = SystemClock::new();
    let options = DecodeOptions { mode: Mode::Strict, ..DecodeOptions::new(NOW_MS) };
    let mut batch = WriteBatch::new(Decoder::new(*format, options.clone()).source());
    let (mut best_ns, mut hash) = (u64::MAX, 0);
    for _ in 0..size.round_count {
        batch.clear();
        let start_ns = clock.mono_ns();
        let mut decoder = Decoder::new(*format, options.clone());
        let read = decoder.feed(body, &mut batch).expect("a valid body");
        assert_eq!(read, body.len(), "{name}: one batch");
        decoder.finish(&mut batch).expect("a valid body");
        if hashes_keys {
            batch.series.iter().for_each(|series| hash ^= hash_bytes(batch.raw_of(series)));
        }
        best_ns = best_ns.min(clock.mono_ns() - start_ns);
    }
    let sample_count = batch.times.len();
    assert!(sample_count >= size.sample_count / 2, "{name}: {sample_count} samples");
    assert!(!hashes_keys || hash != 1, "the hashes are used");
    let ns_per_sample = best_ns as f64 / sample_count as f64;
    let sample_bytes = body.len() / sample_count;
    let with = if hashes_keys { "with hash" } else { "" };
    println!("{name:<22} {with:<10} {sample_bytes:>4} B per sample {ns_per_sample:>6.1} ns per sample");
}
