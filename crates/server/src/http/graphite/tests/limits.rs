//! Limits of requests at, below and above them, after a change, for two tenants.

use axum::http::StatusCode;
use chronolith_model::TenantLimits;
use chronolith_tsdb::LimitsTable;

use super::*;
use crate::http::tests::NOW_S;

/// A server of which both tenants have three tagged series, and two paths with a point every 10 s in the
/// last five minutes.
async fn with_tenants() -> Fixture {
    let server = with_rules_and(|options| options.service.multitenancy = true);
    let mut lines = String::new();
    for host in ["x", "y", "z"] {
        lines.push_str(&format!("disk;host={host};dc=a 1 {NOW_S}\n"));
    }
    for time in (NOW_S - 300..NOW_S).step_by(10) {
        lines.push_str(&format!("plain.a 1 {time}\nplain.b 2 {time}\n"));
    }
    for tenant in ["a", "b"] {
        let request = Request::post("/api/v1/carbon").header("X-Scope-OrgID", tenant);
        let answer = server.send(request.body(Body::from(lines.clone())).expect("a request")).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    }
    server
}

/// Gives tenant `a` limits of its own, as a reload does; `b` keeps the defaults.
fn reload(server: &Fixture, set: impl FnOnce(&mut GraphiteLimits)) {
    let mut limits = TenantLimits::default();
    set(&mut limits.queries.graphite);
    let mut table = LimitsTable::default();
    table.by_tenant.insert(TenantId::new("a").expect("valid"), limits);
    server.web.service.set_limits(table);
}

/// Checks requests which find `found` results against a limit below, at and above that number.
async fn check_refused_above(
    server: &Fixture,
    paths: &[(&str, u64)],
    setting: &str,
    set: fn(&mut GraphiteLimits, u64),
) {
    for (path, found) in paths {
        for limit in [found + 1, *found] {
            reload(server, |limits| set(limits, limit));
            let answer = server.get_as("a", path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}, limit {limit}: {}", answer.text);
        }
        reload(server, |limits| set(limits, found - 1));
        let answer = server.get_as("a", path).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{path}: {}", answer.text);
        for part in [setting.to_owned(), format!("{found} "), format!("limit of {}", found - 1)] {
            assert!(answer.text.contains(&part), "{path}: no {part:?} in {}", answer.text);
        }
        assert_eq!(server.get_as("b", path).await.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_search_of_more_nodes_than_the_limit_is_refused() {
    let server = with_tenants().await;
    let paths = [("/metrics/find?query=plain.*", 2), ("/metrics/expand?query=plain.*&leavesOnly=1", 2)];
    check_refused_above(&server, &paths, "graphite.max-nodes", |limits, max| limits.nodes_max = max).await;
}

#[tokio::test]
async fn tags_beyond_the_limit_of_results_are_refused() {
    let server = with_tenants().await;
    let paths = [
        ("/tags/findSeries?expr=name=disk", 3),
        ("/tags/host", 3),
        // The name is no label that is counted.
        ("/tags", 2),
        ("/tags/autoComplete/values?tag=host&expr=dc=a", 3),
    ];
    let set = |limits: &mut GraphiteLimits, max| limits.tag_results_max = max;
    check_refused_above(&server, &paths, "graphite.max-tag-results", set).await;
}

/// Index of the archive that a render read, and the points that it fetched.
async fn archive_and_points(server: &Fixture, tenant: &str, target: &str) -> (u64, u64) {
    let path = format!("/render?target={target}&from=-5min&format=json&meta=true");
    let answer = server.get_as(tenant, &path).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let answer = answer.json();
    let archive = answer["series"][0]["meta"][0]["archive-read"].as_u64().expect("an index");
    let points = answer["series"].as_array().expect("a list").iter();
    let points = points.map(|series| series["datapoints"].as_array().expect("a list").len() as u64).sum();
    (archive, points)
}

#[tokio::test]
async fn coarser_archives_are_read_above_the_soft_limit_of_points() {
    let server = with_tenants().await;
    for (target, series_count) in [("plain.a", 1), ("plain.*", 2)] {
        reload(&server, |_| {});
        let (archive, points) = archive_and_points(&server, "a", target).await;
        assert_eq!((archive, points), (0, 30 * series_count), "{target}");
        for (soft, want) in [(points + 1, 0), (points, 0), (points - 1, 1), (1, 1)] {
            reload(&server, |limits| limits.points_soft = soft);
            let (archive, read) = archive_and_points(&server, "a", target).await;
            assert_eq!(archive, want, "{target}, {soft} points");
            assert_eq!(read < points, want == 1, "{target}, {soft} points: {read} points");
            assert_eq!(archive_and_points(&server, "b", target).await, (0, points), "{target}");
        }
    }
}
