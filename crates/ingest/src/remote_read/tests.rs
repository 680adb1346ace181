//! Requests as Prometheus sends them, refused requests with their errors, cut and flipped bytes; frames and
//! messages byte by byte.

use std::sync::Arc;

use chronolith_model::{Columns, Histogram, IntHistogram, Matcher};

use super::encode::{ChunkOut, SamplesEncoder, compress, put_chunk, put_frame, put_labels};
use super::*;

const BYTES_MAX: usize = 1 << 20;

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    chronolith_base::bytes::put_uvarint(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

fn int(number: u8, value: i64) -> Vec<u8> {
    let mut out = vec![number << 3];
    chronolith_base::bytes::put_uvarint(&mut out, value.cast_unsigned());
    out
}

fn matcher(kind: i64, name: &str, value: &str) -> Vec<u8> {
    field(3, &[int(1, kind), field(2, name.as_bytes()), field(3, value.as_bytes())].concat())
}

fn query(parts: &[Vec<u8>]) -> Vec<u8> {
    field(1, &parts.concat())
}

fn read(message: &[u8]) -> Result<ReadRequest, ReadRequestError> {
    decode(&compress(message), BYTES_MAX)
}

/// Queries as text, and the form of the answer.
fn show(request: &ReadRequest) -> (Vec<String>, ResponseKind) {
    let one = |query: &ReadQuery| {
        let matchers: Vec<String> = query.matchers.iter().map(Matcher::to_string).collect();
        format!("{}..{} {}", query.range.start, query.range.end, matchers.join(","))
    };
    (request.queries.iter().map(one).collect(), request.response)
}

#[test]
fn a_request_has_queries_with_four_kinds_of_matchers() {
    let all = [matcher(0, "a", "1"), matcher(1, "b", "2"), matcher(2, "c", "3|4"), matcher(3, "d", "5.*")];
    let hints =
        field(4, &[int(1, 15_000), field(2, b"rate"), int(3, 150), int(4, 900), int(7, 300_000)].concat());
    let message = [
        query(&[int(1, 100), int(2, 1000), all.concat(), hints]),
        query(&[int(1, -5), int(2, -3)]),
        field(2, &[1, 0]),
    ];
    let request = read(&message.concat()).expect("a request");
    let want = ["150..901 a=\"1\",b!=\"2\",c=~\"3|4\",d!~\"5.*\"", "-5..-2 "].map(str::to_owned).to_vec();
    assert_eq!(show(&request), (want, ResponseKind::StreamedChunks));
}

#[test]
fn hints_only_narrow() {
    #[track_caller]
    fn check(query_times: (i64, i64), hints: (i64, i64), want: (i64, i64)) {
        let hints = field(4, &[int(3, hints.0), int(4, hints.1)].concat());
        let message = query(&[int(1, query_times.0), int(2, query_times.1), hints]);
        let range = read(&message).expect("a request").queries[0].range;
        assert_eq!((range.start, range.end), want);
    }
    check((100, 200), (120, 180), (120, 181));
    check((100, 200), (50, 300), (100, 201));
    check((100, 200), (0, 0), (100, 201));
    check((100, 200), (300, 400), (300, 300));
    check((200, 100), (0, 0), (200, 200));
    check((i64::MIN, i64::MAX), (0, 0), (i64::MIN, i64::MAX));
}

/// A reader of labels got all samples.
#[test]
fn a_function_may_need_labels_alone() {
    for (function, want) in
        [("series", true), ("", false), ("Series", false), ("series ", false), ("rate", false)]
    {
        let hints = field(4, &[field(2, function.as_bytes()), int(3, 150), int(4, 900)].concat());
        let request = read(&query(&[int(1, 100), int(2, 1000), hints])).expect("a request");
        assert_eq!(request.queries[0].is_labels_only, want, "{function}");
        assert_eq!((request.queries[0].range.start, request.queries[0].range.end), (150, 901));
    }
    assert!(!read(&query(&[int(1, 100)])).expect("a request").queries[0].is_labels_only);
    // A message in the place of the text is read as bytes, a number is none.
    assert!(read(&query(&[field(4, &int(2, 1))])).is_err());
}

#[test]
fn the_first_form_that_is_known_wins() {
    let kind = |list: &[u8]| read(&field(2, list)).map(|request| request.response);
    assert_eq!(kind(&[]), Ok(ResponseKind::Samples));
    assert_eq!(kind(&[7, 1, 0]), Ok(ResponseKind::StreamedChunks));
    assert_eq!(kind(&[0, 1]), Ok(ResponseKind::Samples));
    assert_eq!(read(&[int(2, 1), int(2, 0)].concat()).map(|r| r.response), Ok(ResponseKind::StreamedChunks));
    let text = "server does not support any of the requested response types: [7 2]; \
                supported: map[SAMPLES:{} STREAMED_XOR_CHUNKS:{}]";
    assert_eq!(kind(&[7, 2]).map_err(|e| e.to_string()), Err(text.to_owned()));
}

#[test]
fn what_is_refused_says_why() {
    #[track_caller]
    fn check(message: &[u8], want: &str) {
        let error = read(message).expect_err("refused").to_string();
        assert!(error.contains(want), "{error}");
    }
    check(&query(&[matcher(4, "a", "b")]), "invalid matcher type");
    check(&query(&[matcher(2, "a", "(")]), "missing");
    check(&query(&[field(1, b"x")]), "protobuf: field has the wrong wire type");
    check(&query(&[field(3, &field(2, &[0xff]))]), "protobuf: text is not utf-8");
    check(&query(&[]).repeat(QUERY_COUNT_MAX + 1), "request has more than 1024 queries");
    check(
        &query(&[matcher(0, "a", "b").repeat(MATCHER_COUNT_MAX + 1)]),
        "request has more than 1024 matchers",
    );
    check(&field(2, &[9; RESPONSE_KIND_COUNT_MAX + 1]), "request has more than 64 response types");
    check(&int(2, 9).repeat(RESPONSE_KIND_COUNT_MAX + 2), "response types");
    check(&[0x1f], "protobuf: group or unknown wire type");
    let large = decode(&compress(&vec![0; BYTES_MAX + 1]), BYTES_MAX).expect_err("too large");
    assert!(large.to_string().contains("larger than the limit of 1048576 bytes"), "{large}");
    assert!(decode(b"\x05not snappy", BYTES_MAX).is_err());
}

#[test]
fn damage_ends_without_panic() {
    let hints = field(4, &[int(3, 150), int(4, 900)].concat());
    let message =
        [query(&[int(1, 100), int(2, 1000), matcher(2, "job", "a|b"), hints]), field(2, &[1, 0])].concat();
    for len in 0..message.len() {
        let _ = read(&message[..len]);
        let _ = decode(&compress(&message)[..len], BYTES_MAX);
    }
    for at in 0..message.len() {
        for bit in 0..8 {
            let mut bad = message.clone();
            bad[at] ^= 1 << bit;
            let _ = read(&bad);
        }
    }
}

#[test]
fn a_frame_is_length_checksum_message() {
    let (mut labels, mut chunks, mut out) = (Vec::new(), Vec::new(), Vec::new());
    put_labels(&mut labels, [("a", "b")]);
    put_chunk(&mut chunks, ChunkOut { min_time_ms: 0, max_time_ms: 300, encoding: 1, bytes: b"xyz" });
    put_frame(&mut out, 2, &labels, &chunks);
    let chunk = [int(2, 300), int(3, 1), field(4, b"xyz")].concat();
    let series = [field(1, &[field(1, b"a"), field(2, b"b")].concat()), field(2, &chunk)].concat();
    let message = [field(1, &series), int(2, 2)].concat();
    let sum = chronolith_base::crc::crc32c(&message).to_be_bytes();
    assert_eq!(out, [&[message.len() as u8][..], &sum, &message].concat());
}

#[test]
fn samples_are_floats_then_histograms_by_query() {
    let mut encoder = SamplesEncoder::default();
    let mut columns = Columns::default();
    columns.push(5, 1.5);
    columns.push_histogram(6, Arc::new(Histogram::Int(IntHistogram { count: 3, ..IntHistogram::default() })));
    columns.push(7, -0.0);
    encoder.push_series([("a", "b")], &columns);
    encoder.end_query();
    encoder.end_query();
    let float =
        |value: f64, time: i64| field(2, &[&[1 << 3 | 1][..], &value.to_le_bytes(), &int(2, time)].concat());
    let histogram = field(4, &[int(1, 3), int(6, 0), int(15, 6)].concat());
    let labels = field(1, &[field(1, b"a"), field(2, b"b")].concat());
    let series = [labels, float(1.5, 5), float(-0.0, 7), histogram].concat();
    let want = [field(1, &field(1, &series)), field(1, &[])].concat();
    let mut found = Vec::new();
    decompress(&encoder.compressed(), BYTES_MAX, &mut found).expect("snappy");
    assert_eq!(found, want);
}
