//! Rules, templates, errors, and the cache.

use super::*;

const WEB: &str = "[web]\npattern = ^servers\\.(?P<dc>[^.]+)\\.(web\\d+)\\.(.+)$\nname = \\3\nlabels =\n  \
    dc: ${dc}\n  host = \\2\n[noise]\npattern = \\.tmp(\\.|$)\naction: drop\n[old]\npattern = ^old\\.(.*)\n\
    name = new.\\g<1>\n[tag]\npattern = ^t(x?)\nlabels = x: \\1\n";

#[track_caller]
fn check(path: &str, want: &str) {
    let (rules, notes) = RewriteRules::parse(WEB).expect("a valid file");
    assert_eq!(notes, []);
    let (outcome, section) = rules.apply(path);
    let found = match outcome {
        RewriteOutcome::Same => "same".to_owned(),
        RewriteOutcome::Path(path) => path,
        RewriteOutcome::Refused(reason) => reason.label().to_owned(),
    };
    assert_eq!(format!("{found} by {}", section.unwrap_or("none")), want, "{path}");
}

#[test]
fn the_first_rule_that_is_found_applies() {
    check("servers.eu.web1.cpu.user", "cpu.user;dc=eu;host=web1 by web");
    check("servers..eu.web1.cpu", "cpu;dc=eu;host=web1 by web");
    check("servers.eu.web1.cpu;rack=7;dc=us", "cpu;dc=eu;host=web1;rack=7 by web");
    check("servers.eu.db1.cpu", "same by none");
    check("a.tmp", "dropped_by_rule by noise");
    check("a.tmpx", "same by none");
    check("old.a.b", "new.a.b by old");
    check("old..x;a=b", "new.x;a=b by old");
    check("tx;x=y;z=1", "tx;x=x;z=1 by tag");
    check("tv;x=y;z=1", "tv;z=1 by tag");
}

#[track_caller]
fn check_error(section: &str, want: &str) {
    let error = RewriteRules::parse(&format!("[a]\n{section}")).expect_err(section);
    assert_eq!(error.to_string(), want, "{section}");
}

#[test]
fn errors_name_line_section_and_expectation() {
    check_error("name = x", "line 1: section [a]: expected a pattern");
    check_error("pattern = x", "line 1: section [a]: expected name, labels or action = drop");
    check_error("pattern = x\naction = keep", "line 3: section [a]: action: expected drop, found \"keep\"");
    check_error(
        "pattern = x\nname = y\naction = drop",
        "line 4: section [a]: a section that drops has no name and labels",
    );
    for (template, what) in [
        ("\\1", "the pattern has no group \"1\""),
        ("${n}", "the pattern has no group \"n\""),
        ("${n", "expected } after \"${n\""),
        ("\\g<0", "expected > after \"\\\\g<0\""),
        ("\\x", "expected a group like \\1 or ${name}, found \"\\\\x\""),
        ("a;b=c", "template \"a;b=c\" has a semicolon or a control character"),
    ] {
        check_error(&format!("pattern = x\nname = {template}"), &format!("line 3: section [a]: {what}"));
    }
    check_error(
        &format!("pattern = x\nname = {}", "y".repeat(1025)),
        "line 3: section [a]: template is longer than 1024 bytes",
    );
    for (labels, what) in [
        ("x", "labels: expected tag: template, found \"x\""),
        ("name: x", "labels: \"name\" cannot be the name of a tag"),
        ("__name__: x", "labels: \"__name__\" cannot be the name of a tag"),
        ("a!: x", "labels: \"a!\" cannot be the name of a tag"),
        (": x", "labels: \"\" cannot be the name of a tag"),
        ("a: x\n  a: y", "labels: \"a\" occurs twice"),
    ] {
        check_error(&format!("pattern = x\nlabels = {labels}"), &format!("line 3: section [a]: {what}"));
    }
}

#[test]
fn templates_have_escapes() {
    let (rules, _) =
        RewriteRules::parse("[a]\npattern = ^(a)(b)?\nname = $\\\\\\g<0>${1}\\2$x").expect("valid");
    assert_eq!(rules.apply("a").0, RewriteOutcome::Path("$\\aa$x".to_owned()));
}

#[test]
fn results_that_are_no_paths_are_refused() {
    let text = "[a]\npattern = ^a(.*)$\nname = \\1\n[b]\npattern = ^b(.*)$\nname = \\1\\1\\1";
    let (rules, _) = RewriteRules::parse(text).expect("valid");
    assert_eq!(rules.apply("a").0, RewriteOutcome::Refused(RefusedReason::EmptyPath));
    let long = format!("b{}", "x".repeat(2000));
    assert_eq!(rules.apply(&long).0, RewriteOutcome::Refused(RefusedReason::LineTooLong));
}

#[test]
fn results_are_cached_until_the_rules_change() {
    let rules = |name: &str| {
        let text = format!("[a]\npattern = ^a\nname = {name}");
        Arc::new(RewriteRules::parse(&text).expect("valid").0)
    };
    let path_of = |rewriter: &mut Rewriter| match rewriter.rewrite(b"a.b") {
        Rewritten::Path(path) => String::from_utf8_lossy(path).into_owned(),
        Rewritten::Same | Rewritten::Refused(_) => String::new(),
    };
    let mut rewriter = Rewriter::new(rules("x"), 7);
    assert_eq!(path_of(&mut rewriter), "x");
    assert_eq!(rewriter.cached_bytes(), 4);
    assert_eq!(path_of(&mut rewriter), "x");
    assert_eq!(rewriter.cached_bytes(), 4);
    rewriter.set_rules(rules("y"));
    assert_eq!(rewriter.cached_bytes(), 0);
    assert_eq!(path_of(&mut rewriter), "y");
}

#[test]
fn the_cache_is_bounded() {
    let mut rewriter = Rewriter::new(Arc::new(RewriteRules::default()), 7);
    let long = "x".repeat(4000);
    for idx in 0..2 * CACHED_BYTES_MAX / long.len() {
        assert!(matches!(rewriter.rewrite(format!("{long}{idx}").as_bytes()), Rewritten::Same));
        assert!(rewriter.cached_bytes() <= CACHED_BYTES_MAX + LINE_BYTES_MAX);
    }
}
