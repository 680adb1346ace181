//! Booleans through every stage of the store, in their own encoding: log, checkpoint, sealed chunk, block,
//! compaction, deletion, snapshot; PromQL reads them as 0 and 1 and never sees the label of the kind.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_block::Block;
use chronolith_format::store_name;
use chronolith_model::batch::LabelSource;
use chronolith_model::query::{ColumnType, Projection, SelectRequest, Shard, TypedColumns, TypedValues};
use chronolith_model::{
    Labels, MatchOp, Matcher, ReadContext, Reject, Selector, SeriesRead, StoreId, TenantId, TimeRange,
    WriteBatch,
};
use chronolith_tsdb::{ReplayProgress, SnapshotHead, Tsdb};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

type Stored = BTreeMap<i64, bool>;

fn anonymous() -> StoreId {
    StoreId::anonymous()
}

fn labels() -> Labels {
    Labels::from_pairs([("__name__", "open"), ("a", "b")])
}

/// Writes a sample every ten seconds, in two orders, that changes its value about every `run` samples.
fn put(tsdb: &Tsdb, stored: &mut Stored, hour: i64, count: i64, run: i64) {
    let sample = |i: i64| (START_MS + hour * HOUR_MS + i * 10_000, (i / run + hour) % 2 == 0);
    let (first, second): (Vec<_>, Vec<_>) = (0..count).map(sample).partition(|(time, _)| time % 70_000 != 0);
    for part in [first, second] {
        let mut batch = WriteBatch::from_labels();
        batch.push_booleans(&labels(), &part);
        let outcome = tsdb.append(&anonymous(), &batch).expect("stored");
        assert_eq!(outcome.accepted_count, part.len() as u64);
        stored.extend(part);
    }
}

fn select(machine: &Machine, tsdb: &Tsdb, matchers: &[Matcher]) -> Vec<SeriesRead> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let selector = Selector { matchers, range: TimeRange::ALL };
    let mut batches =
        tsdb.reader().queryable(&TenantId::anonymous()).select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    series
}

#[track_caller]
fn compare(machine: &Machine, tsdb: &Tsdb, want: &Stored, when: &str) {
    let got = machine.read(tsdb, &anonymous(), "open");
    let number = |value: bool| if value { 1f64.to_bits() } else { 0 };
    let want: Vec<(i64, u64)> = want.iter().map(|(&time, &value)| (time, number(value))).collect();
    assert!(got == want, "{when}: {} samples, {} wanted", got.len(), want.len());
    for series in select(machine, tsdb, &[Matcher::equal("__name__", "open")]) {
        assert_eq!(series.labels, labels(), "{when}");
    }
}

/// Samples and bytes of chunks of all blocks.
fn blocks(machine: &Machine) -> (u64, u64, usize) {
    let dir = machine.options.data_dir.join("tenants").join(&*store_name(&anonymous()));
    let (mut samples, mut bytes, mut count) = (0, 0, 0);
    for entry in machine.env.disk.list(&dir).expect("lists") {
        let block = Block::open(&machine.env, &dir.join(&entry.name)).expect("opens");
        samples += block.meta().stats.num_samples;
        bytes += block.immutable_bytes().chunks;
        count += 1;
    }
    (samples, bytes, count)
}

#[test]
fn booleans_pass_every_stage() {
    let machine = Machine::new(7);
    let (mut tsdb, mut stored) = (machine.open(), Stored::new());
    let reopen = |tsdb: Arc<Tsdb>, stored: &Stored, when: &str| {
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        compare(&machine, &tsdb, stored, when);
        tsdb
    };
    put(&tsdb, &mut stored, -12, 700, 150);
    compare(&machine, &tsdb, &stored, "in the head");
    tsdb = reopen(tsdb, &stored, "from the log");
    tsdb.wal_jobs().roll_checkpoint();
    put(&tsdb, &mut stored, -10, 700, 1);
    tsdb = reopen(tsdb, &stored, "from the checkpoint and the log");
    for hour in [-8, -10, -6] {
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        compare(&machine, &tsdb, &stored, "flushed");
        put(&tsdb, &mut stored, hour, 650, 40);
        // The values of the second round lose against the first round's.
        stored.extend((0..650).filter(|_| hour == -10).map(|i| {
            let time = START_MS + hour * HOUR_MS + i * 10_000;
            (time, (i + hour) % 2 == 0)
        }));
        machine.clock.advance(Duration::from_millis(1));
    }
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    compare(&machine, &tsdb, &stored, "all flushed");
    let (_, _, count_before) = blocks(&machine);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..12 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    compare(&machine, &tsdb, &stored, "compacted");
    let (samples, bytes, count) = blocks(&machine);
    assert!(count < count_before && samples == stored.len() as u64, "{count} of {count_before} blocks");
    // A bitmap at most, and about 20 bytes of times and frame per chunk.
    assert!(bytes < samples / 8 + 60 * count as u64, "{bytes} bytes for {samples} samples");

    let snapshot = tsdb.admin().snapshot(&[StoreId::anonymous()], SnapshotHead::Include).expect("a snapshot");
    let mut options = machine.options.clone();
    options.data_dir = PathBuf::from("/data/snapshots").join(snapshot);
    let copy = Tsdb::open(machine.env.clone(), options, Arc::new(ReplayProgress::default())).expect("opens");
    compare(&machine, &copy, &stored, "in the snapshot");

    let deleted = TimeRange::new(START_MS - 11 * HOUR_MS, START_MS - 9 * HOUR_MS);
    let by_name = vec![vec![Matcher::equal("__name__", "open")]];
    tsdb.admin().delete_series(&anonymous(), &by_name, deleted).expect("deletes");
    stored.retain(|&time, _| !deleted.contains(time));
    compare(&machine, &tsdb, &stored, "deleted");
    tsdb.admin().clean_tombstones(&anonymous()).expect("cleans");
    compare(&machine, &tsdb, &stored, "tombstones cleaned");
    reopen(tsdb, &stored, "opened again");
}

#[test]
fn readers_see_no_label_of_the_kind() {
    let machine = Machine::new(8);
    let (tsdb, mut stored) = (machine.open(), Stored::new());
    // A series of floats with the same labels and another one after it in the order of labels.
    write(&tsdb, &anonymous(), "open", &[(START_MS - 5, 0.5)]).expect("stored");
    write(&tsdb, &anonymous(), "other", &[(START_MS - 5, 2.5)]).expect("stored");
    put(&tsdb, &mut stored, -1, 10, 3);
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    for is_flushed in [false, true] {
        if is_flushed {
            machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
            tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
            assert_eq!(tsdb.statistics().stats().blocks, 1);
        }
        assert_eq!(machine.read(&tsdb, &anonymous(), "open").len(), 11, "samples of both kinds");
        let queryable = tsdb.reader().queryable(&TenantId::anonymous());
        let hidden = |op, value| [Matcher::new("__kind__", op, value).expect("a matcher")];
        for (matchers, want) in [
            (hidden(MatchOp::Equal, "bool"), 0),
            (hidden(MatchOp::Equal, ""), 2),
            (hidden(MatchOp::NotEqual, "bool"), 2),
            (hidden(MatchOp::Regex, ".+"), 0),
        ] {
            let found = select(&machine, &tsdb, &matchers);
            assert_eq!(found.len(), want, "{matchers:?}");
            assert!(found.is_sorted_by(|a, b| a.labels < b.labels));
            let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
            let grouping = Some(Projection::new(&["__name__"], true));
            let request = SelectRequest { presence_only: true, grouping, ..SelectRequest::newest(&selector) };
            let mut present = Vec::new();
            let mut batches = queryable.open_series(request, &ctx).expect("selects");
            while batches.next_batch(&mut present).expect("a batch") {}
            assert_eq!(present.len(), want, "{matchers:?}");
            let values = queryable.label_values("__name__", &selector, 0, &ctx).expect("values");
            assert_eq!(values.len(), want, "{matchers:?}");
        }
        let all = Selector { matchers: &[], range: TimeRange::ALL };
        assert_eq!(queryable.label_names(&all, 0, &ctx).expect("names"), ["__name__", "a"]);
        assert_eq!(queryable.label_names(&all, 1, &ctx).expect("names"), ["__name__"]);
        assert!(queryable.label_values("__kind__", &all, 0, &ctx).expect("values").is_empty());
        let cardinality = tsdb.statistics().cardinality(&TenantId::anonymous(), 10);
        assert!(!format!("{cardinality:?}").contains("__kind__"), "{cardinality:?}");
    }
}

#[test]
fn series_of_an_unknown_kind_are_floats_with_a_label() {
    let machine = Machine::new(10);
    let (tsdb, mut stored) = (machine.open(), Stored::new());
    put(&tsdb, &mut stored, -1, 10, 3);
    let later = Labels::from_pairs([("__kind__", "later"), ("__name__", "open")]);
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&later, &[(START_MS - 5, 0.25)]);
    tsdb.append(&anonymous(), &batch).expect("stored");
    let found = select(&machine, &tsdb, &[Matcher::equal("__name__", "open")]);
    assert_eq!(found.iter().map(|series| &series.labels).collect::<Vec<_>>(), [&later, &labels()]);
}

#[test]
fn untyped_protocols_cannot_set_the_kind() {
    let machine = Machine::new(9);
    let tsdb = machine.open();
    for name in ["__kind__", "__field__"] {
        let mut batch = WriteBatch::from_labels();
        batch.source = LabelSource { is_typed: false, ..batch.source };
        let pairs = [("__name__", "open"), (name, "bool")];
        batch.push_labels(&Labels::from_pairs(pairs), &[(START_MS, 2.0)]);
        let outcome = tsdb.append(&anonymous(), &batch).expect("an answer");
        assert_eq!((outcome.accepted_count, outcome.rejected[Reject::ReservedLabel as usize]), (0, 1));
    }
    assert!(machine.read(&tsdb, &anonymous(), "open").is_empty());
}

#[test]
fn shards_split_the_series_of_all_kinds() {
    let machine = Machine::new(12);
    let (tsdb, mut stored) = (machine.open(), Stored::new());
    put(&tsdb, &mut stored, -1, 10, 3);
    let mut batch = WriteBatch::from_labels();
    for id in 0..50 {
        let labels = Labels::from_pairs([("__name__", "m"), ("id", id.to_string().as_str())]);
        batch.push_labels(&labels, &[(START_MS, 1.0)]);
    }
    tsdb.append(&anonymous(), &batch).expect("stored");
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut found: Vec<Labels> = Vec::new();
    for idx in 0..3 {
        let shard = Shard::new(idx, 3);
        let request = SelectRequest { shard, presence_only: true, ..SelectRequest::newest(&selector) };
        let mut batches =
            tsdb.reader().queryable(&TenantId::anonymous()).open_series(request, &ctx).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        assert!((5..30).contains(&series.len()), "shard {idx}: {} series", series.len());
        found.extend(series.into_iter().map(|series| series.labels));
    }
    found.sort();
    let all: Vec<Labels> = select(&machine, &tsdb, &[]).into_iter().map(|series| series.labels).collect();
    assert_eq!(found, all);
}

#[test]
fn booleans_are_read_as_booleans_on_request() {
    let machine = Machine::new(13);
    let (tsdb, mut stored) = (machine.open(), Stored::new());
    put(&tsdb, &mut stored, -1, 40, 3);
    write(&tsdb, &anonymous(), "open", &[(START_MS, 0.5)]).expect("stored");
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let matchers = [Matcher::equal("__name__", "open")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let read = |column_type| {
        let request = SelectRequest { column_type, ..SelectRequest::new(&selector) };
        let mut batches =
            tsdb.reader().queryable(&TenantId::anonymous()).open_series(request, &ctx).expect("selects");
        let (mut series, mut out) = (Vec::new(), TypedColumns::new(column_type));
        while batches.next_batch(&mut series).expect("a batch") {}
        for one in &series {
            assert!(one.labels.get("__kind__").is_none());
            one.samples.read_typed(TimeRange::ALL, &mut out).expect("reads");
        }
        (series.len(), out)
    };
    let (count, columns) = read(ColumnType::Boolean);
    assert_eq!(count, 1);
    assert_eq!(columns.times, stored.keys().copied().collect::<Vec<_>>());
    assert_eq!(columns.values, TypedValues::Booleans(stored.values().copied().collect()));
    let (count, columns) = read(ColumnType::Float);
    let mut times: Vec<i64> = stored.keys().copied().chain([START_MS]).collect();
    times.sort_unstable();
    times.dedup();
    assert_eq!((count, columns.times), (1, times), "floats, and booleans as 0 and 1");
    for other in [ColumnType::Integer, ColumnType::Unsigned, ColumnType::Text] {
        assert_eq!(read(other).0, 0, "{other:?}");
    }
}
