//! Decoding of OTLP requests: nanoseconds and allocations per point of a known and of an unknown series, next
//! to remote write 2.0 with the same labels and values.
//!
//! `cargo bench -p chronolith-ingest --bench otlp_speed`. `cargo test` decodes a small request once.

use std::alloc::System;

use chronolith_base::{Clock as _, MemoryBudget, SystemClock};
use chronolith_ingest::otlp::encode::MessageEncoder;
use chronolith_ingest::otlp::{KeyMemory, Options, OtlpSettings, Translated, decode};
use chronolith_ingest::remote_write::v2::encode::{RequestEncoder, SampleOut, SeriesExtras};
use chronolith_ingest::remote_write::{new_batch, v2};
use chronolith_model::MetricKind;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Size of a measurement: resources, metrics of each, and rounds.
struct Size {
    resource_count: usize,
    metric_count: usize,
    round_count: usize,
}

const MEASURED: Size = Size { resource_count: 100, metric_count: 10, round_count: 200 };
const TESTED: Size = Size { resource_count: 2, metric_count: 2, round_count: 1 };
/// Points of each metric.
const POINT_COUNT: usize = 5;
const BYTES_MAX: usize = 32 << 20;
const TIME_MS: i64 = 1_700_000_000_000;
const DESCRIPTION: &str = "Cumulative CPU time consumed by the container in core-seconds.";

/// Eight attributes of a resource.
fn resource(idx: usize) -> Vec<(&'static str, String)> {
    vec![
        ("service.name", "application".to_owned()),
        ("service.namespace", format!("team-{}", idx % 20)),
        ("service.instance.id", format!("application-5d8f7c9b6d-{idx:05}")),
        ("k8s.cluster.name", "europe-west-1".to_owned()),
        ("k8s.node.name", format!("node-pool-{}", idx % 100)),
        ("k8s.pod.uid", format!("0a3c5e7d-1b2f-4a6c-8e9d-{idx:012}")),
        ("deployment.environment", "production".to_owned()),
        ("telemetry.sdk.language", "java".to_owned()),
    ]
}

/// Two attributes of a point.
fn attributes(idx: usize) -> [(&'static str, String); 2] {
    [("cpu", format!("{idx}")), ("http.route", format!("/api/v1/orders/{}", idx % 3))]
}

fn otlp_request(size: &Size) -> Vec<u8> {
    let mut request = MessageEncoder::new();
    for resource_idx in 0..size.resource_count {
        let mut scope =
            MessageEncoder::new().message(1, MessageEncoder::new().bytes(1, "io.opentelemetry.http"));
        for metric_idx in 0..size.metric_count {
            let mut sum = MessageEncoder::new();
            for point_idx in 0..POINT_COUNT {
                let mut point = MessageEncoder::new()
                    .fixed64(2, (TIME_MS - 1_000_000).cast_unsigned() * 1_000_000)
                    .fixed64(3, TIME_MS.cast_unsigned() * 1_000_000)
                    .double(4, point_idx as f64 * 1.5);
                for (key, value) in attributes(point_idx) {
                    point = point.attribute(7, key, &value);
                }
                sum = sum.message(1, point);
            }
            let metric = MessageEncoder::new()
                .bytes(1, format!("container.cpu.usage.{metric_idx}"))
                .bytes(2, DESCRIPTION)
                .bytes(3, "s")
                .message(7, sum.varint(2, 2).varint(3, 1));
            scope = scope.message(2, metric);
        }
        let resource = resource(resource_idx)
            .iter()
            .fold(MessageEncoder::new(), |resource, (key, value)| resource.attribute(1, key, value));
        request = request.message(1, MessageEncoder::new().message(1, resource).message(2, scope));
    }
    request.into_bytes()
}

fn remote_write_request(size: &Size) -> Vec<u8> {
    let mut request = RequestEncoder::new();
    for resource_idx in 0..size.resource_count {
        for metric_idx in 0..size.metric_count {
            for point_idx in 0..POINT_COUNT {
                let mut labels =
                    vec![("__name__", format!("container_cpu_usage_{metric_idx}_seconds_total"))];
                labels.extend(resource(resource_idx));
                labels.extend(attributes(point_idx));
                let pairs = labels.iter().map(|(name, value)| (*name, value.as_str()));
                let sample = SampleOut {
                    time_ms: TIME_MS,
                    value: point_idx as f64 * 1.5,
                    start_ms: TIME_MS - 1_000_000,
                };
                let kind = MetricKind::Counter;
                let extras =
                    SeriesExtras { kind, help: DESCRIPTION, unit: "seconds", ..SeriesExtras::default() };
                request.push_series(pairs, &[sample], &extras);
            }
        }
    }
    request.compressed()
}

fn main() {
    // `cargo bench` passes the flag, `cargo test` does not.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    measure(if is_bench { &MEASURED } else { &TESTED });
}

/// Prints the best time of a round, and the allocations of the last one.
fn best(rounds: usize, points: usize, name: &str, mut round: impl FnMut()) {
    let clock = SystemClock::new();
    let mut best_ns = u64::MAX;
    let mut allocations = 0;
    for _ in 0..rounds {
        let region = Region::new(ALLOCATOR);
        let start_ns = clock.mono_ns();
        round();
        best_ns = best_ns.min(clock.mono_ns() - start_ns);
        allocations = region.change().allocations;
    }
    let ns = best_ns as f64 / points as f64;
    println!("{name}: {ns:7.1} ns/point, {:.3} allocations/point", allocations as f64 / points as f64);
}

fn measure(size: &Size) {
    let points = size.resource_count * size.metric_count * POINT_COUNT;
    let settings = OtlpSettings {
        promote_all_resource_attributes: true,
        ignore_resource_attributes: ["service.name", "service.namespace", "service.instance.id"]
            .map(str::to_owned)
            .to_vec(),
        ..OtlpSettings::default()
    };
    let options = |version: u64| Options {
        settings: &settings,
        version,
        naming: v2::SeriesNaming::AsSent,
        unfolded_bytes_max: BYTES_MAX,
        lookback_ms: 300_000,
    };
    let budget = MemoryBudget::new("write", 1 << 30);
    let reserve = || budget.reserve(0).expect("0 bytes are below the limit");
    let body = otlp_request(size);
    println!("OTLP: {} bytes, {points} points", body.len());
    let mut memory = KeyMemory::new(64 << 20, 1);
    let mut out = Translated::new();
    for (name, is_known) in [("otlp, known series  ", true), ("otlp, unknown series", false)] {
        let mut version = 1;
        best(size.round_count, points, name, || {
            version += u64::from(!is_known);
            let options = options(version);
            decode(&body, &options, &mut memory, &mut reserve(), &mut reserve(), &mut out)
                .expect("a request");
            assert_eq!(out.cumulative.series.len(), points + size.resource_count, "with target_info");
        });
    }
    println!("key memory: {} bytes per series", memory.bytes() / points);
    let body = remote_write_request(size);
    let mut batch = new_batch();
    best(size.round_count, points, "remote write 2.0    ", || {
        let naming = v2::SeriesNaming::AsSent;
        v2::decode(&body, BYTES_MAX, &mut reserve(), &mut reserve(), naming, &mut batch).expect("a request");
        assert_eq!(batch.series.len(), points);
    });
}
