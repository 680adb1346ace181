//! Decoding of carbon's protocols: nanoseconds per plaintext line and per pickled point, by form.
//!
//! `cargo bench -p chronolith-ingest --bench carbon_speed -- [row]`. `cargo test` decodes a small input once.

use std::sync::Arc;

use chronolith_base::{Clock as _, SystemClock};
use chronolith_ingest::carbon::{
    InputEnd, LineDecoder, PickleDecoder, PointWriter, Refused, RewriteRules, Rewriter, new_batch,
};

/// Size of a measurement.
struct Size {
    point_count: usize,
    round_count: usize,
}

const MEASURED: Size = Size { point_count: 10_000, round_count: 300 };
const TESTED: Size = Size { point_count: 20, round_count: 1 };
/// Points per frame.
const FRAME_POINTS: usize = 500;
const NOW_MS: i64 = 1_700_000_000_000;

/// Makes the line of an index, without its newline.
type Line = fn(usize) -> String;

fn value(idx: usize) -> String {
    if idx.is_multiple_of(2) { format!("{}", idx * 7919) } else { format!("{}.{:02}", idx % 900, idx % 100) }
}

fn path(idx: usize) -> String {
    format!("load.dc{}.host{:05}.metric{:02}", idx % 4, idx / 20, idx % 20)
}

fn untagged(idx: usize) -> String {
    format!("{} {} {}", path(idx), value(idx), 1_700_000_000 + idx / 1000)
}

fn tagged(idx: usize) -> String {
    format!("load.metric{:02};dc=dc{};host=h{:05} {} 1700000000", idx % 20, idx % 4, idx / 20, value(idx))
}

fn tags_out_of_order(idx: usize) -> String {
    format!("load.metric{:02};host=h{:05};dc=dc{} {} 1700000000", idx % 20, idx / 20, idx % 4, value(idx))
}

fn collectd(idx: usize) -> String {
    format!("{} {}.{:06} 1700000000\r", path(idx), idx % 900, idx % 1_000_000)
}

fn braces(idx: usize) -> String {
    format!(
        "load.metric{:02}{{dc=\"dc{}\",host=\"h{:05}\"}} {} 1700000000",
        idx % 20,
        idx % 4,
        idx / 20,
        value(idx)
    )
}

fn odd_number(idx: usize) -> String {
    format!("{} {}e-2 1700000000.5", path(idx), idx * 31)
}

/// A pickle of protocol 2, as carbon-relay sends it.
fn pickle(point_count: usize) -> Vec<u8> {
    let mut out = b"\x80\x02]q\x00(".to_vec();
    let mut memo = 1u32;
    let put = |out: &mut Vec<u8>, memo: &mut u32| {
        match u8::try_from(*memo) {
            Ok(short) => out.extend_from_slice(&[b'q', short]),
            Err(_) => {
                out.push(b'r');
                out.extend_from_slice(&memo.to_le_bytes());
            }
        }
        *memo += 1;
    };
    for idx in 0..point_count {
        let path = path(idx);
        out.push(b'X');
        out.extend_from_slice(&(path.len() as u32).to_le_bytes());
        out.extend_from_slice(path.as_bytes());
        put(&mut out, &mut memo);
        out.push(b'J');
        out.extend_from_slice(&1_700_000_000u32.to_le_bytes());
        out.push(b'G');
        out.extend_from_slice(&(idx as f64 / 8.0).to_be_bytes());
        out.push(0x86);
        put(&mut out, &mut memo);
        out.push(0x86);
        put(&mut out, &mut memo);
    }
    out.extend_from_slice(b"e.");
    out
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
    let rows: [(&str, Line); 6] = [
        ("untagged", untagged),
        ("tagged", tagged),
        ("CRLF", collectd),
        ("tags out of order", tags_out_of_order),
        ("braces", braces),
        ("odd number and time", odd_number),
    ];
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    for (name, line) in rows.into_iter().filter(|(name, _)| is_wanted(name)) {
        let input = lines(size, line);
        run(name, size, &input, |points| {
            LineDecoder::new().decode(&input, InputEnd::Closed, points);
        });
    }
    let input = lines(size, untagged);
    if is_wanted("prefix") {
        measure_prefix(size, &input);
    }
    if is_wanted("rewrite rules") {
        measure_rewrites(size, &input);
    }
    if is_wanted("pickle") {
        measure_pickle(size);
    }
}

/// Frames of 500 points, as carbon-relay sends them.
fn measure_pickle(size: &Size) {
    let frame_points = FRAME_POINTS.min(size.point_count);
    let frame = pickle(frame_points);
    let frames: Vec<&[u8]> = vec![&frame; size.point_count / frame_points];
    let mut decoder = PickleDecoder::new();
    run("pickle", size, &frames.concat(), |points| {
        for frame in &frames {
            decoder.decode(frame, points).expect("a valid pickle");
        }
    });
}

fn lines(size: &Size, line: Line) -> Vec<u8> {
    (0..size.point_count).flat_map(|idx| format!("{}\n", line(idx)).into_bytes()).collect()
}

fn measure_prefix(size: &Size, input: &[u8]) {
    run_with(size, "prefix", input, |batch, refused| {
        let mut points = PointWriter::new(batch, refused, NOW_MS).with_prefix("eu.");
        LineDecoder::new().decode(input, InputEnd::Closed, &mut points);
    });
}

fn measure_rewrites(size: &Size, input: &[u8]) {
    let text = "[a]\npattern = ^load\\.(\\w+)\\.(\\w+)\\.(.*)$\nname = \\3\nlabels =\n dc: \\1\n host: \\2";
    let rules = Arc::new(RewriteRules::parse(text).expect("valid rules").0);
    let mut rewriter = Rewriter::new(rules, 7);
    run_with(size, "rewrite rules", input, |batch, refused| {
        let mut points = PointWriter::new(batch, refused, NOW_MS).with_rewriter(&mut rewriter);
        LineDecoder::new().decode(input, InputEnd::Closed, &mut points);
    });
}

fn run(name: &str, size: &Size, input: &[u8], mut decode: impl FnMut(&mut PointWriter<'_>)) {
    run_with(size, name, input, |batch, refused| decode(&mut PointWriter::new(batch, refused, NOW_MS)));
}

fn run_with(
    size: &Size,
    name: &str,
    input: &[u8],
    mut decode: impl FnMut(&mut chronolith_model::WriteBatch, &mut Refused),
) {
    let clock = SystemClock::new();
    let mut batch = new_batch();
    let mut refused = Refused::default();
    let mut best_ns = u64::MAX;
    for _ in 0..size.round_count {
        batch.clear();
        let start_ns = clock.mono_ns();
        decode(&mut batch, &mut refused);
        best_ns = best_ns.min(clock.mono_ns() - start_ns);
    }
    assert_eq!(batch.series.len(), size.point_count, "{refused:?}");
    let ns_per_point = best_ns as f64 / size.point_count as f64;
    let point_bytes = input.len() / size.point_count;
    println!("{name:<24} {point_bytes:>4} B per point {ns_per_point:>6.1} ns per point");
}
