//! Paths as carbon 1.1.10 names them, and as the file paths of whisper collapse dots.

use chronolith_model::{LabelsBuilder, SeriesKey, WordKind};

use super::*;

fn labels_of(path: &str) -> Result<Labels, Reject> {
    let mut out = LabelsBuilder::new();
    parse_key(SeriesKey { raw: path.as_bytes(), field: b"", kind: WordKind::Float }, &mut out)?;
    out.sort();
    assert_eq!(out.repeated_name(), None, "{path}");
    Ok(out.finish())
}

#[track_caller]
fn check(path: &str, want: &str) {
    assert_eq!(canonical_path(path), want, "{path}");
    assert_eq!(canonical_path(want), want, "canonical paths are fixed points");
    assert_eq!(path_of_labels(&labels_of(path).expect("a path with a name")), want, "{path}");
}

/// The right side is `TaggedSeries.parse(path).path` of carbon 1.1.10, or the path if that raises an error;
/// dots are collapsed as `whisper`'s file paths are.
#[test]
fn paths_are_canonical_as_in_carbon() {
    for (path, want) in [
        ("a.b", "a.b"),
        ("a..b", "a.b"),
        (".a", "a"),
        ("a.", "a"),
        ("...a....b...", "a.b"),
        ("é.ü", "é.ü"),
        ("a/b:c#d%e=f", "a/b:c#d%e=f"),
        ("m;b=2;a=1", "m;a=1;b=2"),
        ("m..x;b=2..;a=.1", "m.x;a=.1;b=2.."),
        ("m;a=1;a=2", "m;a=2"),
        ("m;a=3;b=1;a=2", "m;a=2;b=1"),
        ("m;name=zzz", "m"),
        ("m;name=zzz;a=1", "m;a=1"),
        ("m;__name__=zzz;a=1", "m;a=1"),
        ("m;a=b=c", "m;a=b=c"),
        ("~m;a=1", "m;a=1"),
        ("~m", "m"),
        ("~", "~"),
        ("m;A=1;a=2;B=3", "m;A=1;B=3;a=2"),
        ("m;ab=1;a=2;a-=3", "m;a-=3;a=2;ab=1"),
        ("m;a=\"x\"", "m;a=\"x\""),
        (r#"m;a=b;c="}"#, r#"m;a=b;c="}"#),
        (".~a", "a"),
        (r#"m{a="b",c="d"}"#, "m;a=b;c=d"),
        (r#"m{c="d",a="b"}"#, "m;a=b;c=d"),
        (r#"m{a="x",a="y"}"#, "m;a=y"),
        (r#"m{name="x",a="y"}"#, "m;a=y"),
        (r#"m{a="b",:c="d"}"#, "m;:c=d;a=b"),
        (r#"m{a="b\"c\\d"}"#, r#"m;a=b"c\d"#),
    ] {
        check(path, want);
    }
}

/// carbon logs an error about these and stores the points under the path as sent.
#[test]
fn paths_with_bad_tags_are_names() {
    for path in [
        "m;a=",
        "m;",
        "m;a",
        "m;=x",
        "m;a=~x",
        "m;a!=x",
        "m;a^=x",
        ";a=b",
        "m{}",
        r#"m{a=""}"#,
        r#"m{a="b"#,
        r#"m{a="b",}"#,
        r#"{a="b"}"#,
        r#"m{a="b"}{c="d"}"#,
        r#"m{a="b";c="d"}"#,
        r#"m{a="b\c"}"#,
        r#"m{a="b~"c"}"#,
    ] {
        check(path, path);
        assert_eq!(labels_of(path).expect("a name").len(), 1, "{path}");
    }
    check("..m;a=", "m;a=");
}

#[test]
fn paths_without_a_name_are_refused() {
    for path in ["", ".", "...."] {
        assert_eq!(canonical_path(path), "");
    }
    assert_eq!(canonical_path("~..."), "~");
    assert_eq!(labels_of("..."), Err(Reject::NoMetricName));
    assert_eq!(labels_of(""), Err(Reject::NoMetricName));
    let bytes = SeriesKey { raw: b"a\xff", field: b"", kind: WordKind::Float };
    assert_eq!(parse_key(bytes, &mut LabelsBuilder::new()), Err(Reject::InvalidUtf8));
}

/// The canonical path of these was read as another path: dots after the brace, a name or a last tag that
/// ends as the form with braces does. Found by `fuzz/src/readers`.
#[test]
fn canonical_paths_with_braces_are_fixed_points() {
    check(r#"m{a="b"}."#, "m;a=b");
    check(r#"..m{a="b"}.."#, "m;a=b");
    for path in [r#"x{a="b"};name=q"#, r#"x{a;z="};c=1"#, r#"x{a;c="};b=1"#] {
        check(path, path);
    }
    check(r#"x{a="b"};c=d"#, r#"x{a="b"};c=d"#);
}
