//! Text that is made to hurt: deep, long or random.

use chronolith_promql::parser::{NESTING_MAX, OPERATORS_MAX, ParserOptions, parse_expr};
use proptest::prelude::{ProptestConfig, Strategy, proptest};
use proptest::{collection, sample};

const ALL_ON: ParserOptions =
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: false };

#[track_caller]
fn check_refused(query: &str, want: &str) {
    match parse_expr(query, ALL_ON) {
        Ok(_) => panic!("accepted"),
        Err(error) => assert!(error.message.contains(want), "{error}"),
    }
}

/// Parses, prints, clones, compares, types and drops.
#[track_caller]
fn check_survives(query: &str) {
    let expr = parse_expr(query, ALL_ON).unwrap();
    let printed = expr.to_string();
    assert!(expr == expr.clone());
    assert_eq!(parse_expr(&printed, ALL_ON).unwrap().to_string(), printed);
    let _ = expr.value_type();
}

#[test]
fn deep_nesting_is_refused() {
    const TOO_DEEP: &str = "nested more than";
    check_refused(&"(".repeat(20_000), TOO_DEEP);
    check_refused(&format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000)), TOO_DEEP);
    check_refused(&format!("{}1", "-".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("{}1", "- ".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("{}foo", "+".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("{}foo", "sum(".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("{}foo", "floor(".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("{}1", "1 ^ ".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("foo{}", "[5m:]".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("foo[{}1", "(".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("foo[{}1]", "-".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("foo[{}1]", "1^".repeat(100_000)), "operators");
    check_refused(&format!("foo[{}1]", "1+".repeat(100_000)), "operators");
    check_refused(&format!("foo offset {}1", "-".repeat(5_000)), TOO_DEEP);
    check_refused(&format!("foo offset {}1", "min_of(1,".repeat(5_000)), TOO_DEEP);
}

#[test]
fn nesting_up_to_the_limit_is_fine() {
    let levels = NESTING_MAX - 1;
    check_survives(&format!("{}foo{}", "(".repeat(levels), ")".repeat(levels)));
    check_survives(&format!("{}foo{}", "sum(".repeat(levels), ")".repeat(levels)));
    check_survives(&format!("{}foo", "-".repeat(levels)));
    check_survives(&format!("{}foo", "1 ^ ".repeat(levels)));
    check_survives(&format!("{}foo{}", "(1 + ".repeat(levels / 2), ")".repeat(levels / 2)));
}

#[test]
fn long_chains_are_accepted() {
    check_survives(&format!("{}1", "1 + ".repeat(2_000)));
    check_survives(&format!("{}foo", "foo or ".repeat(OPERATORS_MAX)));
    check_survives(&format!("{}1", "1 - 2 * ".repeat(OPERATORS_MAX / 2)));
    check_refused(&format!("{}1", "1 + ".repeat(OPERATORS_MAX + 1)), "operators");
}

#[test]
fn every_prefix_of_a_query_is_answered() {
    let query = "sum by (a, \"b c\") (rate(foo{x=~\"a.*\",'y'!=`z`}[5m:step()*2] offset -1h @ start())) \
                 / on(a) group_left(b) fill_right(-0x1F) topk(3, \u{e9}bar) # end";
    for (idx, _) in query.char_indices() {
        let _ = parse_expr(&query[..idx], ALL_ON);
        let _ = parse_expr(&query[idx..], ALL_ON);
    }
}

const PIECES: &[&str] = &[
    "foo",
    "bar:baz",
    "sum",
    "topk",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "bool",
    "fill",
    "fill_left",
    "offset",
    "@",
    "start",
    "end",
    "step",
    "range",
    "min_of",
    "max_of",
    "anchored",
    "smoothed",
    "rate",
    "info",
    "label_join",
    "(",
    ")",
    "()",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "=",
    "==",
    "!=",
    "=~",
    "!~",
    "<",
    ">=",
    "</",
    ">/",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "and",
    "or",
    "unless",
    "atan2",
    "5m",
    "1",
    "0x1F",
    "1e5",
    "1.5h",
    ".",
    "inf",
    "nan",
    "\"a\"",
    "'b'",
    "`c`",
    "\"\\xff\"",
    "\"\\",
    "{a=\"b\"}",
    "[5m]",
    "[5m:1m]",
    "[1h:]",
    "#",
    "\n",
    " ",
    "é",
    "§",
    "\u{0}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn token_soup_never_panics(pieces in collection::vec(sample::select(PIECES), 0..24)) {
        for glue in ["", " "] {
            let query = pieces.join(glue);
            let _ = parse_expr(&query, ParserOptions::default());
            if let Ok(expr) = parse_expr(&query, ALL_ON) {
                let printed = expr.to_string();
                let again = parse_expr(&printed, ALL_ON);
                // Prometheus prints infinity with its sign, and in front of `^` reads that sign as an
                // operator.
                if printed.contains("+Inf ^") {
                    assert!(again.is_ok(), "{query:?} prints as {printed:?}");
                    continue;
                }
                assert!(again.is_ok_and(|again| again.to_string() == printed), "{query:?} prints as {printed:?}");
            }
        }
    }

    #[test]
    fn any_text_never_panics(query in collection::vec(proptest::char::any(), 0..40).prop_map(String::from_iter)) {
        let _ = parse_expr(&query, ALL_ON);
    }
}
