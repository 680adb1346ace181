//! The admin API: off unless asked for, then with Prometheus's answers.

use chronolith_model::TenantId;

use super::*;

fn enabled() -> Fixture {
    Fixture::with(|options| options.web.admin_api = true).open()
}

async fn send(server: &Fixture, method: &str, path: &str) -> Answer {
    server.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
}

const PATHS: [&str; 4] = [
    "/api/v1/admin/tsdb/delete_series?match[]=up",
    "/api/v1/admin/tsdb/clean_tombstones",
    "/api/v1/admin/tsdb/snapshot",
    "/api/v1/admin/tsdb/compaction?paused=true",
];

#[tokio::test]
async fn it_is_off_unless_it_is_switched_on() {
    let server = Fixture::ready();
    for path in PATHS {
        check_error(
            &send(&server, "POST", path).await,
            503,
            "unavailable",
            "admin APIs disabled (web.enable-admin-api)",
        );
    }
    assert_eq!(send(&enabled(), "GET", PATHS[1]).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn series_are_deleted_for_queries_and_come_back_when_written_again() {
    let server = enabled();
    for name in ["up", "down"] {
        let labels = [("__name__", name)];
        let written = server.write(&[(&labels, &[(NOW_MS - 60_000, 1.0), (NOW_MS - 1000, 2.0)])]).await;
        assert_eq!(written.status, StatusCode::NO_CONTENT, "{}", written.text);
    }
    let value = async |query: &str| {
        let form = format!("query={query}&time={}", NOW_MS / 1000);
        let found = server.post_form("/api/v1/query", &form).await.json();
        assert_eq!(found["status"], "success", "{found}");
        found["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    let counted = "sum(count_over_time(up[5m]))";
    let other = "sum(count_over_time(down[5m]))";
    assert_eq!(value(counted).await.as_deref(), Some("2"));
    let end = NOW_MS / 1000 - 30;
    let part = format!("/api/v1/admin/tsdb/delete_series?match[]=up&end={end}");
    let answer = send(&server, "POST", &part).await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NO_CONTENT, ""));
    assert_eq!(value(counted).await.as_deref(), Some("1"));
    assert_eq!(value(other).await.as_deref(), Some("2"));
    let answer = server.post_form("/api/v1/admin/tsdb/delete_series", "match[]=up&match[]=down").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!((value(counted).await, value(other).await), (None, None));
    assert_eq!(send(&server, "PUT", PATHS[1]).await.status, StatusCode::NO_CONTENT);
    server.write(&[(&[("__name__", "up")], &[(NOW_MS - 60_000, 5.0)])]).await;
    assert_eq!(value(counted).await.as_deref(), Some("1"));
}

/// Labels of deleted series were listed until a compaction, while there were no series.
#[tokio::test]
async fn lists_of_labels_have_no_deleted_series() {
    let server = enabled();
    let at = [(NOW_MS - 60_000, 1.0)];
    let series: [Pairs<'_>; 4] = [
        &[("__name__", "gone"), ("z", "1")],
        &[("__name__", "gone"), ("z", "2"), ("only", "x")],
        &[("__name__", "kept"), ("z", "2")],
        &[("__name__", "part"), ("z", "3")],
    ];
    let written = server.write(&series.map(|labels| (labels, &at[..]))).await;
    assert_eq!(written.status, StatusCode::NO_CONTENT, "{}", written.text);
    server.write(&[(series[3], &[(NOW_MS - 1000, 1.0)])]).await;
    let end = NOW_MS / 1000 - 30;
    for path in [
        "/api/v1/admin/tsdb/delete_series?match[]=gone".to_owned(),
        format!("/api/v1/admin/tsdb/delete_series?match[]=part&end={end}"),
    ] {
        assert_eq!(send(&server, "POST", &path).await.status, StatusCode::NO_CONTENT);
    }
    for (path, want) in [
        ("label/z/values?match[]=gone", r#"[]"#),
        ("label/z/values?match[]={z=~\".%2B\"}", r#"["2","3"]"#),
        ("label/z/values", r#"["2","3"]"#),
        ("label/z/values?limit=1", r#"["2"]"#),
        ("label/only/values", r#"[]"#),
        ("label/__name__/values", r#"["kept","part"]"#),
        ("label/__name__/values?match[]={z=\"2\"}", r#"["kept"]"#),
        ("label/__name__/values?match[]=gone&match[]=part", r#"["part"]"#),
        ("labels", r#"["__name__","z"]"#),
        ("labels?match[]=gone", r#"[]"#),
        ("labels?match[]={z=\"2\"}", r#"["__name__","z"]"#),
        ("series?match[]=gone", r#"[]"#),
    ] {
        let answer = server.get(&format!("/api/v1/{}", path.replace('"', "%22"))).await;
        let data = answer.text.strip_prefix("{\"status\":\"success\",\"data\":");
        assert!(data.is_some_and(|data| data.starts_with(want)), "{path}: {}", answer.text);
    }
    for (path, want) in
        [("metric_names?x", "kept part"), ("label_values?label=z", "2 3"), ("label_names?x", "__name__ z")]
    {
        let answer = server.get(&format!("/api/v1/search/{path}")).await;
        let first: Value = serde_json::from_str(answer.text.lines().next().unwrap()).unwrap();
        let names = first["results"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>().join(" "), want, "{path}");
    }
}

#[tokio::test]
async fn bad_requests_have_the_texts_of_prometheus() {
    let server = enabled();
    let path = "/api/v1/admin/tsdb/delete_series";
    check_error(&send(&server, "POST", path).await, 400, "bad_data", "no match[] parameter provided");
    let answer = send(&server, "POST", &format!("{path}?match[]=up&start=x")).await;
    let text = "invalid parameter \"start\": invalid time value for 'start': cannot parse \"x\" to a valid timestamp";
    check_error(&answer, 400, "bad_data", text);
    let answer = send(&server, "POST", &format!("{path}?match[]=sum(up)")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text.contains("invalid parameter \\\"match[]\\\""), "{}", answer.text);
    let answer = send(&server, "POST", "/api/v1/admin/tsdb/snapshot?skip_head=maybe").await;
    let text = "invalid parameter \"skip_head\": unable to parse boolean: strconv.ParseBool: parsing \"maybe\": invalid syntax";
    check_error(&answer, 400, "bad_data", text);
}

#[tokio::test]
async fn a_snapshot_is_named_and_compaction_can_be_paused() {
    let server = enabled();
    server.write(&[(&[("__name__", "up")], &[(NOW_MS - 1000, 2.0)])]).await;
    let answer = send(&server, "POST", PATHS[2]).await;
    assert!(answer.text.starts_with("{\"status\":\"success\",\"data\":{\"name\":\"20"), "{}", answer.text);
    let name = answer.json()["data"]["name"].as_str().unwrap().to_owned();
    let dir = std::path::Path::new("/data/snapshots").join(name).join("tenants/anonymous");
    assert_eq!(server.web.service.env.disk.list(&dir).unwrap().len(), 1, "the head's window");
    let answer = send(&server, "POST", PATHS[3]).await;
    assert_eq!(answer.json()["data"]["paused"], true);
    assert!(server.get("/metrics").await.text.contains("chronolith_compaction_paused 1"));
    let answer = send(&server, "POST", "/api/v1/admin/tsdb/compaction?paused=false").await;
    assert_eq!(answer.json()["data"]["paused"], false);
    check_error(
        &send(&server, "POST", "/api/v1/admin/tsdb/compaction").await,
        400,
        "bad_data",
        "no paused parameter provided",
    );
}

/// Checks that a tenant deletes its own series only.
#[tokio::test]
async fn a_request_is_for_its_tenant() {
    let server = Fixture::with(|options| {
        options.web.admin_api = true;
        options.service.multitenancy = true;
    })
    .open();
    let tenants = ["a", "b"].map(|name| TenantId::new(name).unwrap());
    for tenant in &tenants {
        let mut batch = chronolith_model::WriteBatch::from_labels();
        batch.push_labels(&chronolith_model::Labels::from_pairs([("__name__", "up")]), &[(NOW_MS, 1.0)]);
        server.web.service.lifecycle.store().unwrap().append(&tenant.into(), &batch).unwrap();
    }
    let request = Request::post(PATHS[0]).header("X-Scope-OrgID", "a").body(Body::empty()).unwrap();
    assert_eq!(server.send(request).await.status, StatusCode::NO_CONTENT);
    for (tenant, count) in tenants.iter().zip([0, 1]) {
        let path = format!("/api/v1/query?query=up&time={}", NOW_MS / 1000);
        let request =
            Request::get(path).header("X-Scope-OrgID", tenant.as_str()).body(Body::empty()).unwrap();
        let found = server.send(request).await.json();
        assert_eq!(found["data"]["result"].as_array().map(Vec::len), Some(count), "{tenant}");
    }
    assert_eq!(send(&server, "POST", PATHS[1]).await.status, StatusCode::UNAUTHORIZED);
}
