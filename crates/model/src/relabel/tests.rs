//! Rules against results and refusals of Prometheus 3.16.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

/// A line of JSON per rule list and label set, written by `tools/notifier-golden`.
const GOLDEN: &str = include_str!("golden.jsonl");

fn text_of(rule: &Value, key: &str) -> Option<String> {
    rule.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn fields_of(rule: &Value) -> RelabelFields {
    let names = rule.get("source_labels").and_then(Value::as_array);
    let name = |name: &Value| name.as_str().expect("a name").to_owned();
    RelabelFields {
        source_labels: names.map(|names| names.iter().map(name).collect()),
        separator: text_of(rule, "separator"),
        regex: text_of(rule, "regex"),
        modulus: rule.get("modulus").map_or(0, |modulus| modulus.as_u64().expect("a modulus")),
        target_label: text_of(rule, "target_label").unwrap_or_default(),
        replacement: text_of(rule, "replacement"),
        action: text_of(rule, "action"),
    }
}

fn set_of(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).expect("a label set")
}

#[test]
fn rules_give_the_results_and_refusals_of_prometheus() {
    let cases: Vec<Value> = GOLDEN.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(cases.len() > 150, "{} cases", cases.len());
    for case in &cases {
        let rules = case["rules"].as_array().expect("rules");
        // A negative modulus is a fault of the reader of the file.
        if rules.iter().any(|rule| rule["modulus"].as_i64().is_some_and(|modulus| modulus < 0)) {
            continue;
        }
        let built: Result<Vec<RelabelRule>, RelabelError> =
            rules.iter().map(|rule| RelabelRule::new(fields_of(rule))).collect();
        let want_error = case.get("error").and_then(Value::as_str);
        let rules = match (built, want_error) {
            (Ok(rules), None) => rules,
            // Prometheus's text of a regex ends with the position in the file.
            (Err(RelabelError::Regex(error)), Some(want)) => {
                assert!(want.contains("error parsing regexp"), "{error} and {want}");
                continue;
            }
            (Err(error), Some(want)) => {
                assert!(want.contains(&error.to_string()), "{error} and {want}");
                continue;
            }
            (built, want) => panic!("{case}: {built:?}, expected {want:?}"),
        };
        let set = set_of(&case["labels"]);
        let labels = Labels::from_pairs(set.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let got = relabelled(&rules, &labels)
            .map(|labels| labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        let want = Some(&case["result"]).filter(|result| !result.is_null()).map(|result| {
            let mut set: BTreeMap<String, String> = set_of(result);
            set.retain(|_, value| !value.is_empty());
            set
        });
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn a_set_without_labels_is_not_a_dropped_one() {
    let rule = |action: &str, regex: &str| {
        let fields = RelabelFields {
            action: Some(action.to_owned()),
            regex: Some(regex.to_owned()),
            ..RelabelFields::default()
        };
        RelabelRule::new(fields).expect("a rule")
    };
    let labels = Labels::from_pairs([("a", "1")]);
    assert_eq!(relabelled(&[rule("labeldrop", "a")], &labels), Some(Labels::empty()));
    assert_eq!(relabelled(&[rule("drop", "")], &labels), None);
}

/// A reload compares rules to keep what has not changed.
#[test]
fn rules_are_equal_if_their_fields_are() {
    let rule = |target: &str| {
        let target_label = target.to_owned();
        RelabelRule::new(RelabelFields { target_label, ..RelabelFields::default() }).expect("a rule")
    };
    assert_eq!(rule("a"), rule("a"));
    assert_ne!(rule("a"), rule("b"));
}

#[test]
fn letters_are_mapped_one_to_one() {
    assert_eq!(letter_case::upper("ß ŉ ᾳ ᾀ ǆ"), "ß ŉ ᾼ ᾈ Ǆ");
    assert_eq!(letter_case::lower("İ ΣΑΣ ᾼ"), "i σασ ᾳ");
}
