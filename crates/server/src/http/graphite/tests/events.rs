//! `/events`: posted, selected, by id; the function `events`.

use serde_json::{Value, json};

use super::*;

async fn create(server: &Fixture, path: &str, body: &str) -> Answer {
    post(server, path, "identity", body.as_bytes().to_vec()).await
}

async fn with_events() -> Fixture {
    let server = Fixture::ready();
    for (path, body) in [
        ("/events/", r#"{"what": "first", "tags": ["deploy", "web"], "when": 1000, "data": "v1"}"#),
        ("/events", r#"{"what": "second", "tags": "deploy db", "when": 900.7}"#),
        ("/events/", r#"{"what": "now"}"#),
    ] {
        let answer = create(&server, path, body).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""), "{body}");
    }
    server
}

fn first() -> Value {
    json!({"id": 1, "when": 1000, "what": "first", "tags": ["deploy", "web"], "data": "v1"})
}

fn second() -> Value {
    json!({"id": 2, "when": 900, "what": "second", "tags": ["deploy", "db"], "data": ""})
}

#[tokio::test]
async fn events_are_selected_by_time_and_tags() {
    let server = with_events().await;
    let now = json!({"id": 3, "when": 1_700_000_000, "what": "now", "tags": [], "data": ""});
    let table = [
        ("", json!([second(), first(), now])),
        ("?from=901&until=1000", json!([first()])),
        ("?from=900&until=999", json!([second()])),
        ("?from=-1h&until=now", json!([now])),
        ("?tags=deploy", json!([second(), first()])),
        ("?tags=deploy%20web", json!([first()])),
        ("?tags=deploy+unknown", json!([second(), first()])),
        ("?tags=deploy+unknown&set=intersection", json!([])),
        ("?tags=web+db&set=union", json!([second(), first()])),
        ("?tags=web+db&set=intersection", json!([])),
        ("?tags=unknown", json!([])),
    ];
    for (query, want) in table {
        check_json(&server.get(&format!("/events/get_data{query}")).await, want);
    }
    check_json(&server.get("/events/?tags=web").await, json!([first()]));
    let script = server.get("/events/get_data?tags=web&jsonp=cb").await;
    assert_eq!(script.text, format!("cb({})", json!([first()])));
    assert_eq!(script.headers["content-type"], "text/javascript");
}

#[tokio::test]
async fn an_event_is_read_by_its_id() {
    let server = with_events().await;
    let mut want = first();
    want["when"] = "1970-01-01T00:16:40Z".into();
    for path in ["/events/1", "/events/1/"] {
        check_json(&server.get(path).await, want.clone());
    }
    for path in ["/events/9", "/events/x", "/events/-1/"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status.as_u16(), 404, "{path}");
        assert_eq!(answer.json()["error"], "Event matching query does not exist");
    }
}

/// Covers a regression: curl sends every body as a form, which left the event out.
#[tokio::test]
async fn an_event_of_any_content_type_is_stored() {
    let server = Fixture::ready();
    let request = Request::post("/events/")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(r#"{"what": "100% & more", "when": 5}"#));
    assert_eq!(server.send(request.expect("a request")).await.status.as_u16(), 200);
    let found = server.get("/events/get_data").await;
    assert_eq!(found.json()[0]["what"], "100% & more", "{}", found.text);
}

#[tokio::test]
async fn malformed_events_are_refused() {
    let server = Fixture::ready();
    for (body, status, message) in [
        ("{", 400, "not JSON"),
        ("[]", 400, "not a JSON object"),
        (r#"{"tags": []}"#, 400, "\"what\" is missing"),
        (r#"{"what": "x", "tags": 5}"#, 400, "\"tags\" must be an array or space-separated string"),
        (r#"{"what": "x", "tags": [5]}"#, 400, "\"tags\" must be a list of strings"),
        (r#"{"what": "x", "when": "y"}"#, 400, "\"when\""),
        (r#"{"what": "x", "when": 1e300}"#, 400, "\"when\""),
    ] {
        let answer = create(&server, "/events/", body).await;
        assert_eq!(answer.status.as_u16(), status, "{body}");
        let error = answer.json()["error"].to_string();
        assert!(answer.json()["error"].as_str().is_some_and(|error| error.contains(message)), "{error}");
    }
    let large = json!({ "what": "x".repeat(70_000) }).to_string();
    let answer = create(&server, "/events/", &large).await;
    assert_eq!(
        answer.json()["error"],
        "bytes of the event: 70000 exceed the limit of 65536 (graphite.max-event-size)"
    );
    assert_eq!(answer.status.as_u16(), 422);
    check_json(&server.get("/events/get_data").await, json!([]));
}

#[tokio::test]
async fn the_function_events_counts_them_per_second() {
    let server = with_events().await;
    let answer = server.get("/render?target=events('deploy')&from=899&until=903&format=json").await;
    let points = json!([[null, 899], [1, 900], [null, 901], [null, 902]]);
    assert_eq!(answer.json()[0]["datapoints"], points, "{}", answer.text);
}

#[tokio::test]
async fn events_belong_to_their_tenant() {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    let request = |method: &str, tenant: &str| {
        let builder = Request::builder().method(method).uri("/events/").header("x-scope-orgid", tenant);
        builder.body(Body::from(r#"{"what": "x", "when": 1}"#)).expect("a request")
    };
    assert_eq!(server.send(request("POST", "a")).await.status.as_u16(), 200);
    assert_eq!(server.send(request("GET", "a")).await.json().as_array().map(Vec::len), Some(1));
    assert_eq!(server.send(request("GET", "b")).await.json(), json!([]));
}
