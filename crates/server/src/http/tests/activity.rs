//! `status/tenants`, `status/rejects`, `status/top_queries`, `status/metric_usage`.

use std::path::Path;

use chronolith_model::OverflowPolicy;

use super::*;
use crate::limits::ACTIVITY_LIMIT_MAX;

async fn data(server: &Fixture, path: &str) -> Value {
    let answer = server.get(&format!("/api/v1/status/{path}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.json()["data"].clone()
}

async fn data_of(server: &Fixture, tenant: &str, path: &str) -> Value {
    let answer = server.get_as(tenant, &format!("/api/v1/status/{path}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.json()["data"].clone()
}

fn two_tenants() -> Fixture {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    server.store_series("a", 0, &[&[("__name__", "m"), ("i", "1")], &[("__name__", "m"), ("i", "2")]]);
    server.store_series("b", 0, &[&[("__name__", "n")]]);
    server
}

#[tokio::test]
async fn queries_of_all_languages_are_added_up() {
    let server = Fixture::ready();
    server.store_series("anonymous", -1000, &[&[("__name__", "m")]]);
    for path in
        ["/api/v1/query?query=m", "/api/v1/query?query=m", "/api/v1/query_range?query=m&start=1&end=2&step=1"]
    {
        assert_eq!(server.get(path).await.status, StatusCode::OK);
    }
    assert_eq!(server.get("/api/v1/query?query=m(").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(server.get("/query?q=SHOW+DATABASES").await.status, StatusCode::OK);
    let created =
        server.post_form("/query", "q=CREATE+USER+u+WITH+PASSWORD+'secret'+WITH+ALL+PRIVILEGES").await;
    assert_eq!(created.status, StatusCode::OK, "{}", created.text);
    assert_eq!(server.get("/render?target=a.b&target=c&format=json").await.status, StatusCode::OK);
    let found = data(&server, "top_queries?sort=count").await;
    assert_eq!((&found["minutes"], &found["dropped"]), (&60.into(), &0.into()));
    let queries = found["queries"].as_array().expect("a list");
    let shown: Vec<_> =
        queries.iter().map(|one| format!("{} {} {}", one["language"], one["query"], one["count"])).collect();
    assert_eq!(shown[0], r#""promql" "m" 3"#, "{shown:?}");
    assert!(shown.contains(&r#""influxql" "SHOW DATABASES" 1"#.to_owned()), "{shown:?}");
    assert!(shown.contains(&r#""graphite" "a.b&c" 1"#.to_owned()), "{shown:?}");
    assert_eq!(queries.len(), 4, "a query that cannot be parsed is none: {shown:?}");
    assert!(!found.to_string().contains("secret"), "{found}");
    assert_eq!((&queries[0]["samples"], &queries[0]["errors"]), (&2.into(), &0.into()));
    assert_eq!(queries[0]["lastMs"], NOW_MS);
    assert_eq!(data(&server, "top_queries?limit=1").await["queries"].as_array().map(Vec::len), Some(1));
}

/// Covers a regression: the page named an unknown tenant only until it had asked for its series.
#[tokio::test]
async fn a_tenant_that_only_asked_is_not_stored() {
    let server = two_tenants();
    assert_eq!(server.get_as("nobody", "/api/v1/query?query=m").await.status, StatusCode::OK);
    let found = data(&server, "tenants").await;
    let list = found["tenants"].as_array().expect("a list");
    let shown: Vec<_> = list.iter().map(|one| (one["tenant"].as_str(), one["stored"].as_bool())).collect();
    assert_eq!(shown, [(Some("a"), Some(true)), (Some("b"), Some(true)), (Some("nobody"), Some(false))]);
}

#[tokio::test]
async fn tenants_see_their_own_activity_only() {
    let server = two_tenants();
    for tenant in ["a", "b"] {
        let answer = server.get_as(tenant, &format!("/api/v1/query?query=only_{tenant}")).await;
        assert_eq!(answer.status, StatusCode::OK);
        let request = Request::post("/api/v1/carbon").header("X-Scope-OrgID", tenant);
        let refused = server.send(request.body(Body::from(format!("of_{tenant} x 1\n"))).unwrap()).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    }
    for path in ["top_queries", "rejects", "metric_usage"] {
        let text = data_of(&server, "a", path).await.to_string();
        assert!(text.contains("_a") && !text.contains("_b"), "{path}: {text}");
        check_error(&server.get(&format!("/api/v1/status/{path}")).await, 401, "bad_data", "no org id");
    }
}

/// Covers a gap: the answer had the number of folded series and no metric.
#[tokio::test]
async fn a_tenant_that_folds_sees_its_metrics_and_the_label_that_exploded() {
    let server = Fixture::with(|options| {
        let limits = &mut options.service.tsdb.limits.default;
        limits.series_max = 1;
        limits.ingestion.overflow = OverflowPolicy::Fold;
    })
    .open();
    server.store_series("anonymous", 0, &[&[("__name__", "first")]]);
    let users: Vec<String> = (0..40).map(|user| format!("u{user}")).collect();
    let series: Vec<[(&str, &str); 3]> =
        users.iter().map(|user| [("__name__", "m_total"), ("user", user.as_str()), ("zone", "z")]).collect();
    let series: Vec<&[(&str, &str)]> = series.iter().map(|labels| &labels[..]).collect();
    server.store_series("anonymous", 0, &series);
    let found = data(&server, "tenants").await;
    let metrics = &found["tenants"][0]["overflowMetrics"];
    assert_eq!((&metrics[0]["metric"], &metrics[0]["series"]), (&"m_total".into(), &40.into()), "{found}");
    assert_eq!(metrics[0]["sinceMs"], NOW_MS);
    let labels = &metrics[0]["labels"];
    assert_eq!((&labels[0]["label"], &labels[1]["label"]), (&"user".into(), &"zone".into()), "{labels}");
    assert!(labels[0]["values"].as_u64().is_some_and(|values| (30..50).contains(&values)), "{labels}");
    assert_eq!(labels[1]["values"], 1);
    // Tenants have metrics of their own from their first request on.
    server.get("/api/v1/query?query=m_total").await;
    let exposed = server.get("/metrics").await.text;
    let has_line = |start: &str| exposed.lines().any(|line| line.starts_with(start));
    let series = r#"chronolith_tenant_overflow_metric_series{tenant="anonymous",metric="m_total"} 40"#;
    let values =
        r#"chronolith_tenant_overflow_label_values{tenant="anonymous",metric="m_total",label="user"} "#;
    assert!(has_line(series) && has_line(values), "{exposed}");
}

#[tokio::test]
async fn refused_samples_have_counts_examples_and_advice() {
    let server = Fixture::ready();
    let answer = server.write(&[(&[("a", "b")], &[(NOW_MS, 1.0), (NOW_MS + 1, 1.0)])]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let request = Request::post("/api/v1/carbon").header(header::USER_AGENT, "relay/1");
    server.send(request.body(Body::from("p.q bad 1\n")).unwrap()).await;
    assert_eq!(server.post_form("/query", "q=CREATE+DATABASE+d").await.status, StatusCode::OK);
    let lines = Request::post("/write?db=d").body(Body::from("cpu v=1i 1\ncpu v=\n")).unwrap();
    assert_eq!(server.send(lines).await.status, StatusCode::BAD_REQUEST);
    let conflict = Request::post("/write?db=d").body(Body::from("cpu v=\"text\" 1000000\n")).unwrap();
    assert_eq!(server.send(conflict).await.status, StatusCode::BAD_REQUEST);
    let garbage = Request::post("/api/v1/write").header(header::CONTENT_ENCODING, "snappy");
    let garbage = garbage.header(header::CONTENT_TYPE, "application/x-protobuf");
    assert_eq!(server.send(garbage.body(Body::from("no")).unwrap()).await.status, StatusCode::BAD_REQUEST);

    let found = data(&server, "rejects").await;
    assert_eq!((&found["minutes"], &found["endMs"]), (&60.into(), &NOW_MS.into()));
    let counts = found["counts"].as_array().expect("a list");
    let of = |reason: &str| {
        counts.iter().find(|one| one["reason"] == reason).unwrap_or_else(|| panic!("{reason}: {found}"))
    };
    assert_eq!((&counts[0]["reason"], &counts[0]["total"]), (&"no_metric_name".into(), &2.into()));
    let per_minute = counts[0]["perMinute"].as_array().expect("minutes");
    assert_eq!((per_minute.len(), &per_minute[59]), (60, &2.into()));
    for reason in ["bad_value", "missing_field_value", "field_type_conflict", "bad_data"] {
        assert_eq!(of(reason)["total"], 1);
    }
    let examples = found["examples"].as_array().expect("a list");
    let example = |reason: &str| examples.iter().find(|one| one["reason"] == reason).expect("an example");
    let first = example("no_metric_name");
    assert_eq!((&first["series"], &first["timeMs"]), (&r#"{a="b"}"#.into(), &NOW_MS.into()));
    assert_eq!(
        (&first["seenMs"], &first["count"], &first["setting"]),
        (&NOW_MS.into(), &2.into(), &Value::Null)
    );
    assert!(first["advice"].as_str().is_some_and(|advice| advice.contains("__name__")), "{first}");
    let of_carbon = example("bad_value");
    assert_eq!(
        (&of_carbon["series"], &of_carbon["sender"]),
        (&"p.q bad 1".into(), &"unknown (relay/1)".into())
    );
    assert_eq!(example("field_type_conflict")["timeMs"], 1, "nanoseconds as milliseconds");
}

#[tokio::test]
async fn requests_above_a_limit_are_refused_with_its_setting() {
    let server = Fixture::with(|options| {
        let ingestion = &mut options.service.tsdb.limits.default.ingestion;
        ingestion.rate = 1;
        ingestion.burst = 1;
    })
    .open();
    let samples = [(NOW_MS, 1.0), (NOW_MS + 1, 1.0)];
    assert_eq!(server.write(&[(&[("__name__", "m")], &samples)]).await.status, StatusCode::BAD_REQUEST);
    let found = data(&server, "rejects").await;
    assert_eq!(found["examples"][0]["reason"], "ingestion_burst", "{found}");
    assert_eq!(found["examples"][0]["setting"], "ingestion-burst");
}

#[tokio::test]
async fn tenants_have_counters_and_use_of_limits() {
    let server = two_tenants();
    assert_eq!(server.get_as("b", "/api/v1/query?query=n").await.status, StatusCode::OK);
    let found = data(&server, "tenants").await;
    assert_eq!((&found["total"], &found["overflow"]), (&2.into(), &false.into()));
    let first = &found["tenants"][0];
    assert_eq!((&first["tenant"], &first["series"]), (&"a".into(), &2.into()));
    let limits = first["limits"].as_array().expect("a list");
    let series = limits.iter().find(|one| one["name"] == "series").expect("series");
    assert_eq!((&series["setting"], &series["used"]), (&"series-limit".into(), &2.into()));
    assert_eq!(series["limit"], 50_000_000);
    for name in ["events", "metadata", "queries", "query_memory"] {
        assert!(limits.iter().any(|one| one["name"] == name && one["used"].is_u64()), "{name}: {first}");
    }
    assert!(first["memoryBytes"].as_u64() > Some(0));
    let by_queries = data(&server, "tenants?sort=queries&limit=1").await;
    assert_eq!(
        (&by_queries["tenants"][0]["tenant"], &by_queries["tenants"][0]["queries"]),
        (&"b".into(), &1.into())
    );
    assert_eq!(by_queries["tenants"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn metrics_that_share_counters_are_reported() {
    let server = Fixture::with(|options| {
        options.service.multitenancy = true;
        options.service.tenant_metrics_max = 1;
    })
    .open();
    for tenant in ["a", "b"] {
        server.get_as(tenant, "/api/v1/query?query=1").await;
    }
    assert_eq!(data(&server, "tenants").await["overflow"], true);
}

#[tokio::test]
async fn metrics_are_listed_by_use() {
    let server = Fixture::ready();
    let series: [Pairs<'_>; 4] = [
        &[("__name__", "used"), ("i", "1")],
        &[("__name__", "idle"), ("i", "1")],
        &[("__name__", "idle"), ("i", "2")],
        &[("__name__", "other")],
    ];
    server.store_series("anonymous", 0, &series);
    for query in ["used", "used%2Bgone", "%7B__name__%3D~%22used%7Cother%22%7D", "rate(other%5B5m%5D)"] {
        let answer = server.get(&format!("/api/v1/query?query={query}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    }
    let names = async |query: &str| -> Vec<String> {
        let found = data(&server, &format!("metric_usage?{query}")).await;
        let rows = found["metrics"].as_array().expect("a list").clone();
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names("").await, ["idle", "other", "used", "gone"]);
    assert_eq!(names("sort=queries").await, ["used", "other", "gone", "idle"]);
    assert_eq!(names("sort=unused&limit=2").await, ["idle", "other"]);
    assert_eq!(names("search=US&sort=memory").await, ["used"]);
    let found = data(&server, "metric_usage?limit=1&sort=queries").await;
    assert_eq!((&found["total"], &found["truncated"]), (&4.into(), &true.into()));
    let row = &found["metrics"][0];
    assert_eq!(
        (&row["series"], &row["queries"], &row["lastQueriedMs"]),
        (&1.into(), &3.into(), &NOW_MS.into())
    );
    assert_eq!((&row["diskBytes"], &found["diskError"]), (&0.into(), &Value::Null));
    assert!(row["memoryBytes"].as_u64() > Some(0));
    let idle = &data(&server, "metric_usage?search=idle").await["metrics"][0].clone();
    assert_eq!((&idle["queries"], &idle["lastQueriedMs"]), (&0.into(), &Value::Null));
}

/// Checks that bytes are counted from the chunks in the blocks, whose metrics may have left the head.
#[tokio::test]
async fn metrics_have_bytes_on_disk() {
    let server = Fixture::ready();
    let old: [Pairs<'_>; 3] =
        [&[("__name__", "old"), ("i", "1")], &[("__name__", "old"), ("i", "2")], &[("__name__", "m")]];
    server.store_series("anonymous", -10 * 3_600_000, &old);
    server.flush().await;
    server.store_series("anonymous", 0, &[&[("__name__", "m")], &[("__name__", "new")]]);
    let found = data(&server, "metric_usage?sort=disk").await;
    let rows: Vec<(&str, u64, u64)> =
        found["metrics"].as_array().expect("a list").iter().map(row_of).collect();
    let chunk_bytes = rows[1].2;
    assert!(chunk_bytes > 5, "{found}");
    assert_eq!(rows, [("old", 0, 2 * chunk_bytes), ("m", 1, chunk_bytes), ("new", 1, 0)]);
    let one = data(&server, "metric_usage?sort=disk&search=M&limit=1").await;
    assert_eq!((&one["total"], row_of(&one["metrics"][0])), (&1.into(), ("m", 1, chunk_bytes)));
    let of_head = data(&server, "metric_usage").await;
    let rows: Vec<_> = of_head["metrics"].as_array().expect("a list").iter().map(row_of).collect();
    assert_eq!(rows, [("m", 1, chunk_bytes), ("new", 1, 0)], "those of the head alone");
}

/// Checks that a damaged block leaves the bytes unknown, and the rest of the list as it is.
#[tokio::test]
async fn damage_on_disk_leaves_the_list_of_metrics() {
    let server = Fixture::ready();
    server.store_series("anonymous", -10 * 3_600_000, &[&[("__name__", "m")]]);
    server.flush().await;
    server.store_series("anonymous", 0, &[&[("__name__", "m")]]);
    let ulid = data(&server, "tsdb/blocks").await["blocks"][0]["ulid"].as_str().expect("a name").to_owned();
    let path = Path::new("/data/tenants/anonymous").join(ulid).join("index");
    let disk = &server.web.service.env.disk;
    let index = disk.read(&path).expect("an index");
    disk.create(&path).expect("a file").write_at(&vec![7; index.len()], 0).expect("written");
    let found = data(&server, "metric_usage").await;
    assert!(found["diskError"].as_str().is_some_and(|why| why.contains("index")), "{found}");
    assert_eq!(
        (&found["metrics"][0]["series"], &found["metrics"][0]["diskBytes"]),
        (&1.into(), &Value::Null)
    );
    let refused = server.get("/api/v1/status/metric_usage?sort=disk").await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", refused.text);
}

/// Name, series and bytes on disk.
fn row_of(row: &Value) -> (&str, u64, u64) {
    let number = |name: &str| row[name].as_u64().expect("a number");
    (row["name"].as_str().expect("a name"), number("series"), number("diskBytes"))
}

#[tokio::test]
async fn limits_and_orders_are_checked() {
    let server = Fixture::ready();
    for path in ["tenants", "rejects", "top_queries", "metric_usage"] {
        for limit in ["0", "-1", "x", "1001"] {
            let answer = server.get(&format!("/api/v1/status/{path}?limit={limit}")).await;
            let text =
                format!("invalid parameter \"limit\": not a whole number from 1 to {ACTIVITY_LIMIT_MAX}");
            check_error(&answer, 400, "bad_data", &text);
        }
    }
    let answer = server.get("/api/v1/status/top_queries?sort=x").await;
    let text = r#"invalid parameter "sort": "x" is none of seconds, count, samples"#;
    check_error(&answer, 400, "bad_data", text);
}

#[tokio::test]
async fn the_memory_of_the_lists_is_reported() {
    let server = Fixture::ready();
    server.get("/api/v1/query?query=m").await;
    server.write(&[(&[("a", "b")], &[(NOW_MS, 1.0)])]).await;
    let parts = data(&server, "memory").await["parts"]["server"].clone();
    let metrics = server.get("/metrics").await.text;
    for list in ["top_queries", "metric_usage", "rejects"] {
        assert!(parts[list]["bytes"].as_u64() > Some(0), "{list}: {parts}");
        assert_eq!(parts[list]["count"], 1, "{list}");
        let line = format!("chronolith_activity_bytes{{list=\"{list}\"}} {}\n", parts[list]["bytes"]);
        assert!(metrics.contains(&line), "{line}");
    }
}
