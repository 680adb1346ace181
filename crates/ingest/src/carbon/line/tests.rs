//! Lines against carbon 1.1.10, the forms of senders, ends of inputs, prefix and rewrite rules.

use std::sync::Arc;

use super::*;
use crate::carbon::tests::{Decoded, decode_with, render};
use crate::carbon::{Refused, RewriteRules, Rewriter, new_batch};

fn decode(input: &[u8]) -> Decoded {
    decode_with(|points| {
        assert_eq!(LineDecoder::new().decode(input, InputEnd::Closed, points), input.len());
    })
}

#[track_caller]
fn check(input: &[u8], want: &[&str]) {
    let decoded = decode(input);
    assert_eq!(decoded.points, want, "{}", input.escape_ascii());
    assert_eq!(decoded.refused.total(), 0, "{:?}", decoded.refused);
}

/// Refuses a line by itself, with good lines around it.
#[track_caller]
fn check_refused(line: &[u8], reason: RefusedReason) {
    let decoded = decode(&[b"x 1 1700000000\n", line, b"\nx 2 1700000000\n"].concat());
    assert_eq!(decoded.points, ["x 1 @1700000000000", "x 2 @1700000000000"], "{}", line.escape_ascii());
    assert_eq!(decoded.refused.total(), 1);
    let kept = String::from_utf8_lossy(&line[..line.len().min(256)]).into_owned();
    assert_eq!(decoded.refused.newest(reason).map(|line| line.text.clone()), Some(kept));
}

/// A line, the result of carbon 1.1.10, and the difference here.
struct Odd {
    line: &'static str,
    /// Canonical path, value and time; "refused", or "dropped" if carbon ends the connection.
    carbon: &'static str,
    /// Empty if it is the same.
    here: &'static str,
}

const fn same(line: &'static str, carbon: &'static str) -> Odd {
    Odd { line, carbon, here: "" }
}

const fn differs(line: &'static str, carbon: &'static str, here: &'static str) -> Odd {
    Odd { line, carbon, here }
}

/// `T` is 1700000000, `now` the clock. The middle column was observed with carbon 1.1.10 from PyPI on Python
/// 3.10: `MetricLineReceiver.lineReceived(line)` with a handler of `events.metricReceived`, and the path by
/// `TaggedSeries.parse(metric).path`, or as sent if that raises. Dots are collapsed by whisper's file paths.
const ODD_LINES: &[Odd] = &[
    same("a.b 1 T", "a.b 1 T"),
    same("a.b\t1\tT", "a.b 1 T"),
    same(" a.b  1   T ", "a.b 1 T"),
    same("a.b 1 T\r", "a.b 1 T"),
    same("a\u{b}1\u{1f}T", "a 1 T"),
    same("a 1 -1", "a 1 now"),
    same("a 1 -1.5", "a 1 now"),
    differs("a 1 N", "refused", "a 1 now"),
    differs("a 1", "refused", "a 1 now"),
    same("a", "refused"),
    same("a 1 T.9", "a 1 T"),
    same("a 1 1.7e9", "a 1 T"),
    same("a 1 +T", "a 1 T"),
    same("a 1 1_700_000_000", "a 1 T"),
    differs("a 1 1700000000123", "stored at a time that no query can ask for", "a 1 1700000000123"),
    differs("a 1 0", "stored at a time that no query can ask for", "refused"),
    differs("a 1 -5", "stored at a time that no query can ask for", "refused"),
    differs("a 1 nan", "dropped", "refused"),
    same("a nan T", "refused"),
    same("a NaN T", "refused"),
    same("a -nan T", "refused"),
    same("a inf T", "a inf T"),
    same("a -Infinity T", "a -inf T"),
    same("a 1e400 T", "a inf T"),
    same("a -1e400 T", "a -inf T"),
    same("a +5 T", "a 5 T"),
    same("a .5 T", "a 0.5 T"),
    same("a 5. T", "a 5 T"),
    same("a 1e3 T", "a 1000 T"),
    same("a 1_000 T", "a 1000 T"),
    same("a 1__0 T", "refused"),
    same("a _1 T", "refused"),
    same("a 1_ T", "refused"),
    same("a 1._5 T", "refused"),
    same("a . T", "refused"),
    same("a 0x10 T", "refused"),
    same("a 1,5 T", "refused"),
    same("a true T", "refused"),
    same("a 1i T", "refused"),
    same("a 1 2 3", "refused"),
    same("a..b 1 T", "a.b 1 T"),
    same(".a 1 T", "a 1 T"),
    same("a. 1 T", "a 1 T"),
    differs("... 1 T", "... 1 T", "refused"),
    differs("a\0b 1 T", "refused when the file is made", "refused"),
    differs("a\u{1}b 1 T", "a\u{1}b 1 T", "refused"),
    same("é.ü 1 T", "é.ü 1 T"),
    differs("a\u{a0}1 T", "a 1 T", "a\u{a0}1 1700000000 now"),
    same("a/b:c#d%e=(f)[g]*?'h' 1 T", "a/b:c#d%e=(f)[g]*?'h' 1 T"),
    same("m;b=2;a=1 1 T", "m;a=1;b=2 1 T"),
    same("m;a=1;a=2 1 T", "m;a=2 1 T"),
    same("m;a= 1 T", "m;a= 1 T"),
    same("m; 1 T", "m; 1 T"),
    same("m;a 1 T", "m;a 1 T"),
    same("m;=x 1 T", "m;=x 1 T"),
    same("m;a=~x 1 T", "m;a=~x 1 T"),
    same("m;a!=x 1 T", "m;a!=x 1 T"),
    same("m;a^=x 1 T", "m;a^=x 1 T"),
    same("m;name=zzz 1 T", "m 1 T"),
    same("m;name=zzz;a=1 1 T", "m;a=1 1 T"),
    same("m;a=b=c 1 T", "m;a=b=c 1 T"),
    same("~m;a=1 1 T", "m;a=1 1 T"),
    same("~m 1 T", "m 1 T"),
    same(r#"m{a="b",c="d"} 1 T"#, "m;a=b;c=d 1 T"),
    same(r#"m{c="d",a="b"} 1 T"#, "m;a=b;c=d 1 T"),
    same(r#"m{a="b\"c"} 1 T"#, "m;a=b\"c 1 T"),
    same(r#"m{a=""} 1 T"#, r#"m{a=""} 1 T"#),
    same(r#"m{a="b",} 1 T"#, r#"m{a="b",} 1 T"#),
    same(r#"{a="b"} 1 T"#, r#"{a="b"} 1 T"#),
    same(r#"m{a="b c"} 1 T"#, "refused"),
    differs(r#"m;x{a="b"} 1 T"#, "m;x;a=b 1 T", r#"m;x{a="b"} 1 T"#),
    differs(r#"m{a="b":,c="d"} 1 T"#, "m;a=b;c=d 1 T", r#"m{a="b":,c="d"} 1 T"#),
    same(";a=b 1 T", ";a=b 1 T"),
];

#[test]
fn odd_lines_are_read_as_by_carbon() {
    for odd in ODD_LINES {
        let line = odd.line.replace('T', "1700000000");
        let decoded = decode(line.as_bytes());
        let want = if odd.here.is_empty() { odd.carbon } else { odd.here };
        if want == "refused" {
            assert_eq!((decoded.points.len(), decoded.refused.total()), (0, 1), "{}", odd.line);
            continue;
        }
        let (rest, time) = want.rsplit_once(' ').expect("path, value, time");
        let time = match time {
            "now" => "1234567",
            "T" => "1700000000000",
            time => time,
        };
        assert_eq!(decoded.points, [format!("{rest} @{time}")], "{}", odd.line);
    }
}

#[test]
fn lines_refuse_themselves_alone() {
    check_refused(b"a", RefusedReason::MissingValue);
    check_refused(b"a 1 2 3", RefusedReason::TooManyFields);
    check_refused(b"a x 1700000000", RefusedReason::BadValue);
    check_refused(b"a nan 1700000000", RefusedReason::Nan);
    check_refused(b"a 1 x", RefusedReason::BadTime);
    check_refused(b"a 1 nan", RefusedReason::BadTime);
    check_refused(b"a 1 170000000000", RefusedReason::TimeRange);
    check_refused(b"... 1 1700000000", RefusedReason::EmptyPath);
    check_refused(b"a\0 1 1700000000", RefusedReason::ControlByte);
    check_refused(b"a\x7f 1 1700000000", RefusedReason::ControlByte);
    check_refused(b"\xff\xfe 1 1700000000", RefusedReason::InvalidUtf8);
    check_refused(&[b"a.", &[b'n'; 1025][..], b".b 1 1700000000"].concat(), RefusedReason::NodeTooLong);
    check_refused(&[&b"a.".repeat(2048)[..], b" 1 1700000000"].concat(), RefusedReason::LineTooLong);
    check_refused(&[b"a ", &[b'1'; 4096][..], b" 1700000000"].concat(), RefusedReason::LineTooLong);
    check(b"\n\r\n \t\n", &[]);
}

#[test]
fn limits_are_inclusive() {
    let node = "n".repeat(1024);
    let decoded = decode(format!("{node}.{node} 1 1700000000\n").as_bytes());
    assert_eq!(decoded.points, [format!("{node}.{node} 1 @1700000000000")]);
    let line = format!("m;a={} 1 1700000000", "v".repeat(4096 - 17));
    assert_eq!(line.len(), 4096);
    assert_eq!(decode(line.as_bytes()).points.len(), 1);
    assert_eq!(decode(format!("{line}\n").as_bytes()).points.len(), 1);
}

/// Lines as senders write them.
#[test]
fn lines_of_senders_are_read() {
    // collectd's write_graphite: CRLF, `nan`, counters as integers.
    let decoded = decode(
        b"collectd.h1.cpu-0.cpu-user 12.500000 1700000000\r\ncollectd.h1.df.free nan 1700000000\r\n\
          collectd.h1.if_octets.rx 18446744073709551615 1700000000\r\n",
    );
    assert_eq!(
        decoded.points,
        [
            "collectd.h1.cpu-0.cpu-user 12.5 @1700000000000",
            "collectd.h1.if_octets.rx 18446744073709552000 @1700000000000",
        ]
    );
    assert_eq!(decoded.refused.count(RefusedReason::Nan), 1);
    // statsd: a connection per flush, the last line may lack its newline.
    check(
        b"stats.counters.a.rate 0.2 1700000000\nstats.timers.b.mean_90 103.5 1700000000\nstatsd.numStats 3 1700000000",
        &[
            "stats.counters.a.rate 0.2 @1700000000000",
            "stats.timers.b.mean_90 103.5 @1700000000000",
            "statsd.numStats 3 @1700000000000",
        ],
    );
    // Telegraf's graphite_tag_support; carbon-c-relay and carbon-relay-ng send on as received.
    check(
        b"cpu.usage_idle;cpu=cpu0;host=h1 98.1 1700000000\ncpu.usage_idle;host=h1;cpu=cpu0 98.2 1700000010\n",
        &[
            "cpu.usage_idle;cpu=cpu0;host=h1 98.1 @1700000000000",
            "cpu.usage_idle;cpu=cpu0;host=h1 98.2 @1700000010000",
        ],
    );
}

/// Tags out of order have the wire key of tags in order: a sender with maps of random order makes no more.
#[test]
fn tags_in_any_order_are_one_wire_key() {
    let mut batch = new_batch();
    let mut refused = Refused::default();
    let input = b"m;a=1;b=2;c=3 1 9\nm;c=3;b=2;a=1 1 9\nm;b=2;a=1;c=3 1 9\nm{c=\"3\",a=\"1\",b=\"2\"} 1 9\n";
    LineDecoder::new().decode(input, InputEnd::Closed, &mut PointWriter::new(&mut batch, &mut refused, 1));
    let keys: Vec<&[u8]> = (0..4).map(|idx| batch.key_of(idx).raw).collect();
    assert_eq!(keys, [b"m;a=1;b=2;c=3"; 4]);
}

/// Any cut of the input into reads gives the same points.
#[test]
fn unfinished_lines_are_kept_by_the_caller() {
    let input = b"a.b 1 1700000000\nm;x=1;y=2 2.5 1700000001\r\nbad\n\xff 1 1\nc 3 1700000002";
    let whole = decode(input);
    assert_eq!((whole.points.len(), whole.refused.total()), (3, 2));
    for read_bytes in 1..input.len() {
        let decoded = decode_with(|points| {
            let mut decoder = LineDecoder::new();
            let mut kept: Vec<u8> = Vec::new();
            for read in input.chunks(read_bytes) {
                kept.extend_from_slice(read);
                let used = decoder.decode(&kept, InputEnd::Open, points);
                kept.drain(..used);
            }
            assert_eq!(decoder.decode(&kept, InputEnd::Closed, points), kept.len());
        });
        assert_eq!(decoded.points, whole.points, "{read_bytes}");
        assert_eq!(decoded.refused, whole.refused, "{read_bytes}");
    }
}

#[test]
fn a_line_without_end_is_refused_once_and_skipped() {
    let decoded = decode_with(|points| {
        let mut decoder = LineDecoder::new();
        let long = vec![b'x'; 5000];
        assert_eq!(decoder.decode(&long[..4096], InputEnd::Open, points), 0);
        assert_eq!(decoder.decode(&long, InputEnd::Open, points), 5000);
        assert_eq!(decoder.decode(&long, InputEnd::Open, points), 5000);
        let end = b"x 1 1700000000\na 2 1700000000\nb 3";
        assert_eq!(decoder.decode(end, InputEnd::Open, points), end.len() - 3);
        assert_eq!(decoder.decode(b"b 3 1700000000\n", InputEnd::Closed, points), 15);
    });
    assert_eq!(decoded.points, ["a 2 @1700000000000", "b 3 @1700000000000"]);
    assert_eq!(decoded.refused.count(RefusedReason::LineTooLong), 1);
}

#[test]
fn prefix_and_rewrite_rules_apply_to_paths() {
    let rules = "[drop]\npattern = \\.tmp$\naction = drop\n[web]\npattern = ^eu\\.web\\.(\\w+)$\nname = \\1\nlabels = dc: eu";
    let rules = Arc::new(RewriteRules::parse(rules).expect("valid").0);
    let mut rewriter = Rewriter::new(rules, 7);
    let mut batch = new_batch();
    let mut refused = Refused::default();
    let mut points = PointWriter::new(&mut batch, &mut refused, 1).with_prefix("eu.");
    let input = b"web.cpu 1 9\nm;b=1;a=2 2 9\nx.tmp 3 9\nx..tmp\t3 9\n";
    LineDecoder::new().decode(input, InputEnd::Closed, &mut points);
    assert_eq!(
        render(&batch),
        ["eu.web.cpu 1 @9000", "eu.m;a=2;b=1 2 @9000", "eu.x.tmp 3 @9000", "eu.x.tmp 3 @9000"]
    );
    batch.clear();
    let mut points =
        PointWriter::new(&mut batch, &mut refused, 1).with_prefix("eu.").with_rewriter(&mut rewriter);
    LineDecoder::new().decode(input, InputEnd::Closed, &mut points);
    assert_eq!(render(&batch), ["cpu;dc=eu 1 @9000", "eu.m;a=2;b=1 2 @9000"]);
    assert_eq!(refused.count(RefusedReason::DroppedByRule), 2);
}

/// Points of several inputs are in one batch.
#[test]
fn inputs_are_appended_to_the_batch() {
    let mut batch = new_batch();
    let mut refused = Refused::default();
    let mut points = PointWriter::new(&mut batch, &mut refused, 1);
    for input in [&b"a 1 9\n"[..], b"b;y=1;x=2 2 9\n", b"c 3"] {
        LineDecoder::new().decode(input, InputEnd::Closed, &mut points);
    }
    assert_eq!(render(&batch), ["a 1 @9000", "b;x=2;y=1 2 @9000", "c 3 @1"]);
}
