//! Decoding of remote write requests: nanoseconds per series with one sample, by protocol version.
//!
//! `cargo bench -p chronolith-ingest --bench decode_speed -- [row]`. `cargo test` decodes a small request
//! once.

use chronolith_base::{Clock as _, MemoryBudget, SystemClock};
use chronolith_ingest::remote_write::v2::encode::{SampleOut, SeriesExtras};
use chronolith_ingest::remote_write::{self, encode, new_batch, v2};
use chronolith_model::MetricKind;

/// Size of a measurement.
struct Size {
    series_count: usize,
    round_count: usize,
}

const MEASURED: Size = Size { series_count: 5_000, round_count: 200 };
const TESTED: Size = Size { series_count: 20, round_count: 1 };
const BYTES_MAX: usize = 32 << 20;

/// Ten labels of a series, as targets of an orchestrator have them.
fn labels(idx: usize) -> Vec<(&'static str, String)> {
    vec![
        ("__name__", format!("container_cpu_usage_seconds_{}_total", idx % 50)),
        ("cluster", "europe-west-1".to_owned()),
        ("container", "application".to_owned()),
        ("cpu", format!("{}", idx % 8)),
        ("endpoint", "https-metrics".to_owned()),
        ("instance", format!("10.12.{}.{}:10250", idx / 250 % 250, idx % 250)),
        ("job", "kubelet".to_owned()),
        ("namespace", format!("team-{}", idx % 20)),
        ("node", format!("node-pool-{}", idx % 100)),
        ("pod", format!("application-5d8f7c9b6d-{idx:05}")),
    ]
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
    let (mut one, mut two) = (encode::RequestEncoder::new(), v2::encode::RequestEncoder::new());
    for idx in 0..size.series_count {
        let labels = labels(idx);
        let pairs = || labels.iter().map(|(name, value)| (*name, value.as_str()));
        let (time_ms, value) = (1_700_000_000_000, idx as f64 * 1.5);
        one.push_series(pairs(), &[(time_ms, value)]);
        let extras = SeriesExtras {
            kind: MetricKind::Counter,
            help: "Cumulative CPU time consumed by the container in core-seconds.",
            unit: "seconds",
            ..SeriesExtras::default()
        };
        two.push_series(pairs(), &[SampleOut { time_ms, value, start_ms: time_ms - 1_000_000 }], &extras);
    }
    let clock = SystemClock::new();
    let mut batch = new_batch();
    let budget = MemoryBudget::new("write", 1 << 30);
    let mut held = budget.reserve(0).expect("0 bytes are below the limit");
    let mut histograms = budget.reserve(0).expect("0 bytes are below the limit");
    let rows =
        [("1.0", one.compressed()), ("2.0", two.compressed()), ("2.0 by type and unit", two.compressed())];
    for (name, body) in rows.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let mut best_ns = u64::MAX;
        for _ in 0..size.round_count {
            let start_ns = clock.mono_ns();
            match name {
                "1.0" => remote_write::decode(&body, BYTES_MAX, &mut histograms, &mut batch),
                "2.0" => {
                    let naming = v2::SeriesNaming::AsSent;
                    v2::decode(&body, BYTES_MAX, &mut held, &mut histograms, naming, &mut batch)
                }
                _ => {
                    let naming = v2::SeriesNaming::TypeAndUnit;
                    v2::decode(&body, BYTES_MAX, &mut held, &mut histograms, naming, &mut batch)
                }
            }
            .expect("the request is valid");
            assert_eq!(batch.series.len(), size.series_count, "{name}");
            best_ns = best_ns.min(clock.mono_ns() - start_ns);
            let bytes = held.bytes();
            held.shrink(bytes);
        }
        let ns = best_ns as f64 / size.series_count as f64;
        println!("remote write {name}: {:7} bytes, {ns:6.1} ns/series", body.len());
    }
}
