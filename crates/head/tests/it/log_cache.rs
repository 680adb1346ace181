//! A head whose WAL is a cache of a replicated log: whatever is stopped, cut or damaged, it opens as the
//! records before its position, exactly, or not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Disk, MemDisk, Rng};
use chronolith_head::{Head, HeadError, SyncMode, discard_log_cache};
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use chronolith_model::{DuplicatePolicy, Matcher, TenantLimits, TimeRange};

use crate::harness::{
    Model, NOW_MS, TestEnv, WINDOW_MS, batch, damaged_positions, delete, labels, read_all, tenant,
};

const PARTITION: LogPartition = LogPartition { topic: TopicId([5; 16]), number: PartitionId(3) };
const BASE: i64 = NOW_MS - NOW_MS % WINDOW_MS - 4 * WINDOW_MS;
/// Offset of the first record.
const FIRST: u64 = 7;

fn test_env(seed: u64) -> TestEnv {
    let mut test_env = TestEnv::new(seed);
    test_env.options.log = Some(PARTITION);
    test_env.options.sync = SyncMode::Interval(1000);
    test_env.options.wal_segment_bytes = 2 << 10;
    test_env.options.sealed_file_bytes = 2 << 10;
    test_env
}

/// Content of a record.
enum Record {
    /// Samples under a policy, by series.
    Samples(DuplicatePolicy, Vec<(u64, Vec<(i64, f64)>)>),
    /// Samples to delete.
    Delete(u64, TimeRange),
}

/// Records whose results depend on their order: values for equal timestamps under both policies, samples out
/// of order, new series, deletions.
fn random_records(seed: u64, count: u64) -> Vec<Record> {
    let rng = Rng::from_seed(seed);
    let record = |offset: u64| {
        if rng.below(12) == 0 {
            let start = BASE + (rng.below(offset + 1) * 1000).cast_signed();
            return Record::Delete(rng.below(6), TimeRange::new(start, start + 3000));
        }
        let policy = if rng.below(2) == 0 { DuplicatePolicy::KeepFirst } else { DuplicatePolicy::LastWins };
        let series = (0..=rng.below(4)).map(|_| {
            let samples = (0..=rng.below(5)).map(|_| {
                // Few distinct times, so that most samples meet another one.
                let age = if rng.below(3) == 0 { rng.below(offset + 1) } else { 0 };
                (BASE + ((offset - age) * 1000).cast_signed(), rng.below(1000) as f64 / 8.0)
            });
            (rng.below(6 + offset / 8), samples.collect())
        });
        Record::Samples(policy, series.collect())
    };
    (0..count).map(record).collect()
}

fn apply(test_env: &TestEnv, head: &Head, offset: u64, record: &Record) {
    let log = head.log_cache().expect("an owner");
    let guard = log.begin_record(offset).expect("the WAL is open");
    match record {
        Record::Samples(duplicates, series) => {
            let rows: Vec<_> = series.iter().map(|(idx, samples)| (labels(*idx), samples.clone())).collect();
            let limits = TenantLimits { duplicates: *duplicates, ..test_env.limits.clone() };
            let _ = head.append(&tenant("a"), &limits, NOW_MS, &batch(&rows)).expect("appended");
        }
        Record::Delete(idx, range) => {
            let selector = vec![Matcher::equal("instance", &format!("host-{idx}"))];
            let _ = delete(head, "a", &[selector], *range);
        }
    }
    let _ = guard.finish();
}

/// Content before each record, and after the last one.
fn states(records: &[Record]) -> Vec<Model> {
    let test_env = test_env(99);
    let (head, _) = test_env.open();
    head.log_cache().expect("an owner").start(FIRST).expect("started");
    let mut states = vec![Model::new()];
    for (offset, record) in (FIRST..).zip(records) {
        apply(&test_env, &head, offset, record);
        states.push(read_all(&test_env, &head, &["a"]));
    }
    states
}

/// Returns the offset of the next record of a head, which has exactly the records before.
#[track_caller]
fn check(test_env: &TestEnv, head: &Head, states: &[Model], what: &str) -> u64 {
    let next = head.log_cache().expect("an owner").next().map_or(FIRST, |position| position.offset);
    assert_eq!(read_all(test_env, head, &["a"]), states[(next - FIRST) as usize], "{what}: at {next}");
    next
}

/// Applies the records from the position of the head on.
fn go_on(test_env: &TestEnv, head: &Head, records: &[Record]) {
    let log = head.log_cache().expect("an owner");
    let next = log.next().map(|position| position.offset);
    if next.is_none() {
        log.start(FIRST).expect("started");
    }
    let done = next.unwrap_or(FIRST) - FIRST;
    for (offset, record) in (FIRST..).zip(records).skip(done as usize) {
        apply(test_env, head, offset, record);
    }
}

/// Stops of all kinds, checkpoints of all kinds, at random.
#[test]
fn an_owner_that_is_stopped_goes_on_at_its_position() {
    let (mut resumed_count, mut lost_count) = (0, 0);
    for seed in 0..12 {
        let records = random_records(seed, 60);
        let states = states(&records);
        let (test_env, rng) = (test_env(seed), Rng::from_seed(1000 + seed));
        let mut applied = FIRST;
        while applied < FIRST + records.len() as u64 {
            let (head, report) = test_env.open();
            let what = format!("seed {seed}, {applied} were applied");
            let next = check(&test_env, &head, &states, &what);
            assert_eq!(report.log_position.map_or(FIRST, |position| position.offset), next, "{what}");
            assert!(next <= applied, "{what}");
            resumed_count += u64::from(next > FIRST);
            lost_count += applied - next;
            let log = head.log_cache().expect("an owner");
            if log.next().is_none() {
                log.start(FIRST).expect("started");
            }
            applied = next;
            for _ in 0..=rng.below(15) {
                match rng.below(12) {
                    0 => _ = head.checkpointer().checkpoint().expect("written"),
                    1 => _ = head.checkpointer().checkpoint_newest().expect("written"),
                    2 | 3 => {
                        test_env.clock.advance(Duration::from_secs(1000));
                        let _ = head.checkpointer().roll_checkpoint().expect("written");
                    }
                    4 => head.recover_space(),
                    5 => head.prepare_segment().expect("prepared"),
                    _ => {
                        let Some(record) = records.get((applied - FIRST) as usize) else { break };
                        apply(&test_env, &head, applied, record);
                        applied += 1;
                    }
                }
            }
            let how = rng.below(4);
            if how == 0 {
                head.close().expect("closed");
            }
            drop(head);
            match how {
                1 => test_env.disk.kill(),
                2 => test_env.disk.crash(),
                3 => test_env.disk.crash_partly(&rng),
                _ => {}
            }
        }
    }
    assert!(resumed_count > 50, "{resumed_count} starts found a position");
    assert!(lost_count > 50, "{lost_count} records were read again");
}

type Files = Vec<(PathBuf, Vec<u8>)>;

/// Files of an owner that was killed after the records, with a checkpoint of the first of them.
fn files_of(records: &[Record]) -> Files {
    let test_env = test_env(1);
    let (head, _) = test_env.open();
    go_on(&test_env, &head, &records[..records.len() / 3]);
    let _ = head.checkpointer().checkpoint_newest().expect("written");
    go_on(&test_env, &head, records);
    test_env.clock.advance(Duration::from_secs(2));
    head.recover_space();
    drop(head);
    test_env.disk.kill();
    let mut files = Files::new();
    for dir in ["/data/wal", "/data/chunks"].map(PathBuf::from) {
        for entry in test_env.disk.list(&dir).expect("listed") {
            let path = dir.join(&entry.name);
            files.push((path.clone(), test_env.disk.read(&path).expect("read")));
        }
    }
    files
}

fn with_files(files: &Files) -> TestEnv {
    let test_env = test_env(2);
    let disk: &Arc<MemDisk> = &test_env.disk;
    for (path, bytes) in files {
        disk.create_dir_all(path.parent().expect("a folder")).expect("made");
        disk.create(path).and_then(|file| file.write_at(bytes, 0)).expect("written");
    }
    test_env
}

/// Result of a start over damaged files.
#[derive(Debug, Default)]
struct Tally {
    whole: u64,
    earlier: u64,
    refused: u64,
}

/// Opens damaged files: the head has the records before its position, or it refuses; afterwards it takes the
/// other records, and opens again with all of them.
fn check_damaged(files: &Files, records: &[Record], states: &[Model], tally: &mut Tally, what: &str) {
    let test_env = with_files(files);
    let head = match test_env.try_open() {
        Ok((head, _)) => head,
        Err(HeadError::LogCache(_)) => {
            tally.refused += 1;
            assert!(discard_log_cache(&test_env.env, &test_env.options.dir).expect("removed"), "{what}");
            test_env.open().0
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let next = check(&test_env, &head, states, what);
    let end = FIRST + records.len() as u64;
    *(if next == end { &mut tally.whole } else { &mut tally.earlier }) += 1;
    if !next.is_multiple_of(3) && next != end {
        // The rest of the test takes most of its time.
        return;
    }
    go_on(&test_env, &head, records);
    test_env.clock.advance(Duration::from_secs(2));
    head.recover_space();
    drop(head);
    test_env.disk.kill();
    let (head, report) = test_env.open();
    assert_eq!(check(&test_env, &head, states, what), end, "{what}");
    assert_eq!(report.removed_frames, 0, "{what}");
}

#[test]
fn no_damage_to_the_wal_gives_a_position_ahead_of_its_samples() {
    let records = random_records(77, 40);
    let (states, files) = (states(&records), files_of(&records));
    let mut tally = Tally::default();
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    let segments: Vec<usize> = (0..files.len()).filter(|&idx| is_segment(&files[idx].0)).collect();
    assert!(segments.len() > 2, "{} segments", segments.len());
    check_damaged(&files, &records, &states, &mut tally, "undamaged");
    assert_eq!((tally.whole, tally.refused), (1, 0));
    for idx in segments {
        let (path, bytes) = &files[idx];
        for at in damaged_positions(idx, bytes.len()).step_by(5) {
            let mut flipped = files.clone();
            flipped[idx].1[at] ^= 1 << (at % 8);
            check_damaged(&flipped, &records, &states, &mut tally, &format!("{path:?} flipped at {at}"));
            let mut cut = files.clone();
            cut[idx].1.truncate(at);
            check_damaged(&cut, &records, &states, &mut tally, &format!("{path:?} cut at {at}"));
        }
        let mut gone = files.clone();
        gone.remove(idx);
        check_damaged(&gone, &records, &states, &mut tally, &format!("{path:?} gone"));
    }
    assert!(tally.earlier > 50, "{tally:?}");
}

/// Damage to the checkpoint: the other copy and the WAL replace it, or the start refuses.
#[test]
fn damage_to_the_checkpoint_is_replaced_or_refused() {
    let records = random_records(78, 40);
    let (states, files) = (states(&records), files_of(&records));
    let mut tally = Tally::default();
    for idx in 0..files.len() {
        let (path, bytes) = &files[idx];
        // Chunks of sealed files are verified after the start.
        let is_other = path.extension().is_some_and(|extension| extension == "seg" || extension == "sealed");
        if is_other || bytes.is_empty() {
            continue;
        }
        for at in damaged_positions(idx, bytes.len()).step_by(37) {
            let mut flipped = files.clone();
            flipped[idx].1[at] ^= 1 << (at % 8);
            check_damaged(&flipped, &records, &states, &mut tally, &format!("{path:?} flipped at {at}"));
        }
        let mut gone = files.clone();
        gone.remove(idx);
        check_damaged(&gone, &records, &states, &mut tally, &format!("{path:?} gone"));
    }
    assert!(tally.whole + tally.earlier > 10, "{tally:?}");
}

/// A directory with samples of clients is not taken for a cache, nor a cache for a database.
#[test]
fn directories_of_owners_and_single_servers_are_not_mixed() {
    let mut owner = test_env(3);
    let (head, _) = owner.open();
    go_on(&owner, &head, &random_records(3, 4));
    head.close().expect("closed");
    drop(head);
    owner.options.log = None;
    let refused = |test_env: &TestEnv| test_env.try_open().err().expect("refused").to_string();
    assert!(refused(&owner).contains("start with the log and the partition"), "{}", refused(&owner));
    owner.options.log = Some(LogPartition { number: PartitionId(4), ..PARTITION });
    assert!(refused(&owner).contains("cache of partition 3 of topic"), "{}", refused(&owner));

    let mut single = TestEnv::new(4);
    let (head, _) = single.open();
    let rows = batch(&[(labels(1), vec![(NOW_MS, 1.0)])]);
    single.write(&head, &tenant("a"), &rows).expect("written");
    assert!(head.log_cache().is_none());
    drop(head);
    single.options.log = Some(PARTITION);
    assert!(refused(&single).contains("not from a replicated log"), "{}", refused(&single));
    assert!(!discard_log_cache(&single.env, &single.options.dir).expect("nothing to do"), "not an owner's");
    single.options.log = None;
    assert_eq!(single.open().1.samples, 1);
}

/// A record whose samples are refused leaves no part of itself: the head stays at the record.
#[test]
fn a_record_that_is_not_finished_is_not_applied() {
    let test_env = test_env(5);
    let (head, _) = test_env.open();
    let records = random_records(5, 3);
    go_on(&test_env, &head, &records);
    drop(head.log_cache().expect("an owner").begin_record(FIRST + 3).expect("begun"));
    let next = |head: &Head| head.log_cache().expect("an owner").next().map(|position| position.offset);
    assert_eq!(next(&head), Some(FIRST + 3));
    // Offsets may leave some out.
    let _ = head.log_cache().expect("an owner").begin_record(FIRST + 9).expect("begun").finish();
    head.close().expect("closed");
    drop(head);
    assert_eq!(next(&test_env.open().0), Some(FIRST + 10));
}

/// Regression: series that a start had put into the series file before their slice was first written made the
/// next start ask for the first frame of the log, which was freed, and refuse.
#[test]
fn a_slice_that_was_never_written_needs_only_the_frames_that_are_kept() {
    let mut test_env = test_env(6);
    test_env.options.wal_segment_bytes = 32 << 10;
    let row = |idx: u64| (idx, vec![(BASE, idx as f64)]);
    let records: Vec<Record> = [0..1000, 1000..1100]
        .map(|series| Record::Samples(DuplicatePolicy::KeepFirst, series.map(row).collect()))
        .into();
    let (head, _) = test_env.open();
    go_on(&test_env, &head, &records[..1]);
    let freed = head.checkpointer().checkpoint().expect("written").removed_bytes;
    assert!(freed > 0, "the first frame is gone");
    go_on(&test_env, &head, &records);
    let states = [Model::new(), Model::new(), read_all(&test_env, &head, &["a"])];
    test_env.clock.advance(Duration::from_secs(2));
    head.recover_space();
    drop(head);
    for _ in 0..3 {
        test_env.disk.kill();
        let (head, _) = test_env.open();
        assert_eq!(check(&test_env, &head, &states, "restarted"), FIRST + 2);
    }
}
