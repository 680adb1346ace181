//! Formats to the byte.

use jiff::tz::TimeZone;

use super::find::{
    WildcardNode, completer_pattern, render_completer, render_json, render_node_list, render_tree,
    sort_by_name,
};
use super::{RenderOptions, functions, json, msgpack, pickle, text};
use crate::absent::ABSENT;
use crate::series::{Grid, Series};
use crate::storage::Node;

fn list() -> Vec<Series> {
    vec![Series::new(
        "a,\"b\"".to_owned(),
        Grid { start: 60, end: 120, step: 20 },
        vec![1.0, ABSENT, f64::INFINITY],
        0.0,
    )]
}

#[track_caller]
fn check(
    render: impl Fn(&[Series], &RenderOptions, &mut String) -> Result<(), crate::EvalError>,
    jsonp: Option<&str>,
    want: &str,
) {
    let mut out = String::new();
    let options = RenderOptions { no_null_points: false, jsonp: jsonp.map(str::to_owned) };
    render(&list(), &options, &mut out).unwrap();
    assert_eq!(out, want);
}

#[test]
fn json_formats() {
    let points = r#"[1.0, 60], [null, 80], [1e9999, 100]"#;
    check(
        json::render,
        None,
        &format!(r#"[{{"target": "a,\"b\"", "tags": {{"name": "a,\"b\""}}, "datapoints": [{points}]}}]"#),
    );
    check(
        json::render_dygraph,
        Some("f"),
        r#"f({"labels" : ["Time", "a,\"b\""], "data" : [[60000, 1.0], [80000, null], [100000, Infinity]]})"#,
    );
    check(
        json::render_rickshaw,
        None,
        r#"[{"target": "a,\"b\"", "datapoints": [{"x": 60, "y": 1.0}, {"x": 80, "y": null}, {"x": 100, "y": 1e9999}]}]"#,
    );
    let mut out = String::new();
    json::render(&list(), &RenderOptions { no_null_points: true, jsonp: None }, &mut out).unwrap();
    assert!(out.contains(r#""datapoints": [[1.0, 60], [1e9999, 100]]"#), "{out}");
}

/// Metadata stays with its series if others are left out.
#[test]
fn json_with_metadata() {
    let meta = json::RenderMeta { request: "1".to_owned(), series: vec!["[2]".to_owned(), "[3]".to_owned()] };
    let mut series = list();
    series.insert(0, Series::new("b".to_owned(), Grid { start: 0, end: 10, step: 10 }, vec![ABSENT], 0.0));
    let options = RenderOptions { no_null_points: true, jsonp: Some("f".to_owned()) };
    let mut out = String::new();
    json::render_with_meta(&series, &meta, &options, &mut out).unwrap();
    let points = r#"[1.0, 60], [1e9999, 100]"#;
    let head = r#"{"target": "a,\"b\"", "tags": {"name": "a,\"b\""}"#;
    let want = format!(
        r#"f({{"version": "v0.1", "meta": 1, "series": [{head}, "datapoints": [{points}], "meta": [3]}}]}})"#
    );
    assert_eq!(out, want);
}

#[test]
fn text_formats() {
    check(|list, _, out| text::render_raw(list, out), None, "a,\"b\",60,120,20|1.0,None,inf\n");
    let zone = TimeZone::get("Asia/Kolkata").unwrap();
    let want = "\"a,\"\"b\"\"\",1970-01-01 05:31:00,1.0\r\n\"a,\"\"b\"\"\",1970-01-01 05:31:20,\r\n\"a,\"\"b\"\"\",1970-01-01 05:31:40,inf\r\n";
    check(|list, _, out| text::render_csv(list, &zone, out), None, want);
}

fn nodes() -> Vec<Node> {
    let node = |path: &str, is_leaf| Node {
        path: path.to_owned(),
        is_leaf,
        intervals: if is_leaf { vec![(10, 20)] } else { Vec::new() },
    };
    let mut nodes = vec![node("a.z", true), node("a.b+c", false)];
    sort_by_name(&mut nodes);
    nodes
}

#[test]
fn find_formats() {
    let mut out = String::new();
    render_tree("a.*", &nodes(), WildcardNode::Shown, &mut out);
    let branch = r#""allowChildren": 1, "expandable": 1, "leaf": 0}"#;
    let leaf = r#""allowChildren": 0, "expandable": 0, "leaf": 1}"#;
    assert_eq!(
        out,
        format!(
            r#"[{{"text": "*", "id": "a.*", {branch}, {{"text": "b c", "id": "a.b+c", {branch}, {{"text": "z", "id": "a.z", {leaf}]"#
        )
    );
    out.clear();
    render_completer(&nodes(), WildcardNode::Hidden, &mut out);
    assert_eq!(
        out,
        r#"{"metrics": [{"path": "a.b+c.", "name": "b+c", "is_leaf": "0"}, {"path": "a.z", "name": "z", "is_leaf": "1"}]}"#
    );
    out.clear();
    render_json(&nodes(), &mut out);
    assert_eq!(
        out,
        r#"[{"path": "a.b+c", "is_leaf": false}, {"path": "a.z", "is_leaf": true, "intervals": [{"start": 10, "end": 20}]}]"#
    );
    out.clear();
    render_node_list(&nodes(), 0, &mut out);
    assert_eq!(out, r#"{"nodes": ["a"]}"#);
    assert_eq!(completer_pattern("a..b"), "a*.b*");
}

#[test]
fn binary_formats() {
    let mut out = Vec::new();
    pickle::find(&nodes(), &mut out);
    let mut want = b"\x80\x02](}(X\x04\0\0\0pathX\x05\0\0\0a.b+cX\x07\0\0\0is_leaf\x89u".to_vec();
    want.extend(b"}(X\x04\0\0\0pathX\x03\0\0\0a.zX\x07\0\0\0is_leaf\x88X\x09\0\0\0intervals](J\x0a\0\0\0J\x14\0\0\0\x86eue.");
    assert_eq!(out, want);
    out.clear();
    msgpack::find(&nodes(), &mut out);
    let mut want =
        b"\x92\x82\xa4path\xa5a.b+c\xa7is_leaf\xc2\x83\xa4path\xa3a.z\xa7is_leaf\xc3\xa9intervals".to_vec();
    want.extend(b"\x91\x92\x0a\x14");
    assert_eq!(out, want);
    out.clear();
    msgpack::render(&list(), &mut out).unwrap();
    assert!(out.starts_with(b"\x91\x89\xa4name\xa5a,\"b\"\xa5start\x3c\xa3end\x78\xa4step\x14\xa6values\x93\xcb\x3f\xf0\0\0\0\0\0\0\xc0\xcb\x7f\xf0"));
    out.clear();
    pickle::render(&list(), &mut out).unwrap();
    assert!(out.starts_with(b"\x80\x02](}(X\x04\0\0\0nameX\x05\0\0\0a,\"b\"X\x05\0\0\0startJ\x3c\0\0\0"));
    assert!(out.ends_with(b"X\x0c\0\0\0xFilesFactorG\0\0\0\0\0\0\0\0ue."));
}

#[test]
fn the_table_of_functions_is_json() {
    let mut out = String::new();
    functions::render_all(&mut out);
    // serde_json refuses numbers beyond a double, which is what 1e9999 is for.
    let value: serde_json::Value = serde_json::from_str(&out.replace("1e9999", "1")).unwrap();
    assert_eq!(value["movingAverage"]["group"], "Calculate");
    assert_eq!(value["summarize"]["params"][2]["default"], "sum");
    assert_eq!(value["sumSeries"]["params"][0]["multiple"], true);
    out.clear();
    assert!(functions::render_one("scale", &mut out) && !functions::render_one("nope", &mut out));
    assert!(out.contains(r#""function": "scale(seriesList, factor)""#), "{out}");
}

#[test]
#[should_panic(expected = "metadata is of each series or of none")]
fn metadata_of_some_series_is_a_bug() {
    let series = [list(), list()].concat();
    let meta = json::RenderMeta { request: "1".to_owned(), series: vec!["[2]".to_owned()] };
    let _ = json::render_with_meta(&series, &meta, &RenderOptions::default(), &mut String::new());
}
