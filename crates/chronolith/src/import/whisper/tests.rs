//! Imports by the command line: into a data directory, and without a target.

use chronolith_import::whisper::FileBuilder;
use chronolith_ingest::carbon::{AggregationMethod, Archive};
use chronolith_model::TenantId;
use chronolith_tsdb::CatalogEditor;

use super::*;

/// Writes two files below a new directory.
fn source() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let whisper_dir = dir.path().join("whisper");
    let archive = Archive { step_s: 60, point_count: 100 };
    for (name, count) in [("a/b.wsp", 5u32), ("a/c.wsp", 7)] {
        let mut builder = FileBuilder::new(AggregationMethod::Sum, 0.5, &[archive]).unwrap();
        builder.put_points(0, (0..count).map(|idx| (1_700_000_040 + idx * 60, f64::from(idx))));
        let path = whisper_dir.join(name);
        env.disk.create_dir_all(path.parent().unwrap()).unwrap();
        env.disk.create(&path).unwrap().write_at(&builder.into_bytes(), 0).unwrap();
    }
    (dir, whisper_dir)
}

fn code(args: &[&str]) -> ExitCode {
    run(&command().try_get_matches_from(args).unwrap()).unwrap()
}

#[test]
fn files_become_the_graphite_store_of_the_tenant() {
    let (dir, whisper_dir) = source();
    let data_dir = dir.path().join("data");
    let texts = [whisper_dir.to_str().unwrap(), data_dir.to_str().unwrap()];
    for _ in 0..2 {
        let args = ["whisper", texts[0], "--data-dir", texts[1], "--tenant", "t"];
        assert_eq!(code(&args), ExitCode::SUCCESS);
    }
    let env = Env::real();
    let (editor, notes) = CatalogEditor::open(&env, &data_dir).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    let own = editor.catalog().of(&TenantId::new("t").unwrap()).cloned().unwrap();
    let blocks_dir = chronolith_tsdb::tenant_dir(&data_dir, &own.graphite.as_ref().unwrap().store);
    let (blocks, damaged) = chronolith_block::open_dir(&env, &blocks_dir);
    assert!(damaged.is_empty(), "{damaged:?}");
    assert_eq!(blocks.iter().map(|block| block.meta().stats.num_samples).sum::<u64>(), 12);
}

#[test]
fn a_dry_run_compares_rules_and_writes_nothing() {
    let (dir, whisper_dir) = source();
    let schemas = dir.path().join("schemas.conf");
    let env = Env::real();
    let text = b"[b]\npattern = b$\nretentions = 60:100\n[all]\npattern = .*\nretentions = 10:100";
    env.disk.create(&schemas).unwrap().write_at(text, 0).unwrap();
    let args =
        ["whisper", whisper_dir.to_str().unwrap(), "--schemas", schemas.to_str().unwrap(), "--dry-run"];
    let matches = command().try_get_matches_from(args).unwrap();
    let report = inspect(&env, super::args(&env, &matches).unwrap());
    let text = whisper_report::show("w", &report);
    for line in [
        "rule: a.c: archives 1m:100m (100 points); rule [all]: 10s:1000s (100 points)",
        "rules: 1 files have other archives than their rule",
        "2 files, 12 points: sum, xFilesFactor 0.5, 1m:100m (100 points)",
        "w: 12 points of 2 files with 2456 bytes",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(code(&args), ExitCode::SUCCESS);
}

#[test]
fn times_are_seconds_or_rfc_3339() {
    assert_eq!(parse_time("1700000000").unwrap(), 1_700_000_000);
    assert_eq!(parse_time("2023-11-14T22:13:20Z").unwrap(), 1_700_000_000);
    assert!(parse_time("yesterday").is_err());
}
