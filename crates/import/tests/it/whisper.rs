//! Imports of whisper files: points come back from the blocks, also after any failure of the disk and a
//! second run; damage costs no more than what the report names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Env, MemDisk};
use chronolith_block::{Block, precedence};
use chronolith_import::Progress;
use chronolith_import::whisper::{
    self, Comparison, FileBuilder, TimeSelection, WhisperError, WhisperOptions, WhisperReport, WhisperSource,
};
use chronolith_ingest::carbon::{AggregationMethod, Archive};
use chronolith_model::{Columns, ReadContext, TimeRange};

use crate::test_env::for_each_series;

const SOURCE: &str = "/whisper";
const BLOCKS: &str = "/data/tenants/store";
const STATE: &str = "/data/import/store.json";
/// Clock of the tests.
const NOW_S: u32 = 1_800_000_000;
const ARCHIVES: [Archive; 2] =
    [Archive { step_s: 10, point_count: 60 }, Archive { step_s: 60, point_count: 600 }];

/// Values by path and time in seconds.
type Points = BTreeMap<(String, i64), f64>;

struct TestEnv {
    env: Env,
    disk: Arc<MemDisk>,
}

impl TestEnv {
    fn new() -> TestEnv {
        let (env, _, disk) = Env::fake(i64::from(NOW_S) * 1000, 7);
        env.disk.create_dir_all(Path::new("/data/tenants")).unwrap();
        TestEnv { env, disk }
    }

    fn put(&self, relative: &str, bytes: &[u8]) {
        let path = Path::new(SOURCE).join(relative);
        self.env.disk.create_dir_all(path.parent().unwrap()).unwrap();
        self.env.disk.create(&path).unwrap().write_at(bytes, 0).unwrap();
    }

    fn import(&self) -> WhisperReport {
        self.try_import(TimeSelection::ALL).unwrap()
    }

    fn try_import(&self, selection: TimeSelection) -> Result<WhisperReport, WhisperError> {
        self.import_with(selection, 1)
    }

    fn import_with(
        &self,
        selection: TimeSelection,
        worker_count: usize,
    ) -> Result<WhisperReport, WhisperError> {
        let mut report = WhisperReport::default();
        let source = WhisperSource::list(&self.env, Path::new(SOURCE), &mut report)?;
        let options = WhisperOptions {
            blocks_dir: PathBuf::from(BLOCKS),
            state_path: PathBuf::from(STATE),
            selection,
            comparison: Comparison::All,
            rules: Arc::default(),
            worker_count,
        };
        let mut last = Progress::default();
        let imported = whisper::run(&self.env, &source, &options, &mut |progress| last = progress)?;
        assert!(last.done_bytes <= source.byte_count());
        report.add(imported);
        Ok(report)
    }

    fn points(&self) -> Points {
        let mut points = Points::new();
        if !self.env.disk.exists(Path::new(BLOCKS)) {
            return points;
        }
        let (mut blocks, damaged) = chronolith_block::open_dir(&self.env, Path::new(BLOCKS));
        assert!(damaged.is_empty(), "{damaged:?}");
        blocks.sort_by_key(|block| precedence(block.meta()));
        for block in blocks {
            assert_eq!(block.verify(), [], "{:?}", block.meta());
            self.read(&block, &mut points);
        }
        points
    }

    /// Adds the points of a block; none may be there already.
    fn read(&self, block: &Block, points: &mut Points) {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        for_each_series(block, &ctx, |series| {
            let mut columns = Columns::default();
            series.samples.read(TimeRange::ALL, &mut columns).unwrap();
            let path = chronolith_ingest::carbon::path_of_labels(&series.labels);
            for (time, value) in columns.times.iter().zip(&columns.values) {
                assert_eq!(time % 1000, 0);
                let before = points.insert((path.clone(), time / 1000), *value);
                assert_eq!(before, None, "{path} {time} is there twice");
            }
        });
    }
}

/// Compares points; the message has the first difference alone.
#[track_caller]
fn check_points(found: &Points, wanted: &Points, what: &str) {
    let first = found.iter().zip(wanted).find(|(a, b)| a != b);
    assert!(first.is_none() && found.len() == wanted.len(), "{what}: {first:?}");
}

/// A file with `count` points every 10 s before the present, and coarse ones before them.
fn file(count: u32, value: f64) -> Vec<u8> {
    let mut builder = FileBuilder::new(AggregationMethod::Average, 0.5, &ARCHIVES).unwrap();
    let fine = (0..count).map(|idx| (NOW_S - (count - idx) * 10, value + f64::from(idx)));
    builder.put_points(0, fine);
    builder.put_points(1, (0..20).map(|idx| (NOW_S - 1800 + idx * 60, -value)));
    builder.into_bytes()
}

/// Points of [`file`].
fn points_of(path: &str, count: u32, value: f64) -> Points {
    let first_s = NOW_S - count * 10;
    let fine = (0..count).map(|idx| (first_s + idx * 10, value + f64::from(idx)));
    let coarse = (0..20).map(|idx| (NOW_S - 1800 + idx * 60, -value)).filter(|(time_s, _)| *time_s < first_s);
    fine.chain(coarse).map(|(time_s, value)| ((path.to_owned(), i64::from(time_s)), value)).collect()
}

/// A directory with 6 series.
fn filled() -> (TestEnv, Points) {
    let test = TestEnv::new();
    let mut wanted = Points::new();
    for idx in 0..5 {
        let value = f64::from(idx) / 8.0;
        test.put(&format!("servers/web{idx}/cpu.wsp"), &file(30 + idx, value));
        wanted.append(&mut points_of(&format!("servers.web{idx}.cpu"), 30 + idx, value));
    }
    test.put("_tagged/0a1/b2c/disk_DOT_used;host=x;Dc=y.wsp", &file(7, 3.5));
    wanted.append(&mut points_of("disk.used;Dc=y;host=x", 7, 3.5));
    test.put("servers/notes.txt", b"not a whisper file");
    (test, wanted)
}

#[test]
fn files_become_series() {
    let (test, wanted) = filled();
    let report = test.import();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.files, report.files_compared, report.slots.taken), (6, 6, wanted.len() as u64));
    check_points(&test.points(), &wanted, "");
    let again = test.import();
    assert_eq!((again.files, again.files_present, again.slots.taken), (0, 6, 0));
    check_points(&test.points(), &wanted, "");
}

#[test]
fn files_that_are_new_or_changed_in_length_are_imported_by_the_next_run() {
    let (test, mut wanted) = filled();
    test.import();
    test.put("servers/web1/memory.wsp", &file(9, 1.0));
    test.put("zeta.wsp", &file(4, 2.0));
    wanted.append(&mut points_of("servers.web1.memory", 9, 1.0));
    wanted.append(&mut points_of("zeta", 4, 2.0));
    let report = test.import();
    assert!(report.is_complete() && report.files == 8, "{report:?}");
    check_points(&test.points(), &wanted, "");
}

#[test]
fn a_later_period_is_added() {
    let (test, wanted) = filled();
    let split_s = i64::from(NOW_S) - 100;
    test.try_import(TimeSelection { first_s: i64::MIN, last_s: split_s - 1 }).unwrap();
    let before = test.points();
    assert!(!before.is_empty() && before.keys().all(|(_, time_s)| *time_s < split_s));
    let report = test.try_import(TimeSelection { first_s: split_s, last_s: i64::MAX }).unwrap();
    assert!(report.slots.unselected > 0);
    check_points(&test.points(), &wanted, "");
}

#[test]
fn damage_costs_its_file() {
    let (test, wanted) = filled();
    test.put("bad/short.wsp", &file(5, 1.0)[..100]);
    test.put("bad/empty.wsp", b"");
    let mut unknown = file(5, 1.0);
    unknown[3] = 9;
    test.put("bad/unknown.wsp", &unknown);
    test.put(&format!("_tagged/000/000/{}.wsp", "0".repeat(64)), &file(5, 1.0));
    test.put("servers.web0/cpu.wsp", &file(5, 1.0));
    let report = test.import();
    let damages: Vec<String> = report
        .damages
        .iter()
        .map(|damage| format!("{} {} {}", damage.path.display(), damage.offset, damage.what))
        .collect();
    assert_eq!(
        damages,
        [
            "/whisper/bad/empty.wsp 0 aggregation method at offset 0: 4 bytes needed, 0 left: \
             all points of the file are lost",
            "/whisper/bad/short.wsp 16 an archive ends at 760, the file has 100 bytes: \
             all points of the file are lost",
            "/whisper/bad/unknown.wsp 0 unknown aggregation method 9: expected 1 to 8, the file is refused: \
             all points of the file are lost",
        ]
    );
    let rejected: Vec<_> = report.rejected.iter().map(|(reject, files)| (*reject, files.files)).collect();
    assert_eq!(rejected, [(whisper::PathReject::HashedName, 1), (whisper::PathReject::Duplicate, 1)]);
    assert!(!report.is_complete());
    check_points(&test.points(), &wanted, "");
}

#[test]
fn a_directory_without_files_is_an_error() {
    let test = TestEnv::new();
    test.put("a.txt", b"");
    assert!(matches!(test.try_import(TimeSelection::ALL), Err(WhisperError::Empty(_))));
}

/// The process may end, or the disk fail, at each of its operations: the next run completes the import, and
/// no point is there twice.
#[test]
fn an_import_that_failed_anywhere_is_resumed() {
    let (_, wanted) = filled();
    let mut failed = 0;
    for budget in 0.. {
        let (test, _) = filled();
        test.disk.fail_after(budget);
        let first = test.try_import(TimeSelection::ALL);
        test.disk.heal();
        let is_done = first.as_ref().is_ok_and(|report| report.is_complete());
        failed += u64::from(!is_done);
        test.import();
        let entries = test.env.disk.list(Path::new(BLOCKS)).unwrap();
        let leftover = entries.iter().find(|entry| chronolith_block::is_leftover(&entry.name));
        assert_eq!(leftover, None, "after {budget} operations");
        check_points(&test.points(), &wanted, &format!("after {budget} operations: {first:?}"));
        if is_done {
            break;
        }
    }
    assert!(failed > 20, "{failed}");
}

/// Workers share the state file: parts that are done stay, whatever fails in another one.
#[test]
fn parts_in_parallel_are_resumed() {
    let archive = [Archive { step_s: 60, point_count: 3 }];
    let mut wanted = Points::new();
    let test = TestEnv::new();
    for idx in 0..2_100u32 {
        let mut builder = FileBuilder::new(AggregationMethod::Sum, 0.5, &archive).unwrap();
        let time_s = NOW_S - NOW_S % 60 - 60;
        builder.put_points(0, [(time_s, f64::from(idx))]);
        test.put(&format!("m/{idx:04}.wsp"), &builder.into_bytes());
        wanted.insert((format!("m.{idx:04}"), i64::from(time_s)), f64::from(idx));
    }
    let mut resumed = 0;
    // The last operations that fail belong to the last part.
    for budget in (0..).step_by(5) {
        test.disk.fail_after(budget);
        let first = test.import_with(TimeSelection::ALL, 3);
        test.disk.heal();
        let second = test.import_with(TimeSelection::ALL, 3).unwrap();
        resumed += u64::from(first.is_err() && second.files_present > 0);
        assert_eq!(second.files + second.files_present, 2_100, "{first:?}");
        check_points(&test.points(), &wanted, &format!("after {budget} operations: {first:?}"));
        if first.is_ok() {
            break;
        }
        test.env.disk.remove_dir_all(Path::new("/data/import")).unwrap();
        test.env.disk.remove_dir_all(Path::new(BLOCKS)).unwrap();
    }
    assert!(resumed > 0, "no part was done when another one failed");
}
