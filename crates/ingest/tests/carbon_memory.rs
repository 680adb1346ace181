//! Memory of carbon's decoders: the bytes that hostile inputs allocate are a multiple of their length.
//!
//! A test binary of its own, because it counts the allocations of the whole process; all in one test.

use std::alloc::System;

use chronolith_base::Rng;
use chronolith_ingest::carbon::{
    AggregationRules, InputEnd, LineDecoder, PickleDecoder, PointWriter, Refused, RewriteRules, Schemas,
    decode_metrics, new_batch,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes per input that do not depend on its length.
const BASE_BYTES: usize = 64 << 10;

/// Runs `decode` over `input`: all that it allocates, whether freed or not, is at most `per_byte` bytes per
/// byte of the input. Growing vectors count each of their sizes, so the peak is about half of that.
#[track_caller]
fn check(name: &str, input: &[u8], per_byte: usize, decode: impl FnOnce(&mut PointWriter<'_>)) {
    let region = Region::new(ALLOCATOR);
    let mut batch = new_batch();
    let mut refused = Refused::default();
    decode(&mut PointWriter::new(&mut batch, &mut refused, 1));
    let change = region.change();
    let allocated = change.bytes_allocated + usize::try_from(change.bytes_reallocated).unwrap_or(0);
    let allowed = BASE_BYTES + per_byte * input.len();
    assert!(allocated <= allowed, "{name}: {allocated} bytes for {} of input", input.len());
}

fn check_lines(name: &str, input: &[u8]) {
    check(name, input, 48, |points| {
        LineDecoder::new().decode(input, InputEnd::Closed, points);
    });
}

fn check_pickle(name: &str, input: &[u8]) {
    check(name, input, 160, |points| _ = PickleDecoder::new().decode(input, points));
}

/// Lines and objects of the smallest size, references, nested and unfinished values, arbitrary bytes.
#[test]
fn hostile_inputs_allocate_a_multiple_of_their_length() {
    const BYTES: usize = 1 << 19;
    check_lines("short lines", &b"a 1\n".repeat(BYTES / 4));
    check_lines("bad lines", &b"a\n".repeat(BYTES / 2));
    check_lines("one long line", &vec![b'x'; BYTES]);
    check_lines("tags", &b";a=1".repeat(BYTES / 4));
    check_lines("tags out of order", &[b"m", &b";b=1;a=1".repeat(500)[..], b" 1 9\n"].concat().repeat(100));
    check_pickle("lists", &vec![b']'; BYTES]);
    check_pickle("values", &[&b"]("[..], &vec![b'N'; BYTES / 2 - 80], b"e."].concat());
    check_pickle("long text", &[&b"]X\xff\xff\xff\x7f"[..], &[b'x'; 100]].concat());
    let point = b"]q\x00(U\x01aK\x01K\x01\x86\x86q\x01";
    check_pickle("references", &[&point[..], &b"h\x01".repeat(BYTES / 2 - 40), b"e."].concat());
    check_pickle("memos", &[&b"]"[..], &b"\x94".repeat(BYTES)].concat());
    let rng = Rng::from_seed(6);
    let mut random = vec![0; BYTES];
    for _ in 0..20 {
        rng.fill(&mut random);
        check_lines("arbitrary lines", &random);
        check_pickle("arbitrary pickle", &random);
    }
    for body in [b"[".repeat(BYTES), b"[{}".to_vec(), [&b"["[..], &b"1,".repeat(BYTES / 2)].concat()] {
        check("metrics", &body, 64, |points| _ = decode_metrics(&body, points));
    }
    let numbers = [&b"[["[..], &b"1,".repeat(BYTES / 2)].concat();
    check("one metric", &numbers, 64, |points| _ = decode_metrics(&numbers, points));
    for text in ["[a]\nx=1\n".repeat(9000), "[a]\n".to_owned() + &"b\n".repeat(9000), "x".repeat(BYTES)] {
        check("files", text.as_bytes(), 256, |_| {
            _ = Schemas::parse(&text);
            _ = AggregationRules::parse(&text);
            _ = RewriteRules::parse(&text);
        });
    }
}
