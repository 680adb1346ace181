//! Ranges of `/render` and globs of `/metrics/find` as graphite-web 1.1.10 has them over whisper files of the
//! same points; the answers here were taken from it (`ORACLE_BACKEND=whisper tools/graphite-oracle/run.sh`).

use super::*;

/// Time of the requests, in seconds; a multiple of 60.
const NOW_S: i64 = 1_699_999_980;

/// Paths every 60 s from three hours ago to a minute ago.
async fn with_three_hours() -> Fixture {
    let server = Fixture::ready();
    let mut lines = String::new();
    for time in (NOW_S - 10_800..NOW_S).step_by(60) {
        for (path, value) in [("n.a.b.rps", 9), ("n.c.rps", 4), ("icinga.h1.svc.ping.rta", 1)] {
            lines.push_str(&format!("{path} {value} {time}\n"));
        }
        lines.push_str(&format!("disk;dc=a 3 {time}\n"));
    }
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204, "{}", answer.text);
    server
}

/// Target and values of each series; times are steps of 60 s from `from` on.
async fn rendered(server: &Fixture, target: &str, range: &str) -> String {
    let url = format!("/render?target={target}&{range}&now={NOW_S}&format=json");
    let answer = server.get(&url).await;
    assert_eq!(answer.status.as_u16(), 200, "{target}: {}", answer.text);
    let list = answer.json();
    let series = list.as_array().expect("a list").iter().map(|series| {
        let points = series["datapoints"].as_array().expect("points");
        let values: Vec<String> = points.iter().map(|point| point[0].to_string()).collect();
        format!("{} {}", series["target"].as_str().expect("a text"), values.join(","))
    });
    series.collect::<Vec<_>>().join("; ")
}

/// Covers a regression: a path without points in an older range was missing there, where graphite-web has it
/// without values: a ratio to last week was refused with 400.
#[tokio::test]
async fn a_path_without_points_in_an_older_range_is_empty_and_not_missing() {
    let server = with_three_hours().await;
    let range = format!("from={}&until={NOW_S}", NOW_S - 180);
    let cases = [
        ("timeShift(n.a.b.rps,'7d')", r#"timeShift(n.a.b.rps, "-7d") null,null,null"#),
        (
            "asPercent(n.a.b.rps,timeShift(n.a.b.rps,'7d'))",
            r#"asPercent(n.a.b.rps,timeShift(n.a.b.rps, "-7d")) null,null,null"#,
        ),
        (
            "divideSeries(n.a.b.rps,timeShift(n.a.b.rps,'7d'))",
            r#"divideSeries(n.a.b.rps,timeShift(n.a.b.rps, "-7d")) null,null,null"#,
        ),
        ("diffSeries(n.a.b.rps,timeShift(n.a.b.rps,'7d'))", "diffSeries(n.a.b.rps) 9.0,9.0,null"),
        (
            "timeShift(n.**.rps,'1d')",
            "timeShift(n.a.b.rps, \"-1d\") null,null,null; timeShift(n.c.rps, \"-1d\") null,null,null",
        ),
        ("timeShift(n.*.rps,'4h')", r#"timeShift(n.c.rps, "-4h") null,null,null"#),
        ("timeShift(n.*.rps,'1h')", r#"timeShift(n.c.rps, "-1h") 4.0,4.0,4.0"#),
        ("timeShift(seriesByTag('name=disk'),'7d')", r#"timeShift(disk;dc=a, "-7d") null,null,null"#),
        ("sumSeries(timeShift(n.*.rps,'30d'))", r#"sumSeries(n.*.rps) null,null,null"#),
        (
            "timeStack(n.c.rps,'1d',0,2)",
            "timeShift(n.c.rps, -1d, 0) 4.0,4.0,null; timeShift(n.c.rps, -1d, 1) null,null,null",
        ),
        ("timeShift(n.nothing.rps,'7d')", ""),
        ("countSeries(timeShift(n.**.rps,'7d'))", "countSeries(n.**.rps) 2,2,2"),
    ];
    for (target, want) in cases {
        assert_eq!(rendered(&server, target, &range).await, want, "{target}");
    }
    let older = format!("from={}&until={}", NOW_S - 90_180, NOW_S - 90_000);
    assert_eq!(rendered(&server, "n.c.rps", &older).await, "n.c.rps null,null,null");
    assert_eq!(rendered(&server, "n.x.rps", &older).await, "");
    // After its last point a path is not shown.
    let url = format!("/metrics/find?query=n.*&from={}&until={}", NOW_S - 90_180, NOW_S - 90_000);
    assert_eq!(server.get(&url).await.json().as_array().map(Vec::len), Some(2));
}

/// Answers went on after now, without values, or with values that `keepLastValue` made up.
#[tokio::test]
async fn nothing_is_after_now() {
    let server = with_three_hours().await;
    let range = format!("from={}&until={}", NOW_S - 180, NOW_S + 180);
    let cases = [
        ("n.c.rps", "n.c.rps 4.0,4.0,null"),
        ("keepLastValue(n.a.b.rps)", "keepLastValue(n.a.b.rps) 9.0,9.0,9.0"),
        ("n.*.rps", "n.c.rps 4.0,4.0,null"),
        ("transformNull(n.c.rps,7)", "transformNull(n.c.rps,7) 4.0,4.0,7.0"),
        ("scale(n.c.rps,2)", "scale(n.c.rps,2) 8.0,8.0,null"),
        ("sumSeries(n.**.rps)", "sumSeries(n.**.rps) 13.0,13.0,null"),
        ("movingAverage(n.c.rps,2)", "movingAverage(n.c.rps,2) 4.0,4.0,4.0"),
        ("isNonNull(n.c.rps)", "isNonNull(n.c.rps) 1,1,0"),
        ("seriesByTag('name=disk')", "disk;dc=a 3.0,3.0,null"),
        ("integral(n.c.rps)", "integral(n.c.rps) 4.0,8.0,null"),
        ("timeShift(n.c.rps,'%2B1d')", ""),
        ("timeShift(n.c.rps,'%2B2min')", r#"timeShift(n.c.rps, "+2min") null"#),
    ];
    for (target, want) in cases {
        assert_eq!(rendered(&server, target, &range).await, want, "{target}");
    }
    let after = format!("from={}&until={}", NOW_S + 60, NOW_S + 180);
    assert_eq!(rendered(&server, "n.c.rps", &after).await, "");
    let today = rendered(&server, "n.c.rps", "from=today&until=tomorrow").await;
    let midnight_s = NOW_S - NOW_S.rem_euclid(86_400);
    let count = today.split_once(' ').expect("values").1.split(',').count() as i64;
    assert_eq!(count, (NOW_S - midnight_s) / 60);
}

#[tokio::test]
async fn two_asterisks_match_any_depth_in_all_requests() {
    let server = with_three_hours().await;
    let range = format!("from={}&until={NOW_S}", NOW_S - 60);
    assert_eq!(rendered(&server, "n.**.rps", &range).await, "n.a.b.rps null; n.c.rps null");
    let found = server.get("/metrics/find?query=icinga.**.rta").await.json();
    assert_eq!(found.as_array().map(Vec::len), Some(1));
    assert_eq!((&found[0]["id"], &found[0]["leaf"]), (&"icinga.**.rta".into(), &1.into()));
    let expanded = server.get("/metrics/expand?query=n.**.rps").await.json();
    assert_eq!(expanded["results"], serde_json::json!(["n.a.b.rps", "n.c.rps"]));
    let all = server.get("/metrics/expand?query=n.**").await.json();
    assert_eq!(all["results"], serde_json::json!(["n.a", "n.a.b", "n.a.b.rps", "n.c", "n.c.rps"]));
}

/// Covers a regression: `maxDataPoints` made dygraph a 400: graphite-web ignores it but for JSON.
#[tokio::test]
async fn the_number_of_points_holds_for_json_alone() {
    let server = with_three_hours().await;
    for limit in ["1", "2", "3", "5", "9", "10", "1000"] {
        let url = |format: &str| {
            let range = format!("from={}&until={NOW_S}&now={NOW_S}", NOW_S - 600);
            format!("/render?target=n.*.rps&maxDataPoints={limit}&{range}&format={format}")
        };
        let dygraph = server.get(&url("dygraph")).await;
        assert_eq!(dygraph.status.as_u16(), 200, "{}", dygraph.text);
        assert_eq!(dygraph.json()["data"].as_array().map(Vec::len), Some(10), "{limit}");
        let rickshaw = server.get(&url("rickshaw")).await.json();
        assert_eq!(rickshaw[0]["datapoints"].as_array().map(Vec::len), Some(10), "{limit}");
        let json = server.get(&url("json")).await.json();
        let count = json[0]["datapoints"].as_array().map_or(0, Vec::len);
        assert!(count <= limit.parse().expect("a number"), "{limit}: {count}");
    }
}

/// Covers a regression: `/metrics/find` ignored `leavesOnly`, and read -1 as a time.
#[tokio::test]
async fn find_shows_leaves_only_if_asked() {
    let server = with_three_hours().await;
    let cases = [
        ("query=n.*&leavesOnly=1", 0),
        ("query=n.*&leavesOnly=0", 2),
        ("query=n.*", 2),
        ("query=n.*.*&leavesOnly=1", 1),
        ("query=n.*.*", 2),
        ("query=n.**&leavesOnly=1", 1),
        ("query=*&leavesOnly=1", 0),
        ("query=n.c.rps&leavesOnly=1", 1),
        ("query=n.*&from=-1&until=-1", 2),
        ("query=n.*&leavesOnly=1&format=json", 0),
        ("query=n.*&leavesOnly=%201", 0),
    ];
    for (query, want) in cases {
        let found = server.get(&format!("/metrics/find?{query}")).await;
        assert_eq!(found.json().as_array().map(Vec::len), Some(want), "{query}: {}", found.text);
    }
    assert_eq!(server.get("/metrics/find?query=n.*&leavesOnly=x").await.status.as_u16(), 400);
}

#[tokio::test]
async fn an_unclosed_call_is_refused_with_a_text() {
    let server = with_three_hours().await;
    for target in ["sumSeries(", "scale(n.*", "alias(scale(n.c.rps,2),'x'"] {
        let answer = server.get(&format!("/render?target={target}&format=json")).await;
        assert_eq!(answer.status.as_u16(), 400, "{target}: {}", answer.text);
        assert!(answer.text.contains("closing parenthesis"), "{}", answer.text);
    }
}

/// Covers a regression: one rule of 3.7 MB took 2.2 GB before its 422: its size is checked before anything is
/// compiled.
#[tokio::test]
async fn large_meta_tag_rules_are_refused_before_they_are_compiled() {
    let server = Fixture::ready();
    let texts = |count: usize, text: &'static str| vec![text; count];
    let rules = [
        serde_json::json!({"metaTags": ["a=b"], "expressions": texts(400_000, "a=~b")}),
        serde_json::json!({"metaTags": texts(400_000, "a=b"), "expressions": ["a=b"]}),
        serde_json::json!({"metaTags": ["a=b"], "expressions": [format!("a=~{}", "b".repeat(2 << 20))]}),
        serde_json::json!({"metaTags": ["a=b"], "expressions": texts(257, "a=~b")}),
    ];
    for rule in &rules {
        let answer = post(&server, "/metaTags/upsert", "identity", rule.to_string().into_bytes()).await;
        assert_eq!(answer.status.as_u16(), 422, "{:.200}", answer.text);
    }
    let swap = serde_json::json!({"records": vec![rules[3].clone(); 3]});
    let answer = post(&server, "/metaTags/swap", "identity", swap.to_string().into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 422, "{:.200}", answer.text);
    let rule = serde_json::json!({"metaTags": ["a=b"], "expressions": ["a=~b"]});
    let answer = post(&server, "/metaTags/upsert", "identity", rule.to_string().into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    // A pattern that compiles to more than a megabyte.
    let rule = serde_json::json!({"metaTags": ["a=b"], "expressions": [r"a=~(\w{100}){100}"]});
    let answer = post(&server, "/metaTags/upsert", "identity", rule.to_string().into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 400, "{:.200}", answer.text);
}
