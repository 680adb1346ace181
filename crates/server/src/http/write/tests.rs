//! Remote write 2.0 through the router: negotiation, counts of stored samples, partial writes.
//! Not here: version 1.0, whose answers `http::tests` looks at.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, header};
use chronolith_base::{Env, thread};
use chronolith_ingest::remote_write::encode::compress;
use chronolith_ingest::remote_write::v2::encode::{RequestEncoder, SampleOut, SeriesExtras};
use chronolith_model::{Exemplar, Histogram, IntHistogram, Labels, MetricKind, TenantId};

use crate::http::tests::{Answer, Fixture, NOW_MS};
use crate::options::ServerOptions;

const V1: &str = "application/x-protobuf";
const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

async fn send(server: &Fixture, kind: &str, body: Vec<u8>) -> Answer {
    let request = Request::post("/api/v1/write")
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_ENCODING, "snappy")
        .body(Body::from(body));
    server.send(request.unwrap()).await
}

/// Status and the three counts; `None` for headers that are not there.
fn counts(answer: &Answer) -> (u16, [Option<u64>; 3]) {
    let count = |what: &str| {
        let value = answer.headers.get(format!("x-prometheus-remote-write-{what}-written"))?;
        Some(value.to_str().unwrap().parse().unwrap())
    };
    (answer.status.as_u16(), ["samples", "histograms", "exemplars"].map(count))
}

fn at(time_ms: i64, value: f64) -> SampleOut {
    SampleOut { time_ms, value, start_ms: 0 }
}

fn exemplar(time_ms: i64) -> Exemplar {
    Exemplar { labels: Labels::from_pairs([("trace_id", "abc")]), value: 0.5, time_ms }
}

#[tokio::test]
async fn what_is_written_is_counted_and_can_be_queried() {
    let server = Fixture::ready();
    let mut request = RequestEncoder::new();
    let extras = SeriesExtras {
        exemplars: &[exemplar(NOW_MS - 5)],
        kind: MetricKind::Counter,
        help: "Requests.",
        ..SeriesExtras::default()
    };
    let start = SampleOut { time_ms: NOW_MS - 15_000, value: 1.0, start_ms: NOW_MS - 60_000 };
    request.push_series([("__name__", "hits_total"), ("job", "a")], &[start, at(NOW_MS, 2.5)], &extras);
    request.push_series([("__name__", "up")], &[at(NOW_MS, 1.0)], &SeriesExtras::default());
    let answer = send(&server, V2, request.compressed()).await;
    assert_eq!(counts(&answer), (204, [Some(3), Some(0), Some(1)]), "{}", answer.text);
    let found = server.get("/api/v1/query?query=hits_total").await.json();
    assert_eq!(found["data"]["result"][0]["value"][1], "2.5");
    let metadata = server.get("/api/v1/metadata").await.json();
    let entry = &metadata["data"]["hits_total"][0];
    assert_eq!((entry["type"].as_str(), entry["help"].as_str()), (Some("counter"), Some("Requests.")));
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_write_start_times_total 1\n"), "{metrics}");
    // The same again is no error: senders repeat what they got no answer to.
    let answer = send(&server, V2, request.compressed()).await;
    assert_eq!(counts(&answer), (204, [Some(3), Some(0), Some(1)]), "{}", answer.text);
}

#[tokio::test]
async fn a_sender_that_changes_its_version_writes_the_same_series() {
    let server = Fixture::ready();
    let labels = [("__name__", "up"), ("instance", "a:9090")];
    let mut one = chronolith_ingest::remote_write::encode::RequestEncoder::new();
    one.push_series(labels, &[(NOW_MS - 1000, 1.0)]);
    let answer = send(&server, V1, one.compressed()).await;
    assert_eq!(counts(&answer), (204, [None; 3]), "senders of 1.0 get no counts");
    let mut two = RequestEncoder::new();
    two.push_series(labels, &[at(NOW_MS, 2.0)], &SeriesExtras::default());
    assert_eq!(send(&server, V2, two.compressed()).await.status.as_u16(), 204);
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_write_series_created_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn of_a_partial_write_the_good_samples_are_stored_and_counted() {
    let server = Fixture::ready();
    let mut request = RequestEncoder::new();
    let good = SeriesExtras { exemplars: &[exemplar(NOW_MS)], ..SeriesExtras::default() };
    request.push_series([("__name__", "good")], &[at(NOW_MS, 1.0), at(NOW_MS + 86_400_000, 2.0)], &good);
    request.push_series([("no", "name")], &[at(NOW_MS, 1.0)], &SeriesExtras::default());
    request.push_series_refs(&[700, 1], &[at(NOW_MS, 1.0)]);
    request.push_series([("__name__", "empty")], &[], &SeriesExtras::default());
    let answer = send(&server, V2, request.compressed()).await;
    assert_eq!(counts(&answer), (400, [Some(1), Some(0), Some(1)]));
    let mut lines = answer.text.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("3 of 4 samples rejected: first: series has no metric name"), "{first}");
    let want = "parsing labels for series [700 1]: labelRefs 700 (name) = 1 (value) outside of symbols table (size 8)";
    assert_eq!(lines.next(), Some(want), "{}", answer.text);
    let metrics = server.get("/metrics").await.text;
    for line in ["{reason=\"bad_reference\"} 1\n", "{reason=\"no_metric_name\"} 1\n"] {
        assert!(metrics.contains(&format!("chronolith_write_samples_rejected_total{line}")), "{metrics}");
    }
}

#[tokio::test]
async fn exemplars_out_of_order_are_refused_and_the_samples_stored() {
    let server = Fixture::ready();
    let write = async |sample_ms: i64, value: f64, exemplar_ms: i64| {
        let mut request = RequestEncoder::new();
        let exemplars = [Exemplar { value, ..exemplar(exemplar_ms) }];
        let extras = SeriesExtras { exemplars: &exemplars, ..SeriesExtras::default() };
        request.push_series([("__name__", "up")], &[at(sample_ms, 1.0)], &extras);
        send(&server, V2, request.compressed()).await
    };
    assert_eq!(counts(&write(NOW_MS - 2, 2.0, NOW_MS - 2).await), (204, [Some(1), Some(0), Some(1)]));
    assert_eq!(counts(&write(NOW_MS - 1, 1.0, NOW_MS - 3).await), (204, [Some(1), Some(0), Some(1)]));
    assert_eq!(counts(&write(NOW_MS - 1, 1.0, NOW_MS + 7_200_000).await), (204, [Some(1), Some(0), Some(0)]));
    let late = write(NOW_MS, 1.0, NOW_MS - 2).await;
    assert_eq!(counts(&late), (400, [Some(1), Some(0), Some(0)]));
    assert_eq!(late.text, "out of order exemplar: 1 exemplars rejected\n");
}

#[tokio::test]
async fn bodies_and_headers_that_do_not_fit_lose_nothing() {
    let server = Fixture::ready();
    let mut one = chronolith_ingest::remote_write::encode::RequestEncoder::new();
    one.push_series([("__name__", "up")], &[(NOW_MS, 1.0)]);
    let answer = send(&server, V2, one.compressed()).await;
    assert_eq!(answer.status.as_u16(), 400, "a body of 1.0 is none of 2.0: {}", answer.text);
    let mut two = RequestEncoder::new();
    two.push_series([("__name__", "up")], &[at(NOW_MS, 1.0)], &SeriesExtras::default());
    let answer = send(&server, V1, two.compressed()).await;
    assert_eq!(answer.status.as_u16(), 400, "a body of 2.0 is none of 1.0: {}", answer.text);
    let answer = send(&server, "application/x-protobuf;proto=some.Other", two.compressed()).await;
    assert_eq!(answer.status.as_u16(), 415, "{}", answer.text);
    assert_eq!(counts(&send(&server, V2, compress(&[])).await), (204, [Some(0); 3]));
}

#[tokio::test]
async fn histograms_are_checked_and_stored() {
    let server = Fixture::ready();
    let valid = Arc::new(Histogram::Int(IntHistogram::default()));
    let invalid = Arc::new(Histogram::Int(IntHistogram { count: 1, ..IntHistogram::default() }));
    let mut request = RequestEncoder::new();
    let histograms = [(NOW_MS - 1, 0, valid), (NOW_MS, 0, invalid.clone())];
    let extras = SeriesExtras { histograms: &histograms, ..SeriesExtras::default() };
    request.push_series([("__name__", "h")], &[], &extras);
    let answer = send(&server, V2, request.compressed()).await;
    assert_eq!(counts(&answer), (400, [Some(0), Some(1), Some(0)]));
    let want = r#"0 observations found in buckets, but the Count field is 1: histogram's observation count should equal the number of observations found in the buckets (in absence of NaN) for series {__name__="h"}"#;
    assert_eq!(answer.text.lines().next(), Some(want), "{}", answer.text);
    let mut one = chronolith_ingest::remote_write::encode::RequestEncoder::new();
    one.push_histograms([("__name__", "h")], &[(NOW_MS, invalid)]);
    assert_eq!(send(&server, V1, one.compressed()).await.status.as_u16(), 400);
    let metrics = server.get("/metrics").await.text;
    let line = "chronolith_write_samples_rejected_total{reason=\"histogram_invalid\"} 2\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(!metrics.contains("histogram_unsupported"), "no protocol refuses native histograms");
}

#[tokio::test]
async fn type_and_unit_can_be_selected_where_they_are_asked_for() {
    let mut request = RequestEncoder::new();
    let extras = SeriesExtras { kind: MetricKind::Counter, unit: "bytes", ..SeriesExtras::default() };
    request.push_series([("__name__", "sent"), ("job", "a")], &[at(NOW_MS, 1.0)], &extras);
    let ask = "/api/v1/query?query=%7B__type__%3D%22counter%22,__unit__%3D%22bytes%22%7D";
    let plain = Fixture::ready();
    assert_eq!(send(&plain, V2, request.compressed()).await.status.as_u16(), 204);
    assert_eq!(plain.get(ask).await.json()["data"]["result"], serde_json::json!([]));
    let server = Fixture::with(|options| options.service.features.type_and_unit_labels = true).open();
    assert_eq!(send(&server, V2, request.compressed()).await.status.as_u16(), 204);
    let found = server.get(ask).await.json();
    let want =
        serde_json::json!({"__name__": "sent", "__type__": "counter", "__unit__": "bytes", "job": "a"});
    assert_eq!(found["data"]["result"][0]["metric"], want);
    // A sender of 1.0 that has the labels itself, in their place, writes the same series.
    let mut one = chronolith_ingest::remote_write::encode::RequestEncoder::new();
    let labels = [("__name__", "sent"), ("__type__", "counter"), ("__unit__", "bytes"), ("job", "a")];
    one.push_series(labels, &[(NOW_MS - 1000, 1.0)]);
    assert_eq!(send(&server, V1, one.compressed()).await.status.as_u16(), 204);
    let series = server.get("/api/v1/series?match%5B%5D=sent").await.json();
    assert_eq!(series["data"].as_array().map(Vec::len), Some(1));
}

/// Covers a regression: one tenant, or many, could take all memory and all of the log: nothing ever answered
/// 429.
#[tokio::test]
async fn a_tenant_above_its_rate_is_told_when_to_come_again() {
    let server = Fixture::with(|options| {
        options.service.tsdb.limits.default.ingestion.rate = 10;
        options.service.tsdb.limits.default.ingestion.burst = 20;
    })
    .open();
    let request = |first: i64, count: i64| {
        let mut request = RequestEncoder::new();
        let samples: Vec<SampleOut> = (first..first + count).map(|i| at(NOW_MS - 1000 + i, 1.0)).collect();
        request.push_series([("__name__", "up")], &samples, &SeriesExtras::default());
        request.compressed()
    };
    let answer = send(&server, V2, request(0, 21)).await;
    assert_eq!(answer.status.as_u16(), 400, "more than ever fits: {}", answer.text);
    assert!(answer.text.contains("ingestion-burst") && !answer.headers.contains_key(header::RETRY_AFTER));
    assert_eq!(send(&server, V2, request(0, 20)).await.status.as_u16(), 204);
    let answer = send(&server, V2, request(20, 15)).await;
    assert_eq!(answer.status.as_u16(), 429, "{}", answer.text);
    assert_eq!(answer.headers[header::RETRY_AFTER], "2");
    let found = server.get("/api/v1/query?query=count_over_time(up[1m])").await.json();
    assert_eq!(found["data"]["result"][0]["value"][1], "20", "nothing of a refused request is there");
    let metrics = server.get("/metrics").await.text;
    for line in ["{reason=\"ingestion_rate\"} 1\n", "{reason=\"ingestion_burst\"} 1\n"] {
        assert!(metrics.contains(&format!("chronolith_write_requests_refused_total{line}")), "{metrics}");
    }
}

#[tokio::test]
async fn bytes_above_the_rate_answer_429_and_above_the_burst_400() {
    let server = Fixture::with(|options| {
        options.service.tsdb.limits.default.ingestion.bytes_rate = 100;
        options.service.tsdb.limits.default.ingestion.bytes_burst = 1000;
    })
    .open();
    let request = |bytes: usize, offset_ms: i64| {
        let mut request = RequestEncoder::new();
        let value = "x".repeat(bytes);
        let labels = [("__name__", "up"), ("l", value.as_str())];
        request.push_series(labels, &[at(NOW_MS - offset_ms, 1.0)], &SeriesExtras::default());
        request.compressed()
    };
    let answer = send(&server, V2, request(1000, 0)).await;
    assert_eq!(answer.status.as_u16(), 400, "{}", answer.text);
    assert!(answer.text.contains("ingestion-bytes-burst) of 1000"), "{}", answer.text);
    assert!(!answer.headers.contains_key(header::RETRY_AFTER));
    assert_eq!(send(&server, V2, request(700, 0)).await.status.as_u16(), 204);
    let answer = send(&server, V2, request(700, 1)).await;
    assert_eq!(answer.status.as_u16(), 429, "{}", answer.text);
    assert!(answer.text.contains("(ingestion-bytes-rate) of 100 bytes/s"), "{}", answer.text);
    assert!(answer.headers.contains_key(header::RETRY_AFTER));
    server.web.service.set_limits(chronolith_tsdb::LimitsTable::default());
    assert_eq!(send(&server, V2, request(700, 1)).await.status.as_u16(), 204, "after a reload");
    let metrics = server.get("/metrics").await.text;
    for line in ["{reason=\"ingestion_bytes_rate\"} 1\n", "{reason=\"ingestion_bytes_burst\"} 1\n"] {
        assert!(metrics.contains(&format!("chronolith_write_requests_refused_total{line}")), "{metrics}");
    }
}

/// Checks that series of a metric beyond its limit are refused, and the others of the request stored.
#[tokio::test]
async fn a_metric_at_its_limit_of_series_is_named() {
    let server =
        Fixture::with(|options| options.service.tsdb.limits.default.ingestion.metric_series_max = 2).open();
    let mut request = RequestEncoder::new();
    for (name, id) in [("m", "1"), ("m", "2"), ("m", "3"), ("n", "1")] {
        request.push_series([("__name__", name), ("id", id)], &[at(NOW_MS, 1.0)], &SeriesExtras::default());
    }
    let answer = send(&server, V2, request.compressed()).await;
    assert_eq!(counts(&answer), (400, [Some(3), Some(0), Some(0)]), "{}", answer.text);
    let text = "metric \"m\" has 2 series, and series-per-metric-limit allows 2: series m{id=\"3\"}";
    assert!(answer.text.contains(text), "{}", answer.text);
}

/// Covers a regression: the kernel ended the process when the series of all tenants took more memory than
/// there is.
#[tokio::test]
async fn a_full_head_answers_429_and_what_never_fits_400() {
    let server = Fixture::with(|options| {
        options.service.tsdb.head_memory.limit = chronolith_tsdb::HeadMemory::Bytes(4 << 20);
    })
    .open();
    let request = |first: usize, count: usize| {
        let mut request = RequestEncoder::new();
        for number in first..first + count {
            let name = format!("series_{number}");
            request.push_series([("__name__", name.as_str())], &[at(NOW_MS, 1.0)], &SeriesExtras::default());
        }
        request.compressed()
    };
    let answer = send(&server, V2, request(0, 20_000)).await;
    assert_eq!(answer.status.as_u16(), 400, "{}", answer.text);
    let mut written = 0;
    let refused = loop {
        let answer = send(&server, V2, request(written, 500)).await;
        if answer.status.as_u16() != 204 {
            break answer;
        }
        written += 500;
        assert!(written < 20_000, "nothing is ever refused");
    };
    assert_eq!(refused.status.as_u16(), 429, "{}", refused.text);
    assert_eq!(refused.headers[header::RETRY_AFTER], "30");
    assert!(refused.text.contains("head-memory-limit"), "{}", refused.text);
    let found = server.get("/api/v1/query?query=count(%7B__name__=~%22series_.*%22%7D)").await.json();
    assert_eq!(found["data"]["result"][0]["value"][1], written.to_string());
    let metrics = server.get("/metrics").await.text;
    assert!(
        metrics.contains("chronolith_write_requests_refused_total{reason=\"head_memory\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("chronolith_head_memory_limit_bytes 4.194304e+06\n"), "{metrics}");
}

/// Covers a regression: new series of one tenant had every write of the others refused. The answer to the
/// loud tenant names it, its share and the setting; the others write on, and one request larger than the
/// share is a 400.
#[tokio::test]
async fn new_series_above_the_share_of_a_tenant_are_refused_to_it_alone() {
    let server = Fixture::with(|options| {
        options.service.multitenancy = true;
        options.service.tsdb.head_memory.limit = chronolith_tsdb::HeadMemory::Bytes(16 << 20);
        options.service.tsdb.head_memory.tenant_percent = 25;
    })
    .open();
    let send_as = async |tenant: &str, first: usize, count: usize| {
        let mut request = RequestEncoder::new();
        for number in first..first + count {
            let name = format!("series_{number}");
            request.push_series([("__name__", name.as_str())], &[at(NOW_MS, 1.0)], &SeriesExtras::default());
        }
        let request = Request::post("/api/v1/write")
            .header(header::CONTENT_TYPE, V2)
            .header(header::CONTENT_ENCODING, "snappy")
            .header("X-Scope-OrgID", tenant)
            .body(Body::from(request.compressed()));
        server.send(request.unwrap()).await
    };
    let answer = send_as("loud", 0, 20_000).await;
    assert_eq!(answer.status.as_u16(), 400, "{}", answer.text);
    assert!(answer.text.contains("head-memory-tenant-share") && answer.text.contains("\"loud\""));
    let mut refused = 0;
    for round in 0..60 {
        let answer = send_as("loud", round * 500, 500).await;
        if answer.status.as_u16() != 204 {
            refused += 1;
            assert_eq!(answer.status.as_u16(), 429, "{}", answer.text);
            assert_eq!(answer.headers[header::RETRY_AFTER], "30");
            let text = "tenant \"loud\" is at its share of the head's memory (head-memory-tenant-share): ";
            assert!(answer.text.contains(text), "{}", answer.text);
            assert!(answer.text.contains("of 4194300 bytes used"), "{}", answer.text);
        }
        for other in ["quiet", "second", "third"] {
            let answer = send_as(other, round * 10, 10).await;
            assert_eq!(answer.status.as_u16(), 204, "{other}: {}", answer.text);
        }
    }
    assert!(refused > 20, "{refused} requests refused");
    let metrics = server.get("/metrics").await.text;
    let line = format!("chronolith_head_tenant_share_refused_total {refused}\n");
    assert!(metrics.contains(&line), "{metrics}");
}

/// Series of 16 KiB each, so that frames of the WAL are about as large as the request.
fn large_request(tenant: &str, number: usize, series_count: usize) -> Request<Body> {
    let mut request = RequestEncoder::new();
    for idx in 0..series_count {
        let value = format!("{number}-{idx}-{}", "x".repeat(16_000));
        let labels = [("__name__", "large"), ("text", value.as_str())];
        request.push_series(labels, &[at(NOW_MS, 1.0)], &SeriesExtras::default());
    }
    Request::post("/api/v1/write")
        .header(header::CONTENT_TYPE, V2)
        .header(header::CONTENT_ENCODING, "snappy")
        .header("X-Scope-OrgID", tenant)
        .body(Body::from(request.compressed()))
        .unwrap()
}

/// Covers a regression: a tenant queued all of its requests for the WAL, and on a slow disk the commit of
/// another tenant came after all of them. The last row shows that: its part is larger than what it sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_waits_for_no_more_bytes_of_another_tenant_than_its_part() {
    const REQUEST_COUNT: u64 = 20;
    const REQUEST_BYTES: u64 = 64 * 16_000;
    for (weight, part_bytes) in [(1, (16_u64 << 20).div_ceil(10)), (5, 8 << 20), (100, 64 << 20)] {
        let (env, _clock, disk) = Env::fake(NOW_MS, 1);
        let change = |options: &mut ServerOptions| {
            options.service.multitenancy = true;
            options.service.write.concurrency = 256;
            options.service.tsdb.limits.default.weight = weight;
        };
        let server = Arc::new(Fixture::with_env(env, change).open());
        let send = |tenant: &'static str, number: usize, series_count: usize| {
            let server = server.clone();
            tokio::spawn(async move { server.send(large_request(tenant, number, series_count)).await.status })
        };
        let queue = &server.web.service.admission.write_apply.queue;
        let uncommitted = |tenant: &str| queue.uncommitted_bytes_of(&TenantId::new(tenant).unwrap());
        let held = disk.hold_syncs();
        let loud: Vec<_> = (0..REQUEST_COUNT as usize).map(|number| send("loud", number, 64)).collect();
        let sent_bytes = REQUEST_COUNT * REQUEST_BYTES;
        while queue.running() > 0 || uncommitted("loud") < sent_bytes.min(part_bytes) {
            tokio::task::yield_now().await;
        }
        let ahead_bytes = uncommitted("loud");
        let quiet = send("quiet", 0, 1);
        while uncommitted("quiet") == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(uncommitted("loud"), ahead_bytes, "no more of it until bytes are durable");
        // The requests that are applied at the same time come on top.
        let on_top = thread::core_count() as u64 * (REQUEST_BYTES + (1 << 20));
        assert!(ahead_bytes <= part_bytes + on_top, "weight {weight}: {ahead_bytes} bytes");
        assert!(weight == 100 || ahead_bytes < sent_bytes / 2, "weight {weight}: {ahead_bytes} bytes");
        drop(held);
        for answer in loud.into_iter().chain([quiet]) {
            assert_eq!(answer.await.unwrap().as_u16(), 204);
        }
        assert_eq!((uncommitted("loud"), uncommitted("quiet")), (0, 0));
    }
}

/// Covers a regression: the answer printed the raw wire key of a series whose label is not UTF-8, with line
/// breaks.
#[tokio::test]
async fn a_series_with_a_bad_label_is_named_in_one_line() {
    let server = Fixture::ready();
    let label = |name: &[u8], value: &[u8]| {
        let text = |tag: u8, text: &[u8]| [&[tag, text.len() as u8], text].concat();
        text(0x0a, &[text(0x0a, name), text(0x12, value)].concat())
    };
    for (bad, want) in [
        (label(b"job", b"caf\xe9"), "series bad{job=\"caf\u{fffd}\"} time"),
        (label(b"a\xffb", b"x\ny"), "series bad{\"a\u{fffd}b\"=\"x\\ny\"} time"),
        (label(b"job", &[0xff; 100]), "series bad{job=\"\u{fffd}"),
    ] {
        let mut sample = vec![0x12, 7, 0x10];
        chronolith_base::bytes::put_uvarint(&mut sample, NOW_MS as u64);
        sample[1] = (sample.len() - 2) as u8;
        let series = [label(b"__name__", b"bad"), bad, sample].concat();
        let mut body = vec![0x0a];
        chronolith_base::bytes::put_uvarint(&mut body, series.len() as u64);
        body.extend(series);
        let answer = send(&server, V1, compress(&body)).await;
        assert_eq!((answer.status.as_u16(), answer.text.lines().count()), (400, 1), "{}", answer.text);
        assert!(answer.text.contains(want), "{}", answer.text);
    }
}
