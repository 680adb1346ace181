//! Directories with the files of Chronolith, of other databases, and of neither.
#![expect(clippy::disallowed_methods, reason = "the directories are real ones")]

use chronolith_base::Env;

use super::*;

/// Makes a directory with these files; a name that ends with `/` is a directory.
fn dir_with(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        if name.ends_with('/') {
            std::fs::create_dir_all(path).unwrap();
        } else {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
    }
    dir
}

#[track_caller]
fn check(names: &[&str], want: &Content) {
    let dir = dir_with(names);
    assert_eq!(content_of(&*Env::real().disk, dir.path()), *want, "{names:?}");
}

#[track_caller]
fn check_foreign(names: &[&str], program: Program, proof: &str) {
    check(names, &Content::Foreign(program, proof.to_owned()));
}

#[test]
fn directories_of_other_databases_are_recognized() {
    use Program::{InfluxDb1, InfluxDb2, Prometheus, VictoriaMetrics, Whisper};

    check_foreign(&["chunks_head/", "wal/00000000", "lock"], Prometheus, "chunks_head");
    check_foreign(&["wal/00000012"], Prometheus, "wal");
    check_foreign(&["wal/checkpoint.00000012/00000000"], Prometheus, "wal");
    check_foreign(&["queries.active"], Prometheus, "queries.active");
    check_foreign(&["wbl/00000000"], Prometheus, "wbl");
    let block = "01M8H3MHT7R56001PEVQXDNM8R";
    check_foreign(&[&format!("{block}/meta.json")], Prometheus, &format!("block {block}"));
    check_foreign(&["meta/meta.db", "data/", "wal/db/autogen/1/_00001.wal"], InfluxDb1, "meta/meta.db");
    check_foreign(&["influxd.bolt", "engine/"], InfluxDb2, "influxd.bolt");
    check_foreign(&["flock.lock", "data/", "indexdb/"], VictoriaMetrics, "flock.lock");
    check_foreign(&["data/", "indexdb/", "snapshots/"], VictoriaMetrics, "indexdb");
    check_foreign(&["servers/web/cpu.wsp"], Whisper, "servers/web/cpu.wsp");
    check_foreign(&["carbon/agents/", "a/b/c/d.wsp"], Whisper, "a/b/c/d.wsp");
}

#[test]
fn own_files_count_more_than_others() {
    for own in OWN_NAMES {
        check(&[own, "chunks_head/", "notes.txt"], &Content::Own);
    }
    for file in ["control", "00000001.seg", "00000000.slice1", "00000001.definitions"] {
        check(&[&format!("wal/{file}"), "wal/00000000"], &Content::Own);
    }
}

#[test]
fn empty_and_unknown_directories() {
    for names in [&[][..], &["lock"], &["lost+found/"], &[".gitkeep", "lock"]] {
        check(names, &Content::Empty);
    }
    check(&["b", "a", "d", "c"], &Content::Unknown(["a", "b", "c"].map(str::to_owned).to_vec()));
    check(&["wal/README"], &Content::Unknown(vec!["wal".to_owned()]));
    check(
        &["01M8H3MHT7R56001PEVQXDNM8R/other"],
        &Content::Unknown(vec!["01M8H3MHT7R56001PEVQXDNM8R".to_owned()]),
    );
    let missing = Path::new("/nonexistent/directory");
    assert_eq!(content_of(&*Env::real().disk, missing), Content::Empty);
}

/// The search must end in a directory with more folders than anyone waits for.
#[test]
fn the_search_for_whisper_files_is_bounded() {
    let names: Vec<String> = (0..WHISPER_LISTINGS_MAX + 10).map(|idx| format!("d{idx:04}/")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let dir = dir_with(&names);
    let mut listings_left = WHISPER_LISTINGS_MAX;
    assert_eq!(whisper_file(&*Env::real().disk, dir.path(), WHISPER_DEPTH_MAX, &mut listings_left), None);
    assert_eq!(listings_left, 0);
    check(&["1/2/3/4/5/6/7/8/9/deep.wsp"], &Content::Unknown(vec!["1".to_owned()]));
}
