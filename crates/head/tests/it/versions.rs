//! Data directories of earlier versions open and answer alike; directories of later versions are refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use chronolith_base::Disk as _;
use chronolith_base::crc::crc32c;
use chronolith_format::head::wal::{
    FrameHeader, KIND_SAMPLES, Samples, SegmentHeader, decode_samples, is_samples, scan_segment,
};
use chronolith_head::Head;
use chronolith_model::{Columns, DuplicatePolicy, MatchOp, Matcher, Selector, StoreId, TimeRange};

use crate::harness::kinds::{Sample, push, texts};
use crate::harness::{NOW_MS, TestEnv, batch, labels, read_all, tenant};

/// Data directory of an earlier version, and its answer.
struct Golden {
    files: &'static [(&'static str, &'static [u8])],
    /// Answer of the version that wrote the directory: instance, timestamp, start timestamp and value of each
    /// sample.
    samples: &'static str,
}

macro_rules! golden {
    ($dir:literal, $($file:literal),* $(,)?) => {
        Golden {
            files: &[$(($file, include_bytes!(concat!("../../testdata/", $dir, "/", $file)))),*],
            samples: include_str!(concat!("../../testdata/", $dir, "/samples.txt")),
        }
    };
}

/// Directory of WAL version 2 and slice version 1. Six series: floats, both kinds of values, histograms, each
/// without and with start timestamps. The slice has open and sealed chunks and out-of-order samples of both
/// kinds; the WAL after it has frames of floats, histograms, start timestamps and a deletion, with duplicates
/// that changed the kind of value.
const VERSION_2: Golden = golden!(
    "version-2",
    "wal/00000000.slice0",
    "wal/00000000.slice1",
    "wal/00000001.definitions",
    "wal/00000001.definitions-mirror",
    "wal/00000005.seg",
    "wal/control",
    "chunks/00000001.sealed",
    "chunks/00000002.sealed",
    "chunks/00000003.sealed",
    "chunks/00000004.sealed",
    "chunks/00000005.sealed",
    "chunks/00000006.sealed",
);

/// Directory of WAL version 3 and slice version 3. Eight series: floats, noisy decimals, both kinds of
/// values, histograms, without and with start timestamps, which its slice has per series. Slice and WAL have
/// the parts that [`VERSION_2`] names, decimal-delta chunks among them.
const VERSION_3: Golden = golden!(
    "version-3",
    "wal/00000000.slice0",
    "wal/00000000.slice1",
    "wal/00000001.definitions",
    "wal/00000001.definitions-mirror",
    "wal/00000003.seg",
    "wal/checkpoint.wal-version-3",
    "wal/control",
    "chunks/00000001.sealed",
    "chunks/00000002.sealed",
    "chunks/00000003.sealed",
    "chunks/00000004.sealed",
    "chunks/00000005.sealed",
    "chunks/00000006.sealed",
    "chunks/00000007.sealed",
    "chunks/00000008.sealed",
    "chunks/00000009.sealed",
);

fn write_file(test_env: &TestEnv, path: &Path, bytes: &[u8]) {
    let file = test_env.disk.create(path).expect("created");
    file.write_at(bytes, 0).expect("written");
    file.sync_data().expect("synced");
    test_env.disk.sync_dir(path.parent().expect("in a directory")).expect("synced");
}

fn edit_file(test_env: &TestEnv, path: &str, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = test_env.disk.read(Path::new(path)).expect("read");
    edit(&mut bytes);
    write_file(test_env, Path::new(path), &bytes);
}

fn open_golden(golden: &Golden) -> TestEnv {
    let test_env = TestEnv::new(3);
    for dir in ["/data", "/data/wal", "/data/chunks"] {
        test_env.disk.create_dir_all(Path::new(dir)).expect("created");
    }
    let files = golden.files.iter();
    files.for_each(|(name, bytes)| write_file(&test_env, &Path::new("/data").join(name), bytes));
    test_env
}

fn answer(test_env: &TestEnv, head: &Head) -> String {
    let any = [Matcher::new("__name__", MatchOp::Regex, ".*").expect("a pattern")];
    let selector = Selector { matchers: &any, range: TimeRange::ALL };
    let mut out = String::new();
    for series in head.reader().select(&tenant("a"), &selector, &test_env.context()).expect("select works") {
        let mut columns = Columns::default();
        series.samples.read(TimeRange::ALL, &mut columns).expect("samples read");
        let instance = series.labels.get("instance").expect("an instance");
        for (at, (time, text)) in texts(&columns).into_iter().enumerate() {
            writeln!(out, "{instance} {time} {} {text}", columns.start_time_at(at))
                .expect("memory takes text");
        }
    }
    out
}

#[track_caller]
fn check_golden(golden: &Golden) {
    let test_env = open_golden(golden);
    for start in 0..3 {
        let (head, report) = test_env.open();
        assert_eq!((&*report.notes, &*report.repaired), (&[][..], &[][..]), "start {start}");
        assert!(answer(&test_env, &head) == golden.samples, "start {start}");
        if start == 1 {
            head.checkpointer().checkpoint().expect("a checkpoint");
        }
    }
}

#[test]
fn directories_of_earlier_versions_answer_alike_before_and_after_they_are_written_again() {
    [VERSION_2, VERSION_3].iter().for_each(check_golden);
}

#[test]
fn directories_of_earlier_versions_are_appended_to() {
    [VERSION_2, VERSION_3].iter().for_each(check_appended);
}

#[track_caller]
fn check_appended(golden: &Golden) {
    let test_env = open_golden(golden);
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("b"), &batch(&[(labels(0), vec![(NOW_MS, 1.0)])])).expect("written");
    let want = read_all(&test_env, &head, &["b"]);
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert_eq!(report.notes, Vec::<String>::new());
    assert_eq!(read_all(&test_env, &head, &["b"]), want);
    assert!(answer(&test_env, &head) == golden.samples);
}

/// A frame of start timestamps of version 2 may be lost alone: an earlier start would be wrong for the
/// in-order samples after it.
#[test]
fn samples_of_version_2_after_a_damaged_frame_have_their_start_or_none() {
    let parse = |line: &str| {
        let mut words = line.splitn(4, ' ').map(str::to_owned);
        let mut next = || words.next().expect("four words");
        ((next(), next()), next())
    };
    let want: BTreeMap<_, _> = VERSION_2.samples.lines().map(parse).collect();
    let (_, segment) = VERSION_2.files.iter().find(|(name, _)| name.ends_with(".seg")).expect("a segment");
    let end = segment.iter().rposition(|&byte| byte != 0).expect("frames");
    let mut lost_count = 0;
    for at in (0..end).step_by(67) {
        let test_env = open_golden(&VERSION_2);
        edit_file(&test_env, "/data/wal/00000005.seg", |bytes| bytes[at] ^= 1);
        let (head, _) = test_env.open();
        for (sample, start_ms) in answer(&test_env, &head).lines().map(parse) {
            let is_in_order = sample.1.ends_with("000");
            let Some(want) = want.get(&sample).filter(|_| is_in_order) else { continue };
            assert!(start_ms == "0" || start_ms == *want, "byte {at}: {sample:?} has the start {start_ms}");
            lost_count += usize::from(start_ms != *want);
        }
    }
    assert!(lost_count > 20, "frames of start timestamps were hit");
}

/// Sets the version in a header whose checksum covers the bytes before `sum_at`.
fn set_version(bytes: &mut [u8], version: u16, sum_at: usize) {
    bytes[4..6].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c(&bytes[..sum_at]);
    bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn written() -> TestEnv {
    let test_env = TestEnv::new(4);
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(NOW_MS, 1.0)])])).expect("written");
    head.checkpointer().checkpoint_newest().expect("a checkpoint");
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(NOW_MS + 5, 2.0)])])).expect("written");
    test_env
}

#[track_caller]
fn check_refused(test_env: &TestEnv, want: &str) {
    let error = test_env.try_open().map(drop).expect_err("of a later version").to_string();
    assert_eq!(error, want);
}

#[test]
fn a_wal_of_a_later_version_refuses_the_start() {
    let test_env = written();
    edit_file(&test_env, "/data/wal/00000001.seg", |bytes| set_version(bytes, 4, 36));
    check_refused(&test_env, "/data/wal/00000001.seg: WAL version at offset 4: expected 3, found 4");
}

#[test]
fn a_slice_of_a_later_version_refuses_the_start() {
    let test_env = written();
    edit_file(&test_env, "/data/wal/00000000.slice1", |bytes| set_version(bytes, 6, 76));
    check_refused(
        &test_env,
        "/data/wal/00000000.slice1: slice version at offset 4: expected 1 to 5, found 6",
    );
}

/// Programs that know no stores refuse the start instead of leaving out their series.
#[test]
fn slices_with_stores_have_a_version_of_their_own() {
    let test_env = written();
    edit_file(&test_env, "/data/wal/00000000.slice1", |bytes| assert_eq!(bytes[4], 4));
    let (head, _) = test_env.open();
    let store = StoreId::Database { number: 3 };
    let samples = vec![(NOW_MS * 1_000_000, 1.0), (NOW_MS * 1_000_000 + 1, 2.0)];
    test_env.write(&head, &store, &batch(&[(labels(1), samples)])).expect("written");
    head.checkpointer().checkpoint_newest().expect("a checkpoint");
    drop(head);
    let versions = ["slice0", "slice1"].map(|copy| {
        let mut version = 0;
        edit_file(&test_env, &format!("/data/wal/00000000.{copy}"), |bytes| version = bytes[4]);
        version
    });
    assert!(versions.contains(&5), "{versions:?}");
    let (head, report) = test_env.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(head.statistics().tenant_stats(&store).max_time_ms, Some(NOW_MS));
}

/// Appends a frame to the only segment of the WAL.
fn append_frame(test_env: &TestEnv, change: impl FnOnce(&mut Samples)) {
    edit_file(test_env, "/data/wal/00000001.seg", |bytes| {
        let header = SegmentHeader::decode(bytes).expect("a segment");
        let scan = scan_segment(bytes, &header);
        let frame = scan.frames.iter().rfind(|frame| is_samples(frame.header.kind)).expect("a frame");
        let mut samples = Samples::default();
        decode_samples(frame.header.kind, &bytes[frame.payload.clone()], &mut samples).expect("samples");
        change(&mut samples);
        let sequence = scan.frames.last().map_or(0, |frame| frame.header.sequence) + 1;
        let mut out = Vec::new();
        samples.encode_frames(&mut Vec::new(), |payload| {
            let frame = FrameHeader::for_payload(KIND_SAMPLES, 0, payload);
            FrameHeader { sequence, ..frame }.put_frame(header.key, payload, &mut out);
        });
        bytes[scan.end..scan.end + out.len()].copy_from_slice(&out);
    });
}

/// The policy of the append decides again at replay, not the policy of the replay.
#[test]
fn replay_applies_the_duplicate_policy_of_each_frame() {
    let value = |policies: &[DuplicatePolicy]| {
        let test_env = written();
        for (value, policy) in (7..).zip(policies) {
            append_frame(&test_env, |samples| {
                (samples.duplicates, samples.values[0]) = (*policy, f64::from(value).to_bits());
            });
        }
        let (head, report) = test_env.open();
        assert_eq!(report.notes, Vec::<String>::new());
        let (_, samples) = read_all(&test_env, &head, &["a"]).pop_first().expect("a series");
        f64::from_bits(samples[&(NOW_MS + 5)])
    };
    use DuplicatePolicy::{KeepFirst, LastWins};
    assert_eq!([value(&[]), value(&[KeepFirst]), value(&[LastWins])], [2.0, 2.0, 7.0]);
    assert_eq!([value(&[KeepFirst, LastWins]), value(&[LastWins, KeepFirst])], [8.0, 7.0]);
}

/// Floats, histograms and start timestamps of one stripe are in one frame, in the order in which they were
/// appended.
#[test]
fn a_batch_leaves_one_frame_per_stripe() {
    let mut test_env = TestEnv::new(5);
    test_env.limits.duplicates = DuplicatePolicy::LastWins;
    let (head, _) = test_env.open();
    let mut first = batch(&[(labels(0), vec![(NOW_MS, 1.0), (NOW_MS + 10, 2.0), (NOW_MS + 5, 3.0)])]);
    let histogram = |sum| {
        let of = chronolith_model::IntHistogram { sum, ..chronolith_model::IntHistogram::default() };
        Sample::Histogram(std::sync::Arc::new(chronolith_model::Histogram::Int(of)))
    };
    let samples =
        [(NOW_MS, histogram(1.0)), (NOW_MS + 10, Sample::Float(4.0)), (NOW_MS + 10, histogram(5.0))];
    push(&mut first, &labels(1), &samples);
    first.start_times = vec![0, 0, 0, NOW_MS - 1, NOW_MS - 1, NOW_MS - 1];
    test_env.write(&head, &tenant("a"), &first).expect("written");
    let want = answer(&test_env, &head);
    drop(head);
    let bytes = test_env.disk.read(Path::new("/data/wal/00000001.seg")).expect("read");
    let header = SegmentHeader::decode(&bytes).expect("a segment");
    let frames = scan_segment(&bytes, &header).frames;
    let kinds: Vec<u8> = frames.iter().map(|frame| frame.header.kind).collect();
    assert_eq!(kinds, [1, KIND_SAMPLES]);
    let (head, _) = test_env.open();
    assert_eq!(answer(&test_env, &head), want);
}

/// Programs of WAL version 2 skip frames that they do not know; a file of this name makes them refuse the
/// start.
#[test]
fn a_directory_of_this_version_stops_earlier_programs() {
    for test_env in [open_golden(&VERSION_2), TestEnv::new(6)] {
        let (head, _) = test_env.open();
        drop(head);
        test_env.disk.crash();
        assert!(test_env.disk.exists(Path::new("/data/wal/checkpoint.wal-version-3")));
    }
}
