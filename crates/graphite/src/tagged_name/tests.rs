//! Names with tags in both forms.

use super::TaggedName;

#[track_caller]
fn check(path: &str, want: &str) {
    let found =
        TaggedName::parse(path).map(|name| name.canonical()).unwrap_or_else(|error| error.to_string());
    assert_eq!(found, want);
}

#[test]
fn names() {
    check("a.b", "a.b");
    check("m;b=2;a=1", "m;a=1;b=2");
    check("~m;a=b=c", "m;a=b=c");
    check("m;name=x", "m");
    check(r#"m{a="x",b="y\"z"}"#, r#"m;a=x;b=y"z"#);
    check("", "cannot parse path , no metric found");
    check("m;a", "cannot parse path m;a, invalid segment a");
    check("m;a=", "tag \"a\" with value \"\" is not allowed");
    check("m;a=~x", "tag \"a\" with value \"~x\" is not allowed");
    check(r#"{a="x"}"#, r#"cannot parse path {a="x"}, no metric found"#);
}
