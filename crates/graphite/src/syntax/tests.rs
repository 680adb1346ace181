//! Targets to trees, written back in one canonical form.

use super::{Literal, NESTING_MAX, Node, SyntaxError, parse};

fn literal(value: &Literal) -> String {
    match value {
        Literal::None => "none".to_owned(),
        Literal::Bool(value) => value.to_string(),
        Literal::Int(value) => value.to_string(),
        Literal::Float(value) => format!("{value:?}f"),
        Literal::Text(text) => format!("<{text}>"),
    }
}

fn printed(node: &Node) -> String {
    match node {
        Node::Literal(value) => literal(value),
        Node::Path(path) => path.clone(),
        Node::Call(call) => {
            let mut args: Vec<String> = call.args.iter().map(printed).collect();
            args.extend(call.named.iter().map(|(name, value)| format!("{name}:={}", printed(value))));
            format!("{}({})", call.name, args.join(" "))
        }
        Node::Template(template) => {
            let mut values: Vec<String> = template.positional.iter().map(literal).collect();
            values.extend(template.named.iter().map(|(name, value)| format!("{name}:={}", literal(value))));
            format!("template[{} {}]", printed(&template.body), values.join(" "))
        }
    }
}

#[track_caller]
fn check(target: &str, want: &str) {
    assert_eq!(parse(target).map(|node| printed(&node)).unwrap_or_else(|error| error.to_string()), want);
}

#[test]
fn paths() {
    check("a.b-c_d.*.{x,y}[0-9]?", "a.b-c_d.*.{x,y}[0-9]?");
    check(r"a\.b\,c\=d", "a.b,c=d");
    check("123.45.a", "123.45.a");
    check("a.b extra", "a.b");
    check("a.{b,c", "a");
    check("  a.b  ", "a.b");
}

#[test]
fn literals_and_keywords() {
    check("f(a,1,-2.5,1e3,'x',\"y\",TRUE,None,inf)", "f(a 1 -2.5f 1000.0f <x> <y> true none inff)");
    check(r#"f(a,"b\"c",'d"e')"#, r#"f(a <b\"c> <d"e>)"#);
    check("f(a,b=1,c='x')", "f(a b:=1 c:=<x>)");
    check("f(a,99999999999999999999)", "f(a 1e20f)");
    check("f(1.2.3,4x)", "f(1.2.3 4x)");
    check("f(a,\"\")", "f(a <>)");
}

#[test]
fn what_does_not_close_is_a_path() {
    check("scale(x", "scale");
    check("scale(x,2))", "scale(x 2)");
    check("scale(a=1)", "scale");
    check("f(true.x)", "f");
    check("f(a,)", "f");
}

#[test]
fn pipes_and_templates() {
    check("a.b | scale(2)|alias('x')", "alias(scale(a.b 2) <x>)");
    check("a|b", "a");
    check("template(f($x,$1),'v',2)", "template[f($x $1) <v> 2]");
    check("template($n.a,n='v')", "template[$n.a n:=<v>]");
    check("template(f(a),g(b))", "template(f(a) g(b))");
}

#[test]
fn raw_text_of_a_call_is_kept() {
    let node = parse(" seriesByTag( 'a=b' ) | scale(1)").unwrap();
    let Node::Call(scale) = node else { panic!("no call") };
    let Node::Call(tags) = &scale.args[0] else { panic!("no call") };
    assert_eq!(tags.raw, "seriesByTag( 'a=b' )");
}

#[test]
fn limits_hold() {
    let deep = "f(".repeat(NESTING_MAX + 1) + "a" + &")".repeat(NESTING_MAX + 1);
    assert_eq!(parse(&deep), Err(SyntaxError::TooDeep));
    let piped = "a".to_owned() + &"|f(1)".repeat(NESTING_MAX + 1);
    assert_eq!(parse(&piped), Err(SyntaxError::TooDeep));
    assert!(matches!(parse(&"a".repeat(300_000)), Err(SyntaxError::TooLong { .. })));
    assert_eq!(parse(&"template(".repeat(40)), Err(SyntaxError::TooComplex));
    assert!(matches!(parse(""), Err(SyntaxError::Expected { .. })));
    assert!(matches!(parse("'x'"), Err(SyntaxError::Expected { .. })));
}

/// Attempts were limited and the bytes that they read were not: 250 KiB of nested templates that do not close
/// took 61 s. Found by `fuzz/src/readers`.
#[test]
fn attempts_that_fail_read_a_limited_number_of_bytes() {
    for long in ["9".repeat(200_000), format!("1{}x", " ".repeat(200_000))] {
        assert_eq!(parse(&("template(".repeat(18) + &long)), Err(SyntaxError::TooComplex));
    }
    assert!(matches!(parse(&("template(".repeat(18) + "9")), Ok(Node::Path(_))), "few bytes");
    let wide = format!("alias(sumSeries({}),'x')", vec!["a.{b,c}.d[0-9]"; 15_000].join(", "));
    assert!(matches!(parse(&wide), Ok(Node::Call(_))));
}

#[test]
fn every_prefix_of_a_target_ends() {
    let target = r#"template(alias(sumSeries(a.{b,c}.*,d\.e,x=1.5e3)|scale(2),"q\"'"),n='v',"w")|f(none)"#;
    for end in 0..=target.len() {
        let _ = parse(&target[..end]);
        let _ = parse(&target[end..]);
    }
}
