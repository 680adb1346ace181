//! Quantising by schema, and files that cannot be used.

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_ingest::carbon::{InputEnd, LineDecoder, PointWriter, Refused, new_batch};

use super::*;

const SCHEMAS: &str = "[sorted]\npattern = ^sorted\\.\nretentions = 10s:1d\nreorderBuffer = 6\n\
                       [minutes]\npattern = ^minutes\nretentions = 1m:1d,1h:1y\n";

fn rules(schemas: &str) -> Result<PathRules, String> {
    let (env, _, disk) = Env::fake(0, 1);
    disk.create_dir_all(Path::new("/rules")).expect("created");
    let path = PathBuf::from("/rules/schemas.conf");
    let file = disk.create(&path).expect("created");
    file.write_at(schemas.as_bytes(), 0).expect("written");
    PathRules::read(&*env.disk, &RuleFiles { schemas: Some(path), ..RuleFiles::default() }, 7)
}

/// Applies the rules to lines; checks time and rule of each point.
#[track_caller]
fn check(rules: &PathRules, lines: &str, want: &[(i64, u16)]) {
    let mut batch = new_batch();
    let mut refused = Refused::default();
    let mut points = PointWriter::new(&mut batch, &mut refused, 0);
    LineDecoder::new().decode(lines.as_bytes(), InputEnd::Closed, &mut points);
    rules.apply(&mut batch);
    let reordered = |idx: usize| batch.reordered.get(idx).copied().unwrap_or(0);
    let got: Vec<(i64, u16)> =
        batch.times.iter().enumerate().map(|(idx, time)| (*time / 1000, reordered(idx))).collect();
    assert_eq!(got, want, "{lines}");
}

#[test]
fn points_are_quantised_by_the_rule_of_their_path() {
    let rules = rules(SCHEMAS).expect("valid");
    let lines = "sorted.a 1 1003\nminutes.a 1 119\nother 1 119\nminutes;b=1;a=2 1 121\n";
    for _ in 0..2 {
        check(&rules, lines, &[(1003, 1), (60, 0), (119, 0), (120, 0)]);
        assert_eq!(rules.cached_count(), 4);
    }
    check(&rules, "minutes.a 1 -1\n", &[(0, 0)]);
    check(&PathRules::default(), lines, &[(1003, 0), (119, 0), (119, 0), (121, 0)]);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let error = |text: &str| rules(text).err().unwrap_or_default();
    assert_eq!(
        error("[a]\npattern = [\nretentions = 1s:1d\n").split(": ").next(),
        Some("/rules/schemas.conf"),
        "the file is named"
    );
    let huge = "[a]\npattern = a\nretentions = 1y:100y\nreorderBuffer = 65536\n";
    assert!(error(huge).contains("section [a]: interval of 31536000000 ms does not fit"), "{}", error(huge));
    let (env, _, _) = Env::fake(0, 1);
    let missing = RuleFiles { aggregation: Some(PathBuf::from("/none.conf")), ..RuleFiles::default() };
    let error = PathRules::read(&*env.disk, &missing, 1).err().unwrap_or_default();
    assert!(error.starts_with("reading /none.conf: "), "{error}");
}
