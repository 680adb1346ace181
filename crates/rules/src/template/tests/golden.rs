//! Outputs and errors of Prometheus's own package, made by `tools/template-golden`.

use super::*;

const CASES: &str = include_str!("../../../testdata/templates.jsonl");
/// Fewer cases mean a truncated file.
const CASE_COUNT_MIN: usize = 300;

#[test]
fn outputs_and_errors_are_those_of_prometheus() {
    let mut failures = Vec::new();
    let mut count = 0;
    for line in CASES.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| case.get(key).and_then(serde_json::Value::as_str);
        let template = text("template").unwrap();
        let got =
            expand(template, text("data").unwrap(), &Limits::default()).map_err(|error| error.to_string());
        let want = text("output").map(str::to_owned).ok_or_else(|| text("error").unwrap().to_owned());
        if got != want {
            let name = text("name").unwrap();
            failures.push(format!("{name}: {template:?}\n   got {got:?}\n  want {want:?}"));
        }
        count += 1;
    }
    assert!(count >= CASE_COUNT_MIN, "{count} cases");
    assert!(failures.is_empty(), "{} of {count} differ:\n{}", failures.len(), failures.join("\n"));
}
