//! Damage campaign: every file of a stopped data directory is damaged in seven ways. Afterwards either
//! everything that was acknowledged is there, or the loss is named by the start, by its metric and by
//! `check`.
//!
//! `CHRONOLITH_DAMAGE_SEEDS=100 cargo test -p chronolith-tsdb --test it damage::` runs more seeds than the default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Disk, MemDisk, Rng};
use chronolith_model::{
    Columns, Labels, Matcher, MetadataEntry, MetricKind, ReadContext, Selector, TenantId, TimeRange,
    WriteBatch,
};
use chronolith_tsdb::check::check_dir;
use chronolith_tsdb::{ReplayProgress, Tsdb};

use crate::fixture::{HOUR_MS, Machine, START_MS};
use crate::kinds::{Sample, push, random_sample, text, texts};

/// Seeds of a usual run.
const SEEDS: u64 = 2;
const NAMES: u64 = 5;

/// Kinds of files and ways whose loss is silent, or not named everywhere, until another change is merged.
const NOT_YET_REPAIRED_HERE: &[(&str, &[Way])] = &[
    // A missing newest segment, and damage behind the last whole frame, which passes for a torn tail.
    (".seg", &[Way::Delete, Way::Truncate, Way::Bit, Way::Byte, Way::Zeros, Way::Page]),
    // The presence of tombstones is not recorded.
    ("/tombstones", &[Way::Delete, Way::Truncate, Way::Bit, Way::Byte, Way::Zeros, Way::Page, Way::Grow]),
    // A start opens blocks and verifies their chunks only when they are read; `check` names the damage.
    ("/tenants/", &[Way::Delete, Way::Truncate, Way::Bit, Way::Byte, Way::Zeros, Way::Page, Way::Grow]),
];

/// A single one of these loses nothing.
const REDUNDANT: [&str; 4] = [".slice", ".definitions", "metadata.log", "metadata.mirror"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bit,
    Byte,
    Zeros,
    Truncate,
    Delete,
    Page,
    Grow,
}

const WAYS: [Way; 7] = [Way::Bit, Way::Byte, Way::Zeros, Way::Truncate, Way::Delete, Way::Page, Way::Grow];

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What a store answers: samples with their start times by series, and metadata.
#[derive(Default, PartialEq)]
struct Answers {
    samples: BTreeMap<String, BTreeMap<i64, (String, i64)>>,
    metadata: Vec<MetadataEntry>,
    read_error_count: u64,
}

fn name_of(idx: u64) -> String {
    format!("s{idx}")
}

fn answers(machine: &Machine, tsdb: &Tsdb) -> Answers {
    let tenant = TenantId::anonymous();
    let mut out = Answers { metadata: tsdb.metadata(&tenant, None, 0), ..Answers::default() };
    // After a kill the order of entries may be a minute old.
    out.metadata.sort_by_key(|entry| format!("{entry:?}"));
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    for idx in 0..NAMES {
        let matchers = [Matcher::equal("__name__", &name_of(idx))];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let mut series = Vec::new();
        let selected = tsdb.queryable(&tenant).select(&selector, &ctx).and_then(|mut batches| {
            while batches.next_batch(&mut series)? {}
            Ok(())
        });
        out.read_error_count += u64::from(selected.is_err());
        let mut columns = Columns::default();
        for one in &series {
            out.read_error_count += u64::from(one.samples.read(TimeRange::ALL, &mut columns).is_err());
        }
        let samples = texts(&columns).into_iter().enumerate();
        let samples = samples.map(|(at, (time, text))| (time, (text, columns.start_time_at(at))));
        out.samples.insert(name_of(idx), samples.collect());
    }
    out
}

fn write(rng: &Rng, tsdb: &Tsdb, times: impl Iterator<Item = i64>) {
    let times: Vec<i64> = times.collect();
    let mut batch = WriteBatch::from_labels();
    for idx in 0..NAMES {
        let sample = |time: i64| match idx {
            0 | 1 => random_sample(rng, time.unsigned_abs() / 60_000 % 10_000),
            _ => Sample::Float((time % 9) as f64),
        };
        let samples: Vec<(i64, Sample)> =
            times.iter().map(|&time| (time + idx as i64, sample(time))).collect();
        assert!(samples.iter().all(|(_, sample)| !text(sample).is_empty()));
        push(&mut batch, &Labels::from_pairs([("__name__", &*name_of(idx)), ("a", "b")]), &samples);
        let start_ms = |time: i64| if idx == 2 { time - 1000 } else { 0 };
        batch.start_times.extend(samples.iter().map(|(time, _)| start_ms(*time)));
    }
    batch.metadata = (0..3)
        .map(|idx| MetadataEntry {
            metric: format!("s{idx}"),
            kind: MetricKind::Counter,
            help: format!("help {}", rng.below(3)),
            unit: String::new(),
        })
        .collect();
    tsdb.append(&TenantId::anonymous(), &batch).expect("stored");
}

/// A life with floats, histograms, start times, metadata, out-of-order samples, sealed chunks, blocks and a
/// tombstone; gives the files it leaves behind and its last answers.
fn life(seed: u64, is_kill: bool) -> (Files, Answers) {
    let mut machine = Machine::new(seed);
    machine.options.wal_segment_bytes = 64 << 10;
    let (rng, tsdb) = (Rng::from_seed(seed), machine.open());
    for hour in [-8, -6] {
        let base = START_MS + hour * HOUR_MS;
        write(&rng, &tsdb, (0..130).map(|i| base + i * 15_000));
        machine.clock.advance(Duration::from_millis(1));
        tsdb.flush_closed(machine.env.clock.now_ms()).expect("flushes");
    }
    let matchers = vec![vec![Matcher::equal("__name__", "s4")]];
    let range = TimeRange::new(START_MS - 8 * HOUR_MS, START_MS - 8 * HOUR_MS + 600_000);
    tsdb.delete_series(&TenantId::anonymous(), &matchers, range).expect("deleted");
    for round in 0..3 {
        let base = START_MS + round * 1_800_000;
        write(&rng, &tsdb, (0..130 + rng.below(60) as i64).map(|i| base + i * 10_000));
        write(&rng, &tsdb, (0..10).map(|i| base + i * 30_000 + 5000));
        machine.clock.advance(Duration::from_secs(1800));
        tsdb.roll_checkpoint();
    }
    write(&rng, &tsdb, (0..20).map(|i| START_MS + 5_600_000 + i * 10_000));
    let answers = answers(&machine, &tsdb);
    if !is_kill {
        tsdb.close().expect("closes");
    }
    drop(tsdb);
    let mut files = Files::new();
    collect(&machine.disk, Path::new("/data"), &mut files);
    for kind in [
        ".seg",
        ".slice0",
        ".slice1",
        ".definitions",
        "-mirror",
        ".sealed",
        "metadata.",
        "/index",
        "/tombstones",
    ] {
        assert!(files.keys().any(|path| path.to_string_lossy().contains(kind)), "the life leaves a {kind}");
    }
    (files, answers)
}

fn collect(disk: &MemDisk, dir: &Path, files: &mut Files) {
    for entry in disk.list(dir).expect("listed") {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            collect(disk, &path, files);
        } else if entry.name != "lock" {
            files.insert(path.clone(), disk.read(&path).expect("read"));
        }
    }
}

fn machine_with(files: &Files) -> Machine {
    let machine = Machine::new(1);
    machine.clock.advance(Duration::from_secs(5400));
    for (path, bytes) in files {
        machine.disk.create_dir_all(path.parent().expect("a directory")).expect("made");
        let file = machine.disk.create(path).expect("made");
        file.write_at(bytes, 0).expect("written");
    }
    machine
}

fn damage(rng: &Rng, files: &mut Files, path: &Path, way: Way) {
    let Some(bytes) = files.get_mut(path) else { return };
    let at = rng.below(bytes.len().max(1) as u64) as usize;
    let page = at..bytes.len().min(at + 4096);
    match way {
        Way::Bit => bytes[at] ^= 1 << rng.below(8),
        Way::Byte => bytes[at] = bytes[at].wrapping_add(1 + rng.below(255) as u8),
        Way::Zeros => bytes[page].fill(0),
        Way::Truncate => bytes.truncate(at),
        Way::Delete => drop(files.remove(path)),
        Way::Page => bytes[page].iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
        Way::Grow => bytes.extend((0..1 + rng.below(4096)).map(|_| rng.below(256) as u8)),
    }
}

/// Opens the damaged directory; the error says what is wrong.
fn check_case(want: &Answers, files: &Files, is_redundant: bool) -> Result<(), String> {
    let machine = machine_with(files);
    let damages = check_dir(&machine.env, Path::new("/data")).map_err(|e| e.to_string())?.damages;
    let opened =
        Tsdb::open(machine.env.clone(), machine.options.clone(), Arc::new(ReplayProgress::default()));
    let tsdb = match opened {
        Ok(tsdb) => tsdb,
        Err(error) if is_redundant => return Err(format!("does not open: {error}")),
        Err(_) if damages.is_empty() => return Err("does not open, and check finds nothing".to_owned()),
        Err(_) => return Ok(()),
    };
    // Every round verifies a sealed file.
    (0..20).for_each(|_| tsdb.roll_checkpoint());
    let (found, notes) = (answers(&machine, &tsdb), tsdb.stats().replay_notes);
    if found == *want {
        return Ok(());
    }
    let count = |answers: &Answers| answers.samples.values().map(BTreeMap::len).sum::<usize>();
    let loss = format!(
        "{} of {} samples, {} of {} metadata entries, {} read errors; start: {notes:?}; check: {damages:?}",
        count(&found),
        count(want),
        found.metadata.len(),
        want.metadata.len(),
        found.read_error_count
    );
    match () {
        () if is_redundant => Err(format!("a redundant file loses: {loss}")),
        () if notes.is_empty() => Err(format!("the start does not name the loss: {loss}")),
        () if damages.is_empty() => Err(format!("check does not name the loss: {loss}")),
        () => Ok(()),
    }
}

/// What broke: flipped bits and missing files lost acknowledged samples, deletions and metadata without a word.
#[test]
fn every_damaged_file_loses_nothing_or_is_named() {
    let seeds = std::env::var("CHRONOLITH_DAMAGE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let (mut case_count, mut failures) = (0, Vec::new());
    for seed in 0..seeds {
        for is_kill in [false, true] {
            let (files, want) = life(seed, is_kill);
            check_case(&want, &files, true).expect("nothing is damaged");
            let rng = Rng::from_seed(seed ^ 0xdada);
            for path in files.keys() {
                let text = path.to_string_lossy();
                let is_redundant = REDUNDANT.iter().any(|kind| text.contains(kind));
                for way in WAYS {
                    let is_excused = NOT_YET_REPAIRED_HERE
                        .iter()
                        .any(|(kind, ways)| text.contains(kind) && ways.contains(&way));
                    let mut damaged = files.clone();
                    damage(&rng, &mut damaged, path, way);
                    let outcome = check_case(&want, &damaged, is_redundant);
                    case_count += 1;
                    if let Err(what) = outcome
                        && !is_excused
                    {
                        failures.push(format!("seed {seed}, kill {is_kill}, {text} {way:?}: {what}"));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {case_count} cases:\n{}", failures.len(), failures.join("\n"));
}
