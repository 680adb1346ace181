//! `/federate` through the router: both formats, which samples each has, order of families, streams that
//! clients leave or do not read. Protobuf is read by a walk over the wire format that shares no code with the
//! encoder.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::{Request, Response, header};
use chronolith_base::ByteReader;
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_model::histogram::{Buckets, ResetHint, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{FloatHistogram, Histogram, IntHistogram};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::http::router;
use crate::http::tests::{Fixture, NOW_MS};
use crate::limits::{ANSWER_PART_BYTES, STREAM_PARTS_MAX};

const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;escaping=allow-utf-8;q=0.6,text/plain;q=0.5";
const TIME: i64 = NOW_MS - 15_000;

fn side<C>(spans: &[(i32, u32)], counts: &[C]) -> Buckets<C>
where
    C: Clone,
{
    let spans = spans.iter().map(|&(offset, length)| Span { offset, length }).collect();
    Buckets { spans, counts: counts.to_vec() }
}

fn exponential() -> IntHistogram {
    IntHistogram {
        schema: -1,
        count: 21,
        sum: 18.5,
        zero_threshold: 0.25,
        zero_count: 2,
        positive: side(&[(-2, 2), (3, 3)], &[1, 3, 1, 2, 1]),
        negative: side(&[(4, 2)], &[5, 6]),
        ..IntHistogram::default()
    }
}

fn custom() -> IntHistogram {
    IntHistogram {
        schema: -53,
        count: 7,
        sum: 2.5,
        positive: side(&[(0, 1), (1, 2)], &[2, 4, 1]),
        custom_values: [0.5, 1.0, 2.5].into(),
        ..IntHistogram::default()
    }
}

/// Floats and histograms of all kinds; `mixed` has both, `gone` ends with a staleness marker.
async fn written() -> Fixture {
    let server = Fixture::ready();
    let gauge = FloatHistogram { reset_hint: ResetHint::Gauge, ..exponential().to_float() };
    let stale = IntHistogram { sum: STALE_NAN, ..IntHistogram::default() };
    let int = |histogram| Arc::new(Histogram::Int(histogram));
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "b_total"), ("job", "x")], &[(TIME - 1, 1.0), (TIME, -0.0)]);
    request.push_series([("__name__", "mixed"), ("job", "float")], &[(TIME, 2.5)]);
    request.push_series([("__name__", "größe"), ("instance", "i")], &[(TIME, f64::NAN)]);
    request.push_histograms([("__name__", "mixed"), ("job", "a")], &[(TIME, int(exponential()))]);
    request.push_histograms([("__name__", "mixed"), ("job", "z")], &[(TIME, int(IntHistogram::default()))]);
    let gauge = Arc::new(Histogram::Float(gauge));
    request.push_histograms([("__name__", "mixed"), ("job", "gauge")], &[(TIME, gauge)]);
    request.push_histograms([("__name__", "classic")], &[(TIME, int(custom()))]);
    let float = Arc::new(Histogram::Float(custom().to_float()));
    request.push_histograms([("__name__", "classic"), ("job", "float")], &[(TIME, float)]);
    request.push_histograms([("__name__", "gone")], &[(TIME - 1, int(exponential())), (TIME, int(stale))]);
    let write = Request::post("/api/v1/write").body(Body::from(request.compressed()));
    let answer = server.send(write.unwrap()).await;
    assert_eq!(answer.status.as_u16(), 204, "{}", answer.text);
    server
}

async fn get(server: &Fixture, matches: &str, accept: &str) -> Response<Body> {
    let request = Request::get(format!("/federate?{matches}")).header(header::ACCEPT, accept);
    router(server.web.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// A field: its number, and its content as text; messages are given in braces.
fn show(message: &[u8], shape: &Shape) -> String {
    let (mut reader, mut out) = (ByteReader::new(message), Vec::new());
    while !reader.is_empty() {
        let tag = reader.uvarint("tag").unwrap();
        let (number, wire_type) = (tag >> 3, tag & 7);
        let name = shape.name(number);
        let kind = name.split_once(':').map_or("", |(_, kind)| kind);
        let value = match wire_type {
            0 => {
                let value = reader.uvarint("varint").unwrap();
                match kind {
                    "zigzag" => ((value >> 1).cast_signed() ^ -(value & 1).cast_signed()).to_string(),
                    "time" => (value.cast_signed() - TIME).to_string(),
                    _ => value.to_string(),
                }
            }
            1 => format!("{:?}", f64::from_le_bytes(reader.bytes("double", 8).unwrap().try_into().unwrap())),
            2 => {
                let len = reader.length("length").unwrap();
                let bytes = reader.bytes("bytes", len).unwrap();
                match shape.inner(number) {
                    Some(inner) => format!("{{{}}}", show(bytes, inner)),
                    None => format!("{:?}", std::str::from_utf8(bytes).unwrap()),
                }
            }
            other => panic!("wire type {other}"),
        };
        out.push(format!("{}={value}", name.split(':').next().unwrap()));
    }
    out.join(" ")
}

/// Names of the fields of a message by number, with how a number is to be read, and messages within it.
struct Shape {
    fields: &'static [(u64, &'static str)],
    inner: &'static [(u64, &'static Shape)],
}

impl Shape {
    fn name(&self, number: u64) -> &'static str {
        self.fields.iter().find(|(at, _)| *at == number).unwrap_or_else(|| panic!("field {number}")).1
    }

    fn inner(&self, number: u64) -> Option<&'static Shape> {
        self.inner.iter().find(|(at, _)| *at == number).map(|(_, shape)| *shape)
    }
}

/// `metrics.proto` of Prometheus's client model.
static FAMILY: Shape = Shape { fields: &[(1, "name"), (3, "type"), (4, "metric")], inner: &[(4, &METRIC)] };
static METRIC: Shape = Shape {
    fields: &[(1, "label"), (5, "untyped"), (6, "time:time"), (7, "histogram")],
    inner: &[(1, &LABEL), (5, &UNTYPED), (7, &HISTOGRAM)],
};
static LABEL: Shape = Shape { fields: &[(1, "name"), (2, "value")], inner: &[] };
static UNTYPED: Shape = Shape { fields: &[(1, "value")], inner: &[] };
static HISTOGRAM: Shape = Shape {
    fields: &[
        (1, "count"),
        (2, "sum"),
        (3, "bucket"),
        (4, "count_float"),
        (5, "schema:zigzag"),
        (6, "zero_threshold"),
        (7, "zero_count"),
        (8, "zero_count_float"),
        (9, "negative_span"),
        (10, "negative_delta:zigzag"),
        (11, "negative_count"),
        (12, "positive_span"),
        (13, "positive_delta:zigzag"),
        (14, "positive_count"),
    ],
    inner: &[(3, &BUCKET), (9, &SPAN), (12, &SPAN)],
};
static BUCKET: Shape = Shape { fields: &[(1, "count"), (2, "bound"), (4, "count_float")], inner: &[] };
static SPAN: Shape = Shape { fields: &[(1, "offset:zigzag"), (2, "length")], inner: &[] };

/// The families of an answer, one line each.
fn families(bytes: &[u8]) -> Vec<String> {
    let (mut reader, mut out) = (ByteReader::new(bytes), Vec::new());
    while !reader.is_empty() {
        let len = reader.uvarint("length").unwrap() as usize;
        out.push(show(reader.bytes("family", len).unwrap(), &FAMILY));
    }
    out
}

#[tokio::test]
async fn protobuf_has_floats_and_histograms() {
    let server = written().await;
    let response = get(&server, "match[]=%7Bjob%3D~%22.*%22,__name__!%3D%22%22%7D", PROTOBUF).await;
    let kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; \
                escaping=allow-utf-8";
    assert_eq!(response.headers()[header::CONTENT_TYPE], kind);
    let found = families(&response.into_body().collect().await.unwrap().to_bytes());
    let label = |name: &str, value: &str| format!("label={{name={name:?} value={value:?}}}");
    let (none, job) = (label("instance", ""), |job: &str| label("job", job));
    let bucket = |name: &str, counts: [&str; 3]| {
        let bounds = ["0.5", "1.0", "2.5"];
        let one = |(count, bound): (&str, &str)| match name {
            "count" => format!("bucket={{count={count} bound={bound}}}"),
            _ => format!("bucket={{bound={bound} count_float={count}}}"),
        };
        counts.into_iter().zip(bounds).map(one).collect::<Vec<_>>().join(" ")
    };
    let spans = "negative_span={offset=4 length=2}";
    let positive = "positive_span={offset=-2 length=2} positive_span={offset=3 length=3}";
    let want = [
        format!("name=\"b_total\" type=3 metric={{{} {none} untyped={{value=-0.0}} time=0}}", job("x")),
        format!(
            "name=\"classic\" type=4 metric={{{none} time=0 histogram={{count=7 sum=2.5 {}}}}} \
             metric={{{} {none} time=0 histogram={{sum=2.5 {} count_float=7.0}}}}",
            bucket("count", ["2", "2", "6"]),
            job("float"),
            bucket("count_float", ["2.0", "2.0", "6.0"])
        ),
        "name=\"größe\" type=3 metric={label={name=\"instance\" value=\"i\"} untyped={value=NaN} time=0}"
            .to_owned(),
        format!("name=\"mixed\" type=3 metric={{{} {none} untyped={{value=2.5}} time=0}}", job("float")),
        format!(
            "name=\"mixed\" type=4 metric={{{} {none} time=0 histogram={{count=21 sum=18.5 schema=-1 \
             zero_threshold=0.25 zero_count=2 {spans} negative_delta=5 negative_delta=1 {positive} \
             positive_delta=1 positive_delta=2 positive_delta=-2 positive_delta=1 positive_delta=-1}}}} \
             metric={{{} {none} time=0 histogram={{count=0 sum=0.0 schema=0 zero_threshold=0.0 zero_count=0 \
             positive_span={{offset=0 length=0}}}}}}",
            job("a"),
            job("z")
        ),
        format!(
            "name=\"mixed\" type=5 metric={{{} {none} time=0 histogram={{sum=18.5 count_float=21.0 schema=-1 \
             zero_threshold=0.25 zero_count_float=2.0 {spans} negative_count=5.0 negative_count=6.0 {positive} \
             positive_count=1.0 positive_count=3.0 positive_count=1.0 positive_count=2.0 positive_count=1.0}}}}",
            job("gauge")
        ),
    ];
    assert_eq!(found, want);
}

#[tokio::test]
async fn text_has_floats_and_classic_histograms() {
    let server = written().await;
    // A series that two selectors find is one.
    let matches = "match[]=%7B__name__%3D~%22.%2B%22%7D&match[]=mixed";
    let response =
        get(&server, matches, "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8,*/*;q=0.1")
            .await;
    let kind = "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8";
    assert_eq!(response.headers()[header::CONTENT_TYPE], kind);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let mut want = format!("# TYPE b_total untyped\nb_total{{job=\"x\",instance=\"\"}} -0 {TIME}\n");
    want.push_str("# TYPE classic histogram\n");
    for labels in ["instance=\"\"", "job=\"float\",instance=\"\""] {
        for (bound, count) in [("0.5", 2), ("1", 2), ("2.5", 6), ("+Inf", 7)] {
            want.push_str(&format!("classic_bucket{{{labels},le=\"{bound}\"}} {count} {TIME}\n"));
        }
        want.push_str(&format!("classic_sum{{{labels}}} 2.5 {TIME}\nclassic_count{{{labels}}} 7 {TIME}\n"));
    }
    want.push_str(&format!("# TYPE \"größe\" untyped\n{{\"größe\",instance=\"i\"}} NaN {TIME}\n"));
    want.push_str(&format!("# TYPE mixed untyped\nmixed{{job=\"float\",instance=\"\"}} 2.5 {TIME}\n"));
    assert_eq!(std::str::from_utf8(&text).unwrap(), want);
    drop(text);
    let nothing = get(&server, "match[]=gone", "").await;
    assert_eq!(nothing.status().as_u16(), 200);
    assert!(nothing.into_body().collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(server.web.service.admission.query_memory.total.used_bytes(), 0);
}

/// Names were UTF-8 whatever the scraper asked for, and a scraper of classic names lost the whole target.
#[tokio::test]
async fn names_are_escaped_as_the_scraper_asks() {
    let server = Fixture::ready();
    let pairs: &[(&str, &str)] = &[("__name__", "vat.temp"), ("my.id", "7"), ("zone_a", "x.y")];
    assert_eq!(server.write(&[(pairs, &[(TIME, 2.0)])]).await.status, 204);
    for (accept, name, label) in [
        ("", "vat_temp", "my_id"),
        ("text/plain;version=0.0.4", "vat_temp", "my_id"),
        ("text/plain;version=0.0.4;escaping=underscores", "vat_temp", "my_id"),
        ("text/plain;version=0.0.4;escaping=dots", "vat_dot_temp", "my_dot_id"),
        ("text/plain;version=0.0.4;escaping=values", "U__vat_2e_temp", "U__my_2e_id"),
    ] {
        let response = get(&server, "match[]=%7Bzone_a%3D%22x.y%22%7D", accept).await;
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let labels = format!("{label}=\"7\",zone_a=\"x.y\",instance=\"\"");
        let want = format!("# TYPE {name} untyped\n{name}{{{labels}}} 2 {TIME}\n");
        assert_eq!(std::str::from_utf8(&text).unwrap(), want, "{accept}");
    }
    let protobuf = PROTOBUF.replace(";escaping=allow-utf-8", "");
    let response = get(&server, "match[]=%7Bzone_a%3D%22x.y%22%7D", &protobuf).await;
    let found = families(&response.into_body().collect().await.unwrap().to_bytes());
    assert!(found[0].starts_with("name=\"vat_temp\"") && found[0].contains("name=\"my_id\""), "{found:?}");
}

/// Covers a regression: the advice for long URLs was to send a form, which this path refused.
#[tokio::test]
async fn many_selectors_are_sent_as_a_form() {
    let server = written().await;
    let mut form = "match[]=b_total".to_owned();
    for number in 0..3000 {
        form.push_str(&format!("&match[]=nope_metric_name_long_{number}"));
    }
    let answer = server.post_form("/federate", &form).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    assert!(answer.text.contains("b_total{job=\"x\""), "{}", answer.text);
    let answer = server.post_form("/api/v1/label/job/values", &form).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
}

/// Prometheus takes selectors of everything here.
#[tokio::test]
async fn a_selector_that_matches_the_empty_string_is_taken() {
    let server = written().await;
    let nothing = get(&server, "match[]=%7B%7D", "").await;
    assert_eq!(nothing.status().as_u16(), 200);
    assert!(nothing.into_body().collect().await.unwrap().to_bytes().is_empty());
    for selector in ["%7Bjob!%3D%22other%22%7D", "%7Bjob%3D~%22.*%22%7D", "%7Bx!~%22.%2B%22%7D"] {
        let response = get(&server, &format!("match[]={selector}"), "").await;
        assert_eq!(response.status().as_u16(), 200, "{selector}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&text).contains("b_total"), "{selector}");
    }
}

const LONG_COUNT: usize = 1000;

/// A server with a megabyte to federate, one metric.
async fn long() -> Fixture {
    let server = Fixture::ready();
    let value = "x".repeat(1000);
    let texts: Vec<String> = (0..LONG_COUNT).map(|idx| format!("{idx:04}{value}")).collect();
    let pairs: Vec<[(&str, &str); 2]> =
        texts.iter().map(|text| [("__name__", "long"), ("text", &**text)]).collect();
    let samples = [(TIME, 1.0)];
    let series: Vec<_> = pairs.iter().map(|pairs| (&pairs[..], &samples[..])).collect();
    assert_eq!(server.write(&series).await.status, 204);
    server
}

/// Covers a regression: the whole answer was printed before its first byte was sent, and was held in memory
/// together with the samples.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_holds_samples_and_a_few_parts() {
    let server = long().await;
    let sent = || server.web.metrics.federate.bytes.get() as usize;
    for accept in ["text/plain", PROTOBUF] {
        let before = sent();
        let mut body = get(&server, "match[]=long", accept).await.into_body();
        let first = body.frame().await.expect("a part").expect("no error").into_data().expect("bytes");
        assert!(first.len() >= ANSWER_PART_BYTES && first.len() < 2 * ANSWER_PART_BYTES, "{}", first.len());
        // The thread fills the channel and waits with one part more.
        let parts_max = (STREAM_PARTS_MAX + 3) * 2 * ANSWER_PART_BYTES;
        tokio::task::yield_now().await;
        assert!(sent() - before < parts_max, "{} bytes are printed", sent() - before);
        let (used, labels) =
            (server.web.service.admission.query_memory.total.used_bytes(), LONG_COUNT * 1200);
        assert!((used as usize) < labels + parts_max, "{used} bytes are held");
        // Printing needs no permit of queries.
        assert_eq!(server.web.service.admission.query.queue.running(), 0);
        assert_eq!(server.web.service.admission.streams.federate.queue.running(), 1);
        let mut all = first.to_vec();
        while let Some(frame) = body.frame().await {
            all.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        let count = match accept {
            PROTOBUF => families(&all)[0].matches("metric={").count(),
            _ => all.iter().filter(|&&byte| byte == b'\n').count() - 1,
        };
        assert_eq!((count, all.len()), (LONG_COUNT, sent() - before));
    }
    assert_eq!(server.web.metrics.federate.aborted.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_stops_the_work() {
    let server = long().await;
    let mut body = get(&server, "match[]=long", "").await.into_body();
    let first = body.frame().await.expect("a part").expect("no error");
    assert!(!body.is_end_stream());
    drop((first, body));
    let is_free = || {
        server.web.service.admission.streams.federate.queue.running() == 0
            && server.web.service.admission.query_memory.total.used_bytes() == 0
    };
    let all_free = async {
        while !is_free() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_free).await.expect("permit and memory are given back");
    assert!(server.web.metrics.federate.bytes.get() < (LONG_COUNT * 1000) as u64, "not all is printed");
    assert_eq!(server.web.metrics.federate.aborted.get(), 1);
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_federate_aborted_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn an_error_before_the_first_part_has_a_code() {
    let small = Fixture::with(|options| options.service.query.memory_bytes_max = 100_000).open();
    let mut request = RequestEncoder::new();
    let value = "x".repeat(1000);
    for idx in 0..200 {
        request.push_series([("__name__", "long"), ("text", &*format!("{idx:04}{value}"))], &[(TIME, 1.0)]);
    }
    let write = Request::post("/api/v1/write").body(Body::from(request.compressed()));
    assert_eq!(small.send(write.unwrap()).await.status.as_u16(), 204);
    let answer = small.get("/federate?match[]=long").await;
    assert_eq!(answer.status.as_u16(), 422, "{}", answer.text);
    assert!(answer.text.contains("memory"), "{}", answer.text);
    assert_eq!(small.web.service.admission.query_memory.total.used_bytes(), 0);
}
