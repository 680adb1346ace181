//! `meta=true` of `/render` and `/showplan`: where points come from.

use serde_json::{Value, json};

use super::*;

/// Times of a request whose archive is the one of a minute.
const RANGE: &str = "from=1699999320&until=1700000000&now=1700000000";

/// A server with the rules: points every 10 s of two paths with a schema, every minute of one without.
async fn with_archives() -> Fixture {
    let server = with_rules();
    let mut lines = String::new();
    for time in (1_699_999_200..1_700_000_000).step_by(10) {
        lines.push_str(&format!("plain.a 1 {time}\nplain.b 2 {time}\n"));
        if time % 60 == 0 {
            lines.push_str(&format!(
                "other.x 3 {time}\ndisk;dc=a;host=x 4 {time}\ndisk;dc=b;host=x 4 {time}\n"
            ));
        }
    }
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204, "{}", answer.text);
    server
}

fn field<'a>(entry: &'a Value, name: &str) -> &'a Value {
    entry.get(name).unwrap_or_else(|| panic!("no {name} in {entry}"))
}

/// Entries as text: schema, index and interval of the archive, method, number of series.
fn shown(entries: &Value) -> Vec<String> {
    let shown = |entry: &Value| {
        let text = |name: &str| field(entry, name).as_str().expect("a text").replace("Consolidator", "");
        let number = |name: &str| field(entry, name).to_string();
        let schema = format!("{:?}", text("schema-name"));
        let method = text("consolidator-normfetch");
        let [archive, interval, count] = ["archive-read", "archive-interval", "count"].map(number);
        format!("{schema} {archive} {interval} {method} x{count}")
    };
    entries.as_array().unwrap_or_else(|| panic!("no list: {entries}")).iter().map(shown).collect()
}

#[tokio::test]
async fn a_result_has_the_archives_of_the_series_that_it_is_made_of() {
    let server = with_archives().await;
    let (one, two, other) = (r#""plain" 1 60 Sum x1"#, r#""plain" 1 60 Sum x2"#, r#""" 0 60 None x1"#);
    let (two_others, all) = (r#""" 0 60 None x2"#, &[other, two][..]);
    let table: [(&str, &[&str]); 22] = [
        ("plain.a", &[one]),
        ("plain.*", &[one]),
        ("aliasByNode(plain.*,1)", &[one]),
        ("alias(plain.b,'plain.a')", &[one]),
        ("scale(plain.*,2)", &[one]),
        ("scale(scale(plain.*,2),3)", &[one]),
        ("sumSeries(plain.*)", &[two]),
        ("alias(sumSeries(scale(plain.*,2)),'both')", &[two]),
        ("groupByNode(plain.*,0,'sum')", &[two]),
        ("percentileOfSeries(plain.*,50)", &[two]),
        ("percentileOfSeries(scale(plain.*,2),50)", &[two]),
        ("consolidateBy(plain.a,'max')", &[r#""plain" 1 60 Maximum x1"#]),
        ("consolidateBy(plain.a,'min')", &[one]),
        ("sumSeries(plain.*,other.*)", all),
        ("sumSeries(plain.a,plain.*)", &[r#""plain" 1 60 Sum x3"#]),
        ("movingAverage(plain.a,'2min')", &[one]),
        ("timeShift(plain.a,'1min')", &[one]),
        ("other.x", &[other]),
        ("seriesByTag('host=x')", &[other]),
        ("alias(seriesByTag('host=x'),'disks')", &[other]),
        ("sumSeries(seriesByTag('host=x'))", &[two_others]),
        ("other.x&target=scale(seriesByTag('dc=b'),2)", &[other]),
    ];
    for (target, want) in table {
        let answer = server.get(&format!("/render?target={target}&{RANGE}&format=json&meta=true")).await;
        assert_eq!(answer.status.as_u16(), 200, "{target}: {}", answer.text);
        assert_eq!(shown(&answer.json()["series"][0]["meta"]), want, "{target}");
    }
    // Nothing in `scale(c,2)` names a series: it may be made of all.
    let target = "scale(alias(plain.a,'c'),2)&target=other.x";
    let answer = server.get(&format!("/render?target={target}&{RANGE}&format=json&meta=true")).await.json();
    assert_eq!(shown(&answer["series"][0]["meta"]), [other, one]);
    assert_eq!(shown(&answer["series"][1]["meta"]), [other]);
}

#[tokio::test]
async fn an_answer_with_metadata_has_the_form_of_metrictank() {
    let server = with_archives().await;
    let query = format!("target=plain.a&{RANGE}&format=json&maxDataPoints=4&meta=true");
    let form = Request::post("/render")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(query.clone()))
        .expect("a request");
    let want = json!({
        "version": "v0.1",
        "meta": {"stats": {
            "executeplan.series-fetch.count": 1,
            "executeplan.points-fetch.count": 11,
            "executeplan.rolled-up-points.count": 0,
            "executeplan.raw-points.count": 62,
        }},
        "series": [{
            "target": "plain.a",
            "tags": {"name": "plain.a"},
            "datapoints": [[6.0, 1_699_999_560], [6.0, 1_699_999_740], [6.0, 1_699_999_920]],
            "meta": [{
                "schema-name": "plain",
                "schema-retentions": "10s:10m,1m:1h",
                "archive-read": 1,
                "archive-interval": 60,
                "consolidator-normfetch": "SumConsolidator",
                "aggnum-norm": 1,
                "aggnum-rc": 3,
                "consolidator-rc": "AverageConsolidator",
                "count": 1,
                "rolled-up-points": 0,
                "raw-points": 62,
            }],
        }],
    });
    check_json(&server.send(form).await, want.clone());
    check_json(&server.get(&format!("/render?{query}")).await, want);
    let answer = server.get(&format!("/render?target=plain.a&{RANGE}&format=json&meta=true")).await.json();
    let entry = &answer["series"][0]["meta"][0];
    assert_eq!((&entry["aggnum-rc"], &entry["consolidator-rc"]), (&json!(0), &json!("NoneConsolidator")));
    let answer = server.get(&format!("/render?target=no.such&{RANGE}&format=json&meta=true")).await.json();
    assert_eq!(
        (&answer["series"], &answer["meta"]["stats"]["executeplan.series-fetch.count"]),
        (&json!([]), &json!(0))
    );
}

#[tokio::test]
async fn metadata_is_for_json_and_on_request() {
    let server = with_archives().await;
    for switches in ["", "&meta=", "&meta=false", "&meta=0"] {
        let answer =
            server.get(&format!("/render?target=plain.a&{RANGE}&format=json{switches}")).await.json();
        assert_eq!(answer[0]["target"], "plain.a", "{switches}");
        assert_eq!(answer[0].get("meta"), None, "{switches}");
    }
    for format in ["raw", "csv", "dygraph", "rickshaw", "pickle", "msgpack", "svg", "png"] {
        let query = format!("/render?target=plain.a&{RANGE}&format={format}");
        let answer = server.get(&query).await.text;
        assert_eq!(server.get(&format!("{query}&meta=true")).await.text, answer, "{format}");
    }
    let script = server.get(&format!("/render?target=plain.a&{RANGE}&format=json&meta=1&jsonp=f")).await.text;
    assert!(
        script.starts_with(r#"f({"version": "v0.1", "meta": {"stats""#) && script.ends_with("]})"),
        "{script}"
    );
}

#[tokio::test]
async fn points_of_rollups_are_counted() {
    let server = with_rules();
    let times = (1_699_992_000..1_699_999_200).step_by(10);
    let lines: String = times.map(|time| format!("plain.a 1 {time}\n")).collect();
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204, "{}", answer.text);
    let range = "from=1699995600&until=1699998600&now=1699998600";
    let counts = async || {
        let answer =
            server.get(&format!("/render?target=plain.a&{range}&format=json&meta=true")).await.json();
        let entry = &answer["series"][0]["meta"][0];
        let stats = &answer["meta"]["stats"];
        assert_eq!(entry["rolled-up-points"], stats["executeplan.rolled-up-points.count"]);
        assert_eq!(entry["raw-points"], stats["executeplan.raw-points.count"]);
        [&entry["rolled-up-points"], &entry["raw-points"]].map(|count| count.as_u64().expect("a number"))
    };
    assert_eq!(counts().await, [0, 300]);
    let web = server.web.clone();
    let maintained = tokio::task::spawn_blocking(move || {
        let store = web.service.lifecycle.store().expect("open");
        store.maintenance().flush_closed(crate::http::tests::NOW_MS).expect("flushes");
        (0..8).for_each(|_| store.maintenance().run());
    });
    maintained.await.expect("no panic");
    assert_eq!(counts().await, [50, 0]);
}

#[tokio::test]
async fn a_plan_has_the_fetches_of_a_request() {
    let server = with_archives().await;
    let plain = json!([{
        "schema-name": "plain",
        "schema-retentions": "10s:10m,1m:1h",
        "archive-read": 1,
        "archive-interval": 60,
        "consolidator-normfetch": "MaximumConsolidator",
        "count": 2,
    }]);
    let target = "movingAverage(consolidateBy(plain.*,'max'),'2min')";
    let query = format!("target={target}&target=other.*&{RANGE}&maxDataPoints=100");
    let form = Request::post("/showplan")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(query.clone()))
        .expect("a request");
    let plan = server.send(form).await;
    assert_eq!(plan.status.as_u16(), 200, "{}", plan.text);
    let plan = plan.json();
    assert_eq!(plan, server.get(&format!("/showplan?{query}")).await.json());
    assert_eq!(plan["targets"], json!([target, "other.*"]));
    let limits = &plan["limits"];
    assert_eq!(
        (&limits["graphite.max-series"], &limits["graphite.max-nodes"]),
        (&json!(250_000), &json!(250_000))
    );
    let fetches = plan["fetches"].as_array().expect("a list");
    let fetch = |expression: &str, from: i64, hint: Value, points: u64, archives: &Value| {
        json!({
            "expression": expression, "from": from, "until": 1_700_000_000, "consolidation-hint": hint,
            "max-points-hint": 100, "max-points-per-series": points, "archives": archives,
        })
    };
    let other = json!([{
        "schema-name": "", "schema-retentions": "", "archive-read": 0, "archive-interval": null,
        "consolidator-normfetch": "NoneConsolidator", "count": 1,
    }]);
    assert_eq!(fetches[0], fetch("other.*", 1_699_999_320, Value::Null, 6_666_666, &other));
    assert_eq!(fetches[1], fetch("plain.*", 1_699_999_320, json!("max"), 6_666_666, &plain));
    // The moving window fetches its range of before.
    assert_eq!(fetches[2], fetch("plain.*", 1_699_999_200, json!("max"), 10_000_000, &plain));
    assert_eq!(fetches.len(), 3);
}

#[tokio::test]
async fn a_plan_is_refused_as_the_request() {
    let server = with_rules_and(|options| {
        let limits = &mut options.service.tsdb.limits.default.queries.graphite;
        (limits.series_max, limits.points_max, limits.targets_max) = (1, 30, 2);
    });
    let lines = b"plain.a 1 1699999950\nplain.b 1 1699999950\n".to_vec();
    assert_eq!(post(&server, "/api/v1/carbon", "identity", lines).await.status.as_u16(), 204);
    let table = [
        ("target=nosuch(a)", 400, "unknown function: nosuch"),
        ("target=plain.a&from=x", 400, "from or until"),
        ("target=plain.a&maxDataPoints=x", 400, "maxDataPoints"),
        ("target=asPercent(plain.a,'x')&from=-2min", 400, "asPercent"),
        ("target=plain.*&from=-2min", 403, "graphite.max-series"),
        ("target=plain.a", 413, "graphite.max-points"),
        ("target=a&target=b&target=c", 422, "graphite.max-targets"),
    ];
    for (query, status, text) in table {
        let plan = server.get(&format!("/showplan?{query}")).await;
        let answer = server.get(&format!("/render?{query}&format=json")).await;
        assert_eq!((plan.status, &plan.text), (answer.status, &answer.text), "{query}");
        assert_eq!(plan.status.as_u16(), status, "{query}: {}", plan.text);
        assert!(plan.text.contains(text), "{query}: {}", plan.text);
    }
    assert_eq!(server.get("/showplan?target=plain.a&from=-2min").await.status.as_u16(), 200);
}
