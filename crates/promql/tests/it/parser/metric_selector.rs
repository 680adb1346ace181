//! Series selectors of `match[]`, with the verdicts of Prometheus 3.16.

use chronolith_promql::parser::parse_metric_selector;

#[track_caller]
fn check(text: &str, want: Result<&str, &str>) {
    let found = parse_metric_selector(text).map_err(|why| why.to_string());
    let shown = |matchers: Vec<chronolith_model::Matcher>| {
        matchers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found.map(shown), want.map(str::to_owned).map_err(str::to_owned), "{text}");
}

#[test]
fn a_name_and_matchers_are_a_selector() {
    check("up", Ok(r#"__name__="up""#));
    check("sum", Ok(r#"__name__="sum""#));
    check("a:b", Ok(r#"__name__="a:b""#));
    check(":a", Ok(r#"__name__=":a""#));
    check("by", Ok(r#"__name__="by""#));
    check("offset", Ok(r#"__name__="offset""#));
    check(r#"sum{a="b"}"#, Ok(r#"a="b" __name__="sum""#));
    check("start", Ok(r#"__name__="start""#));
    check(r#"{"a b"}"#, Ok(r#"__name__="a b""#));
    check(r#"{"a b", x="y"}"#, Ok(r#"__name__="a b" x="y""#));
    check("up # comment", Ok(r#"__name__="up""#));
    check("fill", Ok(r#"__name__="fill""#));
    check("step", Ok(r#"__name__="step""#));
    check("range", Ok(r#"__name__="range""#));
    check("{}", Ok(""));
    check(r#"foo{__name__="bar"}"#, Ok(r#"__name__="bar" __name__="foo""#));
    check("rate", Ok(r#"__name__="rate""#));
}

/// Expressions and modifiers were refused as "not a plain series selector", without a position.
#[test]
fn what_follows_a_selector_is_unexpected() {
    check("rate(up[5m])", Err(r#"1:5: parse error: unexpected "(""#));
    check("up[5m]", Err(r#"1:3: parse error: unexpected "[""#));
    check("up offset 5m", Err("1:4: parse error: unexpected <offset>"));
    check("up @ 1", Err("1:4: parse error: unexpected <op:@>"));
    check("1", Err(r#"1:1: parse error: unexpected number "1""#));
    check(r#""a""#, Err(r#"1:1: parse error: unexpected string "\"a\"""#));
    check("(up)", Err(r#"1:1: parse error: unexpected "(""#));
    check("-up", Err("1:1: parse error: unexpected <op:->"));
    check("up + 1", Err("1:4: parse error: unexpected <op:+>"));
    check("up{", Err("1:4: parse error: unexpected end of input inside braces"));
    check("{", Err("1:2: parse error: unexpected end of input inside braces"));
    check("", Err("unknown position: parse error: unexpected end of input"));
    check(r#"up{a="b"} x"#, Err(r#"1:11: parse error: unexpected identifier "x""#));
    check("sum(up)", Err(r#"1:4: parse error: unexpected "(""#));
    check("up anchored", Err("1:4: parse error: unexpected <anchored>"));
    check(r#"{a="b"}[5m]"#, Err(r#"1:8: parse error: unexpected "[""#));
    check("up up", Err(r#"1:4: parse error: unexpected identifier "up""#));
    check("nan", Err(r#"1:1: parse error: unexpected number "nan""#));
    check("inf", Err(r#"1:1: parse error: unexpected number "inf""#));
    check("up @ start()", Err("1:4: parse error: unexpected <op:@>"));
    check("up{} or up", Err("1:6: parse error: unexpected <op:or>"));
    check(")", Err("1:2: parse error: unexpected right parenthesis ')'"));
    check("]", Err("1:1: parse error: unexpected right bracket ']'"));
    check("up)", Err("1:4: parse error: unexpected right parenthesis ')'"));
    check("up]", Err("1:3: parse error: unexpected right bracket ']'"));
    check("5m", Err(r#"1:1: parse error: unexpected duration "5m""#));
    check("up 5", Err(r#"1:4: parse error: unexpected number "5""#));
    check("a,b", Err(r#"1:2: parse error: unexpected ",""#));
    check("# comment", Err("1:10: parse error: unexpected end of input"));
    check("bool", Err("1:1: parse error: unexpected <bool>"));
    check(r#"up{a=~"["}"#, Err("1:4: parse error: error parsing regexp: missing closing ]: `[`"));
    check(
        "up{a}",
        Err(r#"1:5: parse error: unexpected "}" in label matching, expected label matching operator"#),
    );
    check("up=1", Err(r#"1:3: parse error: unexpected "=""#));
    check("up==1", Err("1:3: parse error: unexpected <op:==>"));
    check("$x", Err("1:1: parse error: unexpected character: '$'"));
    check("up smoothed", Err("1:4: parse error: unexpected <smoothed>"));
    check("fill(", Err(r#"1:5: parse error: unexpected "(""#));
    check("step()", Err(r#"1:5: parse error: unexpected "(""#));
    check("on", Err("1:1: parse error: unexpected <on>"));
    check("info(up)", Err(r#"1:5: parse error: unexpected "(""#));
    check(r#"up\"#, Err(r#"1:3: parse error: unexpected character: '\\'"#));
    check("rate(", Err(r#"1:5: parse error: unexpected "(""#));
    check("x and y", Err("1:3: parse error: unexpected <op:and>"));
    check("x^2", Err("1:2: parse error: unexpected <op:^>"));
}
