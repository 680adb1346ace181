//! Memory of the OTLP decoder: known series cost no allocation, hostile requests a multiple of their length.
//!
//! A test binary of its own, because it counts the allocations of the whole process; all in one test.

use std::alloc::System;

use chronolith_base::MemoryBudget;
use chronolith_ingest::otlp::encode::MessageEncoder;
use chronolith_ingest::otlp::{KeyMemory, Options, OtlpSettings, PointReject, Refused, Translated, decode};
use chronolith_ingest::remote_write::v2::SeriesNaming;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TIME_NS: u64 = 1_700_000_000_000_000_000;

struct Decoder {
    settings: OtlpSettings,
    memory: KeyMemory,
    out: Translated,
}

impl Decoder {
    fn new() -> Decoder {
        let settings = OtlpSettings { promote_all_resource_attributes: true, ..OtlpSettings::default() };
        Decoder { settings, memory: KeyMemory::new(64 << 20, 1), out: Translated::new() }
    }

    /// Decodes a request and returns the allocations that it made.
    fn decode(&mut self, body: &[u8]) -> (Refused, Stats) {
        let budget = MemoryBudget::new("write", 1 << 30);
        let mut held = budget.reserve(0).expect("0 bytes are below the limit");
        let mut histograms = budget.reserve(0).expect("0 bytes are below the limit");
        let options = Options {
            settings: &self.settings,
            version: 1,
            naming: SeriesNaming::AsSent,
            unfolded_bytes_max: 64 << 20,
            lookback_ms: 300_000,
        };
        let region = Region::new(ALLOCATOR);
        let refused = decode(body, &options, &mut self.memory, &mut held, &mut histograms, &mut self.out)
            .expect("a request");
        (refused, region.change())
    }
}

fn resource(attributes: usize) -> MessageEncoder {
    let resource = MessageEncoder::new().attribute(1, "service.name", "shop");
    (0..attributes).fold(resource, |resource, idx| resource.attribute(1, &format!("a{idx}"), "v"))
}

/// Gauges, sums and classic histograms of one resource, in equal parts.
fn request(resource: MessageEncoder, point_count: usize, time_ns: u64) -> Vec<u8> {
    let number = |idx: usize| {
        let point = MessageEncoder::new().attribute(7, "i", &idx.to_string());
        point.fixed64(2, TIME_NS - 1_000_000_000).fixed64(3, time_ns).double(4, idx as f64)
    };
    let explicit = |idx: usize| {
        let point = MessageEncoder::new().fixed64(3, time_ns).fixed64(4, 3).double(5, 1.0);
        point.packed(6, [1, 2]).packed(7, [1.0f64.to_bits()]).attribute(9, "i", &idx.to_string())
    };
    let list = |point: &dyn Fn(usize) -> MessageEncoder| {
        let points =
            (0..point_count / 3).fold(MessageEncoder::new(), |list, idx| list.message(1, point(idx)));
        points.varint(2, 2)
    };
    let metric = |name: &str, field: u64, list: MessageEncoder| {
        MessageEncoder::new().bytes(1, name).message(field, list)
    };
    let scope = MessageEncoder::new()
        .message(2, metric("gauge", 5, list(&number)))
        .message(2, metric("sum", 7, list(&number).varint(3, 1)))
        .message(2, metric("explicit", 9, list(&explicit)));
    let resource = MessageEncoder::new().message(1, resource).message(2, scope);
    MessageEncoder::new().message(1, resource).into_bytes()
}

#[test]
fn known_series_allocate_nothing_and_hostile_ones_little() {
    let mut allocations = Vec::new();
    for point_count in [30, 3_000] {
        let mut decoder = Decoder::new();
        for round in 0..4 {
            let body = request(resource(8), point_count, TIME_NS + round * 15_000_000_000);
            let (refused, change) = decoder.decode(&body);
            assert_eq!(refused, Refused::default());
            // Two number points, and four series of a histogram; one sample of `target_info`.
            assert_eq!(decoder.out.cumulative.times.len(), point_count / 3 * 6 + 1);
            if round == 3 {
                allocations.push(change.allocations + change.reallocations);
            }
        }
    }
    // Metadata of three metrics and of `target_info`, the name of the metric.
    assert_eq!(allocations[0], allocations[1], "points of known series allocate nothing");
    assert!(allocations[1] <= 24, "{allocations:?}");

    let body = request(resource(1_000_000), 30, TIME_NS);
    let (refused, change) = Decoder::new().decode(&body);
    assert_eq!(refused.of(PointReject::TooManyAttributes), 30);
    let allocated = change.bytes_allocated + usize::try_from(change.bytes_reallocated).unwrap_or(0);
    assert!(allocated < 1 << 20, "{allocated} bytes for {} attributes", 1_000_000);

    // Buckets of one byte each.
    let side = MessageEncoder::new().bytes(2, vec![0; 8 << 20]);
    let point = MessageEncoder::new().fixed64(3, TIME_NS).message(8, side);
    let list = MessageEncoder::new().message(1, point).varint(2, 2);
    let metric = MessageEncoder::new().bytes(1, "m").message(10, list);
    let parts = MessageEncoder::new().message(2, MessageEncoder::new().message(2, metric));
    let (refused, change) = Decoder::new().decode(&MessageEncoder::new().message(1, parts).into_bytes());
    assert_eq!(refused.of(PointReject::Malformed), 1, "{refused:?}");
    let allocated = change.bytes_allocated + usize::try_from(change.bytes_reallocated).unwrap_or(0);
    assert!(allocated < 4 << 20, "{allocated} bytes for buckets");
}
