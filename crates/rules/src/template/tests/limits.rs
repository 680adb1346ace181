//! Each limit: a template at it is expanded, one beyond it has an error that names it.

use super::*;

#[track_caller]
fn check_limit(template: &str, limits: Limits, want: LimitKind, want_text: &str) {
    let error = expand(template, "plain", &limits).unwrap_err();
    assert_eq!(error.kind(), TemplateErrorKind::Limit(want), "{error}");
    assert!(error.to_string().ends_with(want_text), "{error}");
}

#[track_caller]
fn check_fits(template: &str, limits: Limits, want: &str) {
    assert_eq!(expand(template, "plain", &limits).as_deref(), Ok(want));
}

#[test]
fn output_stops_at_its_limit() {
    let limits = Limits { output_bytes: 100, ..Limits::default() };
    let text = "exceeds the limit of 100 bytes";
    check_fits(&"a".repeat(100), limits, &"a".repeat(100));
    check_limit(&"a".repeat(101), limits, LimitKind::OutputBytes, text);
    check_fits("{{printf `%100d` 1}}", limits, &format!("{:100}", 1));
    for template in [
        "{{printf `%101d` 1}}",
        "{{printf `%9999999d` 1}}",
        "{{printf `%.101f` 1.5}}",
        "{{printf `%09999999d` 1}}",
        "{{printf `%.9999999x` 1.5}}",
        "{{printf `%.9999999U` 1}}",
        "{{range 30}}abcd{{end}}",
        "{{reReplaceAll `` `0123456789012345678901234567890` `abc`}}",
        "{{$x := `ab`}}{{range 50}}{{$x = print $x $x}}{{end}}",
        "{{$x := `<<<<<<<<<<`}}{{range 50}}{{$x = html $x}}{{end}}",
        "{{$x := args 1}}{{range 50}}{{$x = args $x $x}}{{end}}{{$x}}",
        "{{urlquery `                                        ` (printf `%80d` 1)}}",
    ] {
        check_limit(template, limits, LimitKind::OutputBytes, text);
    }
}

#[test]
fn loops_and_texts_stop_at_the_limit_of_steps() {
    let limits = Limits { steps: 1000, ..Limits::default() };
    let text = "exceeds the limit of 1000 steps";
    check_fits("{{range 400}}{{end}}", limits, "");
    for template in [
        "{{range 1000}}{{end}}",
        "{{range 9223372036854775807}}{{end}}",
        "{{range 40}}{{range 40}}{{end}}{{end}}",
        "{{$x := printf `%65000d` 1}}",
        "{{match `a` ``}}{{match `b` ``}}{{match `c` ``}}",
        "{{$x := printf `%10000d` 1}}{{range 100}}{{$y := len (print $x)}}{{end}}",
    ] {
        check_limit(template, limits, LimitKind::Steps, text);
    }
    // A pattern is compiled once.
    check_fits("{{range 10}}{{if match `a` `b`}}{{end}}{{end}}", limits, "");
}

#[test]
fn nesting_stops_at_its_limit() {
    let limits = Limits { depth: 20, ..Limits::default() };
    let text = "nesting exceeds the limit of 20 levels";
    check_limit("{{define `t`}}{{template `t`}}{{end}}{{template `t`}}", limits, LimitKind::Depth, text);
    check_limit("{{$x := 1}}{{range 30}}{{$x = args $x}}{{end}}", limits, LimitKind::Depth, text);
    let parens = |depth: usize| format!("{{{{{}1{}}}}}", "(".repeat(depth), ")".repeat(depth));
    check_fits(&parens(20), limits, "1");
    check_limit(&parens(21), limits, LimitKind::Depth, text);
    let ifs = |depth: usize| format!("{}x{}", "{{if 1}}".repeat(depth), "{{end}}".repeat(depth));
    check_fits(&ifs(20), limits, "x");
    check_limit(&ifs(21), limits, LimitKind::Depth, text);
}

#[test]
fn deep_templates_are_refused_by_the_parser() {
    let text = "nesting exceeds the limit of 50 levels";
    for open in ["(", "{{if 1}}", "{{range 1}}", "{{with 1}}", "{{block `b` 1}}", "{{if 0}}{{else}}{{if 1}}"]
    {
        let action = if open == "(" { "{{" } else { "" };
        let template = format!("{action}{}", open.repeat(100_000));
        check_limit(&template, Limits::default(), LimitKind::Depth, text);
    }
    // A chain of branches is not nested.
    let chain = format!("{{{{if 0}}}}{}{{{{else}}}}z{{{{end}}}}", "{{else if 0}}".repeat(1000));
    check_fits(&chain, Limits::default(), "z");
}

#[test]
fn queries_stop_at_their_limit() {
    let limits = Limits { queries: 3, ..Limits::default() };
    check_fits("{{range 3}}{{len (query `up`)}}{{end}}", limits, "333");
    let text = "exceeds the limit of 3 queries";
    check_limit("{{range 4}}{{len (query `up`)}}{{end}}", limits, LimitKind::Queries, text);
}

#[test]
fn the_deepest_templates_need_no_more_than_half_a_mebibyte_of_stack() {
    const STACK_BYTES: usize = 512 << 10;
    let test = || {
        let open = "(print ".repeat(48);
        let close = ")".repeat(48);
        let deep = format!("{{{{print {open}1{close}}}}}");
        // Levels of templates, the last of which evaluates the parentheses.
        let levels: String = (0..51)
            .map(|level| format!("{{{{define `t{level}`}}}}{{{{template `t{}`}}}}{{{{end}}}}", level + 1))
            .collect();
        let template = format!("{levels}{{{{define `t51`}}}}{deep}{{{{end}}}}{{{{template `t0`}}}}");
        check_fits(&template, Limits::default(), "1");
        let beyond =
            format!("{levels}{{{{define `t51`}}}}{{{{template `t0`}}}}{{{{end}}}}{{{{template `t0`}}}}");
        check_limit(&beyond, Limits::default(), LimitKind::Depth, "exceeds the limit of 100 levels");
        // Maps within maps are printed and freed.
        let maps = "{{$x := 1}}{{range 99}}{{$x = args $x}}{{end}}{{len (print $x)}}";
        check_fits(maps, Limits::default(), "991");
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(test);
    thread.unwrap().join().unwrap();
}
