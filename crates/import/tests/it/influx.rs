//! Imports of the data directory that InfluxDB 1.6.7 wrote: the points equal those that it returned, and
//! damage costs no more than what the report names.
#![allow(clippy::disallowed_methods, reason = "tests read their golden files")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Env, MemDisk};
use chronolith_block::{Block, precedence};
use chronolith_import::influx::{
    self, InfluxError, InfluxPaths, InfluxReport, InfluxSource, KIND_NAMES, KeyReject, StoreTarget,
};
use chronolith_model::kind::{integer_of_word, unsigned_of_word};
use chronolith_model::query::{ColumnType, TypedColumns, TypedValues};
use chronolith_model::{
    Columns, FIELD_LABEL, KIND_LABEL, Labels, METRIC_NAME, ReadContext, TimeRange, WordKind,
};
use serde_json::{Value, json};

use crate::test_env::for_each_series;

const SOURCE: &str = "/influxdb";
const BLOCKS: &str = "/data/tenants";

/// Value as JSON by policy, measurement, tags, field with its kind, and time: a line of the golden file.
type Points = BTreeMap<(String, String, String, String, i64), Value>;

/// Returns the bytes of a file of the source; `None` removes it.
type Edit<'a> = dyn Fn(&Path, Vec<u8>) -> Option<Vec<u8>> + 'a;

struct TestEnv {
    env: Env,
    disk: Arc<MemDisk>,
}

impl TestEnv {
    /// A disk with the golden data directory, whose files `edit` may change or remove.
    fn golden(edit: &Edit<'_>) -> TestEnv {
        let (env, _, disk) = Env::fake(1_800_000_000_000, 7);
        env.disk.create_dir_all(Path::new(BLOCKS)).unwrap();
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/influxdb-1.6.7");
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            for entry in std::fs::read_dir(dir.join(&below)).unwrap() {
                let entry = entry.unwrap();
                let path = below.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    left.push(path);
                } else if let Some(bytes) = edit(&path, std::fs::read(entry.path()).unwrap()) {
                    put(&env, &path, &bytes);
                }
            }
        }
        TestEnv { env, disk }
    }

    fn import(&self) -> InfluxReport {
        self.try_import().unwrap()
    }

    fn try_import(&self) -> Result<InfluxReport, InfluxError> {
        let paths = InfluxPaths::below(Path::new(SOURCE));
        let source = InfluxSource::list(&self.env, &paths)?;
        let target_of = |shard: &influx::SourceShard| {
            let blocks_dir = Path::new(BLOCKS).join(&shard.policy);
            let state_path = Path::new("/data/import").join(format!("{}.json", shard.policy));
            Some(StoreTarget { blocks_dir, state_path })
        };
        influx::run(&self.env, &source, &paths, &target_of, &mut |_| {})
    }

    /// Points of all blocks.
    fn points(&self) -> Points {
        let mut points = Points::new();
        for policy in ["autogen", "hour"] {
            let (mut blocks, damaged) =
                chronolith_block::open_dir(&self.env, &Path::new(BLOCKS).join(policy));
            assert!(damaged.is_empty(), "{damaged:?}");
            blocks.sort_by_key(|block| precedence(block.meta()));
            for block in blocks {
                assert_eq!(block.verify(), [], "{:?}", block.meta());
                read(&self.env, policy, &block, &mut points);
            }
        }
        points
    }
}

fn put(env: &Env, path: &Path, bytes: &[u8]) {
    let path = Path::new(SOURCE).join(path);
    env.disk.create_dir_all(path.parent().unwrap()).unwrap();
    env.disk.create(&path).unwrap().write_at(bytes, 0).unwrap();
}

fn read(env: &Env, policy: &str, block: &Block, points: &mut Points) {
    let ctx = ReadContext::unlimited(env.clock.clone());
    for_each_series(block, &ctx, |series| {
        let kind = WordKind::of(&series.labels);
        let (mut words, mut texts) = (Columns::default(), TypedColumns::new(ColumnType::Text));
        if kind == WordKind::Text {
            series.samples.read_typed(TimeRange::ALL, &mut texts).unwrap();
        } else {
            series.samples.read(TimeRange::ALL, &mut words).unwrap();
        }
        let of_words =
            words.times.iter().zip(&words.values).map(|(&time, word)| (time, value_of(kind, *word)));
        let TypedValues::Texts(values) = &texts.values else { unreachable!() };
        let of_texts =
            texts.times.iter().zip(values).map(|(&time, text)| (time, json!(String::from_utf8_lossy(text))));
        for (time, value) in of_words.chain(of_texts) {
            let before = points.insert(key(policy, &series.labels, time), value);
            assert!(before.is_none(), "{} at {time} twice", series.labels);
        }
    });
}

fn value_of(kind: WordKind, word: f64) -> Value {
    match kind {
        WordKind::Integer => json!(integer_of_word(word.to_bits())),
        WordKind::Unsigned => json!(unsigned_of_word(word.to_bits())),
        WordKind::Boolean => json!(word != 0.0),
        _ => json!(word),
    }
}

fn key(policy: &str, labels: &Labels, time: i64) -> (String, String, String, String, i64) {
    let reserved = [METRIC_NAME, FIELD_LABEL, KIND_LABEL];
    let tags: Vec<(&str, &str)> = labels.iter().filter(|(name, _)| !reserved.contains(name)).collect();
    let tags = serde_json::to_string(&tags).unwrap();
    let name = |name| labels.get(name).unwrap_or_default();
    let kind = match WordKind::of(labels) {
        WordKind::Float => "float",
        WordKind::Integer => "integer",
        WordKind::Unsigned => "unsigned",
        WordKind::Boolean => "boolean",
        WordKind::Text => "string",
    };
    let field = format!("{} ({kind})", name(FIELD_LABEL));
    (policy.to_owned(), name(METRIC_NAME).to_owned(), tags, field, time)
}

/// Points that InfluxDB returned before it was killed.
fn expected() -> Points {
    let lines = include_str!("../../testdata/influxdb-1.6.7.tsv").lines();
    let points = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let text = |idx: usize| serde_json::from_str::<String>(fields[idx]).unwrap();
        let tags = serde_json::from_str::<Value>(fields[2]).unwrap().to_string();
        // The parser of JSON rounds floats otherwise.
        let value = match fields[4] {
            "float" => json!(fields[6].parse::<f64>().unwrap()),
            _ => serde_json::from_str(fields[6]).unwrap(),
        };
        let field = format!("{} ({})", text(3), fields[4]);
        ((fields[0].to_owned(), text(1), tags, field, fields[5].parse().unwrap()), value)
    });
    points.collect()
}

const TIME: i64 = 1_600_000_000_000_000_000;

#[test]
fn influxdb_1_6_7_after_a_kill() {
    let test = TestEnv::golden(&|_, bytes| Some(bytes));
    let report = test.import();
    assert_eq!((report.damages.as_slice(), report.notes.as_slice()), (&[][..], &[][..]));
    let (found, expected) = (test.points(), expected());
    for (key, value) in &expected {
        assert_eq!(found.get(key), Some(value), "{key:?}");
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!((report.points, report.shards), (expected.len() as u64, 3));
    let at = |measurement: &str, tags: &str, field: &str, time| {
        let key = ("autogen".to_owned(), measurement.to_owned(), tags.to_owned(), field.to_owned(), time);
        found.get(&key)
    };
    // Both ends of i64; a point of the first file, of the second and of the WAL; deletions of each.
    assert_eq!(at("big", "[]", "i (integer)", TIME), Some(&json!(i64::MAX)));
    assert_eq!(at("big", "[]", "j (integer)", TIME), Some(&json!(i64::MIN)));
    let tags = r#"[["B","x"],["host","a"]]"#;
    let steps = [3, 4, 5].map(|step| at("mix", tags, "f (float)", TIME + step * 10_000_000_000).cloned());
    assert_eq!(steps, [Some(json!(77.0)), Some(json!(77.0)), Some(json!(88.0))]);
    assert_eq!(at("mix", tags, "s (string)", TIME + 50_000_000_000), Some(&json!("wal\nline")));
    assert!(found.keys().all(|key| key.1 != "gone" && key.2 != r#"[["host","c"]]"#));
    let deleted = [1, 2, 3].map(|time| at("mix", r#"[["host","d"]]"#, "f (float)", TIME + time).cloned());
    assert_eq!(deleted, [Some(json!(9.0)), None, Some(json!(3.0))]);
    assert_eq!(at("na me,x", r#"[["ta=g","v al"]]"#, "f\"ield (float)", TIME), Some(&json!(1.0)));
}

#[test]
fn the_report_counts_points_by_field() {
    let report = TestEnv::golden(&|_, bytes| Some(bytes)).import();
    let mut counts: BTreeMap<(String, String, String), u64> = BTreeMap::new();
    expected().keys().for_each(|key| {
        *counts.entry((key.0.clone(), key.1.clone(), key.3.clone())).or_default() += 1;
    });
    let mut found = BTreeMap::new();
    for ((database, policy), measurements) in &report.counts {
        assert_eq!(database, "g");
        for (measurement, fields) in measurements {
            for (field, kinds) in fields {
                for (kind, points) in KIND_NAMES.iter().zip(kinds).filter(|(_, points)| **points > 0) {
                    let field = format!("{field} ({kind})");
                    found.insert((policy.clone(), measurement.clone(), field), *points);
                }
            }
        }
    }
    assert_eq!(found, counts);
    assert!(report.left_out.deleted > 20 && report.left_out.overwritten > 5, "{:?}", report.left_out);
}

#[test]
fn databases_policies_and_users_are_those_of_meta_db() {
    let test = TestEnv::golden(&|_, bytes| Some(bytes));
    let source = InfluxSource::list(&test.env, &InfluxPaths::below(Path::new(SOURCE))).unwrap();
    let database = &source.meta.databases[0];
    let hour_ns = 3_600_000_000_000;
    let policies: Vec<_> =
        database.policies.iter().map(|p| (p.name.as_str(), p.duration_ns, p.shard_group_ns)).collect();
    let week_ns = 7 * 24 * hour_ns;
    assert_eq!(policies, [("autogen", 0, week_ns), ("hour", 5200 * week_ns, hour_ns)]);
    assert_eq!((database.name.as_str(), database.default_policy.as_str()), ("g", "autogen"));
    assert!(database.continuous_queries[0].1.starts_with("CREATE CONTINUOUS QUERY cq ON g BEGIN"));
    let users: Vec<_> = source.meta.users.iter().map(|user| (user.name.as_str(), user.is_admin)).collect();
    assert_eq!(users, [("ada", true), ("bob", false)]);
    assert_eq!(source.meta.users[1].privileges, [("g".to_owned(), 2)]);
}

#[test]
fn without_meta_db_directories_name_databases() {
    let is_meta = |path: &Path| path.ends_with("meta.db");
    let test = TestEnv::golden(&|path, bytes| (!is_meta(path)).then_some(bytes));
    let report = test.import();
    assert!(report.notes.len() == 1 && report.notes[0].contains("meta.db is missing"), "{:?}", report.notes);
    assert!(test.points() == expected(), "other points");
}

#[test]
fn a_second_import_brings_nothing_and_a_grown_shard_replaces_its_blocks() {
    let is_wal = |path: &Path| path.starts_with("wal");
    let test = TestEnv::golden(&|path, bytes| (!is_wal(path)).then_some(bytes));
    assert_eq!(test.import().shards, 3);
    let without_wal = test.points();
    let again = test.import();
    assert_eq!((again.shards, again.shards_present, again.points), (0, 3, 0));
    assert!(test.points() == without_wal, "other points");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/influxdb-1.6.7");
    let wal = Path::new("wal/g/autogen/1/_00004.wal");
    put(&test.env, wal, &std::fs::read(dir.join(wal)).unwrap());
    let grown = test.import();
    assert_eq!((grown.shards, grown.shards_present), (1, 2));
    let mut expected = expected();
    expected.retain(|key, _| !(key.0 == "hour" && key.4 == TIME + 5));
    assert!(test.points() == expected, "other points");
}

/// The last operation of the disk may be any: the next import removes unfinished blocks.
#[test]
fn an_import_that_fails_anywhere_is_resumed() {
    let expected = expected();
    let (mut failed, mut whole) = (0, 0);
    for op_count in (0..600).step_by(5) {
        let test = TestEnv::golden(&|_, bytes| Some(bytes));
        test.disk.fail_after(op_count);
        // A file of the source that cannot be read is damage, not an error.
        let first = test.try_import();
        test.disk.heal();
        match first {
            Ok(report) if report.damages.is_empty() => whole += 1,
            Ok(_) => continue,
            Err(_) => failed += 1,
        }
        test.import();
        assert!(test.points() == expected, "after {op_count} operations");
    }
    assert!(failed > 10 && whole > 10, "{failed} failed, {whole} whole");
}

/// Points with a value that was ever written, and a report that names every loss.
#[track_caller]
fn check_damaged(test: &TestEnv, expected: &Points, place: &str) -> InfluxReport {
    let report = test.import();
    let found = test.points();
    let is_named = !report.damages.is_empty() || !report.notes.is_empty();
    assert!(is_named || found == *expected, "{place}: a loss without a name");
    // A lost tombstone or WAL gives points back; damage makes none up.
    let is_known = |key: &&(String, String, String, String, i64)| {
        expected.contains_key(key) || key.1 == "gone" || key.2.contains("\"b\"") || key.2.contains("\"c\"")
    };
    assert_eq!(found.keys().find(|key| !is_known(key)), None, "{place}");
    report
}

#[test]
fn a_tsm_file_cut_anywhere_is_named_and_costs_itself_alone() {
    let expected = expected();
    for name in ["data/g/autogen/1/000000002-000000001.tsm", "data/g/autogen/1/000000001-000000001.tsm"] {
        let len = std::fs::metadata(golden_path(name)).unwrap().len() as usize;
        for end in (0..len).step_by(if len > 1000 { 97 } else { 5 }) {
            let test = TestEnv::golden(&|path, mut bytes| {
                bytes.truncate(if path == Path::new(name) { end } else { usize::MAX });
                Some(bytes)
            });
            let report = check_damaged(&test, &expected, &format!("{name} cut at {end}"));
            assert_eq!(report.damages.len(), 1, "{end}: {:?}", report.damages);
            assert!(report.damages[0].path.ends_with(name));
        }
    }
}

/// Every block of the file in turn: one damage with its offset, and the points of other blocks stay.
#[test]
fn a_flipped_bit_in_a_block_costs_that_block() {
    let expected = expected();
    let name = "data/g/autogen/1/000000001-000000001.tsm";
    let bytes = std::fs::read(golden_path(name)).unwrap();
    let index_start = u64::from_be_bytes(bytes[bytes.len() - 8..].try_into().unwrap()) as usize;
    for at in (5..index_start).step_by(61) {
        let test = TestEnv::golden(&|path, mut bytes| {
            if path == Path::new(name) {
                bytes[at] ^= 0x10;
            }
            Some(bytes)
        });
        let report = check_damaged(&test, &expected, &format!("bit of byte {at}"));
        assert_eq!(report.damages.len(), 1, "{at}: {:?}", report.damages);
        assert!(report.damages[0].offset <= at as u64 && report.points + 41 >= expected.len() as u64);
    }
}

/// The index has no checksum of its own, so a key may change its name; nothing panics.
#[test]
fn flipped_bits_of_an_index_do_no_harm() {
    let name = "data/g/autogen/1/000000001-000000001.tsm";
    let bytes = std::fs::read(golden_path(name)).unwrap();
    let index_start = u64::from_be_bytes(bytes[bytes.len() - 8..].try_into().unwrap()) as usize;
    for at in (index_start..bytes.len()).step_by(3) {
        let test = TestEnv::golden(&|path, mut bytes| {
            if path == Path::new(name) {
                bytes[at] ^= 1 << (at % 8);
            }
            Some(bytes)
        });
        test.import();
        test.points();
    }
}

#[test]
fn a_wal_cut_anywhere_keeps_what_is_before_the_cut() {
    let expected = expected();
    let name = "wal/g/autogen/1/_00004.wal";
    let bytes = std::fs::read(golden_path(name)).unwrap();
    let mut ends = vec![0];
    while let Some(len) = bytes.get(ends[ends.len() - 1] + 1..ends[ends.len() - 1] + 5) {
        ends.push(ends[ends.len() - 1] + 5 + u32::from_be_bytes(len.try_into().unwrap()) as usize);
    }
    for end in 0..bytes.len() {
        let test = TestEnv::golden(&|path, mut bytes| {
            bytes.truncate(if path == Path::new(name) { end } else { usize::MAX });
            Some(bytes)
        });
        // A segment that ends with an entry is whole.
        if ends.contains(&end) {
            assert_eq!(test.import().notes.len(), 0, "{end}");
        } else {
            let is_undeleted = end < ends[3];
            let report = test.import();
            assert_eq!((report.notes.len(), report.damages.len()), (1, 0), "{end}: {:?}", report.notes);
            let found = test.points();
            let extra = found.keys().filter(|key| !expected.contains_key(key)).count();
            assert!(extra <= usize::from(is_undeleted), "{end}: {extra}");
        }
    }
}

#[test]
fn flipped_bits_of_wal_tombstones_and_meta_do_no_harm() {
    let names = ["wal/g/autogen/1/_00004.wal", "data/g/autogen/1/000000001-000000001.tombstone"];
    for name in names {
        let len = std::fs::metadata(golden_path(name)).unwrap().len() as usize;
        for at in (0..len * 8).step_by(5) {
            let test = TestEnv::golden(&|path, mut bytes| {
                if path == Path::new(name) {
                    bytes[at / 8] ^= 1 << (at % 8);
                }
                Some(bytes)
            });
            test.import();
            test.points();
        }
    }
}

/// One WAL entry: float points of keys at time 1, and one unsigned point.
fn wal_of(keys: &[&[u8]]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut add = |value_type: u8, key: &[u8], value: u64| {
        plain.push(value_type);
        plain.extend_from_slice(&(key.len() as u16).to_be_bytes());
        plain.extend_from_slice(key);
        plain.extend_from_slice(&1u32.to_be_bytes());
        plain.extend_from_slice(&1i64.to_be_bytes());
        plain.extend_from_slice(&value.to_be_bytes());
    };
    keys.iter().for_each(|key| add(1, key, 2.5f64.to_bits()));
    add(5, b"u#!~#v", u64::MAX);
    let compressed = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    [&[1u8][..], &(compressed.len() as u32).to_be_bytes(), &compressed].concat()
}

#[test]
fn series_that_cannot_be_stored_are_counted_and_the_others_stay() {
    let keys: [&[u8]; 5] =
        [b"m\xff#!~#v", b"m,t=\xff#!~#v", b"m,__kind__=x#!~#v", b"m,t=a\\ b#!~#v", b"no separator"];
    let test = TestEnv::golden(&|_, _| None);
    put(&test.env, Path::new("wal/g/autogen/1/_00001.wal"), &wal_of(&keys));
    let report = test.import();
    let rejected: Vec<_> =
        report.rejected.iter().map(|(why, series)| (*why, series.series, series.points)).collect();
    let want = [(KeyReject::InvalidUtf8, 2, 2), (KeyReject::ReservedTag, 1, 1), (KeyReject::Malformed, 1, 1)];
    assert_eq!(rejected, want);
    let found: Vec<_> = test.points().into_iter().map(|(key, value)| (key.1, key.2, key.3, value)).collect();
    let want =
        [("m", r#"[["t","a b"]]"#, "v (float)", json!(2.5)), ("u", "[]", "v (unsigned)", json!(u64::MAX))];
    assert_eq!(found, want.map(|row| (row.0.to_owned(), row.1.to_owned(), row.2.to_owned(), row.3)));
}

#[test]
fn keys_that_differ_in_needless_escapes_are_one_series() {
    let test = TestEnv::golden(&|_, _| None);
    let dir = Path::new("wal/g/autogen/1");
    put(&test.env, &dir.join("_00001.wal"), &wal_of(&[br"m\=x,t=a#!~#v"]));
    put(&test.env, &dir.join("_00002.wal"), &wal_of(&[b"m=x,t=a#!~#v"]));
    let report = test.import();
    assert_eq!((report.points, report.left_out.overwritten), (2, 1));
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/influxdb-1.6.7").join(name)
}
