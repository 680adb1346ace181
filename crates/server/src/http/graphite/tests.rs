//! Tests of carbon points over HTTP: answers, and what PromQL reads afterwards.

mod bucket;
mod delete;
mod events;
mod grafana;
mod limits;
mod listing;
mod meta;
#[cfg(feature = "png")]
mod picture;
mod promql;
mod ranges;
mod tags;

use std::io::Write as _;

use axum::http::Request;
use chronolith_graphite::storage::Source as _;
use chronolith_model::query::{Opened, Read, SoleLabelValues, Source, Wanted};
use chronolith_model::{
    GraphiteLimits, METRIC_NAME, QueryError, Queryable, ReadContext, TenantId, TimeRange,
};
use chronolith_service::access::Identity;
use chronolith_service::graphite::source::{SourceSettings, TenantSource};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::http::tests::{Answer, Fixture};
use crate::options::ServerOptions;

async fn post(server: &Fixture, path: &str, encoding: &str, body: Vec<u8>) -> Answer {
    let request = Request::post(path).header("content-encoding", encoding).body(Body::from(body));
    server.send(request.expect("a request")).await
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

async fn value(server: &Fixture, selector: &str) -> String {
    let answer = server.get(&format!("/api/v1/query?query={selector}&time=1000")).await;
    answer.json()["data"]["result"][0]["value"][1].to_string()
}

#[tokio::test]
async fn lines_plain_and_gzip_are_stored() {
    let server = Fixture::ready();
    let answer = post(&server, "/api/v1/carbon", "identity", b"h.a 1 1000\nh.b 2 1000".to_vec()).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    let answer = post(&server, "/api/v1/carbon", "gzip", packed(b"h.c 3 1000\n")).await;
    assert_eq!(answer.status.as_u16(), 204);
    assert_eq!(value(&server, "sum(%7B__name__%3D~%22h..%22%7D)").await, r#""6""#);
    let answer = post(&server, "/api/v1/carbon", "gzip", b"h.c 3 1000\n".to_vec()).await;
    assert_eq!(answer.status.as_u16(), 400);
    assert!(answer.text.starts_with("gzip: "), "{}", answer.text);
}

#[tokio::test]
async fn refused_points_are_named_and_the_others_stored() {
    let server = Fixture::ready();
    let answer = post(&server, "/api/v1/carbon", "identity", b"ok 1 1000\nno x 1000\n".to_vec()).await;
    assert_eq!(answer.status.as_u16(), 400);
    assert_eq!(answer.text, "1 points refused, the value is not a number: \"no x 1000\"\n");
    assert_eq!(value(&server, "ok").await, r#""1""#);
    let refused = server.get("/api/v1/graphite/refused?reason=bad_value").await.json();
    assert_eq!(refused["data"][0]["line"], "no x 1000");
    assert_eq!(refused["data"][0]["input"], "http");
    let none = server.get("/api/v1/graphite/refused?reason=nan").await.json();
    assert_eq!(none["data"], serde_json::json!([]));
    let unknown = server.get("/api/v1/graphite/refused?reason=x").await;
    assert_eq!(unknown.status.as_u16(), 400);
}

#[tokio::test]
async fn metrics_of_metrictank_are_stored() {
    let server = Fixture::ready();
    let body =
        br#"[{"name":"mt.a","interval":10,"value":4.5,"unit":"","time":1000,"mtype":"gauge","tags":["dc=x"],
        "org_id":1}]"#;
    let answer = post(&server, "/metrics", "identity", body.to_vec()).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    assert_eq!(value(&server, "%7B__name__%3D%22mt.a%22%2Cdc%3D%22x%22%7D").await, r#""4.5""#);
    let answer = post(&server, "/metrics", "identity", b"{".to_vec()).await;
    assert_eq!(answer.status.as_u16(), 400);
}

/// A server with some paths and tagged series at 60 s steps up to 600 s.
async fn with_points() -> Fixture {
    let server = Fixture::ready();
    let mut lines = String::new();
    for time in (60..=600).step_by(60) {
        for (path, factor) in [("dc.a.cpu", 1), ("dc.b.cpu", 2), ("dc.b.mem", 3), ("disk;host=x;dc=a", 4)] {
            lines.push_str(&format!("{path} {} {time}\n", time / 60 * factor));
        }
    }
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204);
    server
}

#[track_caller]
fn check_json(answer: &Answer, want: serde_json::Value) {
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    assert_eq!(answer.json(), want);
}

#[tokio::test]
async fn targets_are_rendered_as_graphite_web_does() {
    let server = with_points().await;
    let range = "from=300&until=480&format=json";
    let answer = server.get(&format!("/render?target=sumSeries(dc.*.cpu)&{range}")).await;
    check_json(
        &answer,
        serde_json::json!([{
            "target": "sumSeries(dc.*.cpu)",
            "tags": {"name": "sumSeries(dc.*.cpu)", "aggregatedBy": "sum"},
            "datapoints": [[18.0, 360], [21.0, 420], [24.0, 480]],
        }]),
    );
    let answer = server.get(&format!("/render?target=seriesByTag('host=x')&{range}")).await;
    check_json(
        &answer,
        serde_json::json!([{
            "target": "disk;dc=a;host=x",
            "tags": {"name": "disk", "dc": "a", "host": "x"},
            "datapoints": [[24.0, 360], [28.0, 420], [32.0, 480]],
        }]),
    );
    let form = Request::post("/render")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(format!("target=dc.b.%7Bcpu,mem%7D&{}", range.replace("json", "raw"))));
    let answer = server.send(form.expect("a request")).await;
    assert_eq!(answer.text, "dc.b.cpu,360,540,60|12.0,14.0,16.0\ndc.b.mem,360,540,60|18.0,21.0,24.0\n");
}

#[tokio::test]
async fn requests_that_cannot_be_answered_are_refused_with_the_reason() {
    let server = with_points().await;
    for (query, text) in [
        ("target=nosuch(a)&format=json", "unknown function: nosuch"),
        ("target=a&from=x&format=json", "from or until"),
        ("target=a&format=pdf", "unknown format \"pdf\""),
        ("target=a&maxDataPoints=x&format=json", "maxDataPoints"),
    ] {
        let answer = server.get(&format!("/render?{query}")).await;
        assert_eq!(answer.status.as_u16(), 400, "{query}");
        assert!(answer.text.contains(text), "{query}: {}", answer.text);
    }
}

/// Covers builds with and without the feature `png`: the step `features` of `cargo xtask ci --all`.
#[tokio::test]
async fn a_bitmap_is_drawn_or_refused_by_the_name_of_its_feature() {
    let server = with_points().await;
    let want = if cfg!(feature = "png") { (200, "PNG") } else { (501, "lacks the feature `png`") };
    for query in [
        "target=dc.*.cpu",
        "target=dc.*.cpu&format=",
        "target=dc.*.cpu&format=png",
        "target=no.such&format=png",
        "target=dc.a.cpu&width=1&height=1",
        "target=dc.a.cpu&graphType=pie",
        "target=dc.a.cpu&format=png&meta=true",
        "target=dc.a.cpu&format=png&jsonp=f",
        "target=sumSeries(dc.*.*)&from=60&until=600",
        "format=png",
    ] {
        let answer = server.get(&format!("/render?{query}")).await;
        assert_eq!(answer.status.as_u16(), want.0, "{query}: {}", answer.text);
        assert!(answer.text.contains(want.1), "{query}: {}", answer.text);
    }
    for query in ["target=a&format=svg", "target=a&rawData=1", "target=a&format=json", "format=csv"] {
        assert_eq!(server.get(&format!("/render?{query}")).await.status.as_u16(), 200, "{query}");
    }
}

/// Checks that the samples of a series that is read need memory, however few points the answer has.
#[tokio::test]
async fn a_series_that_does_not_fit_into_the_memory_of_a_query_is_refused() {
    let server = Fixture::with(|options| options.service.query.memory_bytes_max = 64 << 10).open();
    let lines: String = (1..=20_000).map(|time| format!("many {time} {time}\n")).collect();
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204);
    let few = server.get("/render?target=many&from=1&until=100&format=json").await;
    assert_eq!(few.status.as_u16(), 200, "{}", few.text);
    let all = server.get("/render?target=many&from=1&until=20000&maxDataPoints=10&format=json").await;
    assert!(all.text.contains("memory"), "{} {}", all.status, all.text);
}

#[tokio::test]
async fn paths_are_found_level_by_level() {
    let server = with_points().await;
    let names = |answer: &Answer| -> Vec<String> {
        let nodes = answer.json();
        nodes
            .as_array()
            .expect("a list")
            .iter()
            .map(|node| node["id"].as_str().unwrap_or("").to_owned())
            .collect()
    };
    assert_eq!(names(&server.get("/metrics/find?query=*").await), ["dc"]);
    assert_eq!(names(&server.get("/metrics/find?query=dc.*").await), ["dc.a", "dc.b"]);
    let leaves = server.get("/metrics/find?query=dc.b.*").await;
    assert_eq!(names(&leaves), ["dc.b.cpu", "dc.b.mem"]);
    assert_eq!(leaves.json()[0]["leaf"], 1);
    let expanded = server.get("/metrics/expand?query=dc.*.cpu").await;
    check_json(&expanded, serde_json::json!({"results": ["dc.a.cpu", "dc.b.cpu"]}));
    let index = server.get("/metrics/index.json").await;
    check_json(&index, serde_json::json!(["dc.a.cpu", "dc.b.cpu", "dc.b.mem"]));
    let functions = server.get("/functions/sumSeries").await;
    assert_eq!(functions.json()["name"], "sumSeries");
}

const SCHEMAS: &str = "[sorted]\npattern = ^sorted\nretentions = 10s:1h,1m:1d\nreorderBuffer = 6\n\
                       reorderBufferAllowUpdate = true\n[plain]\npattern = ^plain\nretentions = 10s:10m,1m:1h\n";
const AGGREGATION: &str = "[sum]\npattern = ^plain\naggregationMethod = sum,max\nxFilesFactor = 0.5\n";

fn put(server: &Fixture, path: &str, text: &str) {
    let disk = &server.web.service.env.disk;
    disk.create_dir_all(std::path::Path::new("/rules")).expect("created");
    let file = disk.create(std::path::Path::new(path)).expect("created");
    file.write_at(text.as_bytes(), 0).expect("written");
}

/// A server with the rules.
fn with_rules() -> Fixture {
    with_rules_and(|_| {})
}

/// A server with the rules and other options.
fn with_rules_and(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    let server = Fixture::with(|options| {
        change(options);
        options.service.write.carbon.rules.schemas = Some("/rules/schemas.conf".into());
        options.service.write.carbon.rules.aggregation = Some("/rules/aggregation.conf".into());
    });
    put(&server, "/rules/schemas.conf", SCHEMAS);
    put(&server, "/rules/aggregation.conf", AGGREGATION);
    server.web.service.read_rules().expect("valid");
    server.open()
}

/// Answers have the buffered points, a replaced one, and one that is older than the buffer.
#[tokio::test]
async fn points_are_quantised_and_sorted_by_their_schema() {
    let server = with_rules();
    let lines = "sorted.a 1 1699999911\nsorted.a 2 1699999950\nsorted.a 3 1699999931\nsorted.a 4 1699999940\n\
                 sorted.a 5 1699999990\nsorted.a 6 1699999901\nplain.a 1 1699999955\nplain.a 2 1699999958\n";
    let answer = post(&server, "/api/v1/carbon", "identity", lines.as_bytes().to_vec()).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    let range = "from=1699999890&until=1699999990&now=1700000000&format=raw";
    let answer = server.get(&format!("/render?target=sorted.a&{range}")).await;
    let want = "sorted.a,1699999900,1700000000,10|None,6.0,1.0,None,4.0,2.0,None,None,None,5.0\n";
    assert_eq!(answer.text, want);
    let answer = server.get(&format!("/render?target=plain.a&{range}")).await;
    assert_eq!(
        answer.text,
        "plain.a,1699999900,1700000000,10|None,None,None,None,None,2.0,None,None,None,None\n"
    );
}

/// Checks that the archive that covers the range answers; a point needs half of its parts.
#[tokio::test]
async fn the_archive_of_a_range_is_made_of_raw_points() {
    let server = with_rules();
    let mut lines = String::new();
    for time in (1_699_999_200..1_699_999_980).step_by(10).filter(|time| time % 120 != 0) {
        lines.push_str(&format!("plain.a 1 {time}\n"));
    }
    lines.push_str("plain.a 7 1699999990\n");
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204);
    let get = async |range: &str, target: &str| {
        server.get(&format!("/render?target={target}&{range}&now=1700000000&format=raw")).await.text
    };
    let want = "plain.a,1699999740,1700000040,60|6.0,5.0,6.0,5.0,None\n";
    assert_eq!(get("from=1699999680&until=1700000000", "plain.a").await.matches(",10|").count(), 1);
    assert_eq!(
        get("from=1699999320&until=1700000000", "plain.a").await.replace(
            "plain.a,1699999380,1700000040,60|6.0,5.0,6.0,5.0,6.0,5.0,",
            "plain.a,1699999740,1700000040,60|"
        ),
        want
    );
    let max = "consolidateBy(plain.a,'max')";
    assert!(get("from=1699999320&until=1700000000", max).await.contains("|1.0,1.0,1.0"));
    // Before the coarsest archive there is nothing.
    assert!(get("from=-30d&until=1700000000", "plain.a").await.starts_with("plain.a,1699996440,"));
}

#[tokio::test]
async fn rules_of_a_path_are_explained_and_reloaded() {
    let server = with_rules();
    let explain = async |path: &str| {
        server.get(&format!("/api/v1/graphite/explain?path={path}")).await.json()["data"].clone()
    };
    let data = explain("sorted..a").await;
    assert_eq!((&data["path"], &data["schema"]["section"]), (&"sorted.a".into(), &"sorted".into()));
    assert_eq!(data["archives"][1], serde_json::json!({"stepSeconds": 60, "points": 1440}));
    assert_eq!(data["reorderBuffer"], serde_json::json!({"points": 6, "allowsUpdate": true}));
    assert_eq!(explain("plain.a").await["methods"], serde_json::json!(["sum", "max"]));
    assert_eq!(explain("other").await["schema"], serde_json::Value::Null);
    put(&server, "/rules/schemas.conf", "[all]\npattern = .*\nretentions = 1s:1h\n");
    crate::http::reload_now(&server.web).expect("read again");
    assert_eq!(explain("other").await["schema"]["section"], "all");
    put(
        &server,
        "/rules/schemas.conf",
        "[all]\npattern = [\nretentions = 1s:1h\n# longer than before, much longer\n",
    );
    let error = crate::http::reload_now(&server.web).expect_err("not a pattern");
    assert!(error.starts_with("/rules/schemas.conf: line "), "{error}");
    assert_eq!(explain("other").await["schema"]["section"], "all", "the rules in use stay");
    assert_eq!(server.get("/api/v1/graphite/explain").await.status.as_u16(), 400);
}

/// Covers a regression: the head alone left out all labels, because only the presence of the series was asked
/// for, so that no path was found.
#[tokio::test]
async fn paths_of_remote_write_are_found_without_points_of_carbon() {
    let server = Fixture::ready();
    let written = server.write(&[(&[("__name__", "a.b")], &[(1_000_000, 1.0)])]).await;
    assert_eq!(written.status.as_u16(), 204);
    let found = server.get("/metrics/find?query=a.*&format=json").await;
    assert_eq!(found.json()[0]["path"], "a.b", "{}", found.text);
}

/// A source that cannot search label values.
struct Listing(Arc<dyn Queryable>);

impl Source for Listing {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        match read.wanted {
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
            _ => self.0.open(read, ctx),
        }
    }
}

/// Covers a regression: a view did not pass the search on, so that each step of the walk listed all names.
#[tokio::test]
async fn paths_are_searched_in_the_store_and_listed_otherwise() {
    let server = with_points().await;
    let source =
        server.web.service.lifecycle.view(&Identity::internal(&TenantId::anonymous())).expect("open");
    let ctx = ReadContext::unlimited(server.web.service.env.clock.clone());
    let search = SoleLabelValues { name: METRIC_NAME, range: TimeRange::ALL };
    let mut values = source.sole_label_values(&search, &ctx).expect("read").expect("searched");
    for (start, found) in
        [("dc.b", Some("dc.b.cpu")), ("dc.b.d", Some("dc.b.mem")), ("dc.b", Some("dc.b.cpu")), ("e", None)]
    {
        assert_eq!(values.seek(start).expect("read"), found, "{start}");
    }
    assert!(Listing(source.clone()).sole_label_values(&search, &ctx).expect("read").is_none());
    let nodes = |source: Arc<dyn Queryable>, pattern: &str| {
        let settings =
            SourceSettings { rules: Arc::default(), limits: GraphiteLimits::default(), now_s: 1000 };
        let source = TenantSource::new(source, &ctx, settings).expect("memory");
        source.find(pattern, None, None).expect("found")
    };
    for pattern in ["*", "dc.*", "dc.b.{cpu,mem}", "dc.a", "disk"] {
        let searched = nodes(source.clone(), pattern);
        assert_eq!(nodes(Arc::new(Listing(source.clone())), pattern), searched, "{pattern}");
        assert_eq!(searched.is_empty(), pattern == "disk", "{pattern}");
    }
}
