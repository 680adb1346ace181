//! Records of the replicated log: bytes per sample, nanoseconds and allocations per sample of encoder, with
//! and without LZ4, and decoder.
//!
//! `cargo bench -p chronolith-format --bench record_speed`. `cargo test` runs one round over few series, and
//! verifies bytes and allocations, which do not depend on the machine.

use chronolith_base::{Clock as _, SystemClock};
use chronolith_format::record::{
    BatchSplit, RecordDecoder, RecordEncoder, RecordOrigin, RecordStore, SampleOrigin,
};
use chronolith_model::batch::{BatchSeries, LabelSource};
use chronolith_model::{DuplicatePolicy, LabelsBuilder, Reject, SeriesKey, TenantId, WordKind, WriteBatch};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Size of a measurement.
struct Size {
    series_count: u32,
    round_count: u32,
}

const MEASURED: Size = Size { series_count: 5_000, round_count: 300 };
const TESTED: Size = Size { series_count: 500, round_count: 2 };
/// Allocations per record, whatever its samples: tenant and request id.
const ALLOCATIONS_MAX: usize = 4;

fn no_labels(_: SeriesKey<'_>, _: &mut LabelsBuilder) -> Result<(), Reject> {
    Ok(())
}

fn source(protocol: u8) -> Option<LabelSource> {
    Some(LabelSource { protocol, parse: no_labels, is_typed: false })
}

fn new_batch() -> WriteBatch {
    WriteBatch::new(source(1).expect("a source"))
}

/// Appends a label as remote write has it.
fn put_label(name: &str, value: &str, raw: &mut Vec<u8>) {
    let len = |text: &str| u8::try_from(text.len()).expect("a short text");
    raw.extend_from_slice(&[0x0a, len(name) + len(value) + 4, 0x0a, len(name)]);
    raw.extend_from_slice(name.as_bytes());
    raw.extend_from_slice(&[0x12, len(value)]);
    raw.extend_from_slice(value.as_bytes());
}

fn bits_of(idx: u32) -> u64 {
    u64::from(idx).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Series of a node exporter, target after target, with ten labels; `sample_count` samples each.
fn scrape(size: &Size, sample_count: u32) -> WriteBatch {
    let mut batch = new_batch();
    for idx in 0..size.series_count {
        let target = idx / 500;
        let metric = idx % 500;
        let start = batch.raw.len() as u32;
        let raw = &mut batch.raw;
        put_label("__name__", &format!("node_network_{}_bytes_total", metric / 10), raw);
        put_label("cluster", "europe-west-1", raw);
        put_label("device", &format!("eth{}", metric % 10), raw);
        put_label("instance", &format!("10.12.{}.{}:9100", target / 250, target % 250), raw);
        put_label("job", "node", raw);
        put_label("region", "eu", raw);
        let first = batch.times.len() as u32;
        for at in 0..sample_count {
            // Counters of bytes, whose low bits change.
            let value = (bits_of(metric) >> 24) as f64 + f64::from(at * 1_000);
            batch.push_sample(1_700_000_000_000 + i64::from(at) * 15_000, value, 0);
        }
        let raw = start..batch.raw.len() as u32;
        batch.series.push(BatchSeries { raw, samples: first..batch.times.len() as u32 });
    }
    batch
}

/// Lines with ten fields.
fn lines(size: &Size) -> WriteBatch {
    let mut batch = new_batch();
    for line in 0..size.series_count / 10 {
        let start = batch.raw.len() as u32;
        batch.raw.extend_from_slice(
            format!("cpu,cpu=cpu{},host=web-{:04},region=eu", line % 8, line / 8).as_bytes(),
        );
        let raw = start..batch.raw.len() as u32;
        for field in 0..10 {
            let start = batch.raw.len() as u32;
            batch.raw.extend_from_slice(format!("usage_{field}").as_bytes());
            batch.fields.push(start..batch.raw.len() as u32);
            batch.kinds.push(WordKind::Float);
            batch.rows.push(line);
            let at = batch.times.len() as u32;
            batch.push_sample(1_700_000_000_000_000_000, (bits_of(line * 10 + field) >> 54) as f64 / 10.0, 0);
            batch.series.push(BatchSeries { raw: raw.clone(), samples: at..at + 1 });
        }
    }
    batch
}

fn main() {
    // `cargo bench` passes the flag, `cargo test` does not.
    let size = if std::env::args().any(|arg| arg == "--bench") { &MEASURED } else { &TESTED };
    measure("remote write, 1 sample per series", &scrape(size, 1), size, 30.0);
    measure("remote write, 100 samples per series", &scrape(size, 100), size, 12.0);
    measure("line protocol, 10 fields per line", &lines(size), size, 16.0);
}

/// Replaces `records` by the records of a batch.
fn encode_all(
    encoder: &mut RecordEncoder,
    origin: SampleOrigin<'_>,
    batch: &WriteBatch,
    split: &mut BatchSplit,
    records: &mut Vec<Vec<u8>>,
) {
    records.clear();
    split.fill(batch, 1, |_| 0);
    for part in split.parts() {
        encoder.encode(origin, batch, part, |record| records.push(record.to_vec())).expect("fits");
    }
}

fn measure(name: &str, batch: &WriteBatch, size: &Size, bytes_max: f64) {
    let request = RecordOrigin {
        tenant: TenantId::new("team-1").expect("a tenant id"),
        store: RecordStore::Default,
        request_id: "9f8e".to_owned(),
        arrival_ms: 1_700_000_000_123,
    };
    let origin = SampleOrigin { request: &request, duplicates: DuplicatePolicy::KeepFirst };
    let sample_count = batch.sample_count() as f64;
    let mut split = BatchSplit::default();
    let mut encoder = RecordEncoder::default();
    let mut packing = RecordEncoder::packed();
    let mut decoded = new_batch();
    let mut decoder = RecordDecoder::default();
    let mut records: Vec<Vec<u8>> = Vec::new();
    let mut packed: Vec<Vec<u8>> = Vec::new();
    let mut lens: Option<Vec<usize>> = None;
    let clock = SystemClock::new();
    let (mut encode_ns, mut pack_ns, mut decode_ns) = (u64::MAX, u64::MAX, u64::MAX);
    let mut allocation_count = 0;
    for _ in 0..size.round_count {
        let start_ns = clock.mono_ns();
        encode_all(&mut encoder, origin, batch, &mut split, &mut records);
        encode_ns = encode_ns.min(clock.mono_ns() - start_ns);
        let found: Vec<usize> = records.iter().map(Vec::len).collect();
        assert_eq!(
            *lens.get_or_insert_with(|| found.clone()),
            found,
            "{name}: each round has the same records"
        );
        let start_ns = clock.mono_ns();
        encode_all(&mut packing, origin, batch, &mut split, &mut packed);
        pack_ns = pack_ns.min(clock.mono_ns() - start_ns);
        let region = Region::new(ALLOCATOR);
        let start_ns = clock.mono_ns();
        let mut found = 0;
        for record in &packed {
            decoder.decode(record, source, &mut decoded).expect("a record");
            found += decoded.sample_count();
        }
        decode_ns = decode_ns.min(clock.mono_ns() - start_ns);
        // The first round grows the columns.
        allocation_count = region.change().allocations;
        assert_eq!(found, batch.sample_count(), "{name}");
    }
    let bytes: usize = records.iter().map(Vec::len).sum();
    let raw_bytes =
        batch.series.iter().map(|series| series.raw.len()).sum::<usize>() as f64 + 16.0 * sample_count;
    let packed_bytes: usize = packed.iter().map(Vec::len).sum();
    let zstd_bytes: usize =
        records.iter().map(|record| compress_to_vec(&record[..], CompressionLevel::Fastest).len()).sum();
    let per_sample = |value: f64| value / sample_count;
    println!(
        "{name}: {:.1} B per sample, {:.1} packed, {:.1} zstd (fastest), {:.1} with keys in full; encode {:.1} ns, \
         encode and pack {:.1} ns, unpack and decode {:.1} ns per sample; {allocation_count} allocations for {} records",
        per_sample(bytes as f64),
        per_sample(packed_bytes as f64),
        per_sample(zstd_bytes as f64),
        per_sample(raw_bytes),
        per_sample(encode_ns as f64),
        per_sample(pack_ns as f64),
        per_sample(decode_ns as f64),
        records.len()
    );
    assert!(per_sample(bytes as f64) <= bytes_max, "{name}: at most {bytes_max} B per sample");
    assert!(allocation_count <= ALLOCATIONS_MAX * records.len(), "{name}: {allocation_count} allocations");
}
