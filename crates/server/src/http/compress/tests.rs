//! Compression of responses: negotiation, blocks against whole members, bodies that pause, fail or are left,
//! and every kind of route with and without gzip.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use flate2::Crc;
use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use tower::ServiceExt as _;

use super::accept::{Coding, coding_of};
use super::blocks::PackedBody;
use super::encoder::Encoder;
use super::{gzip, zstd};
use crate::http::router;
use crate::http::tests::Fixture;
use crate::limits::COMPRESSION_BLOCK_BYTES;

/// Content of one member or frame.
pub(super) fn decoded(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Identity => Ok(bytes.to_vec()),
        Coding::Gzip => unpacked(bytes),
        Coding::Zstd => unframed(bytes),
    }
}

/// Content of a zstd frame.
fn unframed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut decoder = ::zstd::stream::read::Decoder::with_buffer(bytes)?.single_frame();
    let mut out = Vec::new();
    decoder.read_to_end(&mut out)?;
    // One frame alone: some clients read no second one.
    assert!(decoder.finish().is_empty(), "bytes after the frame");
    Ok(out)
}

fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut decoder = GzDecoder::new(bytes);
    let mut out = Vec::new();
    decoder.read_to_end(&mut out)?;
    // One member alone: clients need not read a second one.
    assert!(decoder.into_inner().is_empty(), "bytes after the member");
    Ok(out)
}

/// Rows of a matrix, which compress like one.
pub(super) fn matrix(bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut state = 1_u64;
    while out.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let row =
            format!("[{},\"{}\"],", 1_784_000_000 + out.len() / 30 % 900 * 15, (state >> 50) as f64 / 285.0);
        out.extend_from_slice(row.as_bytes());
    }
    out.truncate(bytes);
    out
}

#[test]
fn codings_are_negotiated_by_weight() {
    let cases: &[(&[&str], Coding)] = &[
        (&[], Coding::Identity),
        (&[""], Coding::Identity),
        (&["gzip"], Coding::Gzip),
        (&["GZip"], Coding::Gzip),
        (&["x-gzip"], Coding::Gzip),
        (&["zstd"], Coding::Zstd),
        (&["ZStd"], Coding::Zstd),
        // Browsers.
        (&["gzip, deflate, br, zstd"], Coding::Zstd),
        (&["gzip, deflate, br"], Coding::Gzip),
        (&["zstd, br, gzip"], Coding::Zstd),
        (&["zstd;q=0.9, gzip"], Coding::Gzip),
        (&["zstd;q=0.9, gzip;q=0.8"], Coding::Zstd),
        (&["gzip;q=0.9, zstd;q=0.9"], Coding::Zstd),
        (&["zstd;q=0, gzip"], Coding::Gzip),
        (&["zstd, gzip;q=0"], Coding::Zstd),
        (&["zstd;q=0, gzip;q=0"], Coding::Identity),
        (&["zstd", "gzip"], Coding::Zstd),
        (&["zstd;q=0.5, identity"], Coding::Identity),
        (&["zstd;q=0.5, identity;q=0.5"], Coding::Zstd),
        (&["zstd;q=2, gzip"], Coding::Gzip),
        (&["zstd;level=1, gzip;q=0.1"], Coding::Gzip),
        (&["identity;q=0, zstd"], Coding::Zstd),
        (&["*;q=0, zstd;q=0.001"], Coding::Zstd),
        (&["deflate, gzip;q=1.0, *;q=0.5"], Coding::Gzip),
        (&["br;q=1.0, gzip;q=0.8, *;q=0.1"], Coding::Gzip),
        (&["deflate", "gzip"], Coding::Gzip),
        (&["*"], Coding::Gzip),
        (&["*;q=0.5, zstd;q=0.1"], Coding::Gzip),
        (&["*;q=0"], Coding::Identity),
        (&["gzip;q=0"], Coding::Identity),
        (&["gzip;q=0.000, *"], Coding::Identity),
        // Nothing else is left.
        (&["gzip;q=0, identity;q=0, *"], Coding::Zstd),
        (&["gzip;q=0, identity;q=0, zstd;q=0, *"], Coding::Identity),
        (&["gzip ; Q = 0.001"], Coding::Gzip),
        (&["identity"], Coding::Identity),
        (&["identity, gzip"], Coding::Gzip),
        (&["identity, gzip;q=0.5"], Coding::Identity),
        (&["identity;q=0.5, gzip;q=0.5"], Coding::Gzip),
        (&["identity;q=0"], Coding::Identity),
        (&["identity;q=0, gzip;q=0.1"], Coding::Gzip),
        (&["identity;q=0, *;q=0.1"], Coding::Gzip),
        (&["br, deflate, compress"], Coding::Identity),
        (&["gzip;q=0, gzip"], Coding::Gzip),
        // An entry with a weight that is not valid does not count.
        (&["gzip;q=2"], Coding::Identity),
        (&["gzip;q=1.5"], Coding::Identity),
        (&["gzip;q=-1"], Coding::Identity),
        (&["gzip;q="], Coding::Identity),
        (&["gzip;q=0.1234"], Coding::Identity),
        (&["gzip;q=.5"], Coding::Identity),
        (&["gzip;q=0.+1"], Coding::Identity),
        (&["gzip;level=9"], Coding::Identity),
        (&["gzipped, not-gzip, zstd2, dcz"], Coding::Identity),
        (&[",,;,=,gzip"], Coding::Gzip),
    ];
    for (values, want) in cases {
        let mut headers = HeaderMap::new();
        for value in *values {
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        assert_eq!(coding_of(&headers), *want, "{values:?}");
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_bytes(b"gzip\xff").expect("a value"));
    assert_eq!(coding_of(&headers), Coding::Identity);
}

/// Blocks that are compressed on their own, each with the end of the one before as its dictionary, are one
/// gzip member with the content of all, and zstd blocks are one frame.
#[test]
fn blocks_are_one_member_or_frame() {
    let content = matrix(300_000);
    for block_bytes in [1, 100, 32 << 10, (32 << 10) + 1, 100_000, 300_000] {
        let content = &content[..content.len().min(block_bytes * 40)];
        let mut packed = gzip::HEADER.to_vec();
        let mut crc = Crc::new();
        let mut before = Vec::new();
        let mut frame = zstd::Frame::new().expect("memory");
        let mut framed = Vec::new();
        for block in content.chunks(block_bytes) {
            // A block of two parts, the first of which may be empty.
            let (left, right) = block.split_at(block.len() / 3);
            let parts = vec![Bytes::copy_from_slice(left), Bytes::copy_from_slice(right)];
            framed.extend_from_slice(&frame.block(&parts).expect("memory"));
            let (block, of_block) = gzip::block(&before, &parts);
            packed.extend_from_slice(&block);
            crc.combine(&of_block.expect("a checksum"));
            before = gzip::dictionary(&parts);
        }
        framed.extend_from_slice(&frame.end().expect("memory"));
        assert!(unframed(&framed).expect("valid") == content, "frame of blocks of {block_bytes} bytes");
        packed.extend_from_slice(&gzip::end(&crc));
        assert!(unpacked(&packed).expect("valid") == content, "blocks of {block_bytes} bytes");
        let whole = gzip::member(&[Bytes::copy_from_slice(content)]);
        assert!(unpacked(&whole).expect("valid") == content);
        let (left, right) = content.split_at(content.len() / 3);
        let parts = [Bytes::copy_from_slice(left), Bytes::copy_from_slice(right)];
        assert!(unframed(&zstd::frame(&parts).expect("memory")).expect("valid") == content);
    }
    assert_eq!(unpacked(&gzip::member(&[])).expect("valid"), b"");
    assert_eq!(unframed(&zstd::frame(&[]).expect("memory")).expect("valid"), b"");
    let noise: Vec<u8> = (0..200_000_u64)
        .map(|i| (i.wrapping_mul(i) >> 7 ^ i.wrapping_mul(0x9e37_79b9) >> 11) as u8)
        .collect();
    let parts = [Bytes::from(noise.clone())];
    assert!(unpacked(&gzip::member(&parts)).expect("valid") == noise);
    assert!(unframed(&zstd::frame(&parts).expect("memory")).expect("valid") == noise);
}

/// Next step of a body.
enum Step {
    Part(Vec<u8>),
    /// Nothing yet: the body is asked again.
    Pause,
    Fail,
}

struct Scripted(VecDeque<Step>);

impl HttpBody for Scripted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(Step::Part(bytes)) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(bytes))))),
            Some(Step::Pause) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Fail) => Poll::Ready(Some(Err(io::Error::other("the query failed")))),
        }
    }
}

pub(super) const CODINGS: [Coding; 2] = [Coding::Gzip, Coding::Zstd];

fn compressed(server: &Fixture, coding: Coding, steps: Vec<Step>) -> PackedBody {
    let encoder = Encoder::new(server.web.clone(), coding).expect("memory");
    PackedBody::new(encoder, Body::new(Scripted(steps.into())))
}

#[tokio::test]
async fn streams_of_any_parts_have_the_content_of_their_body() {
    const BLOCK: usize = COMPRESSION_BLOCK_BYTES;
    let server = Fixture::ready();
    let content = matrix(7 * BLOCK + 77);
    for part_bytes in [700, BLOCK - 1, BLOCK, BLOCK + 1, content.len()] {
        let pauses = |coding| [0, 1, 3].map(|pause_every| (coding, pause_every));
        for (coding, pause_every) in CODINGS.into_iter().flat_map(pauses) {
            let mut steps = Vec::new();
            for (idx, part) in content.chunks(part_bytes).enumerate() {
                steps.push(Step::Part(part.to_vec()));
                if pause_every > 0 && idx % pause_every == pause_every - 1 {
                    steps.push(Step::Pause);
                }
            }
            let packed = compressed(&server, coding, steps).collect().await.expect("no error").to_bytes();
            let found = decoded(coding, &packed).expect("valid");
            assert!(found == content, "{coding:?} {part_bytes} {pause_every}");
        }
    }
    for coding in CODINGS {
        let body = compressed(&server, coding, vec![Step::Pause]);
        let empty = body.collect().await.expect("no error").to_bytes();
        assert_eq!(decoded(coding, &empty).expect("valid"), b"");
    }
}

/// Content that can be decoded from a response without its end.
fn decoded_so_far(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut seen = vec![0; 100];
    let seen_bytes = match coding {
        Coding::Zstd => ::zstd::stream::read::Decoder::with_buffer(bytes).expect("memory").read(&mut seen),
        _ => GzDecoder::new(bytes).read(&mut seen),
    };
    seen.truncate(seen_bytes.expect("no damage"));
    seen
}

#[tokio::test]
async fn a_body_that_pauses_is_flushed() {
    let server = Fixture::ready();
    for coding in CODINGS {
        let steps = vec![Step::Part(b"first".to_vec()), Step::Pause, Step::Part(b"second".to_vec())];
        let mut body = compressed(&server, coding, steps);
        let frame = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
        assert_eq!(decoded_so_far(coding, &frame), b"first", "{coding:?}");
    }
}

#[tokio::test]
async fn a_body_that_fails_has_no_end() {
    let server = Fixture::ready();
    let lengths = [0, 10, COMPRESSION_BLOCK_BYTES, 3 * COMPRESSION_BLOCK_BYTES];
    for (coding, before) in CODINGS.into_iter().flat_map(|coding| lengths.map(|bytes| (coding, bytes))) {
        let steps = vec![Step::Part(matrix(before)), Step::Pause, Step::Fail];
        let mut body = compressed(&server, coding, steps);
        let mut packed = Vec::new();
        let error = loop {
            match body.frame().await.expect("an error comes before the end") {
                Ok(frame) => packed.extend_from_slice(&frame.into_data().expect("data")),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("the query failed"), "{error}");
        let is_noticed = packed.is_empty() || decoded(coding, &packed).is_err();
        assert!(is_noticed, "a client must notice what is missing: {coding:?} {before}");
        assert!(body.frame().await.is_none());
    }
}

/// Blocks of a client that has disconnected are not compressed.
#[tokio::test]
async fn blocks_of_a_dropped_body_are_dropped() {
    let server = Fixture::ready();
    let threads = &server.web.service.admission.compressors;
    for coding in CODINGS {
        let mut held = Vec::new();
        for _ in 0..chronolith_base::thread::core_count() {
            let (release, wait) = std::sync::mpsc::sync_channel::<()>(1);
            threads
                .start(Box::new(move || {
                    let _ = wait.recv();
                }))
                .expect("a thread");
            held.push(release);
        }
        let mut body = compressed(&server, coding, vec![Step::Part(matrix(3 * COMPRESSION_BLOCK_BYTES))]);
        let waker = std::task::Waker::noop();
        assert!(Pin::new(&mut body).poll_frame(&mut Context::from_waker(waker)).is_pending());
        drop(body);
        drop(held);
        threads.run(|| ()).await.expect("runs");
        assert_eq!(server.web.metrics.compression.input_bytes.get(), 0, "{coding:?}");
    }
}

pub(super) async fn fetch(
    server: &Fixture,
    method: Method,
    path: &str,
    accept: Option<&str>,
) -> (Response<()>, Bytes) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(accept) = accept {
        request = request.header(header::ACCEPT_ENCODING, accept);
    }
    let response = router(server.web.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    (Response::from_parts(head, ()), body.collect().await.expect("no error").to_bytes())
}

pub(super) fn named<'a, T>(response: &'a Response<T>, name: &header::HeaderName) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

async fn fill(server: &Fixture) {
    let instances: Vec<String> = (0..400).map(|idx| format!("10.0.0.{idx}:9100")).collect();
    for instance in &instances {
        let labels = [("__name__", "requests_total"), ("instance", instance.as_str()), ("job", "api")];
        let now_ms = crate::http::tests::NOW_MS;
        let samples: Vec<(i64, f64)> =
            (0..20).map(|step| (now_ms - 300_000 + step * 15_000, step as f64 / 7.0)).collect();
        assert!(server.write(&[(&labels, &samples)]).await.status.is_success());
    }
    let created = Request::post("/query?q=CREATE%20DATABASE%20t").body(Body::empty()).unwrap();
    assert!(server.send(created).await.status.is_success());
    let lines: String =
        (0..500).map(|idx| format!("cpu,host=h{idx} value={idx}.5 {idx}000000000\n")).collect();
    let written = server.send(Request::post("/write?db=t").body(Body::from(lines)).unwrap()).await;
    assert!(written.status.is_success(), "{}", written.text);
}

/// Responses of each kind of route: short and long ones, whole and streamed, of each language, and the page.
#[tokio::test]
async fn a_compressed_response_has_the_bytes_of_a_plain_one() {
    let server = Fixture::ready();
    fill(&server).await;
    let now_s = crate::http::tests::NOW_MS / 1000;
    let start_s = now_s - 300;
    let page = String::from_utf8(fetch(&server, Method::GET, "/", None).await.1.to_vec()).expect("a page");
    let script =
        page.split('"').find(|text| text.ends_with("app.js")).expect("a script").trim_start_matches("./");
    let paths = [
        format!("/api/v1/query?query=requests_total&time={now_s}"),
        format!("/api/v1/query_range?query=rate(requests_total[1m])&start={start_s}&end={now_s}&step=1"),
        format!("/api/v1/query_range?query=requests_total&start={start_s}&end={now_s}&step=15"),
        "/api/v1/series?match[]=requests_total&start=0".to_owned(),
        "/api/v1/label/instance/values".to_owned(),
        "/api/v1/search/metric_names".to_owned(),
        "/api/v1/status/flags".to_owned(),
        "/api/v1/status/settings".to_owned(),
        "/federate?match[]=requests_total".to_owned(),
        "/query?db=t&q=SELECT%20*%20FROM%20cpu".to_owned(),
        "/query?db=t&chunked=true&chunk_size=100&q=SELECT%20*%20FROM%20cpu".to_owned(),
        format!("/render?format=json&from={start_s}&until={now_s}&target=randomWalk(%22x%22)"),
        "/".to_owned(),
        format!("/{script}"),
    ];
    for path in paths {
        let (head, plain) = fetch(&server, Method::GET, &path, None).await;
        let plain = head.map(|()| plain);
        for (coding, accept) in [(Coding::Gzip, "gzip"), (Coding::Zstd, "zstd")] {
            let (head, packed) = fetch(&server, Method::GET, &path, Some(accept)).await;
            check_packed(&path, coding, &plain, &head.map(|()| packed));
        }
    }
    let (head, packed) = fetch(&server, Method::GET, "/metrics", Some("gzip, deflate, br, zstd")).await;
    let text = String::from_utf8(unframed(&packed).expect("valid")).expect("text");
    assert_eq!(named(&head, &header::CONTENT_ENCODING), "zstd");
    assert!(text.contains("chronolith_http_compression_input_bytes_total"));
}

/// Checks the response `found` in `coding` against the plain one.
fn check_packed(path: &str, coding: Coding, plain: &Response<Bytes>, found: &Response<Bytes>) {
    assert_eq!(found.status(), plain.status(), "{path}");
    assert_eq!(named(found, &header::CONTENT_TYPE), named(plain, &header::CONTENT_TYPE), "{path}");
    let plain_bytes = plain.body().len();
    if named(found, &header::CONTENT_ENCODING).is_empty() {
        assert!(plain_bytes < 1024 && plain.body() == found.body(), "{path}: {plain_bytes} bytes");
        return;
    }
    assert_eq!(Some(named(found, &header::CONTENT_ENCODING)), coding.token(), "{path}");
    for response in [found, plain] {
        assert_eq!(named(response, &header::VARY), "accept-encoding", "{path}");
    }
    assert_eq!(named(plain, &header::CONTENT_ENCODING), "", "{path}");
    assert!(decoded(coding, found.body()).expect("valid") == *plain.body(), "{path}");
    // The length of a streamed response is not known when its head is sent.
    let is_short_stream = plain_bytes < 1024 && named(plain, &header::CONTENT_LENGTH).is_empty();
    assert!(found.body().len() < plain_bytes || is_short_stream, "{path}");
}

#[tokio::test]
async fn what_gains_nothing_is_sent_as_it_is() {
    let server = Fixture::ready();
    fill(&server).await;
    for path in ["/ping", "/-/healthy", "/api/v1/query?query=1", "/api/v1/query?query=("] {
        let (head, _) = fetch(&server, Method::GET, path, Some("gzip")).await;
        assert_eq!(named(&head, &header::CONTENT_ENCODING), "", "{path}");
    }
    let (head, body) =
        fetch(&server, Method::HEAD, "/api/v1/series?match[]=requests_total&start=0", Some("gzip")).await;
    assert_eq!((named(&head, &header::CONTENT_ENCODING), body.len()), ("gzip", 0));
    assert_eq!(named(&head, &header::CONTENT_LENGTH), "", "that of the plain body would be wrong");
    assert_eq!(server.web.metrics.compression.input_bytes.get(), 0);
}

#[test]
fn responses_without_content_or_with_a_coding_are_left_alone() {
    let check = |status: u16, headers: &[(&'static str, &'static str)], bytes: usize| {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        super::is_compressible(&response.body(Body::from(vec![b'a'; bytes])).unwrap())
    };
    let json = ("content-type", "application/json");
    assert!(check(200, &[json], 1024) && check(400, &[json], 5000) && check(200, &[], 1024));
    assert!(!check(200, &[json], 1023));
    for status in [204, 206, 304] {
        assert!(!check(status, &[json], 5000), "{status}");
    }
    let kept: [(&'static str, &'static str); 6] = [
        ("content-encoding", "snappy"),
        ("content-range", "bytes 0-1/2"),
        ("cache-control", "public, no-transform"),
        ("content-type", "image/png"),
        ("content-type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"),
        ("content-encoding", "gzip"),
    ];
    for header in kept {
        assert!(!check(200, &[header], 5000), "{header:?}");
    }
}

#[test]
fn a_strong_validator_of_a_compressed_response_is_weak() {
    for (etag, want) in [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\"")] {
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, HeaderValue::from_static(etag));
        super::weaken_etag(&mut headers);
        assert_eq!(headers.get(header::ETAG).expect("kept"), want);
    }
}
