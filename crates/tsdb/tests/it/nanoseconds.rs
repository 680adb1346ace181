//! Stores in nanoseconds through every stage: log, checkpoint, sealed chunk, block, compaction, deletion,
//! snapshot, retention. Neighbouring nanoseconds stay apart, the extremes are stored, and PromQL's view has
//! milliseconds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Rng;
use chronolith_block::Block;
use chronolith_format::store_name;
use chronolith_model::query::{SelectRequest, TypedColumns, TypedValues};
use chronolith_model::time::{TIME_MAX_NS, TIME_MIN_NS};
use chronolith_model::{
    Columns, Labels, Matcher, Queryable, ReadContext, Reject, Selector, StoreId, TenantId, TenantLimits,
    TimeRange, WriteBatch,
};
use chronolith_tsdb::check::check_dir;
use chronolith_tsdb::{BlockEncoding, ReplayProgress, SnapshotHead, Tsdb, in_milliseconds, tenant_dir};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};
use crate::kinds::{push, random_sample, text, texts};

const NAME: &str = "m";
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
const START: i64 = START_MS * 1_000_000;

type Stored = BTreeMap<i64, f64>;

fn store() -> StoreId {
    StoreId::Database { number: 7 }
}

fn by_name() -> Vec<Vec<Matcher>> {
    vec![vec![Matcher::equal("__name__", NAME)]]
}

/// Writes samples whose values are distinct.
#[track_caller]
fn put(tsdb: &Tsdb, stored: &mut Stored, times: &[i64]) {
    let samples: Vec<(i64, f64)> =
        times.iter().enumerate().map(|(idx, &time)| (time, (stored.len() + idx) as f64 + 0.5)).collect();
    for part in samples.chunks(500) {
        let outcome = write(tsdb, &store(), NAME, part).expect("stored");
        assert_eq!(outcome.accepted_count, part.len() as u64, "{:?}", outcome.first_reject);
    }
    stored.extend(samples);
}

#[track_caller]
fn compare(machine: &Machine, tsdb: &Tsdb, want: &Stored, when: &str) {
    let got = machine.read(tsdb, &store(), NAME);
    let want: Vec<(i64, u64)> = want.iter().map(|(&time, value)| (time, value.to_bits())).collect();
    let differs = got.iter().zip(&want).find(|(got, want)| got != want);
    assert!(got == want, "{when}: {} of {} samples, {differs:?}", got.len(), want.len());
}

/// Kills the machine and opens the store again.
fn reopen(machine: &Machine, tsdb: Arc<Tsdb>, stored: &Stored, when: &str) -> Arc<Tsdb> {
    machine.disk.crash();
    drop(tsdb);
    let tsdb = machine.open();
    compare(machine, &tsdb, stored, when);
    let notes = tsdb.statistics().stats().replay.notes;
    assert!(notes.is_empty(), "{when}: {notes:?}");
    tsdb
}

fn block_dirs(machine: &Machine, tenant: &StoreId) -> Vec<PathBuf> {
    let dir = machine.options.data_dir.join("tenants").join(&*store_name(tenant));
    machine.env.disk.list(&dir).map_or(Vec::new(), |all| all.into_iter().map(|e| dir.join(e.name)).collect())
}

fn chunk_bytes(machine: &Machine, tenant: &StoreId) -> u64 {
    let open = |dir: &PathBuf| Block::open(&machine.env, dir).expect("opens").immutable_bytes().chunks;
    block_dirs(machine, tenant).iter().map(open).sum()
}

/// Neighbours around seconds and the border of a window, and samples in and out of order at any distance.
fn neighbours(hour: i64) -> Vec<i64> {
    let border = START + hour * HOUR;
    let mut times: Vec<i64> = (0..400).map(|i| border + i * 10 * SECOND + i % 3).collect();
    for at in [border - 7, border - 1, border + 1, border + 10 * SECOND + 2, border + HOUR + 999_999] {
        times.extend([at, at + 1_000_001, at + 1_000_000]);
    }
    times.extend((0..300).map(|i| border + 30 * SECOND + 3 + i));
    times.extend((0..300).rev().map(|i| border + 40 * SECOND + 3 + i * 1001));
    times.sort_by_key(|time| time % 7);
    times.dedup();
    let mut seen = std::collections::BTreeSet::new();
    times.retain(|time| seen.insert(*time));
    times
}

#[test]
fn neighbours_stay_apart_through_every_stage() {
    let machine = Machine::new(7);
    let (mut tsdb, mut stored) = (machine.open(), Stored::new());
    put(&tsdb, &mut stored, &neighbours(-12));
    compare(&machine, &tsdb, &stored, "in the head");
    tsdb = reopen(&machine, tsdb, &stored, "from the log");
    tsdb.wal_jobs().roll_checkpoint();
    put(&tsdb, &mut stored, &neighbours(-10));
    tsdb = reopen(&machine, tsdb, &stored, "from the checkpoint and the log");
    tsdb.close().expect("closes");
    tsdb = reopen(&machine, tsdb, &stored, "from the checkpoint alone");
    for hour in [-8, -6, -4] {
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        compare(&machine, &tsdb, &stored, "flushed");
        put(&tsdb, &mut stored, &neighbours(hour));
        machine.clock.advance(Duration::from_millis(1));
    }
    let in_head = TimeRange::new(START - 6 * HOUR + 30 * SECOND + 5, START - 4 * HOUR + 30 * SECOND + 8);
    tsdb.admin().delete_series(&store(), &by_name(), in_head).expect("deletes");
    stored.retain(|&time, _| !in_head.contains(time));
    compare(&machine, &tsdb, &stored, "deleted in head and blocks");
    tsdb = reopen(&machine, tsdb, &stored, "killed after the deletion");
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    compare(&machine, &tsdb, &stored, "all flushed");
    assert_eq!(tsdb.statistics().stats().head.series, 0);
    let count_before = tsdb.statistics().stats().blocks;
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..20 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    compare(&machine, &tsdb, &stored, "compacted");
    assert!(
        tsdb.statistics().stats().blocks < count_before,
        "{} of {count_before} blocks",
        tsdb.statistics().stats().blocks
    );

    put(&tsdb, &mut stored, &neighbours(0));
    let snapshot = tsdb.admin().snapshot(&[store()], SnapshotHead::Include).expect("a snapshot");
    let mut options = machine.options.clone();
    options.data_dir = PathBuf::from("/data/snapshots").join(snapshot);
    let copy = Tsdb::open(machine.env.clone(), options, Arc::new(ReplayProgress::default())).expect("opens");
    compare(&machine, &copy, &stored, "in the snapshot");

    // One nanosecond among its neighbours, then a range between two of them.
    let one = START - 12 * HOUR + 30 * SECOND + 7;
    for deleted in [TimeRange::new(one, one + 1), TimeRange::new(one + 2, START - 10 * HOUR - 1)] {
        tsdb.admin().delete_series(&store(), &by_name(), deleted).expect("deletes");
        let before = stored.len();
        stored.retain(|&time, _| !deleted.contains(time));
        assert!(stored.len() < before);
        compare(&machine, &tsdb, &stored, "deleted");
    }
    tsdb = reopen(&machine, tsdb, &stored, "tombstones from disk");
    tsdb.admin().clean_tombstones(&store()).expect("cleans");
    compare(&machine, &tsdb, &stored, "tombstones cleaned");
    while !tsdb.maintenance().verify_blocks() {}
    assert_eq!(tsdb.reader().times(&store(), TimeRange::ALL).expect("has samples").start % (2 * HOUR), 0);
    reopen(&machine, tsdb, &stored, "opened again");
}

#[test]
fn the_extremes_are_stored() {
    let mut machine = Machine::new(9);
    machine.options.limits.default.future_ms_max = 0;
    let (mut tsdb, mut stored) = (machine.open(), Stored::new());
    let times = [
        TIME_MIN_NS,
        TIME_MIN_NS + 1,
        TIME_MIN_NS + HOUR,
        -SECOND,
        -1,
        0,
        1,
        SECOND,
        TIME_MAX_NS - HOUR,
        TIME_MAX_NS - 1,
        TIME_MAX_NS,
    ];
    assert_eq!((TIME_MIN_NS, TIME_MAX_NS), (-9_223_372_036_854_775_806, 9_223_372_036_854_775_806));
    put(&tsdb, &mut stored, &times[5..]);
    put(&tsdb, &mut stored, &times[..5]);
    for outside in [i64::MIN, TIME_MIN_NS - 1, i64::MAX] {
        let outcome = write(&tsdb, &store(), NAME, &[(outside, 1.0)]).expect("answers");
        assert_eq!(outcome.first_reject.expect("a reject").0, Reject::OutOfBounds);
    }
    compare(&machine, &tsdb, &stored, "in the head");
    tsdb = reopen(&machine, tsdb, &stored, "from the log");
    tsdb.wal_jobs().roll_checkpoint();
    tsdb = reopen(&machine, tsdb, &stored, "from the checkpoint");
    tsdb.maintenance().run();
    tsdb.maintenance().flush_closed(START_MS).expect("flushes");
    compare(&machine, &tsdb, &stored, "flushed");
    let snapshot = tsdb.admin().snapshot(&[store()], SnapshotHead::Include).expect("a snapshot");
    let mut options = machine.options.clone();
    options.data_dir = PathBuf::from("/data/snapshots").join(snapshot);
    let copy = Tsdb::open(machine.env.clone(), options, Arc::new(ReplayProgress::default())).expect("opens");
    compare(&machine, &copy, &stored, "in the snapshot");
    // All windows, also of the year 2262.
    tsdb.maintenance().flush_closed(i64::MAX).expect("flushes");
    compare(&machine, &tsdb, &stored, "all flushed");
    assert_eq!(tsdb.statistics().stats().head.series, 0);
    for _ in 0..10 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    tsdb = reopen(&machine, tsdb, &stored, "blocks alone");
    while !tsdb.maintenance().verify_blocks() {}
    for deleted in [TimeRange::new(TIME_MAX_NS, i64::MAX), TimeRange::new(i64::MIN, TIME_MIN_NS + 1)] {
        tsdb.admin().delete_series(&store(), &by_name(), deleted).expect("deletes");
        stored.retain(|&time, _| !deleted.contains(time));
        compare(&machine, &tsdb, &stored, "deleted");
    }
    tsdb = reopen(&machine, tsdb, &stored, "after the deletions");
    tsdb.admin().delete_series(&store(), &by_name(), TimeRange::ALL).expect("deletes");
    assert!(machine.read(&tsdb, &store(), NAME).is_empty());
}

/// Points of sixty years in one batch must not become a block per day.
#[test]
fn many_years_at_once_become_few_blocks() {
    let machine = Machine::new(10);
    let (tsdb, mut stored) = (machine.open(), Stored::new());
    let days: Vec<i64> = (0..20_000).map(|day| day * 24 * HOUR + day % 5).collect();
    put(&tsdb, &mut stored, &days);
    tsdb.maintenance().flush_closed(START_MS).expect("flushes");
    assert!(tsdb.statistics().stats().blocks <= 70, "{} blocks", tsdb.statistics().stats().blocks);
    compare(&machine, &tsdb, &stored, "flushed");
    for _ in 0..10 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    compare(&machine, &tsdb, &stored, "compacted");
}

fn read_view(
    machine: &Machine,
    view: &Arc<dyn Queryable>,
    range: TimeRange,
    newest: bool,
) -> Vec<(i64, f64)> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let matchers = [Matcher::equal("__name__", NAME)];
    let selector = Selector { matchers: &matchers, range };
    let request = if newest { SelectRequest::newest(&selector) } else { SelectRequest::new(&selector) };
    let mut batches = view.open_series(request, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut columns = Columns::default();
    for one in &series {
        one.samples.read(range, &mut columns).expect("reads");
        let mut typed = TypedColumns { times: Vec::new(), values: TypedValues::Floats(Vec::new()) };
        one.samples.read_typed(range, &mut typed).expect("reads");
        assert_eq!(
            (&typed.times, &typed.values),
            (&columns.times, &TypedValues::Floats(columns.values.clone()))
        );
    }
    columns.times.into_iter().zip(columns.values).collect()
}

#[test]
fn promql_sees_the_last_sample_of_a_millisecond() {
    let machine = Machine::new(11);
    let tsdb = machine.open();
    let at = START - HOUR;
    let ms = START_MS - HOUR_MS;
    let samples = [
        (at - 1, 1.0),
        (at, 2.0),
        (at + 999_999, 3.0),
        (at + 1_000_000, 4.0),
        (at + 2_500_000, 5.0),
        (-1, 6.0),
    ];
    for (time, value) in samples {
        write(&tsdb, &store(), NAME, &[(time, value)]).expect("stored");
    }
    let view = in_milliseconds(tsdb.reader().store_queryable(&store()));
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    for is_flushed in [false, true] {
        if is_flushed {
            tsdb.maintenance().flush_closed(START_MS).expect("flushes");
        }
        let read = |start, end| read_view(&machine, &view, TimeRange::new(start, end), false);
        assert_eq!(read(ms - 1, ms + 3), [(ms - 1, 1.0), (ms, 3.0), (ms + 1, 4.0), (ms + 2, 5.0)]);
        assert_eq!(read(ms, ms + 1), [(ms, 3.0)]);
        assert_eq!(read(-1, 0), [(-1, 6.0)]);
        assert_eq!(read_view(&machine, &view, TimeRange::ALL, false).len(), 5);
        assert_eq!(read_view(&machine, &view, TimeRange::new(ms - 5, ms + 1), true).last(), Some(&(ms, 3.0)));
        let all = Selector { matchers: &[], range: TimeRange::ALL };
        assert!(view.estimate(&all, &ctx).expect("estimates").expect("has one").samples >= 5);
        assert_eq!(view.label_values("__name__", &all, 0, &ctx).expect("reads"), [NAME]);
        let none = Selector { matchers: &[], range: TimeRange::new(ms + 4 * HOUR_MS, ms + 5 * HOUR_MS) };
        assert!(view.label_names(&none, 0, &ctx).expect("reads").is_empty());
    }
}

#[test]
fn retention_is_in_milliseconds() {
    let mut machine = Machine::new(12);
    let limits =
        TenantLimits { retention_ms: 24 * HOUR_MS, future_ms_max: HOUR_MS, ..TenantLimits::default() };
    machine.options.limits.default = limits;
    let tsdb = machine.open();
    let reject = |time: i64| {
        let outcome = write(&tsdb, &store(), NAME, &[(time, 1.0)]).expect("answers");
        outcome.first_reject.map(|reject| reject.0)
    };
    assert_eq!(reject(START - 24 * HOUR - 1), Some(Reject::TooOld));
    assert_eq!(reject(START - 24 * HOUR), None);
    assert_eq!(reject(START + HOUR + 1), Some(Reject::OutOfBounds));
    assert_eq!(reject(START - HOUR), None);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    tsdb.maintenance().run();
    assert_eq!(tsdb.statistics().stats().blocks, 1, "the older block has expired at once");
    assert_eq!(machine.read(&tsdb, &store(), NAME).len(), 1);
    machine.clock.set_now_ms(START_MS + 26 * HOUR_MS);
    tsdb.maintenance().run();
    assert_eq!(tsdb.statistics().stats().blocks, 0);
}

/// A start and `check` name the fault of a directory that only looks like a store's.
#[test]
fn directories_of_no_store_are_named_with_their_fault() {
    let machine = Machine::new(15);
    drop(machine.open());
    let long = "a".repeat(151);
    let faults = [
        ("__ns-00", "has 2 bytes after __ns-, expected 16 hexadecimal digits"),
        ("__ns-", "has 0 bytes after __ns-, expected 16 hexadecimal digits"),
        ("__ms-00000000000000000", "has 17 bytes after __ms-, expected 16 hexadecimal digits"),
        ("__ns-00000000000000AB", "has the character 'A' after __ns-"),
        ("__ms-000000000000000g", "has the character 'g' after __ms-"),
        ("__us-0000000000000000", "start with"),
        ("__x", "start with"),
        ("a b", "has the character ' '"),
        ("a,b", "has the character ','"),
        (long.as_str(), "is 151 bytes long"),
    ];
    let root = machine.options.data_dir.join("tenants");
    for (name, _) in faults {
        machine.env.disk.create_dir_all(&root.join(name)).expect("made");
    }
    for store in [StoreId::Database { number: 0xab }, StoreId::Graphite { number: u64::MAX }] {
        machine.env.disk.create_dir_all(&tenant_dir(&machine.options.data_dir, &store)).expect("made");
    }
    let check = |notes: &[String], when: &str| {
        assert_eq!(notes.len(), faults.len(), "{when}: {notes:?}");
        for (name, fault) in faults {
            let path = format!("{}: not a tenant directory", root.join(name).display());
            let is_named = |note: &String| note.starts_with(&path) && note.contains(fault);
            assert!(notes.iter().any(is_named), "{when}: {name} in {notes:?}");
        }
    };
    check(&machine.open().statistics().stats().replay.notes, "start");
    let report = check_dir(&machine.env, &machine.options.data_dir).expect("checks");
    check(&report.notes, "check");
}

/// Blocks name their unit, Prometheus refuses them, and they cost no more than in milliseconds.
#[test]
fn blocks_name_their_unit() {
    let mut machine = Machine::new(13);
    machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    let tsdb = machine.open();
    let tenant = TenantId::new("dense").expect("legal");
    let ms = StoreId::from(&tenant);
    let dense = TenantLimits { block_encoding: BlockEncoding::Dense, ..TenantLimits::default() };
    tsdb.settings().set_limits(chronolith_tsdb::LimitsTable {
        default: machine.options.limits.default.clone(),
        by_tenant: [(tenant, dense)].into_iter().collect(),
    });
    for series in 0..20 {
        let times = (0..600).map(|i| START_MS - 4 * HOUR_MS + i * 10_000 + (series * 37 + i * 7919) % 20);
        let labels = Labels::from_pairs([("__name__", format!("m{series}").as_str())]);
        for (tenant, factor) in [(&ms, 1), (&store(), 1_000_000)] {
            let mut batch = WriteBatch::from_labels();
            let samples: Vec<_> = times.clone().map(|time| (time * factor, (time % 100) as f64)).collect();
            batch.push_labels(&labels, &samples);
            assert_eq!(tsdb.append(tenant, &batch).expect("stored").accepted_count, 600);
        }
    }
    tsdb.maintenance().flush_closed(START_MS).expect("flushes");
    let (in_ms, in_ns) = (chunk_bytes(&machine, &ms), chunk_bytes(&machine, &store()));
    assert!(in_ns <= in_ms, "{in_ns} bytes, {in_ms} in milliseconds");
    let dir = block_dirs(&machine, &store()).remove(0);
    let text =
        String::from_utf8(machine.env.disk.read(&dir.join("meta.json")).expect("reads")).expect("text");
    assert!(text.contains("\"time_unit\": \"ns\""), "{text}");
    let block = Block::open(&machine.env, &dir).expect("opens");
    let range = block.meta().range();
    assert_eq!(
        (block.meta().min_time * 1_000_000, block.meta().max_time * 1_000_000),
        (range.start, range.end)
    );
    assert_eq!(machine.env.disk.read(&dir.join("tombstones")).expect("reads")[4], 2, "version of tombstones");
    // Without its unit, `meta.json` no longer fits the tombstones.
    let cut = text.find("\t\"chronolith\"").expect("the section");
    let end = text[cut..].find("}").expect("its end") + cut;
    let without = format!("{}{}", text[..cut].trim_end().trim_end_matches(','), &text[end + 1..]);
    machine.env.disk.write_atomic(&dir.join("meta.json"), without.as_bytes()).expect("writes");
    assert!(Block::open(&machine.env, &dir).is_err(), "{without}");
}

/// Regression: histograms over the budget of the head are sealed early by whichever append exceeds it, with
/// the windows of its tenant; a chunk of another unit then spanned many windows.
#[test]
fn histograms_of_both_units_share_a_budget() {
    let mut machine = Machine::new(14);
    machine.options.histogram_bytes_max = 3_000;
    let tsdb = machine.open();
    let rng = Rng::from_seed(14);
    let tenants = [(StoreId::anonymous(), 1), (store(), 1_000_000)];
    let mut want: BTreeMap<(usize, i64), String> = BTreeMap::new();
    for round in 0..200 {
        for (idx, (tenant, ticks)) in tenants.iter().enumerate() {
            // Out of order, over twenty hours.
            let hour = if round == 0 { 0 } else { round * 7 % 20 };
            let time = (START_MS - hour * HOUR_MS - round * 1000 - 1) * ticks;
            let sample = random_sample(&rng, round.unsigned_abs());
            let mut batch = WriteBatch::from_labels();
            push(&mut batch, &Labels::from_pairs([("__name__", NAME)]), &[(time, sample.clone())]);
            assert_eq!(tsdb.append(tenant, &batch).expect("stored").accepted_count, 1);
            want.insert((idx, time), text(&sample));
        }
    }
    let early = tsdb.statistics().stats().head.histograms.sealed_early_count;
    assert!(early > 0, "the budget was exceeded");
    for is_flushed in [false, true] {
        if is_flushed {
            tsdb.maintenance().flush_closed(START_MS + HOUR_MS).expect("flushes");
        }
        let mut found = BTreeMap::new();
        for (idx, (tenant, _)) in tenants.iter().enumerate() {
            let ctx = ReadContext::unlimited(machine.env.clock.clone());
            let selector = Selector { matchers: &by_name()[0], range: TimeRange::ALL };
            let mut batches = tsdb.reader().store_queryable(tenant).select(&selector, &ctx).expect("selects");
            let (mut series, mut columns) = (Vec::new(), Columns::default());
            while batches.next_batch(&mut series).expect("a batch") {}
            series.iter().for_each(|one| one.samples.read(TimeRange::ALL, &mut columns).expect("reads"));
            found.extend(texts(&columns).into_iter().map(|(time, text)| ((idx, time), text)));
        }
        assert!(found == want, "{} of {} samples", found.len(), want.len());
    }
}
