//! Random templates: no panic, no output beyond the limit, and the same result twice.

use proptest::prelude::*;

use super::*;

/// Parts that random templates consist of: valid alone, valid together, and broken.
const PARTS: [&str; 118] = [
    "{{",
    "}}",
    "{{-",
    "-}}",
    " ",
    "\n",
    "(",
    ")",
    "|",
    ",",
    ":=",
    "=",
    ".",
    "$",
    "$x",
    "$y",
    "$labels",
    "$value",
    "$externalURL",
    ".Labels",
    ".Value",
    ".job",
    ".x",
    "1",
    "-1",
    "0",
    "3",
    "1.5",
    "1e300",
    "2i",
    "'a'",
    "0x1F",
    "9223372036854775807",
    "nil",
    "true",
    "false",
    "`a`",
    "``",
    "\"b\\n\"",
    "\"\\xff\\xe2\"",
    "`é€😀`",
    "`%v %d %s`",
    "`%5.2f|%-8q|%+x`",
    "`%[2]*[1]d`",
    "`%#v%+v%T`",
    "`1h`",
    "`up`",
    "`none`",
    "`hist`",
    "`odd`",
    "`one`",
    "`(a)`",
    "`$1`",
    "`2006-01-02 Mon`",
    "`[::1]:80`",
    "if",
    "else",
    "end",
    "range",
    "with",
    "break",
    "continue",
    "define",
    "template",
    "block",
    "`t`",
    "and",
    "or",
    "not",
    "len",
    "index",
    "slice",
    "print",
    "printf",
    "println",
    "html",
    "js",
    "urlquery",
    "call",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "query",
    "first",
    "label",
    "value",
    "strvalue",
    "sortByLabel",
    "args",
    "humanize",
    "humanize1024",
    "humanizeDuration",
    "humanizePercentage",
    "humanizeTimestamp",
    "toTime",
    "toDuration",
    "now",
    "title",
    "toUpper",
    "toLower",
    "stripPort",
    "stripDomain",
    "match",
    "reReplaceAll",
    "graphLink",
    "parseDuration",
    "urlQueryEscape",
    "externalURL",
    "pathPrefix",
    ".Format",
    ".Add",
    ".String",
    "/*",
    "*/",
    "text",
];

fn part() -> impl Strategy<Value = &'static str> {
    prop::sample::select(PARTS.as_slice())
}

/// Parts in any order, with spaces between some of them.
fn loose() -> impl Strategy<Value = String> {
    prop::collection::vec((part(), prop::bool::ANY), 0..30).prop_map(|parts| {
        parts.iter().map(|(part, spaced)| format!("{part}{}", if *spaced { " " } else { "" })).collect()
    })
}

/// An operand, or a command in parentheses.
fn operand() -> impl Strategy<Value = String> {
    let leaf = part().prop_map(str::to_owned);
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop::collection::vec(inner, 1..4).prop_map(|words| format!("({})", words.join(" ")))
    })
}

/// Well-formed actions of random operands.
fn action() -> impl Strategy<Value = String> {
    (prop::collection::vec(operand(), 1..5), 0..7).prop_map(|(operands, kind)| {
        let pipeline = operands.join(" ");
        match kind {
            0 => format!("{{{{if {pipeline}}}}}a{{{{else}}}}b{{{{end}}}}"),
            1 => format!("{{{{range $i, $e := {pipeline}}}}}{{{{$e}}}}{{{{end}}}}"),
            2 => format!("{{{{with $y := {pipeline}}}}}{{{{.}}}}{{{{end}}}}"),
            3 => format!("{{{{$x := {pipeline}}}}}{{{{$x}}}}"),
            4 => format!("{{{{{}}}}}", operands.join(" | ")),
            5 => format!("{{{{block `t` {pipeline}}}}}{{{{.}}}}{{{{end}}}}"),
            _ => format!("{{{{{pipeline}}}}}"),
        }
    })
}

fn check(template: &str) -> Result<(), TestCaseError> {
    let limits = Limits { output_bytes: 10_000, steps: 5_000, depth: 30, queries: 5 };
    for data in ["plain", "hist", "inf"] {
        let first = expand(template, data, &limits);
        if let Ok(text) = &first {
            // A byte that is not UTF-8 becomes three.
            prop_assert!(text.len() <= 3 * limits.output_bytes);
        }
        prop_assert_eq!(first, expand(template, data, &limits));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn parts_in_any_order_never_panic(template in loose()) {
        check(&template)?;
    }

    #[test]
    fn random_actions_never_panic(actions in prop::collection::vec(action(), 1..4)) {
        check(&actions.concat())?;
    }

    #[test]
    fn random_text_never_panics(text in "\\PC{0,40}") {
        check(&format!("{{{{{text}}}}}"))?;
        check(&format!("{{{{printf `{text}` 1 2.5 `a` .Labels}}}}"))?;
        check(&format!("{{{{(now | toTime).Format `{text}`}}}}"))?;
    }
}
