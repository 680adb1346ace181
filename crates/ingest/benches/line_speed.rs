//! Decoding of line protocol: megabytes per second and nanoseconds per value, by form of the lines.
//!
//! `cargo bench -p chronolith-ingest --bench line_speed -- [row]`. `cargo test` decodes a small body once.

use chronolith_base::{Clock as _, SystemClock};
use chronolith_ingest::line_protocol::{DecodeOptions, Precision, decode, new_batch};

/// Size of a measurement.
struct Size {
    line_count: usize,
    round_count: usize,
}

const MEASURED: Size = Size { line_count: 10_000, round_count: 300 };
const TESTED: Size = Size { line_count: 20, round_count: 1 };
const NOW_NS: i64 = 1_700_000_000_000_000_000;

/// Makes the line of an index.
type Line = fn(usize) -> String;

fn tags(idx: usize) -> String {
    format!("host=h{:03},region=r{:02},dc=d{:02}", idx % 1000, idx / 7 % 100, idx / 3 % 10)
}

fn one_float(idx: usize) -> String {
    format!("cpu,{} v={}.{} {}", tags(idx), idx % 900, idx % 10, NOW_NS + idx as i64)
}

fn ten_floats(idx: usize) -> String {
    let names =
        ["user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"];
    let fields: Vec<String> = (names.iter().enumerate())
        .map(|(n, name)| format!("usage_{name}={}", (idx * n) as f64 / 8.0))
        .collect();
    format!("cpu,{} {} {}", tags(idx), fields.join(","), NOW_NS + idx as i64)
}

fn integers_and_text(idx: usize) -> String {
    let state = ["running", "sleeping, idle", "stopped"][idx % 3];
    format!("proc,{} n={}i,up=t,state=\"{state}\" {}", tags(idx), idx * 1_000_003, NOW_NS + idx as i64)
}

fn escaped(idx: usize) -> String {
    format!("cpu,{},path=C:\\ drive v={}.{} {}", tags(idx), idx % 900, idx % 10, NOW_NS + idx as i64)
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
    let rows: [(&str, Line); 4] = [
        ("one float", one_float),
        ("ten floats", ten_floats),
        ("integer, boolean, text", integers_and_text),
        ("escaped tag", escaped),
    ];
    let clock = SystemClock::new();
    let options = DecodeOptions::new(Precision::Nano, NOW_NS);
    for (name, line) in rows.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let mut body: Vec<u8> = Vec::new();
        for idx in 0..size.line_count {
            body.extend_from_slice(line(idx).as_bytes());
            body.push(b'\n');
        }
        let byte_count = body.len();
        let mut batch = new_batch();
        let mut best_ns = u64::MAX;
        for _ in 0..size.round_count {
            let start_ns = clock.mono_ns();
            let refused = decode(body, &options, &mut batch);
            best_ns = best_ns.min(clock.mono_ns() - start_ns);
            assert!(refused.is_empty(), "{refused:?}");
            body = std::mem::take(&mut batch.raw);
            body.truncate(byte_count);
        }
        let megabytes_per_s = byte_count as f64 * 1e3 / best_ns as f64;
        let ns_per_value = best_ns as f64 / batch.series.len() as f64;
        let line_bytes = byte_count / size.line_count;
        println!(
            "{name:<24} {line_bytes:>4} B per line {megabytes_per_s:>7.0} MB/s {ns_per_value:>6.1} ns per value"
        );
    }
}
