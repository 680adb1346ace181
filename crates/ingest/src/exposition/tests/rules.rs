//! Bodies of `tools/openmetrics-golden` against verdicts of OpenMetrics's reference parser.

use serde::Deserialize;

use super::*;

const CASES: &str = include_str!("../../../testdata/openmetrics-rules.jsonl");

/// Bodies with another verdict: a blank and a float that Prometheus refuses, and a name in quotes that it
/// accepts.
const DIFFERENCES: [&str; 3] = ["a{b=\"c\" } 1\n# EOF\n", "a 1e400\n# EOF\n", "{\"a.b\"} 1\n# EOF\n"];

#[derive(Deserialize)]
struct Case {
    body: String,
    error: Option<String>,
}

fn checked() -> DecodeOptions {
    DecodeOptions { rules: BodyRules::Specification, ..strict() }
}

#[test]
fn bodies_are_judged_as_the_reference_of_openmetrics_does() {
    let mut counts = [0u32; 2];
    let mut faults = Vec::new();
    for line in CASES.lines() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let decoded = decode(Format::OpenMetrics, &checked(), case.body.as_bytes());
        let is_equal = decoded.error.is_some() == case.error.is_some();
        if is_equal == DIFFERENCES.contains(&case.body.as_str()) {
            let ours = decoded.error.map(|error| error.to_string());
            faults.push(format!("{:?}\n  ours: {ours:?}\n  reference: {:?}", case.body, case.error));
        }
        counts[usize::from(case.error.is_some())] += 1;
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(counts.iter().all(|count| *count >= 50), "accepted and refused: {counts:?}");
}

#[test]
fn a_broken_rule_is_reported_with_its_line() {
    let body = b"# TYPE a gauge\na{b=\"1\"} 1\na{b=\"2\"} 1\na{b=\"1\"} 2\n# EOF\n";
    let error = decode(Format::OpenMetrics, &checked(), body).error.expect("a broken rule");
    assert_eq!(error.reason, Reason::Specification);
    let want = "samples of a group do not follow each other, got \"a{b=\\\"1\\\"}\" while parsing: \
                \"a{b=\\\"1\\\"}\" (line 4, column 1)";
    assert_eq!(error.to_string(), want);
    assert_eq!(decode(Format::OpenMetrics, &strict(), body).error, None, "Prometheus accepts it");
}
