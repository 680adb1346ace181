//! Tests of a log in a directory: crashes at every operation, damage at every byte, limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use chronolith_base::{Disk, MemDisk, Rng};
use chronolith_format::replicated_log::directory::{SEGMENT_HEADER_BYTES, segment_name};

const DIR: &str = "/logs/topic";
const P0: PartitionId = PartitionId(0);
const NO_WAIT: ReadLimits = ReadLimits { bytes_max: 1 << 20, wait: Duration::ZERO };

fn options() -> DirOptions {
    let mut options = DirOptions::new(DIR, 2);
    options.segment_bytes = 200;
    options
}

fn env() -> (Env, Arc<MemDisk>) {
    let (env, _, disk) = Env::fake(1_795_132_800_000, 5);
    (env, disk)
}

fn open(env: &Env) -> DirLog {
    DirLog::open(env, options()).expect("opens")
}

fn append(log: &DirLog, value: &str) -> Result<u64, LogError> {
    log.append(P0, Bytes::from(value.to_owned()))?.wait().map(|at| at.offset)
}

/// Reads everything from `from` on, over lost records, which are returned apart.
fn read_all(log: &DirLog, from: u64) -> (Vec<(u64, Bytes)>, Vec<std::ops::Range<u64>>) {
    let mut next = from;
    let mut records = Vec::new();
    let mut lost = Vec::new();
    while next < log.bounds(P0).expect("bounds").end {
        match log.read(P0, next, NO_WAIT) {
            Ok(found) => {
                next = found.last().expect("a record").offset + 1;
                records.extend(found.into_iter().map(|record| (record.offset, record.value)));
            }
            Err(LogError::Damaged { lost: range, what, .. }) => {
                assert!(range.start == next && range.end > next, "{range:?} at {next}");
                assert!(what.contains(DIR) && what.contains("byte"), "{what}");
                next = range.end;
                lost.push(range);
            }
            Err(error) => panic!("{error}"),
        }
    }
    (records, lost)
}

fn segment_path(first_offset: u64) -> PathBuf {
    Path::new(DIR).join("0").join(segment_name(first_offset))
}

fn segments(disk: &MemDisk) -> Vec<String> {
    disk.list(&Path::new(DIR).join("0")).expect("lists").into_iter().map(|entry| entry.name).collect()
}

/// Whatever operation fails or is the last one before a power cut: acknowledged records are there, in order,
/// and refused ones are not.
#[test]
fn acknowledged_records_survive_a_power_cut_at_every_operation() {
    let mut finished = 0;
    for op_count in 0..80 {
        for seed in 0..6 {
            let (env, disk) = env();
            disk.fail_after(op_count);
            let mut outcomes = Vec::new();
            if let Ok(log) = DirLog::open(&env, options()) {
                for number in 0..12 {
                    let value = format!("{number} {}", "x".repeat(number * 9));
                    outcomes.push((value.clone(), append(&log, &value)));
                }
            }
            finished += usize::from(outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).count() == 12);
            disk.heal();
            if seed == 0 {
                disk.crash()
            } else {
                disk.crash_partly(&Rng::from_seed(seed))
            }
            let log = open(&env);
            let (records, lost) = read_all(&log, 0);
            assert_eq!(lost, []);
            let mut left = records.iter().peekable();
            for (value, outcome) in &outcomes {
                let found = left.next_if(|(_, stored)| stored == value.as_bytes());
                let what = format!("{value:?} {outcome:?}, operation {op_count}, seed {seed}");
                match outcome {
                    Ok(offset) => assert_eq!(found.map(|(at, _)| at), Some(offset), "{what}"),
                    Err(error) => assert!(found.is_none() || error.may_be_written(), "{what}"),
                }
            }
            assert_eq!(left.next(), None, "operation {op_count}, seed {seed}");
            append(&log, "after").expect("is open again");
        }
    }
    assert!(finished > 0, "the operations never come to their end");
}

/// A flipped bit of an earlier segment never changes a record: it comes back, or is named as lost.
#[test]
fn damage_at_every_byte_of_a_segment_is_named() {
    let (env, disk) = env();
    let want: Vec<(u64, Bytes)> = {
        let log = open(&env);
        (0..8).for_each(|number| {
            assert_eq!(append(&log, &format!("record {number} {}", "y".repeat(30))), Ok(number))
        });
        read_all(&log, 0).0
    };
    let names = segments(&disk);
    assert!(names.len() >= 3, "{names:?}");
    let path = segment_path(0);
    let intact = disk.read(&path).expect("reads");
    for at in SEGMENT_HEADER_BYTES..intact.len() {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        disk.write_atomic(&path, &damaged).expect("writes");
        let log = open(&env);
        let (records, lost) = read_all(&log, 0);
        assert_eq!(lost.len(), 1, "byte {at}");
        let kept: Vec<_> = want.iter().filter(|(offset, _)| !lost[0].contains(offset)).cloned().collect();
        assert_eq!((records, lost[0].end - lost[0].start), (kept, 1), "byte {at}");
    }
    // Cut short, and gone.
    for len in [SEGMENT_HEADER_BYTES, intact.len() - 1] {
        disk.write_atomic(&path, &intact[..len]).expect("writes");
        let (records, lost) = read_all(&open(&env), 0);
        let kept: Vec<_> = want.iter().filter(|(offset, _)| !lost[0].contains(offset)).cloned().collect();
        assert_eq!(records, kept, "{len} bytes");
    }
}

/// A read that begins within the lost offsets, or after them in the same segment.
#[test]
fn reads_go_on_after_lost_records() {
    let (env, disk) = env();
    let mut wide = options();
    wide.segment_bytes = 64 << 10;
    let log = DirLog::open(&env, wide.clone()).expect("opens");
    (0..9).for_each(|number| assert_eq!(append(&log, &format!("{number}")), Ok(number)));
    drop(log);
    let path = segment_path(0);
    let mut bytes = disk.read(&path).expect("reads");
    // Records of 33 bytes: 3, 4 and 5 are gone.
    bytes[40 + 3 * 33..40 + 6 * 33].fill(0xff);
    disk.write_atomic(&path, &bytes).expect("writes");
    let log = DirLog::open(&env, wide).expect("opens");
    assert_eq!(log.read(P0, 0, NO_WAIT).expect("reads").len(), 3);
    for from in 3..6 {
        let Err(LogError::Damaged { lost, .. }) = log.read(P0, from, NO_WAIT) else {
            panic!("{from} is lost")
        };
        assert_eq!(lost, from..6);
    }
    assert_eq!(log.read(P0, 6, NO_WAIT).expect("reads").len(), 3);
    assert_eq!(append(&log, "9"), Ok(9));
    assert_eq!(log.read(P0, 8, NO_WAIT).expect("reads").len(), 2);
    assert_eq!(log.stats().failed_reads, 3);
}

#[test]
fn an_interrupted_append_is_cut_off() {
    let (env, disk) = env();
    let log = open(&env);
    assert_eq!((append(&log, "a"), append(&log, "b")), (Ok(0), Ok(1)));
    drop(log);
    let path = segment_path(0);
    let bytes = disk.read(&path).expect("reads");
    for cut in 1..33 {
        disk.write_atomic(&path, &bytes[..bytes.len() - cut]).expect("writes");
        let log = open(&env);
        assert_eq!(log.bounds(P0), Ok(Bounds { start: 0, end: 1 }), "cut by {cut}");
        assert_eq!(append(&log, "c"), Ok(1));
    }
    // A segment that was cut while it was made.
    for len in [0, 10, 39] {
        disk.write_atomic(&segment_path(1), &bytes[..len]).expect("writes");
        disk.write_atomic(&path, &bytes[..73]).expect("writes");
        assert_eq!(append(&open(&env), "c"), Ok(1), "{len} bytes of a header");
    }
}

#[test]
fn damage_of_headers_is_an_error_with_the_file() {
    let (env, disk) = env();
    append(&open(&env), "a").expect("appends");
    for path in [segment_path(0), Path::new(DIR).join(TOPIC_FILE)] {
        let bytes = disk.read(&path).expect("reads");
        let mut damaged = bytes.clone();
        damaged[9] ^= 1;
        disk.write_atomic(&path, &damaged).expect("writes");
        let error = DirLog::open(&env, options()).map(drop).expect_err("is damaged");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        disk.write_atomic(&path, &bytes).expect("writes");
    }
    disk.remove_file(&Path::new(DIR).join(TOPIC_FILE)).expect("removes");
    let error = DirLog::open(&env, options()).map(drop).expect_err("has no identity");
    assert!(error.to_string().contains("is missing"), "{error}");
}

/// Segments of another log, copied into this one, must not be read as its own.
#[test]
fn segments_of_another_log_are_refused() {
    let (env, disk) = env();
    append(&open(&env), "a").expect("appends");
    let foreign = disk.read(&segment_path(0)).expect("reads");
    disk.remove_dir_all(Path::new(DIR)).expect("removes");
    drop(open(&env));
    disk.write_atomic(&segment_path(0), &foreign).expect("writes");
    let error = DirLog::open(&env, options()).map(drop).expect_err("is another log");
    assert!(error.to_string().contains("another log"), "{error}");
}

#[test]
fn one_process_has_the_log_and_settings_are_checked() {
    let (env, _) = env();
    let log = open(&env);
    let error = DirLog::open(&env, options()).map(drop).expect_err("is open");
    assert_eq!(error, LogError::InUse { path: Path::new(DIR).join(LOCK_FILE) });
    drop(log);
    let mut other = options();
    other.partition_count = 3;
    let error = DirLog::open(&env, other).map(drop).expect_err("has two partitions");
    assert_eq!(error.to_string(), "partition_count: expected 2, as /logs/topic has, found 3");
    for (change, setting) in [
        ((|o| o.partition_count = 0) as fn(&mut DirOptions), "partition_count"),
        (|o| o.partition_count = 1025, "partition_count"),
        (|o| o.record_bytes_max = 0, "record_bytes_max"),
        (|o| o.in_flight_bytes_max = 9, "in_flight_bytes_max"),
    ] {
        let mut wrong = options();
        change(&mut wrong);
        let error = DirLog::open(&env, wrong).map(drop).expect_err(setting);
        assert!(error.to_string().starts_with(setting), "{error}");
    }
}

#[test]
fn trim_removes_whole_segments_and_frees_a_full_log() {
    let (env, disk) = env();
    let mut small = options();
    small.log_bytes_max = 700;
    let log = DirLog::open(&env, small).expect("opens");
    let mut appended = 0;
    let full = loop {
        match append(&log, &"z".repeat(50)) {
            Ok(_) => appended += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(full, LogError::Full { what: "the log", bytes_max: 700, record_bytes: 82, .. }),
        "{full}"
    );
    assert!(!full.may_be_written());
    let before = segments(&disk).len();
    assert_eq!(log.trim(P0, 1), Ok(0), "the first segment has more records");
    let freed = log.trim(P0, appended - 1).expect("trims");
    assert!(freed > 0 && segments(&disk).len() < before);
    let start = log.bounds(P0).expect("bounds").start;
    assert!(start > 0 && start < appended);
    assert!(matches!(log.read(P0, start - 1, NO_WAIT), Err(LogError::OffsetOutOfRange { .. })));
    assert_eq!(append(&log, "there is room"), Ok(appended));
    let stats = log.stats();
    assert!(stats.disk_bytes <= 700 && stats.refused_records == 1, "{stats:?}");
    drop(log);
    assert_eq!(open(&env).bounds(P0), Ok(Bounds { start, end: appended + 1 }));
}

#[test]
fn a_full_disk_refuses_and_takes_records_again() {
    let (env, disk) = env();
    let log = open(&env);
    append(&log, "a").expect("appends");
    disk.set_capacity_bytes(disk.len_bytes() + 10);
    let error = append(&log, "b").expect_err("no space");
    assert!(!error.may_be_written() && error.is_retriable(), "{error}");
    disk.set_capacity_bytes(u64::MAX);
    assert_eq!(append(&log, "c"), Ok(1));
    assert_eq!(read_all(&log, 0).0.len(), 2);
}

/// Bytes of unknown durability must never count: the log stays closed until it is opened again.
#[test]
fn a_failed_sync_ends_all_appends() {
    let (env, disk) = env();
    let log = open(&env);
    append(&log, "a").expect("appends");
    disk.fail_some(1, 1);
    let error = append(&log, "b").expect_err("the sync failed");
    assert!(error.may_be_written(), "{error}");
    let error = append(&log, "c").expect_err("is closed");
    assert!(!error.may_be_written() && error.to_string().contains("syncing failed"), "{error}");
    assert_eq!(read_all(&log, 0).0.len(), 1, "records that are not durable are not read");
    drop(log);
    let end = open(&env).bounds(P0).expect("bounds").end;
    assert!((1..=2).contains(&end));
}

#[test]
fn a_disk_that_hangs_means_possibly_written() {
    let (env, disk) = env();
    let mut quick = options();
    quick.ack_timeout = Duration::from_millis(20);
    quick.record_bytes_max = 100;
    quick.in_flight_bytes_max = 100;
    let log = DirLog::open(&env, quick).expect("opens");
    let held = disk.hold_syncs();
    let mut ticket = log.append(P0, Bytes::from(vec![0; 60])).expect("is queued");
    assert!(!ticket.is_resolved());
    let refused = log.append(P0, Bytes::from(vec![0; 60])).map(drop).expect_err("no room");
    let want =
        LogError::Full { what: "the queue of appends", used_bytes: 60, bytes_max: 100, record_bytes: 60 };
    assert_eq!(refused, want);
    assert!(ticket.wait().expect_err("no answer").may_be_written());
    drop(held);
    // Closing the log waits for the disk.
    drop(log);
    assert_eq!(open(&env).bounds(P0), Ok(Bounds { start: 0, end: 1 }));
}
