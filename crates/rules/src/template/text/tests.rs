//! Runes and literals against results of Go.

use super::*;

#[test]
fn a_truncated_sequence_is_one_rune_per_byte() {
    assert_eq!(rune_count(b"\xe2\x82"), 2);
    assert_eq!(rune_count("€".as_bytes()), 1);
    assert_eq!(to_text(b"a\xe2\x82b"), "a\u{fffd}\u{fffd}b");
    assert_eq!(truncate("ä€\u{1f600}".as_bytes(), 2), "ä€".as_bytes());
    assert_eq!(truncate(b"ab", 5), b"ab");
}

#[test]
fn quoted_text_has_the_escapes_of_go() {
    assert_eq!(quote("a\"\\\n\x01\u{200b}\u{e0001}ü".as_bytes()), r#""a\"\\\n\x01\u200b\U000e0001ü""#);
    assert_eq!(quote(b"\xff\x80"), r#""\xff\x80""#);
    assert_eq!(quote_ascii("ü'".as_bytes()), r#""\u00fc'""#);
    assert_eq!(quote_rune('\''), r"'\''");
    assert_eq!(quote_rune_ascii('€'), r"'\u20ac'");
}

#[test]
fn literals_that_go_refuses_are_refused() {
    for literal in [r#""\q""#, r#""\x1""#, r#""\ud800""#, r#""\400""#, r#""\'""#, "\"a", "`a", "a", r#""\""#]
    {
        assert_eq!(unquote(literal), None, "{literal}");
    }
    assert_eq!(unquote(r#""\xff\101\u00fc\"""#).as_deref(), Some(b"\xffA\xc3\xbc\"".as_slice()));
    assert_eq!(unquote("`a\\n\r`").as_deref(), Some(b"a\\n".as_slice()));
}
