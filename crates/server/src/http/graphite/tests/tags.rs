//! `/tags`: lists, completion, series by expressions, tags of rules.

use serde_json::{Value, json};

use super::*;

/// Series with and without tags of carbon, and one of remote write.
async fn with_tags() -> Fixture {
    let server = Fixture::with(|options| options.web.admin_api = true).open();
    let lines = "plain.path 1 1000\n\
        disk;dc=ams;host=a 1 1000\n\
        disk;dc=ams;host=b 1 1000\n\
        disk;dc=fra;host=c 1 2000\n\
        cpu;dc=fra;host=a;core=0 1 1000\n\
        plain.path;dc=ams 1 1000\n";
    let answer = post(&server, "/api/v1/carbon", "identity", lines.as_bytes().to_vec()).await;
    assert_eq!(answer.status.as_u16(), 204);
    let written = server.write(&[(&[("__name__", "up"), ("job", "node")], &[(1_000_000, 1.0)])]).await;
    assert_eq!(written.status.as_u16(), 204, "{}", written.text);
    server
}

async fn check(server: &Fixture, path: &str, want: Value) {
    let answer = server.get(path).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, want), "{path}");
}

#[tokio::test]
async fn keys_and_values_are_listed_with_counts() {
    let server = with_tags().await;
    let tags = |keys: &[&str]| Value::Array(keys.iter().map(|key| json!({ "tag": key })).collect());
    for path in ["/tags", "/tags/", "/tags?pretty=1"] {
        check(&server, path, tags(&["core", "dc", "host", "job", "name"])).await;
    }
    check(&server, "/tags?filter=d%7Ch", tags(&["dc", "host"])).await;
    check(&server, "/tags?filter=ore", tags(&[])).await;
    check(&server, "/tags?limit=2", tags(&["core", "dc"])).await;
    let values = |values: &[(&str, u64)]| {
        values.iter().map(|(value, count)| json!({ "value": value, "count": count })).collect::<Vec<_>>()
    };
    check(&server, "/tags/dc", json!({ "tag": "dc", "values": values(&[("ams", 3), ("fra", 2)]) })).await;
    check(&server, "/tags/dc?filter=f", json!({ "tag": "dc", "values": values(&[("fra", 2)]) })).await;
    check(&server, "/tags/dc?limit=1", json!({ "tag": "dc", "values": values(&[("ams", 3)]) })).await;
    // The path without tags has no name either.
    let names = values(&[("cpu", 1), ("disk", 3), ("plain.path", 1), ("up", 1)]);
    check(&server, "/tags/name", json!({ "tag": "name", "values": names })).await;
    check(&server, "/tags/none", Value::Null).await;
}

#[tokio::test]
async fn series_are_found_by_expressions() {
    let server = with_tags().await;
    let table: &[(&str, &[&str])] = &[
        ("expr=dc=ams&expr=name=disk", &["disk;dc=ams;host=a", "disk;dc=ams;host=b"]),
        ("expr[]=dc=ams&expr[]=host!=a", &["disk;dc=ams;host=b", "plain.path;dc=ams"]),
        ("expr=host=~[ab]&expr=core=", &["disk;dc=ams;host=a", "disk;dc=ams;host=b"]),
        ("expr=host=~.*&expr=dc!=~a&expr=name=disk", &["disk;dc=fra;host=c"]),
        ("expr=name=~(%3F!disk).*&expr=dc=~.", &["cpu;core=0;dc=fra;host=a", "plain.path;dc=ams"]),
        ("expr=name=plain.path", &["plain.path;dc=ams"]),
        ("expr=name^=pl", &["plain.path;dc=ams"]),
        ("expr=__tag=core", &["cpu;core=0;dc=fra;host=a"]),
        ("expr=__tag^=jo", &["up;job=node"]),
        ("expr=__tag=~co.e", &["cpu;core=0;dc=fra;host=a"]),
        ("expr=dc=~.&limit=1", &["cpu;core=0;dc=fra;host=a"]),
        ("expr=host=~.&from=1500", &["disk;dc=fra;host=c"]),
        ("expr=host=~.&to=900", &[]),
    ];
    for (query, want) in table {
        check(&server, &format!("/tags/findSeries?{query}"), json!(want)).await;
    }
}

#[tokio::test]
async fn completion_answers_from_the_selected_series() {
    let server = with_tags().await;
    let table: &[(&str, &[&str])] = &[
        ("tags", &["core", "dc", "host", "job", "name"]),
        ("tags?tagPrefix=h", &["host"]),
        ("tags?limit=2", &["core", "dc"]),
        ("tags?limit=0", &[]),
        ("tags?expr=name=disk", &["dc", "host"]),
        ("tags?expr=host=a&expr=dc=fra", &["core", "name"]),
        ("tags?expr=host=a&tagPrefix=c", &["core"]),
        ("tags?expr=name=up", &["job"]),
        ("tags?expr=name=nothing", &[]),
        ("tags?expr=host=~(%3F!a).", &["dc", "name"]),
        ("values?tag=dc", &["ams", "fra"]),
        ("values?tag=dc&valuePrefix=f", &["fra"]),
        ("values?tag=name", &["cpu", "disk", "plain.path", "up"]),
        ("values?tag=name&limit=1", &["cpu"]),
        ("values?tag=name&expr=dc=ams", &["disk", "plain.path"]),
        ("values?tag=host&expr=dc=ams", &["a", "b"]),
        ("values?tag=host&expr=dc!=ams", &["a", "c"]),
        ("values?tag=host&expr=dc=~(%3F!a).*", &["a", "c"]),
        ("values?tag=host&from=1500", &["c"]),
        ("values?tag=none", &[]),
    ];
    for (query, want) in table {
        check(&server, &format!("/tags/autoComplete/{query}"), json!(want)).await;
    }
    let form = Request::post("/tags/autoComplete/values")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from("tag=host&expr=dc%3Dams&valuePrefix=b"));
    assert_eq!(server.send(form.expect("a request")).await.json(), json!(["b"]));
    let terms = server.get("/tags/terms?expr=dc=~.&tags=dc&tags=host").await.json();
    assert_eq!(
        terms,
        json!({"totalSeries": 5, "terms": {"dc": {"ams": 3, "fra": 2}, "host": {"a": 2, "b": 1, "c": 1}}})
    );
}

/// Checks that forms are read as multipart, which urllib3 sends.
#[tokio::test]
async fn multipart_forms_are_read() {
    let server = with_tags().await;
    let part = |name: &str, value: &str| {
        format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let body = part("expr", "dc=ams") + &part("expr", "host=b") + "--xyz--\r\n";
    let request = Request::post("/tags/findSeries")
        .header("content-type", "multipart/form-data; boundary=xyz")
        .body(Body::from(body));
    let answer = server.send(request.expect("a request")).await;
    assert_eq!(answer.json(), json!(["disk;dc=ams;host=b"]));
    let cut = Request::post("/tags/findSeries")
        .header("content-type", "multipart/form-data; boundary=xyz")
        .body(Body::from(part("expr", "dc=ams")));
    let answer = server.send(cut.expect("a request")).await;
    assert_eq!(answer.status.as_u16(), 400, "{}", answer.text);
}

#[tokio::test]
async fn tagging_answers_canonical_paths() {
    let server = Fixture::ready();
    let table = [
        ("tagSeries?path=m;b=2;a=1", json!("m;a=1;b=2")),
        ("tagSeries?path=m%7Bb=%222%22,a=%221%22%7D", json!("m;a=1;b=2")),
        ("tagSeries?path=m", json!("m")),
        ("tagMultiSeries?path=m;b=2;a=1&path=n;x=y", json!(["m;a=1;b=2", "n;x=y"])),
        ("tagMultiSeries?path[]=n;x=y", json!(["n;x=y"])),
    ];
    for (path, want) in table {
        let path = format!("/tags/{}", path.replace(';', "%3B"));
        let answer = post(&server, &path, "identity", Vec::new()).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, want), "{path}");
    }
}

#[tokio::test]
async fn refusals_are_json_with_the_reason() {
    let server = with_tags().await;
    for (path, status, message) in [
        ("/tags/findSeries", 400, "no tag expressions specified"),
        ("/tags/findSeries?expr=x", 400, "invalid tag expression 'x'"),
        ("/tags/findSeries?expr=a!=b", 400, "at least one tag expression must not match the empty string"),
        ("/tags/findSeries?expr=a=~(", 400, "invalid regex"),
        ("/tags/findSeries?expr=a=b&format=defs-json", 400, "unknown format \"defs-json\""),
        ("/tags/autoComplete/values", 400, "no tag specified"),
        ("/tags/autoComplete/tags?limit=x", 400, "limit"),
        ("/tags/autoComplete/tags?from=x", 400, "from"),
        ("/tags?filter=(", 400, "filter"),
        ("/tags/terms?expr=a=b", 400, "no tags specified"),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {}", answer.text);
        let error = answer.json()["error"].as_str().unwrap_or("").to_owned();
        assert!(error.contains(message), "{path}: {error}");
    }
    for path in ["/tags/tagSeries", "/tags/tagMultiSeries", "/tags/tagSeries?path=%3Ba=b"] {
        let answer = post(&server, path, "identity", Vec::new()).await;
        assert_eq!(answer.status.as_u16(), 400, "{path} {}", answer.text);
    }
    assert_eq!(server.get("/tags/tagSeries?path=a").await.status.as_u16(), 405);
}

async fn post_json(server: &Fixture, path: &str, body: &Value) -> Answer {
    let request =
        Request::post(path).header("content-type", "application/json").body(body.to_string().into());
    server.send(request.expect("a request")).await
}

#[tokio::test]
async fn rules_add_tags_to_series() {
    let server = with_tags().await;
    let rule = |tag: &str, expression: &str| json!({ "metaTags": [tag], "expressions": [expression] });
    let answer = post_json(&server, "/metaTags/upsert", &rule("region=eu", "dc=~a|f")).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()),
        (200, json!({"metaTags": ["region=eu"], "expressions": ["dc=~a|f"], "created": true})),
    );
    let answer = post_json(&server, "/metaTags/upsert", &rule("region=europe", "dc=~a|f")).await;
    assert_eq!(answer.json()["created"], false);
    check(&server, "/metaTags", json!([rule("region=europe", "dc=~a|f")])).await;
    let found = json!(["disk;dc=ams;host=a", "disk;dc=ams;host=b"]);
    check(&server, "/tags/findSeries?expr=region=europe&expr=name=disk&expr=dc=ams", found).await;
    check(&server, "/tags/autoComplete/values?tag=region", json!(["europe"])).await;
    check(&server, "/tags/autoComplete/tags?expr=name=disk&tagPrefix=r", json!(["region"])).await;
    check(&server, "/tags/findSeries?expr=__tag=region&expr=core=0", json!(["cpu;core=0;dc=fra;host=a"]))
        .await;
    let counted = json!({"tag": "region", "values": [{"value": "europe", "count": 5}]});
    check(&server, "/tags/region", counted).await;
    let target = "seriesByTag('region=europe','host=c')";
    let rendered = server.get(&format!("/render?target={target}&from=1900&until=2100&format=json")).await;
    assert_eq!(rendered.json()[0]["tags"]["region"], "europe", "{}", rendered.text);
    let swapped = json!({ "records": [rule("tier=1", "host=a"), rule("tier=2", "host=b")] });
    let answer = post_json(&server, "/metaTags/swap", &swapped).await;
    assert_eq!(answer.json(), json!({ "deleted": 1, "added": 2 }));
    check(&server, "/tags/autoComplete/values?tag=tier&expr=name=disk", json!(["1", "2"])).await;
    let gone =
        post_json(&server, "/metaTags/upsert", &json!({"metaTags": [], "expressions": ["host=a"]})).await;
    assert_eq!(gone.status.as_u16(), 200);
    check(&server, "/tags/autoComplete/values?tag=tier", json!(["2"])).await;
    for body in [json!([]), json!({"metaTags": ["x"], "expressions": ["a=b"]}), rule("a=b", "c!=d")] {
        let refused = post_json(&server, "/metaTags/upsert", &body).await;
        assert_eq!(refused.status.as_u16(), 400, "{body} {}", refused.text);
    }
    let many: Vec<Value> = (0..1001).map(|idx| rule("a=b", &format!("c={idx}"))).collect();
    let refused = post_json(&server, "/metaTags/swap", &json!({ "records": many })).await;
    assert_eq!(refused.status.as_u16(), 422);
    assert_eq!(
        refused.json()["error"],
        "meta tag rules: 1001 exceed the limit of 1000 (graphite.max-meta-tags)"
    );
}
