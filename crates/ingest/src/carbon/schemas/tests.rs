//! Files of carbon and Metrictank: rules, notes, errors, the rule of a path.

use super::*;

fn render(text: &str) -> String {
    let (schemas, notes) = match Schemas::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return format!("error: {error}"),
    };
    let mut out = Vec::new();
    for rule in schemas.rules() {
        let archives: Vec<String> = rule.archives().iter().map(Archive::to_string).collect();
        let ring = rule.reorder_buffer().map_or(String::new(), |ring| {
            format!(" ring {}{}", ring.point_count, if ring.allows_update { " update" } else { "" })
        });
        out.push(format!("{} {} -> {}{ring}", rule.name(), rule.pattern(), archives.join(", ")));
    }
    out.extend(notes.iter().map(|note| format!("note {}: {}", note.line, note.what)));
    out.join("\n")
}

#[track_caller]
fn check(text: &str, want: &[&str]) {
    assert_eq!(render(text), want.join("\n"), "{text}");
}

/// Returns the section that applies to a path.
#[track_caller]
fn check_match(text: &str, path: &str, want: Option<&str>) {
    let (schemas, _) = Schemas::parse(text).expect("a valid file");
    assert_eq!(schemas.match_path(path).map(Schema::name), want, "{path}");
}

const CARBON: &str = "# Schema definitions\n\n[carbon]\npattern = ^carbon\\.\nretentions = 60:90d\n\n\
    [default_1min_for_1day]\npattern = .*\nretentions = 60s:1d\n";

#[test]
fn files_of_carbon_are_rules_in_order() {
    check(
        CARBON,
        &["carbon ^carbon\\. -> 1m:90d (129600 points)", "default_1min_for_1day .* -> 1m:1d (1440 points)"],
    );
    check(
        "[a]\nPATTERN: ^a\nRetentions: 10s:1h,\n  1m:1d,\n  # coarse\n  1h:1y",
        &["a ^a -> 10s:1h (360 points), 1m:1d (1440 points), 1h:1y (8760 points)"],
    );
    check("", &[]);
}

#[test]
fn files_of_metrictank_have_a_ring_and_chunk_spans() {
    check(
        "[raw]\npattern = ^raw\\.\nretentions = 1s:1d:20min:5:true,1min:38d:2h:1:true\nreorderBuffer = 20\n\
         reorderBufferAllowUpdate = true",
        &[
            "raw ^raw\\. -> 1s:1d (86400 points), 1m:38d (54720 points) ring 20 update",
            "note 3: section [raw]: chunk spans of Metrictank are ignored",
        ],
    );
    check("[a]\npattern=a\nretentions=1s:1d\nreorderBuffer=0", &["a a -> 1s:1d (86400 points)"]);
    check(
        "[a]\npattern=a\nretentions=1s:1d\nreorderBuffer=5\nreorderBufferAllowUpdate=no",
        &["error: line 5: section [a]: reorderBufferAllowUpdate: expected true or false, found \"no\""],
    );
    for found in ["-1", "65537", "ten", ""] {
        check(
            &format!("[a]\npattern=a\nretentions=1s:1d\nreorderBuffer={found}"),
            &[&format!(
                "error: line 4: section [a]: reorderBuffer: expected a number of points up to 65536, found {found:?}"
            )],
        );
    }
}

#[test]
fn sections_that_carbon_skips_are_notes() {
    check(
        "[a]\npattern = a\n[b]\nretentions = 1s:1d\n[c]\npattern=c\nretentions = 60s:1d,90s:2d\n\
         [d]\npattern=d\npriority=100\nretentions=1s:1d\ncolour=red",
        &[
            "d d -> 1s:1d (86400 points)",
            "note 1: section [a]: has no retentions and is skipped",
            "note 3: section [b]: has no pattern and is skipped",
            "note 7: section [c]: is skipped: the precision of 1m:1d (1440 points) does not divide that of 90s:2d (1920 points)",
            "note 10: section [d]: priority is ignored: the order of the sections decides",
            "note 12: section [d]: key colour is ignored",
        ],
    );
}

#[test]
fn errors_name_line_section_and_expectation() {
    check("pattern = a", &["error: line 1: expected a section like [name] before the first key"]);
    check(
        "[a]\npattern = a\nretentions = 60",
        &["error: line 3: section [a]: expected precision:retention, found \"60\""],
    );
    let text = "[a]\npattern = a(\nretentions = 1s:1d";
    let error = Schemas::parse(text).expect_err("the pattern is not closed");
    assert_eq!(error.line, 2);
    assert!(error.what.starts_with("section [a]: pattern \"a(\" is not a valid regular expression"));
}

#[test]
fn the_first_pattern_that_is_found_decides() {
    check_match(CARBON, "carbon.agents.x", Some("carbon"));
    check_match(CARBON, "my.carbon.agents", Some("default_1min_for_1day"));
    let text = "[stats]\npattern = ^stats(?!_counts)\nretentions = 10s:1d\n[eu]\npattern = ;dc=eu(;|$)\nretentions=1s:1d";
    check_match(text, "stats.a", Some("stats"));
    check_match(text, "stats_counts.a", None);
    check_match(text, "m;dc=eu;host=a", Some("eu"));
    check_match(text, "m;dc=europe", None);
}

#[test]
fn a_pattern_of_too_many_steps_is_counted_and_does_not_apply() {
    let text = "[slow]\npattern = ^(a|aa|aaa)*\\1b(?!c)$\nretentions = 1s:1d\n[all]\npattern = .*\nretentions = 1s:1d";
    let (schemas, _) = Schemas::parse(text).expect("a valid file");
    assert_eq!(schemas.match_path(&"a".repeat(60)).map(Schema::name), Some("all"));
    assert_eq!(schemas.exceeded_count(), 1);
}
