//! `/api/v1/graphite/series`: pages of series with their rules.

use serde_json::{Value, json};

use super::*;

async fn list(server: &Fixture, query: &str) -> Value {
    let answer = server.get(&format!("/api/v1/graphite/series{query}")).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    answer.json()["data"].clone()
}

#[track_caller]
fn check_paths(list: &Value, want: &[&str]) {
    let paths: Vec<&Value> = list.as_array().expect("a list").iter().map(|series| &series["path"]).collect();
    assert_eq!(paths, want);
}

#[tokio::test]
async fn series_are_listed_by_their_paths_page_by_page() {
    let server = with_rules();
    check_paths(&list(&server, "").await, &[]);
    let lines =
        b"plain.a 1 1699999950\nplain.a;dc=x 1 1699999950\nother 1 1699999950\nplain.b 1 1699999950\n";
    assert_eq!(post(&server, "/api/v1/carbon", "identity", lines.to_vec()).await.status.as_u16(), 204);
    // A series of another protocol is none of Graphite's.
    let written = server.write(&[(&[("__name__", "plain.c")], &[(1_699_999_950_000, 1.0)])]).await;
    assert_eq!(written.status.as_u16(), 204);
    let all = ["other", "plain.a", "plain.a;dc=x", "plain.b"];
    check_paths(&list(&server, "").await, &all);
    check_paths(&list(&server, "?limit=2").await, &all[..2]);
    check_paths(&list(&server, "?limit=2&after=plain.a").await, &all[2..]);
    check_paths(&list(&server, "?limit=1&after=plain.a%3Bdc%3Dx").await, &all[3..]);
    check_paths(&list(&server, "?after=plain.b").await, &[]);
    let list = list(&server, "").await;
    assert_eq!(list[2]["labels"], json!({"__name__": "plain.a", "dc": "x"}));
    assert_eq!(
        (&list[0]["archives"], &list[0]["methods"], &list[0]["xFilesFactor"]),
        (&json!([]), &json!(["average"]), &json!(0.5))
    );
    let explained = server.get("/api/v1/graphite/explain?path=plain.a").await.json()["data"].clone();
    for name in ["path", "archives", "methods", "xFilesFactor"] {
        assert_eq!(list[1][name], explained[name], "{name}");
    }
    assert_eq!(list[1]["archives"][0]["stepSeconds"], 10);
    for limit in ["0", "x", "10001"] {
        let refused = server.get(&format!("/api/v1/graphite/series?limit={limit}")).await;
        assert_eq!(refused.status.as_u16(), 400, "{limit}");
        assert!(refused.text.contains("1 to 10000"), "{}", refused.text);
    }
}
