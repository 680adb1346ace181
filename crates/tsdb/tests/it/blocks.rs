//! Many blocks: known from the catalogue, opened on demand within a budget, never lost in silence.
//!
//! Two maps per block for its whole life ended the process at 32,700 blocks, and it could not start again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_format::store_name;
use chronolith_model::{Columns, Matcher, QueryError, ReadContext, Selector, StoreId, TenantId, TimeRange};
use chronolith_tsdb::{PoolLimits, Tsdb};

use crate::fault_disk::{Fault, FaultDisk};
use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const CATALOGUE: &str = "/data/blocks.catalogue";

fn tenant(n: usize) -> StoreId {
    StoreId::from(TenantId::new(&format!("t{n}")).expect("legal"))
}

fn metric(tsdb: &Tsdb, name: &str) -> f64 {
    tsdb.statistics().stats().metric(name).expect("a metric of that name")
}

/// The day `day` before the start, one sample.
fn sample(day: i64) -> (i64, f64) {
    (START_MS - day * 24 * HOUR_MS + HOUR_MS, day as f64)
}

/// Writes `tenant_count` tenants with one block per day for `day_count` days.
fn fill(machine: &Machine, tsdb: &Tsdb, tenant_count: usize, day_count: i64) {
    for day in (2..day_count + 2).rev() {
        for n in 0..tenant_count {
            write(tsdb, &tenant(n), "m", &[sample(day)]).expect("stored");
        }
    }
    machine.clock.advance(Duration::from_millis(1));
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
}

fn read_days(machine: &Machine, tsdb: &Tsdb, n: usize) -> Result<Vec<(i64, f64)>, QueryError> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let selector = Selector { matchers: &[Matcher::equal("__name__", "m")], range: TimeRange::ALL };
    let (mut series, mut columns) = (Vec::new(), Columns::default());
    let mut batches =
        tsdb.reader().queryable(tenant(n).tenant().expect("a default store")).select(&selector, &ctx)?;
    while batches.next_batch(&mut series)? {}
    for one in &series {
        one.samples.read(TimeRange::ALL, &mut columns)?;
    }
    Ok(columns.times.into_iter().zip(columns.values).collect())
}

fn want(day_count: i64) -> Vec<(i64, f64)> {
    (2..day_count + 2).rev().map(sample).collect()
}

fn block_dirs(machine: &Machine, n: usize) -> Vec<PathBuf> {
    let dir = machine.options.data_dir.join("tenants").join(&*store_name(&tenant(n)));
    machine.env.disk.list(&dir).expect("lists").into_iter().map(|entry| dir.join(entry.name)).collect()
}

/// A machine whose blocks may take `bytes` of memory.
fn tight(seed: u64, bytes: u64) -> Machine {
    let mut machine = Machine::new(seed);
    machine.options.open_blocks = PoolLimits { bytes_max: bytes, ..PoolLimits::default() };
    machine
}

#[test]
fn a_start_reads_the_catalogue_and_opens_no_block() {
    let machine = Machine::new(1);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 20, 6);
    tsdb.close().expect("closes");
    drop(tsdb);
    // Files that are not read cannot be missed: without their files blocks are known, and their queries fail
    // by name. The start lists directories only.
    for dir in block_dirs(&machine, 3) {
        machine.env.disk.remove_file(&dir.join("meta.json")).expect("removes");
    }
    let tsdb = machine.open();
    assert_eq!((tsdb.statistics().stats().blocks, metric(&tsdb, "block_opens_total")), (120, 0.0));
    let notes = tsdb.statistics().stats().replay.notes;
    assert!(notes.len() == 6 && notes.iter().all(|note| note.contains("/t3/") && note.contains("meta.json")));
    assert_eq!(metric(&tsdb, "blocks_lost_at_start"), 6.0);
    assert_eq!(read_days(&machine, &tsdb, 2).expect("reads"), want(6));
    assert_eq!(metric(&tsdb, "block_opens_total"), 6.0);
    let error = read_days(&machine, &tsdb, 3).expect_err("not left out in silence");
    assert!(error.to_string().contains("meta.json"), "{error}");
    assert_eq!(metric(&tsdb, "blocks_damaged"), 6.0);
}

/// Each query opened every block of its tenant to learn whether it may be too large: minutes with 200,000
/// blocks.
#[test]
fn an_estimate_of_everything_opens_no_block() {
    let machine = Machine::new(12);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 1, 6);
    tsdb.close().expect("closes");
    drop(tsdb);
    let tsdb = machine.open();
    write(&tsdb, &tenant(0), "m", &[(START_MS, 1.0)]).expect("works");
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let found = tsdb
        .reader()
        .queryable(tenant(0).tenant().expect("a default store"))
        .estimate(&all, &ctx)
        .expect("no file is read")
        .expect("can tell");
    assert!(found.series == 1 && found.samples >= 7, "{found:?}");
    assert_eq!(metric(&tsdb, "block_opens_total"), 0.0);
}

/// Damage in series or chunks was found by a query only.
#[test]
fn blocks_without_queries_are_verified_soon_after_the_start() {
    let mut machine = Machine::new(11);
    // Compaction would replace the file with trailing bytes by a good one.
    machine.options.compaction.block_bytes_max = 0;
    let tsdb = machine.open();
    fill(&machine, &tsdb, 3, 4);
    tsdb.close().expect("closes");
    drop(tsdb);
    let path = block_dirs(&machine, 1)[2].join("chunks/000001");
    let mut bytes = machine.env.disk.read(&path).expect("reads");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    machine.env.disk.write_atomic(&path, &bytes).expect("writes");
    let tsdb = machine.open();
    assert_eq!(
        (tsdb.statistics().stats().replay.notes.len(), metric(&tsdb, "block_scrub_pending_blocks")),
        (0, 12.0)
    );
    // A start that has no time left to compare sizes leaves that to the verification.
    let grown = block_dirs(&machine, 2)[0].join("chunks");
    let mut bytes = machine.env.disk.read(&grown.join("000001")).expect("reads");
    bytes.push(0);
    machine.env.disk.write_atomic(&grown.join("000001"), &bytes).expect("writes");
    tsdb.maintenance().run();
    assert_eq!((metric(&tsdb, "blocks_damaged"), metric(&tsdb, "block_scrub_pending_blocks")), (2.0, 0.0));
    let notes = tsdb.statistics().stats().replay.notes;
    let is_named = |path: &Path| notes.iter().any(|note| note.starts_with(path.to_str().expect("text")));
    assert!(notes.len() == 2 && is_named(&path) && is_named(&grown), "{notes:?}");
    assert!(tsdb.maintenance().verify_blocks() && read_days(&machine, &tsdb, 0).is_ok());
}

type Damage = fn(&mut Vec<u8>);

#[test]
fn a_catalogue_that_is_missing_or_damaged_is_written_anew_from_the_blocks() {
    let machine = Machine::new(2);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 3, 4);
    tsdb.close().expect("closes");
    drop(tsdb);
    let path = Path::new(CATALOGUE);
    let good = machine.env.disk.read(path).expect("reads");
    let cases: [(&str, Damage); 6] = [
        ("header", |bytes| bytes[9] ^= 1),
        ("first frame", |bytes| bytes[70] ^= 1),
        ("half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("empty", Vec::clear),
        ("zeros", |bytes| bytes.fill(0)),
        ("grown", |bytes| bytes.extend([7; 4096])),
    ];
    for (what, damage) in cases {
        let mut bytes = good.clone();
        damage(&mut bytes);
        machine.env.disk.write_atomic(path, &bytes).expect("writes");
        check_whole(&machine, what);
    }
    machine.env.disk.remove_file(path).expect("removes");
    check_whole(&machine, "missing");
}

#[track_caller]
fn check_whole(machine: &Machine, what: &str) {
    for round in ["", " again"] {
        let tsdb = machine.open();
        assert_eq!(
            (tsdb.statistics().stats().blocks, metric(&tsdb, "blocks_lost_at_start")),
            (12, 0.0),
            "{what}{round}"
        );
        for n in 0..3 {
            assert_eq!(read_days(machine, &tsdb, n).expect("reads"), want(4), "{what}{round}");
        }
        tsdb.close().expect("closes");
    }
}

#[test]
fn a_block_whose_directory_is_gone_is_named_at_the_start() {
    let machine = Machine::new(3);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 2, 4);
    tsdb.close().expect("closes");
    drop(tsdb);
    let dir = block_dirs(&machine, 1).remove(2);
    machine.env.disk.remove_dir_all(&dir).expect("removes");
    let report = chronolith_tsdb::check::check_dir(&machine.env, &machine.options.data_dir).expect("checks");
    assert!(report.damages.iter().any(|damage| damage.path == dir), "{:?}", report.damages);
    let tsdb = machine.open();
    let notes = tsdb.statistics().stats().replay.notes;
    assert!(notes.iter().any(|note| note.contains(dir.to_str().expect("text"))), "{notes:?}");
    assert_eq!((tsdb.statistics().stats().blocks, metric(&tsdb, "blocks_lost_at_start")), (7, 1.0));
    tsdb.close().expect("closes");
    drop(tsdb);
    assert_eq!(machine.open().statistics().stats().replay.notes, Vec::<String>::new(), "it is named once");
}

#[test]
fn a_block_that_the_catalogue_does_not_name_is_added() {
    let machine = Machine::new(4);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 1, 2);
    tsdb.close().expect("closes");
    let before = machine.env.disk.read(Path::new(CATALOGUE)).expect("reads");
    drop(tsdb);
    let tsdb = machine.open();
    write(&tsdb, &tenant(0), "m", &[sample(9)]).expect("stored");
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    tsdb.close().expect("closes");
    drop(tsdb);
    machine.env.disk.write_atomic(Path::new(CATALOGUE), &before).expect("writes");
    let tsdb = machine.open();
    assert_eq!((tsdb.statistics().stats().blocks, tsdb.statistics().stats().replay.notes.len()), (3, 0));
    assert_eq!(read_days(&machine, &tsdb, 0).expect("reads").len(), 3);
}

#[test]
fn queries_and_maintenance_go_on_within_a_tiny_budget() {
    let machine = tight(5, 256 << 10);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 12, 8);
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..3 {
            let (machine, tsdb, stopped) = (&machine, &tsdb, &stopped);
            scope.spawn(move || {
                let mut n = first;
                while !stopped.load(Ordering::Relaxed) {
                    // Blocks are compacted, and their files removed, while they are read.
                    let got = read_days(machine, tsdb, n % 12).expect("three readers have room");
                    assert_eq!(got, want(8), "tenant {}", n % 12);
                    n += 5;
                }
            });
        }
        for _ in 0..40 {
            machine.clock.advance(Duration::from_mins(2));
            tsdb.maintenance().run();
        }
        stopped.store(true, Ordering::Relaxed);
    });
    assert!(
        metric(&tsdb, "compaction_runs_total") >= 12.0 && metric(&tsdb, "compaction_failures_total") == 0.0
    );
    assert!(metric(&tsdb, "block_evictions_total") > 10.0, "{}", metric(&tsdb, "block_evictions_total"));
    assert!(metric(&tsdb, "block_open_bytes") <= f64::from(256 << 10));
    for n in 0..12 {
        assert_eq!(read_days(&machine, &tsdb, n).expect("reads"), want(8));
    }
}

#[test]
fn a_query_that_needs_more_open_blocks_than_there_may_be_is_refused_and_others_go_on() {
    let machine = tight(6, 16 << 10);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 1, 40);
    write(&tsdb, &tenant(1), "m", &[sample(2)]).expect("stored");
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    let error = read_days(&machine, &tsdb, 0).expect_err("forty blocks have no room");
    assert!(matches!(error, QueryError::Limit { .. }), "{error}");
    assert_eq!(read_days(&machine, &tsdb, 1).expect("reads"), [sample(2)]);
    assert!(metric(&tsdb, "block_open_bytes") <= f64::from(16 << 10), "what was refused holds nothing");
}

/// Refuses to map files of blocks, as a process does that has too many open.
#[derive(Default)]
struct NoDescriptors(AtomicBool);

impl Fault for NoDescriptors {
    fn before_map(&self, path: &Path) -> std::io::Result<()> {
        const EMFILE: i32 = 24;
        let is_refused = self.0.load(Ordering::Relaxed) && path.starts_with("/data/tenants");
        if is_refused { Err(std::io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    }
}

#[test]
fn without_descriptors_queries_and_compactions_are_refused_and_go_on_later() {
    let mut machine = Machine::new(10);
    let fault = Arc::new(NoDescriptors::default());
    machine.env.disk = Arc::new(FaultDisk::new(machine.disk.clone(), fault.clone()));
    let tsdb = machine.open();
    fill(&machine, &tsdb, 2, 6);
    fault.0.store(true, Ordering::Relaxed);
    let error = read_days(&machine, &tsdb, 0).expect_err("no descriptor");
    assert!(matches!(&error, QueryError::Io { path, .. } if path.contains("/data/tenants/t0/")), "{error}");
    for _ in 0..3 {
        machine.clock.advance(Duration::from_secs(30));
        tsdb.maintenance().run();
    }
    assert_eq!((metric(&tsdb, "compaction_runs_total"), metric(&tsdb, "blocks_damaged")), (0.0, 0.0));
    assert!(metric(&tsdb, "compaction_failures_total") > 0.0);
    fault.0.store(false, Ordering::Relaxed);
    assert_eq!(read_days(&machine, &tsdb, 0).expect("reads"), want(6));
    for _ in 0..20 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert!(metric(&tsdb, "compaction_runs_total") >= 2.0);
    assert_eq!(read_days(&machine, &tsdb, 1).expect("reads"), want(6));
}

/// Deleted samples came back when the file was gone, and no error was reported.
#[test]
fn a_missing_tombstones_file_is_named_and_its_samples_stay_hidden() {
    let machine = Machine::new(7);
    let tsdb = machine.open();
    fill(&machine, &tsdb, 1, 3);
    let range = TimeRange::inclusive(sample(3).0, sample(3).0);
    tsdb.admin().delete_series(&tenant(0), &[vec![Matcher::equal("__name__", "m")]], range).expect("deletes");
    assert_eq!(read_days(&machine, &tsdb, 0).expect("reads"), [sample(4), sample(2)]);
    tsdb.close().expect("closes");
    drop(tsdb);
    let has_deletions =
        |dir: &PathBuf| machine.env.disk.read(&dir.join("tombstones")).expect("reads").len() > 9;
    let dirs: Vec<PathBuf> = block_dirs(&machine, 0).into_iter().filter(has_deletions).collect();
    let [dir] = dirs.as_slice() else { panic!("one block has deletions: {dirs:?}") };
    let path = dir.join("tombstones");
    machine.env.disk.remove_file(&path).expect("removes");
    let report = chronolith_tsdb::check::check_dir(&machine.env, &machine.options.data_dir).expect("checks");
    let named = |text: &str| text.contains(path.to_str().expect("text"));
    assert!(report.damages.iter().any(|damage| named(&damage.what)), "{:?}", report.damages);
    for catalogue in ["there", "missing"] {
        if catalogue == "missing" {
            machine.env.disk.remove_file(Path::new(CATALOGUE)).expect("removes");
        }
        let tsdb = machine.open();
        assert!(
            tsdb.statistics().stats().replay.notes.iter().any(|note| named(note)),
            "{:?}",
            tsdb.statistics().stats().replay.notes
        );
        assert_eq!(metric(&tsdb, "blocks_lost_at_start"), 1.0);
        let error = read_days(&machine, &tsdb, 0).expect_err("what was deleted must not come back");
        assert!(named(&error.to_string()), "{error}");
        assert_eq!(metric(&tsdb, "blocks_damaged"), 1.0);
        tsdb.close().expect("closes");
    }
}

/// A block above `compaction-size` was never compacted, so what overlapped it stayed apart for ever.
#[test]
fn blocks_above_the_compaction_size_are_compacted_into_several() {
    let mut machine = Machine::new(8);
    machine.options.compaction.block_bytes_max = 12 << 10;
    let tsdb = machine.open();
    let names: Vec<String> = (0..60).map(|n| format!("m{n:02}")).collect();
    let at =
        |i: i64, of: i64| (START_MS - 4 * HOUR_MS + i * 1000 + of, ((i * 7919 + of) % 1013) as f64 * 0.37);
    for of in [0, 500] {
        for name in &names {
            let samples: Vec<_> = (0..600).map(|i| at(i, of)).collect();
            write(&tsdb, &StoreId::anonymous(), name, &samples).expect("stored");
        }
        machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    }
    assert_eq!(tsdb.statistics().stats().blocks, 2);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..20 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert_eq!(
        (metric(&tsdb, "compaction_runs_total"), metric(&tsdb, "compaction_failures_total")),
        (1.0, 0.0)
    );
    let split_count = tsdb.statistics().stats().blocks;
    assert!(split_count > 2, "{split_count} blocks");
    let check = |tsdb: &Tsdb| {
        for name in &names {
            assert_eq!(machine.read(tsdb, &StoreId::anonymous(), name).len(), 1200, "{name}");
        }
    };
    check(&tsdb);
    // Samples deleted in one of them go with a compaction of that block alone.
    let matchers = vec![Matcher::equal("__name__", names[0].as_str())];
    tsdb.admin().delete_series(&StoreId::anonymous(), &[matchers], TimeRange::ALL).expect("deletes");
    for _ in 0..20 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert_eq!((metric(&tsdb, "block_tombstones"), metric(&tsdb, "compaction_runs_total")), (0.0, 2.0));
    machine.disk.crash();
    drop(tsdb);
    let tsdb = machine.open();
    assert_eq!(tsdb.statistics().stats().blocks, split_count);
    assert!(machine.read(&tsdb, &StoreId::anonymous(), &names[0]).is_empty());
    for name in &names[1..] {
        assert_eq!(machine.read(&tsdb, &StoreId::anonymous(), name).len(), 1200, "{name}");
    }
}

/// Between the naming of the first and the last block of a set, samples were neither in the inputs nor in the
/// outputs.
#[test]
fn a_crash_at_any_disk_operation_of_a_split_loses_nothing() {
    let fresh = || {
        let mut machine = Machine::new(9);
        machine.options.compaction.block_bytes_max = 700;
        let tsdb = machine.open();
        for of in [0, 500] {
            for name in ["a", "b", "c", "d"] {
                let value = |i: i64| ((i * 7919 + of) % 1013) as f64 * 0.37;
                let samples: Vec<_> =
                    (0..200).map(|i| (START_MS - 4 * HOUR_MS + i * 1000 + of, value(i))).collect();
                write(&tsdb, &StoreId::anonymous(), name, &samples).expect("stored");
            }
            machine.clock.advance(Duration::from_millis(1));
            tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        }
        machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
        (machine, tsdb)
    };
    let compact = |machine: &Machine, tsdb: &Tsdb| {
        for _ in 0..6 {
            machine.clock.advance(Duration::from_mins(2));
            tsdb.maintenance().run();
        }
    };
    let (machine, tsdb) = fresh();
    let before = machine.disk.op_count();
    compact(&machine, &tsdb);
    let (op_count, split_count) = (machine.disk.op_count() - before, tsdb.statistics().stats().blocks);
    assert!(split_count > 2, "{split_count} blocks");
    let check = |machine: &Machine, tsdb: &Tsdb, when: &str| {
        for name in ["a", "b", "c", "d"] {
            assert_eq!(machine.read(tsdb, &StoreId::anonymous(), name).len(), 400, "{name} {when}");
        }
    };
    for survived in 0..=op_count {
        let (machine, tsdb) = fresh();
        machine.disk.fail_after(survived);
        compact(&machine, &tsdb);
        check(&machine, &tsdb, "before the crash");
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        check(&machine, &tsdb, &format!("after {survived} operations"));
        compact(&machine, &tsdb);
        assert_eq!(tsdb.statistics().stats().blocks, split_count, "after {survived} operations");
        check(&machine, &tsdb, &format!("compacted, after {survived} operations"));
    }
}
