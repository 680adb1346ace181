//! Remote read through the router: both forms of answers, limits, tenants, errors, clients that leave.
//! Not here: the messages themselves (`ingest`), the bytes of chunks (`tsdb`).

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, Request, StatusCode, header};
use chronolith_base::ByteReader;
use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_ingest::remote_read::encode::compress;
use chronolith_ingest::remote_write::decompress;
use chronolith_model::sample::{STALE_NAN, STALE_NAN_BITS};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::http::router;
use crate::http::tests::{Fixture, NOW_MS};
use crate::limits::STREAM_PARTS_MAX;

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    put_uvarint(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

fn int(number: u8, value: i64) -> Vec<u8> {
    let mut out = vec![number << 3];
    put_uvarint(&mut out, value.cast_unsigned());
    out
}

/// A query for all series whose label `name` fits `pattern`, over all that the tests write.
fn query(name: &str, pattern: &str) -> Vec<u8> {
    let matcher = [int(1, 2), field(2, name.as_bytes()), field(3, pattern.as_bytes())].concat();
    field(1, &[int(1, NOW_MS - 3_600_000), int(2, NOW_MS), field(3, &matcher)].concat())
}

const SAMPLES: [u8; 1] = [0];
const STREAMED: [u8; 2] = [1, 0];

fn request(queries: &[Vec<u8>], accepted: &[u8]) -> Request<Body> {
    let message = [queries.concat(), field(2, accepted)].concat();
    Request::post("/api/v1/read")
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .header(header::ACCEPT_ENCODING, "gzip")
        .body(Body::from(compress(&message)))
        .unwrap()
}

async fn send(server: &Fixture, request: Request<Body>) -> (StatusCode, HeaderMap, Vec<u8>) {
    let response = router(server.web.clone()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
}

/// The fields of a message: number, and bytes or a number as 8 bytes.
fn fields(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut reader, mut out) = (ByteReader::new(bytes), Vec::new());
    while !reader.is_empty() {
        let tag = reader.uvarint("tag").unwrap();
        let value = match tag & 7 {
            0 => reader.uvarint("int").unwrap().to_le_bytes().to_vec(),
            1 => reader.bytes("double", 8).unwrap().to_vec(),
            _ => {
                let len = reader.length("length").unwrap();
                reader.bytes("bytes", len).unwrap().to_vec()
            }
        };
        out.push((tag >> 3, value));
    }
    out
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

/// `name=value,...` of the labels of a series.
fn labels(series: &[(u64, Vec<u8>)]) -> String {
    let label = |(_, label): &(u64, Vec<u8>)| {
        let texts: Vec<String> =
            fields(label).into_iter().map(|(_, text)| String::from_utf8(text).unwrap()).collect();
        texts.join("=")
    };
    series.iter().filter(|(number, _)| *number == 1).map(label).collect::<Vec<_>>().join(",")
}

/// One line a series of each query: `query labels time:bits ...`
fn samples_of(answer: &[u8]) -> Vec<String> {
    let mut message = Vec::new();
    decompress(answer, 1 << 20, &mut message).unwrap();
    let mut out = Vec::new();
    for (query_idx, (_, result)) in fields(&message).iter().enumerate() {
        for (_, series) in fields(result) {
            let series = fields(&series);
            let mut line = format!("{query_idx} {}", labels(&series));
            for (_, sample) in series.iter().filter(|(number, _)| *number == 2) {
                let (mut value, mut time) = (0, 0);
                for (at, bytes) in fields(sample) {
                    if at == 1 { value = number(&bytes) } else { time = number(&bytes) - NOW_MS }
                }
                line.push_str(&format!(" {time}:{value:x}"));
            }
            out.push(line);
        }
    }
    out
}

/// One line a frame: `query labels first..last/encoding ...`; checksums are checked.
fn frames_of(answer: &[u8]) -> Vec<String> {
    let (mut reader, mut out) = (ByteReader::new(answer), Vec::new());
    while !reader.is_empty() {
        let len = reader.uvarint("length").unwrap() as usize;
        let sum = reader.be_u32("checksum").unwrap();
        let message = reader.bytes("message", len).unwrap();
        assert_eq!(crc32c(message), sum, "the checksum is of the message");
        let message = fields(message);
        let query_idx = message.iter().find(|(at, _)| *at == 2).map_or(0, |(_, idx)| number(idx));
        let series = fields(&message[0].1);
        let mut line = format!("{query_idx} {}", labels(&series));
        for (_, chunk) in series.iter().filter(|(number, _)| *number == 2) {
            let chunk = fields(chunk);
            let (first, last) = (number(&chunk[0].1) - NOW_MS, number(&chunk[1].1) - NOW_MS);
            let count = u16::from_be_bytes(chunk[3].1[..2].try_into().unwrap());
            line.push_str(&format!(" {first}..{last}/{}x{count}", number(&chunk[2].1)));
        }
        out.push(line);
    }
    out
}

/// Returns the series that a remote read of everything has for the holder of a token, in both forms: lines of
/// [`samples_of`], then lines of [`frames_of`].
pub(in crate::http) async fn series_for(server: &Fixture, token: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for accepted in [SAMPLES.as_slice(), STREAMED.as_slice()] {
        let mut request = request(&[query("__name__", ".+")], accepted);
        let authorization = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, authorization);
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        let (status, _, answer) = send(server, request).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&answer));
        lines.extend(if accepted == SAMPLES { samples_of(&answer) } else { frames_of(&answer) });
    }
    lines
}

/// Three series; `b` ends with a staleness marker.
async fn written() -> Fixture {
    fill(Fixture::ready()).await
}

async fn fill(server: Fixture) -> Fixture {
    let long: Vec<(i64, f64)> = (0..300).map(|i| (NOW_MS - 300_000 + i * 1000, 1.0)).collect();
    let answer = server
        .write(&[
            (&[("__name__", "up"), ("job", "b")], &[(NOW_MS - 2, -0.0), (NOW_MS - 1, STALE_NAN)]),
            (&[("__name__", "up"), ("job", "a")], &[(NOW_MS, 1.5)]),
            (&[("__name__", "long")], &long),
        ])
        .await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    server
}

#[tokio::test]
async fn samples_come_as_one_message() {
    let server = written().await;
    let asked = [query("job", "a|b"), query("job", "none"), query("job", "b")];
    let (status, headers, body) = send(&server, request(&asked, &SAMPLES)).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&headers["content-type"], &headers["content-encoding"]),
        (&"application/x-protobuf".parse().unwrap(), &"snappy".parse().unwrap())
    );
    let b = format!("__name__=up,job=b -2:{:x} -1:{STALE_NAN_BITS:x}", (-0.0f64).to_bits());
    let a = format!("__name__=up,job=a 0:{:x}", 1.5f64.to_bits());
    assert_eq!(samples_of(&body), [format!("0 {a}"), format!("0 {b}"), format!("2 {b}")]);
    // A client that lists no form is from before there were two.
    let (_, headers, old) = send(&server, request(&asked, &[])).await;
    assert_eq!((&headers["content-encoding"], old), (&"snappy".parse().unwrap(), body));
}

/// Checks that labels alone come in one message, and chunks in frames, as Prometheus answers.
#[tokio::test]
async fn a_reader_of_labels_gets_no_samples() {
    let server = written().await;
    let labels_only = |first_ms: i64, last_ms: i64| {
        let matcher = [int(1, 2), field(2, b"__name__"), field(3, b".+")].concat();
        let hints = [field(2, b"series"), int(3, first_ms), int(4, last_ms)].concat();
        field(1, &[int(1, first_ms), int(2, last_ms), field(3, &matcher), field(4, &hints)].concat())
    };
    let all = labels_only(NOW_MS - 3_600_000, NOW_MS);
    let (_, _, body) = send(&server, request(&[all.clone(), query("job", "a")], &SAMPLES)).await;
    let of_a = format!("1 __name__=up,job=a 0:{:x}", 1.5_f64.to_bits());
    assert_eq!(samples_of(&body), ["0 __name__=long", "0 __name__=up,job=a", "0 __name__=up,job=b", &of_a]);
    let (_, _, body) =
        send(&server, request(&[labels_only(NOW_MS - 299_000, NOW_MS - 10_000)], &SAMPLES)).await;
    assert_eq!(samples_of(&body), ["0 __name__=long"]);
    let (_, _, body) = send(&server, request(&[labels_only(1, 2)], &SAMPLES)).await;
    assert_eq!(samples_of(&body), Vec::<String>::new());
    let (_, _, body) = send(&server, request(&[all], &STREAMED)).await;
    let (_, _, whole) = send(&server, request(&[query("__name__", ".+")], &STREAMED)).await;
    assert_eq!(frames_of(&body), frames_of(&whole));
    assert_eq!(frames_of(&body).len(), 3);
}

#[tokio::test]
async fn chunks_come_as_frames() {
    let server = written().await;
    let asked = [query("job", "a|b"), query("__name__", "long")];
    let (status, headers, body) = send(&server, request(&asked, &STREAMED)).await;
    assert_eq!(status, 200);
    let kind = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    assert_eq!(headers["content-type"], kind);
    assert!(!headers.contains_key("content-encoding"), "chunks are compressed already");
    let want = [
        "0 __name__=up,job=a 0..0/1x1",
        "0 __name__=up,job=b -2..-1/1x2",
        "1 __name__=long -300000..-181000/1x120 -180000..-61000/1x120 -60000..-1000/1x60",
    ];
    assert_eq!(frames_of(&body), want);
    let (_, _, nothing) = send(&server, request(&[query("job", "none")], &STREAMED)).await;
    assert!(nothing.is_empty());
    let metrics = server.get("/metrics").await.text;
    for line in [
        "remote_read_requests_total{response_type=\"streamed_xor_chunks\"} 2\n",
        "remote_read_series_total 3\n",
        "remote_read_samples_total 303\n",
        "remote_read_aborted_total 0\n",
    ] {
        assert!(metrics.contains(&format!("chronolith_{line}")), "{line} {metrics}");
    }
}

#[tokio::test]
async fn a_long_series_is_split_over_frames() {
    let server = fill(Fixture::with(|options| options.service.remote_read.frame_bytes_max = 80).open()).await;
    let (_, _, body) = send(&server, request(&[query("__name__", "long")], &STREAMED)).await;
    let frames = frames_of(&body);
    assert!(frames.len() > 1, "{frames:?}");
    assert!(frames.iter().all(|frame| frame.starts_with("0 __name__=long ")), "{frames:?}");
}

#[tokio::test]
async fn limits_and_errors_are_plain_text() {
    let server = fill(Fixture::with(|options| options.service.remote_read.samples_max = 10).open()).await;
    let check = async |request: Request<Body>, status: u16, text: &str| {
        let (found, headers, body) = send(&server, request).await;
        let body = String::from_utf8(body).unwrap();
        assert_eq!((found.as_u16(), &*body), (status, text));
        assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    };
    check(request(&[query("__name__", "long")], &SAMPLES), 400, "exceeded sample limit (10)\n").await;
    // The limit is one of each query, and none of streams.
    let two = [query("job", "a|b"), query("job", "a|b")];
    assert_eq!(send(&server, request(&two, &SAMPLES)).await.0, 200);
    assert_eq!(send(&server, request(&[query("__name__", "long")], &STREAMED)).await.0, 200);
    let text = "server does not support any of the requested response types: [5]; \
                supported: map[SAMPLES:{} STREAMED_XOR_CHUNKS:{}]\n";
    check(request(&two, &[5]), 400, text).await;
    let odd = field(1, &field(3, &int(1, 9)));
    check(request(&[odd], &SAMPLES), 400, "invalid matcher type\n").await;
    let (status, _, _) =
        send(&server, Request::post("/api/v1/read").body(Body::from("no snappy")).unwrap()).await;
    assert_eq!(status, 400);
    assert_eq!(send(&server, Request::get("/api/v1/read").body(Body::empty()).unwrap()).await.0, 405);
}

#[tokio::test]
async fn tenants_read_their_own() {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    let of = |tenant: &'static str, mut request: Request<Body>| {
        request.headers_mut().insert("x-scope-orgid", tenant.parse().unwrap());
        request
    };
    let mut encoder = chronolith_ingest::remote_write::encode::RequestEncoder::new();
    encoder.push_series([("__name__", "up"), ("job", "a")], &[(NOW_MS, 1.0)]);
    let write = Request::post("/api/v1/write").body(Body::from(encoder.compressed())).unwrap();
    assert_eq!(server.send(of("one", write)).await.status, 204);
    for kind in [&SAMPLES[..], &STREAMED] {
        let asked = || request(&[query("job", ".+")], kind);
        let (_, _, one) = send(&server, of("one", asked())).await;
        let (_, _, two) = send(&server, of("two", asked())).await;
        assert!(one.len() > two.len() + 10, "{one:?} {two:?}");
        let (status, _, text) = send(&server, asked()).await;
        assert_eq!((status.as_u16(), &*text), (401, &b"no org id\n"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_stops_when_its_client_leaves() {
    let server = Fixture::with(|options| options.service.remote_read.concurrency = 1).open();
    // More than waits for a client: the reading thread has to wait for it.
    let label = "x".repeat(8000);
    let texts: Vec<String> = (0..400).map(|idx| format!("{idx:04}{label}")).collect();
    let pairs: Vec<[(&str, &str); 2]> =
        texts.iter().map(|text| [("__name__", "up"), ("text", &**text)]).collect();
    let samples = [(NOW_MS, 1.0)];
    let series: Vec<_> = pairs.iter().map(|pairs| (&pairs[..], &samples[..])).collect();
    assert_eq!(server.write(&series).await.status, 204);
    let asked = || request(&[query("__name__", "up")], &STREAMED);
    let response = router(server.web.clone()).oneshot(asked()).await.unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.expect("a part").expect("no error").into_data().expect("bytes");
    assert!(!body.is_end_stream());
    assert!(first.len() < 400 * 8000 / STREAM_PARTS_MAX, "not all at once");
    assert_eq!(server.web.service.admission.remote_read.queue.running(), 1);
    drop((first, body));
    // The only place is free again as soon as the thread notices.
    let (status, _, all) = send(&server, asked()).await;
    assert_eq!((status.as_u16(), frames_of(&all).len()), (200, 400));
    assert_eq!(server.web.metrics.remote_read.stream.aborted.get(), 1);
    assert_eq!(server.web.service.admission.query_memory.total.used_bytes(), 0, "all memory is given back");
}
