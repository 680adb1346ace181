//! Globs and tag expressions.

use super::glob::matches;
use super::tag_query::{TagExpression, parse_expressions};
use crate::tagged_name::TaggedName;

#[test]
fn globs() {
    let cases = [
        ("*", "abc", true),
        ("a*c", "abc", true),
        ("a*d", "abc", false),
        ("a?c", "abc", true),
        ("[a-c]x", "bx", true),
        ("[!a-c]x", "bx", false),
        ("[]x]y", "]y", true),
        ("{a,b}c", "bc", true),
        ("{a,b}c", "cc", false),
        ("a{1,2}[x-z]*", "a2yq", true),
        ("[a", "[a", true),
        ("{a,{b,c}}", "c", true),
        ("*a*b*c*", "xxaxxbxxc", true),
        ("", "", true),
        ("{a", "{a", true),
    ];
    for (pattern, text, want) in cases {
        assert_eq!(matches(pattern, text), want, "{pattern} {text}");
    }
    // Time is linear in both, and braces are bounded.
    assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
    assert!(!matches(&"{a,b}".repeat(100), "x"));
}

#[track_caller]
fn check(expression: &str, name: &str, want: bool) {
    let tags = TaggedName::parse(name).unwrap().tags;
    assert_eq!(TagExpression::parse(expression).unwrap().matches(&tags), Ok(want), "{expression} {name}");
}

#[test]
fn tag_expressions() {
    check("dc=x", "m;dc=x", true);
    check("dc!=x", "m", true);
    check("dc=", "m", true);
    check("name=m", "m;dc=x", true);
    check("dc=~x", "m;dc=xyz", true);
    check("dc=~y", "m;dc=xyz", false);
    check("dc!=~x|y", "m;dc=z", true);
    for text in ["", "=x", "dc", "a;b=c", "dc=a;b", "dc=~("] {
        assert!(TagExpression::parse(text).is_err(), "{text}");
    }
    assert!(parse_expressions(&["dc!=x".to_owned()]).is_err());
    assert!(parse_expressions(&["dc!=".to_owned()]).is_ok());
}
