//! Our queries, with the verdicts of Prometheus 3.16 (`fuzz/oracles/promql-parse` writes them).
//!
//! Invariants: verdict, type and printed form agree for every query, and the text of every error but for
//! those in [`KNOWN_DIFFERENCES`], which are listed with the reason.

use chronolith_promql::ast::ValueType;
use chronolith_promql::parser::{ParserOptions, parse_expr};
use serde_json::Value;

const CORPUS: &str = include_str!("corpus.jsonl");

/// Queries whose error text or printed form differs on purpose, and why.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[
    ("\"\\xff\"", NO_TEXT),
    ("\"\\377\"", NO_TEXT),
    ("\"a\\xc3\"", NO_TEXT),
    ("\"\\xed\\xa0\\x80\"", NO_TEXT),
    ("{a=\"\\xff\"}", NO_TEXT),
    ("{a=~\"\\xff\"}", NO_TEXT),
    ("{\"\\xff\"=\"b\"}", NO_TEXT),
    ("{\"\\xff\"}", NO_TEXT),
    ("{a=\"b\",\"\\xff\"=\"c\"}", NO_TEXT),
    ("count_values(\"\\xff\", foo)", NO_TEXT),
    ("foo @ 9223372036854775", OVERFLOW),
    ("foo @ 9223372036854776", OVERFLOW),
    ("foo @ -9223372036854775", OVERFLOW),
    ("foo offset nan", "Prometheus takes it for the smallest duration, and prints that with two signs"),
    ("foo offset 0.0001", "offsets are milliseconds here"),
];

const NO_TEXT: &str = "bytes that are no UTF-8 are replaced: labels and strings are text here";
const OVERFLOW: &str = "Prometheus's timestamp overflows";

const ALL_ON: ParserOptions =
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: false };

struct Verdict {
    query: String,
    options: ParserOptions,
    wanted: Result<(String, String), String>,
}

fn corpus() -> Vec<Verdict> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or("").to_owned();
    CORPUS
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let experimental = line["experimental"].as_bool().unwrap_or(false);
            let ok = line["ok"].as_bool().unwrap_or(false);
            Verdict {
                query: text(&line, "query"),
                options: if experimental { ALL_ON } else { ParserOptions::default() },
                wanted: if ok {
                    Ok((text(&line, "printed"), text(&line, "type")))
                } else {
                    Err(text(&line, "error"))
                },
            }
        })
        .collect()
}

fn type_word(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Vector => "vector",
        ValueType::Matrix => "matrix",
        other => other.describe(),
    }
}

#[test]
fn agrees_with_prometheus() {
    let mut differences = Vec::new();
    let mut count = 0;
    for Verdict { query, options, wanted } in corpus() {
        count += 1;
        let got = match parse_expr(&query, options) {
            Ok(expr) => Ok((expr.to_string(), type_word(expr.value_type()).to_owned())),
            Err(error) => Err(error.to_string()),
        };
        let known = KNOWN_DIFFERENCES.iter().any(|(known, _)| *known == query);
        if (got != wanted && !known) || got.is_ok() != wanted.is_ok() {
            differences.push(format!("{query:?}\n  want {wanted:?}\n  got  {got:?}"));
        }
    }
    assert!(count > 1000, "the corpus has shrunk to {count} queries");
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn known_differences_are_in_the_corpus() {
    let corpus = corpus();
    for (query, reason) in KNOWN_DIFFERENCES {
        assert!(corpus.iter().any(|verdict| verdict.query == *query), "{query:?}: {reason}");
    }
}
