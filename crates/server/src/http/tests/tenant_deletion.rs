//! Deletion of tenants by HTTP: states, scopes, other tenants, Mimir's paths; the list of own tenants.

use super::access::{entry, guarded, send};
use super::*;

fn fixture() -> Fixture {
    let server = Fixture::with(|options| {
        options.service.multitenancy = true;
        options.web.admin_api = true;
    });
    let server = server.open();
    for tenant in ["a", "b"] {
        server.store_series(tenant, 0, &[&[("__name__", "m")]]);
    }
    server
}

/// Runs the deletions, as the server does every second.
async fn run(server: &Fixture) {
    let store = server.web.service.lifecycle.store().expect("open").clone();
    tokio::task::spawn_blocking(move || store.tenant_deletions().run(|_| Ok(true))).await.expect("no panic");
}

async fn series_count(server: &Fixture, tenant: &str) -> usize {
    let answer = server.get_as(tenant, &format!("/api/v1/query?query=m&time={NOW_S}")).await.json();
    answer["data"]["result"].as_array().expect("a list").len()
}

#[tokio::test]
async fn a_tenant_is_deleted_in_the_background_and_can_be_used_again() {
    let server = fixture();
    let path = "/api/v1/admin/tenants/a";
    let none = server.get(path).await.json();
    assert_eq!((&none["data"]["state"], &none["data"]["stored"]), (&"none".into(), &true.into()));
    let begun = send(&server, "DELETE", path, &[]).await;
    assert_eq!((begun.status, &begun.json()["data"]["state"]), (StatusCode::ACCEPTED, &"deleting".into()));
    let mut encoder = RequestEncoder::new();
    encoder.push_series([("__name__", "m")], &[(NOW_MS, 1.0)]);
    let refused = Request::post("/api/v1/write")
        .header("X-Scope-OrgID", "a")
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .header(header::CONTENT_ENCODING, "snappy")
        .body(Body::from(encoder.compressed()));
    let refused = server.send(refused.expect("a request")).await;
    assert!(refused.headers.contains_key(header::RETRY_AFTER));
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    assert!(refused.text.contains("is being deleted"), "{}", refused.text);
    run(&server).await;
    let done = server.get(path).await.json();
    assert_eq!(done["data"]["state"], "deleted", "{done}");
    assert_eq!(done["data"]["progress"]["headSamples"], 1);
    assert_eq!((series_count(&server, "a").await, series_count(&server, "b").await), (0, 1));
    server.store_series("a", 0, &[&[("__name__", "m")]]);
    assert_eq!(series_count(&server, "a").await, 1);
    let metrics = server.get("/metrics").await.text;
    for line in ["chronolith_tenant_deletions_total 1", "chronolith_tenant_deletions_running 0"] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test]
async fn deletions_need_the_admin_api() {
    let server = Fixture::ready();
    for (method, path) in [("DELETE", "/api/v1/admin/tenants/a"), ("POST", "/compactor/delete_tenant")] {
        let answer = send(&server, method, path, &[]).await;
        check_error(&answer, 503, "unavailable", "admin APIs disabled (web.enable-admin-api)");
    }
    let answer = send(&server, "GET", "/api/v1/admin/tenants/__a", &[]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text);
}

#[tokio::test]
async fn a_principal_deletes_its_tenants_alone() {
    let entries = [
        entry("ops", "  scopes: [admin]\n  tenants: [a]\n"),
        entry("reader", "  scopes: [read]\n  tenants: '*'\n"),
    ];
    let server = guarded(true, &entries);
    let ops = [("authorization", "Bearer ops")];
    let other = send(&server, "DELETE", "/api/v1/admin/tenants/b", &ops).await;
    check_error(&other, 403, "forbidden", r#""ops" may not name tenant "b""#);
    assert_eq!(send(&server, "GET", "/api/v1/admin/tenants/b", &ops).await.status, StatusCode::FORBIDDEN);
    assert_eq!(send(&server, "DELETE", "/api/v1/admin/tenants/a", &ops).await.status, StatusCode::ACCEPTED);
    let reader = [("authorization", "Bearer reader")];
    let reader = send(&server, "DELETE", "/api/v1/admin/tenants/a", &reader).await;
    assert_eq!(reader.status, StatusCode::FORBIDDEN, "{}", reader.text);
}

#[tokio::test]
async fn mimirs_paths_delete_the_tenant_of_the_header() {
    let server = fixture();
    let headers = [("x-scope-orgid", "a")];
    let state = async || send(&server, "GET", "/compactor/delete_tenant_status", &headers).await.json();
    assert_eq!(state().await, serde_json::json!({ "tenant_id": "a", "blocks_deleted": false }));
    let begun = send(&server, "POST", "/compactor/delete_tenant", &headers).await;
    assert_eq!((begun.status, begun.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(state().await["blocks_deleted"], false);
    run(&server).await;
    assert_eq!(state().await["blocks_deleted"], true);
    assert_eq!((series_count(&server, "a").await, series_count(&server, "b").await), (0, 1));
}

/// Covers a regression: the list was about the whole server, so a principal of one tenant could not see the
/// use of its own limits.
#[tokio::test]
async fn the_list_of_tenants_has_those_of_the_principal() {
    let entries = [
        entry("one", "  scopes: [metrics]\n  tenants: [a]\n"),
        entry("all", "  scopes: [metrics]\n  tenants: '*'\n"),
    ];
    let server = guarded(true, &entries);
    for tenant in ["a", "b"] {
        server.store_series(tenant, 0, &[&[("__name__", "m")]]);
    }
    for (token, want) in [("one", vec!["a"]), ("all", vec!["a", "b"])] {
        let headers = [("authorization", format!("Bearer {token}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = send(&server, "GET", "/api/v1/status/tenants", &headers).await;
        let data = &answer.json()["data"];
        let list = data["tenants"].as_array().unwrap_or_else(|| panic!("{}", answer.text));
        let names: Vec<&str> = list.iter().filter_map(|one| one["tenant"].as_str()).collect();
        assert_eq!((names.len(), &data["total"]), (want.len(), &want.len().into()), "{token}");
        assert_eq!(names, want);
    }
}
