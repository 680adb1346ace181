//! Observability of queries: statistics, plans, the list of running ones, kill, quotas of tenants.

use super::*;

/// Writes three series of `m` with a sample every 10 s, the last one at [`NOW_S`].
async fn with_samples(server: &Fixture) {
    let samples: Vec<(i64, f64)> = (0..100).map(|k| (NOW_MS - (99 - k) * 10_000, k as f64)).collect();
    for id in ["1", "2", "3"] {
        let answer = server.write(&[(&[("__name__", "m"), ("id", id)], &samples)]).await;
        assert_eq!(answer.status, 204, "{}", answer.text);
    }
}

fn range_path(query: &str, more: &str) -> String {
    format!("/api/v1/query_range?query={query}&start={}&end={NOW_S}&step=10{more}", NOW_S - 20)
}

#[tokio::test]
async fn statistics_have_the_names_of_prometheus_and_counts() {
    let server = Fixture::ready();
    with_samples(&server).await;
    let plain = server.get(&range_path("sum(rate(m[1m]))", "")).await.json();
    assert!(plain["data"]["stats"].is_null() && plain["data"]["explain"].is_null());
    let totals = server.get(&range_path("sum(rate(m[1m]))", "&stats=1")).await.json();
    let samples = &totals["data"]["stats"]["samples"];
    assert_eq!((&samples["totalQueryableSamples"], &samples["samplesRead"]), (&54.into(), &24.into()));
    assert!(samples["totalQueryableSamplesPerStep"].is_null() && samples["peakSamples"].is_u64());
    let warning = r#"value "1" for parameter "stats" is deprecated and will be rejected in the next major release, use "true" or "all""#;
    assert_eq!(totals["warnings"], serde_json::json!([warning]));
    assert!(server.get(&range_path("sum(rate(m[1m]))", "&stats=true")).await.json()["warnings"].is_null());
    for name in ["evalTotalTime", "resultSortTime", "queryPreparationTime", "innerEvalTime", "execQueueTime"]
    {
        assert!(totals["data"]["stats"]["timings"][name].is_number(), "{name}");
    }
    let all = server.get(&range_path("sum(rate(m[1m]))", "&stats=all")).await.json();
    let samples = &all["data"]["stats"]["samples"];
    let steps = |name: &str| samples[name].to_string();
    let at = |k: i64| NOW_S - 20 + 10 * k;
    let want = |a, b, c| format!("[[{},{a}],[{},{b}],[{},{c}]]", at(0), at(1), at(2));
    assert_eq!(steps("totalQueryableSamplesPerStep"), want(18, 18, 18));
    assert_eq!(steps("samplesReadPerStep"), want(18, 3, 3));
}

#[tokio::test]
async fn parameters_of_a_query_mean_what_they_mean_in_prometheus() {
    let server = Fixture::ready();
    let samples = [(NOW_MS - 70_000, 1.0)];
    for id in ["1", "2", "3"] {
        assert_eq!(server.write(&[(&[("__name__", "m"), ("id", id)], &samples)]).await.status, 204);
    }
    let count = |json: &serde_json::Value| json["data"]["result"].as_array().map(Vec::len);
    let instant = |more: &str| format!("/api/v1/query?query=m&time={NOW_S}{more}");
    for (more, want) in
        [("", 3), ("&lookback_delta=1m", 0), ("&lookback_delta=70.001", 3), ("&lookback_delta=0", 3)]
    {
        assert_eq!(count(&server.get(&instant(more)).await.json()), Some(want), "{more}");
    }
    let bad = server.get(&instant("&lookback_delta=x")).await;
    let why = r#"error parsing lookback delta duration: cannot parse "x" to a valid duration"#;
    check_error(&bad, 400, "bad_data", why);
    for path in [instant("&limit=2"), range_path("m", "&limit=2")] {
        let cut = server.get(&path).await.json();
        assert_eq!(
            (count(&cut), &cut["warnings"][0]),
            (Some(2), &"results truncated due to limit".into()),
            "{path}"
        );
    }
    let whole = server.get(&instant("&limit=3")).await.json();
    assert_eq!((count(&whole), whole["warnings"].is_null()), (Some(3), true));
    let bad = server.get(&instant("&limit=-1")).await;
    check_error(&bad, 400, "bad_data", r#"invalid parameter "limit": limit must be non-negative"#);
    let late = server.get(&instant("&timeout=0")).await;
    let text = r#"invalid parameter "timeout": timeout must be positive, got 0s"#;
    check_error(&late, 400, "bad_data", text);
    let bad = server.get(&instant("&timeout=soon")).await;
    let why = r#"invalid parameter "timeout": cannot parse "soon" to a valid duration"#;
    check_error(&bad, 400, "bad_data", why);
}

#[tokio::test]
async fn features_open_what_they_name() {
    let check = async |query: &str, open: fn(&mut chronolith_service::options::Features), why: &str| {
        let closed = Fixture::ready();
        let path = format!("/api/v1/query?query={query}&time={NOW_S}");
        let refused = closed.get(&path).await;
        let error = refused.json()["error"].as_str().unwrap_or("").to_owned();
        assert!(refused.status == 400 && error.contains(why), "{query}: {error}");
        let server = Fixture::with(|options| open(&mut options.service.features)).open();
        assert_eq!(server.get(&path).await.status, 200, "{query}");
    };
    let functions = "is not enabled";
    check("info(up)", |f| f.experimental_functions = true, functions).await;
    check("start_timestamp(up)", |f| f.experimental_functions = true, functions).await;
    check("limitk(1,up)", |f| f.experimental_functions = true, "experimental").await;
    check("up%2Bfill(0)%20up", |f| f.binop_fill_modifiers = true, "experimental").await;
    // On without a feature.
    let server = Fixture::ready();
    let queries = [
        "rate(up[1m%2B30s])",
        "up%20offset%20-(1m)",
        "first_over_time(up[1m])",
        "rate(up[1m]%20anchored)",
        "up%20smoothed",
    ];
    for query in queries {
        assert_eq!(
            server.get(&format!("/api/v1/query?query={query}&time={NOW_S}")).await.status,
            200,
            "{query}"
        );
    }
}

#[tokio::test]
async fn explain_shows_the_plan_beside_the_result() {
    let server = Fixture::ready();
    with_samples(&server).await;
    let json = server.get(&range_path("sum(rate(m[1m]))", "&explain=1")).await.json();
    assert_eq!(json["data"]["result"][0]["values"].as_array().map(Vec::len), Some(3));
    let plan = &json["data"]["explain"];
    let (sum, rate) = (&plan["children"][0], &plan["children"][0]["children"][0]);
    assert_eq!((&plan["op"], &sum["op"], &rate["op"]), (&"query".into(), &"sum".into(), &"rate".into()));
    assert_eq!(rate["text"], "rate(m[1m])");
    assert_eq!(
        (&rate["seriesSelected"], &rate["samples"], &rate["series"]),
        (&3.into(), &24.into(), &3.into())
    );
    assert!(rate["chunks"].as_u64() >= Some(3) && rate["children"] == serde_json::json!([]));
    let twice = server.get(&range_path("sum(m)/count(m)", "&explain=1")).await.json();
    let sides = &twice["data"]["explain"]["children"][0]["children"];
    for (side, which) in [(0, "first"), (1, "again")] {
        let shared = &sides[side]["children"][0]["shared"];
        assert_eq!((&shared["id"], &shared["use"]), (&1.into(), &which.into()), "{twice}");
    }
    let instant = server.get("/api/v1/query?query=1&explain=true").await.json();
    assert_eq!(instant["data"]["explain"]["op"], "query");
    let bad = server.get("/api/v1/query?query=1&explain=maybe").await;
    check_error(&bad, 400, "bad_data", r#"invalid parameter "explain": "maybe" is neither 0 nor 1"#);
}

#[tokio::test]
async fn trees_come_in_the_usual_envelope() {
    let server = Fixture::ready();
    let answer = server.post_form("/api/v1/parse_query", "query=(1)").await;
    assert_eq!(
        answer.text,
        r#"{"status":"success","data":{"expr":{"type":"numberLiteral","val":"1"},"type":"parenExpr"}}"#
    );
    let bad = server.get("/api/v1/parse_query?query=foo(").await;
    assert_eq!((bad.status.as_u16(), bad.json()["errorType"].as_str()), (400, Some("bad_data")));
    // A chain as long as the parser allows; it must not need a stack of that depth.
    let chain = vec!["1"; 9000].join("%2B");
    assert_eq!(server.get(&format!("/api/v1/parse_query?query={chain}")).await.status, 200);
}

/// Takes long and holds little: eleven thousand times the median of ten thousand ones.
const LONG_QUERY: &str = "/api/v1/query_range?query=quantile_over_time(0.5,vector(1)[3h:1s])\
                          &start=1699989000&end=1700000000&step=1";

#[tokio::test]
async fn a_killed_query_tells_its_client() {
    let server = Fixture::ready();
    let web = server.web.clone();
    let asking = tokio::spawn(async move { server.get(LONG_QUERY).await });
    let killer = Fixture::new(web);
    let shown = loop {
        let json = killer.get("/api/v1/status/active_queries").await.json();
        if let Some(query) = json["data"]["queries"].get(0) {
            break query.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(shown["query"], "quantile_over_time(0.5,vector(1)[3h:1s])");
    assert_eq!((&shown["tenant"], &shown["stepMs"]), (&"anonymous".into(), &1000.into()));
    let id = shown["id"].as_u64().expect("an id");
    let kill = format!("/api/v1/status/active_queries/kill?id={id}");
    assert_eq!(killer.get(&kill).await.status, 405, "a link must not kill");
    let killed = killer.post_form(&kill, "").await;
    assert_eq!((killed.status.as_u16(), &killed.json()["data"]["killed"]), (200, &id.into()));
    let answer = asking.await.expect("no panic");
    check_error(
        &answer,
        422,
        "execution",
        &format!("query {id} was killed by a request to status/active_queries/kill"),
    );
    let again = killer.post_form(&kill, "").await;
    let gone = format!("no active query with id {id}; it may have ended");
    check_error(&again, 404, "not_found", &gone);
    let list = killer.get("/api/v1/status/active_queries").await.json();
    assert_eq!((&list["data"]["queries"], &list["data"]["killed"]), (&serde_json::json!([]), &1.into()));
}

#[tokio::test]
async fn a_tenant_has_no_more_memory_than_its_share() {
    let server =
        Fixture::with(|options| options.service.tsdb.limits.default.queries.memory_bytes_max = 10_000).open();
    with_samples(&server).await;
    let path = format!("/api/v1/query_range?query=m&start={}&end={NOW_S}&step=1", NOW_S - 900);
    let answer = server.get(&path).await;
    let error = answer.json()["error"].as_str().unwrap_or("").to_owned();
    assert_eq!(answer.status.as_u16(), 422, "{}", answer.text);
    assert!(error.contains("queries of the tenant memory limit of 10000 bytes reached"), "{error}");
    assert_eq!(server.get("/api/v1/query?query=1").await.status, 200);
}

#[tokio::test]
async fn slow_queries_are_counted() {
    let server = Fixture::with(|options| options.service.query.log_slow_ms = 1).open();
    // The clock of the fixture stands still, so that nothing is slow.
    server.get("/api/v1/query?query=1").await;
    assert_eq!(server.web.service.queries.slow_log.counts(), (0, 0));
}

/// Checks that a query that cannot end well is refused before it reads anything.
#[tokio::test]
async fn over_large_queries_are_refused_with_their_estimate() {
    let server = Fixture::with(|options| {
        options.service.query.memory_bytes_max = 1 << 20;
        options.service.query.memory_total_bytes_max = 64 << 20;
    })
    .open();
    for part in 0..10 {
        let ids: Vec<String> = (part * 100..part * 100 + 100).map(|id| id.to_string()).collect();
        let labels: Vec<[(&str, &str); 2]> =
            ids.iter().map(|id| [("__name__", "m"), ("id", &**id)]).collect();
        let series: Vec<(Pairs<'_>, &[(i64, f64)])> =
            labels.iter().map(|labels| (&labels[..], &[(NOW_MS, 1.0)][..])).collect();
        assert_eq!(server.write(&series).await.status, 204);
    }
    let path = |query: &str| {
        format!("/api/v1/query_range?query={query}&start={}&end={NOW_S}&step=1", NOW_S - 10_000)
    };
    let refused = server.get(&path("m")).await;
    check_error(
        &refused,
        422,
        "execution",
        "query would need about 80 MB for its result (1000 series, 10001 steps), the limit is 1.0 MB: select fewer \
         series, aggregate them, or ask for a shorter range or a longer step",
    );
    assert_eq!(server.web.service.queries.metrics.samples.get(), 0, "nothing was read");
    for query in ["m%2B1", "abs(m)", "max_over_time(m[1m:1s])", "m%3Ebool%200"] {
        assert_eq!(server.get(&path(query)).await.status, 422, "{query}");
    }
    for query in ["sum(m)", "m%7Bid=%227%22%7D", "count(m)%3E5", "topk(2,m)"] {
        assert_eq!(server.get(&path(query)).await.status, 200, "{query}");
    }
}

#[tokio::test]
async fn reading_is_limited_by_estimate() {
    let server = Fixture::with(|options| options.service.query.read_bytes_max = 1000).open();
    with_samples(&server).await;
    let refused = server.get(&range_path("sum(count_over_time(m[1h]))", "")).await;
    assert_eq!(refused.status.as_u16(), 422);
    let why = refused.json()["error"].as_str().unwrap_or("").to_owned();
    assert!(why.starts_with("query would read about 4.") && why.contains("the limit is 1.0 kB: "), "{why}");
    assert_eq!(server.get(&range_path("sum(count_over_time(m[10s]))", "")).await.status, 200);
}

fn finds(server: &Fixture) -> (u64, u64, u64) {
    let counts = server.web.service.queries.cache.counts();
    (counts.hits, counts.partial_hits, counts.misses)
}

#[tokio::test]
async fn kept_results_serve_the_next_query() {
    let server = Fixture::ready();
    with_samples(&server).await;
    let first = server.get(&range_path("sum(m)", "")).await;
    assert_eq!((first.status.as_u16(), finds(&server)), (200, (0, 0, 1)));
    // Written otherwise, it is the same query.
    let again = server.get(&range_path("sum%20(%20m)", "")).await;
    assert_eq!((again.text, finds(&server)), (first.text.clone(), (1, 0, 1)));
    for more in ["&nocache=1", "&stats=all", "&explain=1", "&lookback_delta=1m"] {
        let answer = server.get(&range_path("sum(m)", more)).await;
        assert_eq!(answer.json()["data"]["result"], first.json()["data"]["result"], "{more}");
    }
    assert_eq!(finds(&server), (1, 0, 2), "another lookback is another query");
    // An out-of-order sample changes all steps whose window has it, and none before.
    let late = [(NOW_MS - 5_000, 1000.0)];
    server.write(&[(&[("__name__", "m"), ("id", "late")], &late)]).await;
    let fresh = server.get(&range_path("sum(m)", "&nocache=1")).await;
    let mixed = server.get(&range_path("sum(m)", "")).await;
    assert_ne!(fresh.text, first.text);
    assert_eq!((mixed.text, finds(&server)), (fresh.text, (1, 1, 2)));
    let limited = server.get(&range_path("m", "&limit=1")).await.json();
    assert_eq!(limited["data"]["result"].as_array().map(Vec::len), Some(1));
    let whole = server.get(&range_path("m", "")).await.json();
    assert_eq!(
        whole["data"]["result"].as_array().map(Vec::len),
        Some(4),
        "the limit is no part of what is kept"
    );
}

/// Reads a range with one of two metrics, then a longer one with both: the series lose the name that tells
/// them apart, which is an error only where both have a value in a step, steps of a subquery that no step of
/// the query looks at included.
#[tokio::test]
async fn a_kept_result_does_not_hide_that_two_metrics_collide() {
    let server = Fixture::ready();
    let seconds = |from: i64, to: i64| {
        (from..to).map(|s| (NOW_MS - 1_000_000 + s * 1000, s as f64)).collect::<Vec<_>>()
    };
    server.write(&[(&[("__name__", "a"), ("id", "1")], &seconds(0, 330))]).await;
    server.write(&[(&[("__name__", "b"), ("id", "1")], &seconds(320, 900))]).await;
    let start = NOW_S - 1000;
    let both = "{__name__=~%22a|b%22}";
    for (query, collides) in [
        (format!("rate({both}[5s])"), false),
        (format!("sum(rate({both}[5s]))"), false),
        (format!("count_over_time({both}[5s])%3E1"), false),
        (format!("max_over_time(count_over_time({both}[5s])[5s:5s])"), true),
    ] {
        let path = |end: i64| format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=100");
        assert_eq!(server.get(&path(start + 300)).await.status, 200, "{query}");
        let kept = server.get(&path(start + 900)).await;
        let fresh = server.get(&format!("{}&nocache=1", path(start + 900))).await;
        assert_eq!((kept.status, &kept.text), (fresh.status, &fresh.text), "{query}");
        assert_eq!(fresh.status == 422, collides, "{query}");
    }
}

/// Covers a regression: `rate` of a gauge has an info in every answer, and its results were never kept.
#[tokio::test]
async fn results_with_infos_are_kept() {
    let server = Fixture::ready();
    with_samples(&server).await;
    let path = |from: i64, more: &str| {
        let end = NOW_S - 60 + from;
        format!("/api/v1/query_range?query=rate(m[1m])&start={}&end={end}&step=15{more}", end - 600)
    };
    let first = server.get(&path(0, "")).await;
    assert_eq!(first.json()["infos"].as_array().map(Vec::len), Some(1), "{}", first.text);
    assert_eq!(server.get(&path(0, "")).await.text, first.text);
    assert_eq!(finds(&server), (1, 0, 1));
    let moved = server.get(&path(15, "")).await;
    assert_eq!(moved.text, server.get(&path(15, "&nocache=1")).await.text);
    assert_eq!(finds(&server), (1, 1, 1));
    // Positions refer to the text of the query.
    let spaced = server.get(&path(0, "").replace("rate", "%20%20rate")).await;
    assert_ne!(spaced.json()["infos"], first.json()["infos"]);
}

/// Checks that the result of a query with a warning, which says nothing about steps, is kept for the range
/// that was asked for.
#[tokio::test]
async fn results_with_warnings_are_kept_for_their_range() {
    let server = Fixture::ready();
    with_samples(&server).await;
    let path = |end: i64, more: &str| {
        let query = "quantile(2,m)";
        format!("/api/v1/query_range?query={query}&start={}&end={end}&step=15{more}", NOW_S - 700)
    };
    let first = server.get(&path(NOW_S - 100, "")).await;
    assert_eq!(first.json()["warnings"].as_array().map(Vec::len), Some(1), "{}", first.text);
    assert_eq!(server.get(&path(NOW_S - 100, "")).await.text, first.text);
    assert_eq!(finds(&server), (1, 0, 1));
    let longer = server.get(&path(NOW_S - 85, "")).await;
    assert_eq!(longer.text, server.get(&path(NOW_S - 85, "&nocache=1")).await.text);
    assert_eq!(finds(&server), (1, 0, 2));
}

/// Clients that do not round their times never hit the result cache.
#[tokio::test]
async fn steps_are_aligned_by_choice() {
    let server = Fixture::with(|options| options.service.query.align_steps = true).open();
    with_samples(&server).await;
    let path =
        |start: i64| format!("/api/v1/query_range?query=m&start={start}.123&end={}.123&step=15", start + 600);
    let start = (NOW_S - 700) / 15 * 15;
    let first = server.get(&path(start + 1)).await;
    assert_eq!(
        first.json()["data"]["result"][0]["values"][0][0].as_i64().map(|s| s % 15),
        Some(0),
        "{}",
        first.text
    );
    assert_eq!(server.get(&path(start + 8)).await.text, first.text);
    assert_eq!(finds(&server), (1, 0, 1));
}

/// Compares answers with and without the cache, after random writes (some out of order) and for random
/// windows.
#[tokio::test]
async fn answers_equal_fresh_ones_whatever_was_written_between() {
    let server = Fixture::ready();
    let rng = chronolith_base::Rng::from_seed(11);
    let below = |limit: u64| (rng.next_u64() % limit) as i64;
    let queries = [
        "sum(m)",
        "rate(m[2m])",
        "max_over_time(rate(m[1m])[3m:20s])",
        "m%20offset%20-1m",
        "m%20offset%202m",
        "sum%20by%20(id)(m)%20/%20on%20(id)%20m",
        "topk(1,m)",
        "absent(m)",
        "timestamp(m)",
        "m%20@%20start()",
        "count(m)%20%2B%20time()",
        "sum(rate({__name__=~%22m|n%22}[2m]))",
        "-{id!=%22%22}",
    ];
    for round in 0..160 {
        let newest = NOW_MS - 2_000_000 + round * 15_000;
        for _ in 0..below(4) {
            let id = below(4).to_string();
            let age = if below(3) == 0 { below(600_000) } else { below(10_000) };
            let samples = [(newest - age, below(100) as f64)];
            let name = if below(8) == 0 { "n" } else { "m" };
            server.write(&[(&[("__name__", name), ("id", &id)], &samples)]).await;
        }
        let query = queries[below(queries.len() as u64) as usize];
        let end = newest / 1000 - below(60);
        let start = end / 15 * 15 - 15 * (1 + below(40));
        let path = format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=15");
        let kept = server.get(&path).await;
        let fresh = server.get(&format!("{path}&nocache=1")).await;
        assert_eq!(kept.text, fresh.text, "round {round}: {query}");
    }
    let (hits, partial_hits, misses) = finds(&server);
    assert!(hits + partial_hits > 10 && misses > 5, "{hits} {partial_hits} {misses}");
}
