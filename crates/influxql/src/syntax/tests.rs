//! Tests of the parser: a table of statements with their canonical form or error, and properties of random
//! texts.

use proptest::prelude::*;

use super::parameter::{Parameter, Parameters};
use super::{
    NESTING_MAX, QUERY_BYTES_MAX, TERMS_MAX, parse_expr, parse_query, parse_query_with, parse_statement,
};
use crate::ast::{Regex, Statement};

/// Statement, then, indented, its printed form and its columns, or its error. All lines come from InfluxDB
/// 1.8.10's own parser, except for the differences that `print` documents.
const STATEMENTS: &str = include_str!("tests/statements.txt");

fn render(text: &str) -> String {
    match parse_query(text) {
        Ok(statements) => {
            let texts: Vec<String> = statements.iter().map(ToString::to_string).collect();
            let columns = statements.iter().filter_map(|statement| match statement {
                Statement::Select(select) => Some(format!("{:?}", select.column_names())),
                _ => None,
            });
            let mut parts = vec![texts.join("; ")];
            parts.extend(columns);
            parts.join(" | ")
        }
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn statements_of_the_table() {
    let mut lines = STATEMENTS.lines();
    let mut count = 0;
    let mut different = Vec::new();
    while let (Some(text), Some(want)) = (lines.next(), lines.next()) {
        let got = render(text);
        if got != want.trim_start() {
            different.push(format!("{text}\n  want {want}\n  got  {got}"));
        }
        count += 1;
    }
    assert!(different.is_empty(), "{} of {count}\n{}", different.len(), different.join("\n"));
    assert!(count > 700, "{count} statements");
}

#[test]
fn printed_statements_parse_to_themselves() {
    let texts = STATEMENTS.lines().step_by(2);
    for statement in texts.filter_map(|text| parse_query(text).ok()).flatten() {
        let printed = statement.to_string();
        if printed.contains("[REDACTED]") {
            continue;
        }
        let again = parse_statement(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
        // Parentheses around an operand with a sign are the one thing that printing adds.
        if !printed.contains("(-1 * ") {
            assert_eq!(again, statement, "{printed}");
        }
        assert_eq!(again.to_string(), printed);
    }
}

#[track_caller]
fn check_bound(text: &str, name: &str, value: Parameter, want: &str) {
    let mut parameters = Parameters::default();
    parameters.insert(name, value);
    let got = match parse_query_with(text, parameters) {
        Ok(statements) => statements.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(got, want);
}

#[test]
fn parameters_stand_for_literals_and_names() {
    let text = "SELECT a FROM m WHERE b = $v";
    check_bound(text, "v", Parameter::Number(1.5), "SELECT a FROM m WHERE b = 1.500");
    check_bound(text, "v", Parameter::Integer(-5), "SELECT a FROM m WHERE b = -5");
    check_bound(text, "v", Parameter::Unsigned(u64::MAX), "SELECT a FROM m WHERE b = 18446744073709551615");
    check_bound(text, "v", Parameter::Text("o'x".to_owned()), r"SELECT a FROM m WHERE b = 'o\'x'");
    check_bound(text, "v", Parameter::Boolean(true), "SELECT a FROM m WHERE b = true");
    check_bound(text, "v", Parameter::Ident("x y".to_owned()), "SELECT a FROM m WHERE b = \"x y\"");
    check_bound(text, "v", Parameter::Duration(60_000_000_000), "SELECT a FROM m WHERE b = 1m");
    check_bound(text, "w", Parameter::Integer(1), "error: missing parameter: v");
    check_bound(text, "v", Parameter::Invalid("bad".to_owned()), "error: bad");
    let regex = Regex::new("x.*".to_owned()).unwrap();
    check_bound(
        "SELECT a FROM m WHERE b =~ $v",
        "v",
        Parameter::Regex(regex.clone()),
        "SELECT a FROM m WHERE b =~ /x.*/",
    );
    check_bound("SELECT a FROM $v", "v", Parameter::Regex(regex), "SELECT a FROM /x.*/");
    check_bound("SELECT a FROM $v", "v", Parameter::Ident("select".to_owned()), "SELECT a FROM \"select\"");
    check_bound("SELECT a FROM m LIMIT $v", "v", Parameter::Integer(7), "SELECT a FROM m LIMIT 7");
    check_bound(
        "SELECT a FROM m LIMIT $v",
        "v",
        Parameter::Text("7".to_owned()),
        "error: found 7, expected integer at line 1, char 23",
    );
}

#[test]
fn positions_count_lines_and_characters() {
    let text = |text: &str| render(text);
    assert_eq!(text("SELECT a\nFROM é"), "error: found é, expected identifier at line 2, char 6");
    assert_eq!(text("SELECT 'é' x"), "error: found x, expected FROM at line 1, char 12");
    assert_eq!(text("SELECT a\r\n\r\n  x"), "error: found x, expected FROM at line 3, char 3");
    assert_eq!(text("SELECT a -- é\n x"), "error: found x, expected FROM at line 2, char 2");
    assert_eq!(text("SELECT a FROM b WHERE c =~ /x\ny/"), "error: bad regex:  at line 1, char 27");
    let hint = "operator is intended for WHERE clause";
    let want = format!("error: invalid operator = in SELECT clause at line 2, char 1; {hint}");
    assert_eq!(text("SELECT\na = 2 FROM b"), want);
    assert_eq!(text("SELECT a\nFROM"), "error: found EOF, expected identifier at line 2, char 6");
}

#[test]
fn hostile_texts_are_refused_without_deep_recursion() {
    let nested = |open: &str, close: &str, count: usize| {
        format!("SELECT {}a{} FROM x", open.repeat(count), close.repeat(count))
    };
    let too_deep = format!("error: query nests more than {NESTING_MAX} levels");
    assert_eq!(render(&nested("(", ")", 1_000_000)), too_deep);
    assert_eq!(render(&nested("f(", ")", 1_000_000)), too_deep);
    assert_eq!(render(&nested("-(", ")", 1_000_000)), too_deep);
    let subqueries = format!("SELECT a FROM {}x", "(SELECT a FROM ".repeat(100_000));
    assert_eq!(render(&subqueries), too_deep);
    assert!(render(&nested("(", ")", NESTING_MAX - 1)).starts_with("SELECT ("));
    let long = format!("SELECT a FROM x WHERE a = 1{}", " OR a = 1".repeat(100_000));
    assert_eq!(render(&long).len(), long.len() + " | [\"time\", \"a\"]".len());
    let longer = format!("SELECT {} FROM x", vec!["1"; TERMS_MAX + 1].join("+"));
    assert_eq!(render(&longer), format!("error: query has more than {TERMS_MAX} operands"));
    let large = " ".repeat(QUERY_BYTES_MAX + 1);
    assert_eq!(render(&large), format!("error: query of {} bytes, at most {QUERY_BYTES_MAX}", large.len()));
}

const SOUP: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "INTO",
    "SHOW",
    "TAG",
    "KEY",
    "VALUES",
    "WITH",
    "CREATE",
    "DROP",
    "CONTINUOUS",
    "QUERY",
    "ON",
    "BEGIN",
    "END",
    "RETENTION",
    "POLICY",
    "DURATION",
    "REPLICATION",
    "LIMIT",
    "a",
    "\"b c\"",
    "time",
    "mean(",
    "fill(",
    "tz(",
    "(",
    ")",
    ",",
    ";",
    ".",
    ":",
    "::",
    "*",
    "/re/",
    "/",
    "\\",
    "'x'",
    "'",
    "\"",
    "1",
    "1.5",
    "1.",
    "10m",
    "99999999999999999999",
    "-",
    "--",
    "/*",
    "*/",
    "=",
    "=~",
    "!~",
    "<",
    "$p",
    "$",
    "\n",
    "é",
    "\0",
    "AND",
    "OR",
    "DISTINCT",
    "now()",
    "INF",
    "EXACT",
    "CARDINALITY",
    "IN",
    "float",
    "field",
];

proptest! {
    #[test]
    fn token_soup_never_panics(words in prop::collection::vec(prop::sample::select(SOUP), 0..40), spaced in any::<bool>()) {
        let text = words.join(if spaced { " " } else { "" });
        let _ = render(&text);
        let _ = parse_expr(&text).map(|expr| expr.to_string());
        let _ = render(&format!("SELECT a FROM b WHERE {text}"));
    }

    #[test]
    fn any_text_never_panics(text in any::<String>()) {
        let _ = render(&text);
    }

    #[test]
    fn names_and_strings_round_trip(name in any::<String>(), text in any::<String>()) {
        // A carriage return is read as a newline, and NUL ends a text.
        prop_assume!(![&name, &text].iter().any(|part| part.contains(['\r', '\0'])));
        let quoted = format!(
            "SELECT {} FROM x WHERE y = {}",
            crate::ast::quote_ident(&name),
            crate::ast::quote_text(&text)
        );
        let Statement::Select(select) = parse_statement(&quoted).unwrap() else { panic!("no SELECT") };
        prop_assert_eq!(select.fields[0].name(), name);
        prop_assert_eq!(select.to_string(), quoted);
    }

    #[test]
    fn printed_expressions_parse_to_themselves(operators in prop::collection::vec(0_usize..8, 0..12), values in prop::collection::vec(0_usize..7, 13)) {
        let operands = ["a", "5", "1.5", "'s'", "10m", "f(a, 1)", "(a + b)"];
        let texts = ["+", "*", "-", "AND", "OR", "=", "&", "<"];
        let mut text = operands[values[0]].to_owned();
        for (operator, value) in operators.iter().zip(values.iter().skip(1)) {
            text += &format!(" {} {}", texts[*operator], operands[*value]);
        }
        let expr = parse_expr(&text).unwrap();
        let again = parse_expr(&expr.to_string()).unwrap();
        prop_assert_eq!(again, expr);
    }
}
