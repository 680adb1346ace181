//! Globs and tag expressions.

use super::glob::matches;
use super::meta_tags::MetaTags;
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
    check("dc^=xy", "m;dc=xyz", true);
    check("dc^=y", "m;dc=xyz", false);
    check("dc^=", "m", true);
    check("__tag=dc", "m;dc=x", true);
    check("__tag=host", "m;dc=x", false);
    check("__tag^=d", "m;dc=x", true);
    check("__tag=~c|h", "m;dc=x", false);
    check("__tag!=dc", "m;dc=x", false);
    for text in ["", "=x", "dc", "a;b=c", "dc=a;b", "dc=~("] {
        assert!(TagExpression::parse(text).is_err(), "{text}");
    }
    assert!(parse_expressions(&["dc!=x".to_owned()]).is_err());
    assert!(parse_expressions(&["dc!=".to_owned()]).is_ok());
    assert!(parse_expressions(&["__tag=dc".to_owned()]).is_ok());
    assert!(parse_expressions(&["dc^=".to_owned(), "__tag!=dc".to_owned()]).is_err());
}

#[test]
fn meta_tags_are_added_to_selected_series() {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
    let mut meta = MetaTags::default();
    meta.add(&texts(&["region=eu", "dc=other"]), &texts(&["dc=~ams|fra"])).unwrap();
    meta.add(&texts(&["region=late", "tier=1"]), &texts(&["name=m", "region!=eu"])).unwrap();
    let check = |name: &str, want: &str| {
        let mut tags = TaggedName::parse(name).unwrap().tags;
        meta.add_to(&mut tags).unwrap();
        assert_eq!(TaggedName { tags }.canonical(), want);
    };
    // Own tags win, earlier rules win, and rules do not see each other's tags.
    check("m;dc=ams", "m;dc=ams;region=eu;tier=1");
    check("m;dc=x", "m;dc=x;region=late;tier=1");
    check("n;dc=x", "n;dc=x");
    for (tags, expressions) in [
        (&["a"][..], &["b=c"][..]),
        (&["name=x"], &["b=c"]),
        (&["a="], &["b=c"]),
        (&["a=b"], &[]),
        (&["a=b"], &["b!=c"]),
        (&["a=b"], &["b"]),
    ] {
        assert!(meta.add(&texts(tags), &texts(expressions)).is_err(), "{tags:?} {expressions:?}");
    }
    assert_eq!(meta.keys().iter().map(String::as_str).collect::<Vec<_>>(), ["dc", "region", "tier"]);
}
