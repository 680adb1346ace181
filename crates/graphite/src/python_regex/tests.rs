//! Python's patterns and templates.

use super::PythonRegex;

#[track_caller]
fn check(pattern: &str, template: &str, text: &str, want: &str) {
    let found = PythonRegex::new(pattern).and_then(|regex| regex.substitute(template, text));
    assert_eq!(found.unwrap_or_else(|error| error.to_string()), want);
}

#[test]
fn substitution() {
    check(r"^(\w+)\.(.*)$", r"\2-\1", "a.b.c", "b.c-a");
    check(r"(?P<x>b+)", r"<\g<x>\g<1>>", "abbc", "a<bbbb>c");
    check("x*", "-", "abxd", "-a-b--d-");
    check("(a)|(u)", r"[\1\2]", "aru", "[a]r[u]");
    check("(?<=a)b(?!c)", "X", "abc abd", "abc aXd");
    check(r"[[]1[]]", "", "a[1]b", "ab");
    check("a{b}", "c", "a{b}", "c");
    check("a{,2}b", "c", "aab", "c");
    check(r"b\Z", "c", "bab", "bac");
    check("a", r"\n\.", "a", "\n\\.");
    check("a", r"\2", "a", "invalid group reference 2 in replacement");
    check("a", r"\q", "a", r"bad escape in replacement '\q'");
}

#[test]
fn hostile_patterns_end() {
    assert!(PythonRegex::new("(").is_err());
    assert!(PythonRegex::new(&"a".repeat(5000)).is_err());
    let regex = PythonRegex::new(r"^(?:(a+)\1?)+c").unwrap();
    assert!(regex.is_match(&("a".repeat(40) + "b")).is_err());
}
