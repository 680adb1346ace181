//! Samples of every type through every stage of the store: log, checkpoint, sealed chunk, block, compaction,
//! deletion, snapshot; exact for a typed reader, and numbers for PromQL.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_model::batch::FieldConflict;
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::query::{ColumnType, TypedColumns, TypedValues};
use chronolith_model::{
    BlockEncoding, Columns, DuplicatePolicy, FIELD_LABEL, KIND_LABEL, Labels, Matcher, ReadContext, Reject,
    Selector, SeriesRead, StoreId, TenantId, TimeRange, WordKind, WriteBatch, WriteOutcome,
};
use chronolith_tsdb::{ReplayProgress, SnapshotHead, Tsdb};

use crate::fixture::{HOUR_MS, Machine, START_MS};

const KINDS: [WordKind; 4] = [WordKind::Integer, WordKind::Unsigned, WordKind::Float, WordKind::Text];

/// A value of any type; floats by their bits.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Float(u64),
    Integer(i64),
    Unsigned(u64),
    Text(Vec<u8>),
}

/// Samples by field and time.
type Stored = BTreeMap<String, BTreeMap<i64, Value>>;

fn anonymous() -> StoreId {
    StoreId::anonymous()
}

fn labels(field: &str) -> Labels {
    Labels::from_pairs([("__name__", "m"), (FIELD_LABEL, field), ("a", "b")])
}

/// Values of a kind: extremes, and ones whose words are special as floats, among a counter.
fn value_of(kind: WordKind, idx: i64) -> Value {
    const INTEGERS: [i64; 8] = [i64::MIN, i64::MAX, 0, -1, 1, (1 << 53) + 1, i64::MIN + 1, -(1 << 53) - 1];
    const BITS: [u64; 6] =
        [1 << 63, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_0001, 1, u64::MAX, 0x7ff4_c8d0_4815_7061];
    const TEXTS: [&[u8]; 6] = [b"", b"a\0b", b"two\nlines", b"\xff\xfe", b"up", b"\"quoted\", \\ and more"];
    let special = |count: usize| (idx % 5 == 2).then_some((idx / 5) as usize % count);
    match kind {
        WordKind::Integer => {
            Value::Integer(special(INTEGERS.len()).map_or(1_000_000 + idx * 37, |at| INTEGERS[at]))
        }
        WordKind::Unsigned => {
            let extreme = |at: usize| INTEGERS[at].cast_unsigned();
            Value::Unsigned(special(INTEGERS.len()).map_or(7 * idx.unsigned_abs(), extreme))
        }
        WordKind::Text if idx == 77 => {
            Value::Text((0..1 << 20).map(|i: u32| ((i * 31) >> 9) as u8).collect())
        }
        WordKind::Text => Value::Text(
            special(TEXTS.len()).map_or(format!("state {}", idx / 9).into(), |at| TEXTS[at].to_vec()),
        ),
        _ => Value::Float(special(BITS.len()).map_or((idx as f64 / 10.0).to_bits(), |at| BITS[at])),
    }
}

fn push(batch: &mut WriteBatch, field: &str, samples: &[(i64, Value)]) {
    let Some((_, first)) = samples.first() else { return };
    let text = |(time, value): &(i64, Value)| match value {
        Value::Text(text) => (*time, text.clone()),
        other => panic!("{other:?} among texts"),
    };
    if matches!(first, Value::Text(_)) {
        let texts: Vec<(i64, Vec<u8>)> = samples.iter().map(text).collect();
        let texts: Vec<(i64, &[u8])> = texts.iter().map(|(time, text)| (*time, text.as_slice())).collect();
        return batch.push_texts(&labels(field), &texts);
    }
    let kind = match first {
        Value::Float(_) => WordKind::Float,
        Value::Integer(_) => WordKind::Integer,
        Value::Unsigned(_) => WordKind::Unsigned,
        Value::Text(_) => WordKind::Text,
    };
    let word = |value: &Value| match value {
        Value::Float(bits) => *bits,
        Value::Integer(value) => word_of_integer(*value),
        Value::Unsigned(value) => word_of_unsigned(*value),
        Value::Text(_) => unreachable!("texts have no word"),
    };
    let words: Vec<(i64, u64)> = samples.iter().map(|(time, value)| (*time, word(value))).collect();
    batch.push_words(&labels(field), kind, &words);
}

/// Writes a sample every ten seconds in two orders; `offset` selects the values.
fn put(tsdb: &Tsdb, stored: &mut Stored, hour: i64, count: i64, offset: i64) {
    for kind in KINDS {
        let field = format!("f{}", kind.label_value());
        let sample = |i: i64| (START_MS + hour * HOUR_MS + i * 10_000, value_of(kind, i + offset));
        let (first, second): (Vec<_>, Vec<_>) =
            (0..count).map(sample).partition(|(time, _)| time % 70_000 != 0);
        for part in [first, second] {
            let mut batch = WriteBatch::from_labels();
            push(&mut batch, &field, &part);
            let outcome = tsdb.append(&anonymous(), &batch).expect("stored");
            assert_eq!(outcome.accepted_count, part.len() as u64, "{outcome:?}");
            let of_field = stored.entry(field.clone()).or_default();
            for (time, value) in part {
                of_field.entry(time).or_insert(value);
            }
        }
    }
}

fn select(machine: &Machine, tsdb: &Tsdb, matchers: &[Matcher]) -> Vec<SeriesRead> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let selector = Selector { matchers, range: TimeRange::ALL };
    let mut batches = tsdb.reader().typed_queryable(&anonymous()).select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    assert!(series.is_sorted_by(|a, b| a.labels < b.labels));
    series
}

/// All samples in `range` as a typed reader sees them, by field.
fn typed(machine: &Machine, tsdb: &Tsdb, range: TimeRange) -> Stored {
    let mut all = Stored::new();
    for series in select(machine, tsdb, &[Matcher::equal("__name__", "m")]) {
        let kind = WordKind::of(&series.labels);
        assert_eq!(series.samples.column_type(), ColumnType::of_words(kind));
        let values: Vec<(i64, Value)> = if kind == WordKind::Float {
            // Read as it is, so that no value is taken for a staleness marker.
            let mut columns = Columns::default();
            series.samples.read(range, &mut columns).expect("reads");
            let values = columns.values.iter().map(|value| Value::Float(value.to_bits()));
            columns.times.iter().copied().zip(values).collect()
        } else {
            let mut columns = TypedColumns::new(series.samples.column_type());
            series.samples.read_typed(range, &mut columns).expect("reads");
            let values: Vec<Value> = match columns.values {
                TypedValues::Integers(values) => values.into_iter().map(Value::Integer).collect(),
                TypedValues::Unsigned(values) => values.into_iter().map(Value::Unsigned).collect(),
                TypedValues::Texts(values) => {
                    values.into_iter().map(|text| Value::Text(text.to_vec())).collect()
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(columns.times.len(), values.len());
            columns.times.into_iter().zip(values).collect()
        };
        let field = series.labels.get(FIELD_LABEL).expect("a field").to_owned();
        all.entry(field).or_default().extend(values);
    }
    all
}

#[track_caller]
fn compare(machine: &Machine, tsdb: &Tsdb, want: &Stored, when: &str) {
    let got = typed(machine, tsdb, TimeRange::ALL);
    for (field, want) in want {
        let got = got.get(field).cloned().unwrap_or_default();
        let missing = want.iter().find(|(time, value)| got.get(time) != Some(value));
        assert_eq!((missing, got.len()), (None, want.len()), "{when}: {field}");
    }
    let range = TimeRange::new(START_MS - 9 * HOUR_MS - 5, START_MS - 8 * HOUR_MS + 1_000_000);
    let part = typed(machine, tsdb, range);
    for (field, want) in want {
        let want: BTreeMap<i64, Value> =
            want.range(range.start..range.end).map(|(&time, value)| (time, value.clone())).collect();
        assert!(part.get(field).cloned().unwrap_or_default() == want, "{when}: {field} in part");
    }
}

fn pass_every_stage(machine: &Machine) {
    let (mut tsdb, mut stored) = (machine.open(), Stored::new());
    let reopen = |tsdb: Arc<Tsdb>, stored: &Stored, when: &str| {
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        compare(machine, &tsdb, stored, when);
        tsdb
    };
    put(&tsdb, &mut stored, -12, 700, 0);
    compare(machine, &tsdb, &stored, "in the head");
    tsdb = reopen(tsdb, &stored, "from the log");
    tsdb.wal_jobs().roll_checkpoint();
    put(&tsdb, &mut stored, -10, 700, 3);
    tsdb = reopen(tsdb, &stored, "from the checkpoint and the log");
    tsdb.wal_jobs().roll_checkpoint();
    tsdb.wal_jobs().roll_checkpoint();
    tsdb = reopen(tsdb, &stored, "from the checkpoint");
    for (hour, offset) in [(-8, 100), (-10, 3), (-6, 9)] {
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        compare(machine, &tsdb, &stored, "flushed");
        put(&tsdb, &mut stored, hour, 650, offset);
        tsdb = reopen(tsdb, &stored, "from the log after a flush");
        machine.clock.advance(Duration::from_millis(1));
    }
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    compare(machine, &tsdb, &stored, "all flushed");
    tsdb = reopen(tsdb, &stored, "opened after the flushes");
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    let before = tsdb.statistics().stats().blocks;
    for _ in 0..12 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert!(
        tsdb.statistics().stats().blocks < before,
        "{} of {before} blocks",
        tsdb.statistics().stats().blocks
    );
    compare(machine, &tsdb, &stored, "compacted");
    put(&tsdb, &mut stored, 2, 200, 11);

    let snapshot = tsdb.admin().snapshot(&[StoreId::anonymous()], SnapshotHead::Include).expect("a snapshot");
    let mut options = machine.options.clone();
    options.data_dir = PathBuf::from("/data/snapshots").join(snapshot);
    let copy = Tsdb::open(machine.env.clone(), options, Arc::new(ReplayProgress::default())).expect("opens");
    compare(machine, &copy, &stored, "in the snapshot");

    for deleted in [(-11, -9), (2, 3)] {
        let deleted =
            TimeRange::new(START_MS + deleted.0 * HOUR_MS, START_MS + deleted.1 * HOUR_MS - 1_900_000);
        let by_name = vec![vec![Matcher::equal("__name__", "m")]];
        tsdb.admin().delete_series(&anonymous(), &by_name, deleted).expect("deletes");
        stored.values_mut().for_each(|of_field| of_field.retain(|&time, _| !deleted.contains(time)));
        compare(machine, &tsdb, &stored, "deleted");
    }
    tsdb.admin().clean_tombstones(&anonymous()).expect("cleans");
    compare(machine, &tsdb, &stored, "tombstones cleaned");
    reopen(tsdb, &stored, "opened again");
}

#[test]
fn values_of_every_type_pass_every_stage() {
    pass_every_stage(&Machine::new(7));
}

#[test]
fn values_are_exact_in_blocks_for_prometheus_too() {
    let mut machine = Machine::new(8);
    machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    pass_every_stage(&machine);
}

#[test]
fn the_last_value_of_a_timestamp_wins_by_policy() {
    let mut machine = Machine::new(9);
    machine.options.limits.default.duplicates = DuplicatePolicy::LastWins;
    let (mut tsdb, mut stored) = (machine.open(), Stored::new());
    for (round, offset) in [(0, 0), (1, 2), (2, 3), (3, 4)] {
        for of_field in stored.values_mut() {
            of_field.clear();
        }
        put(&tsdb, &mut stored, -6, 300, offset);
        compare(&machine, &tsdb, &stored, "written again");
        if round % 2 == 0 {
            machine.clock.advance(Duration::from_millis(1));
            tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
            compare(&machine, &tsdb, &stored, "flushed");
        }
        machine.disk.crash();
        drop(tsdb);
        tsdb = machine.open();
        compare(&machine, &tsdb, &stored, "opened again");
    }
}

#[test]
fn promql_reads_the_nearest_floats() {
    let machine = Machine::new(10);
    let (tsdb, mut stored) = (machine.open(), Stored::new());
    put(&tsdb, &mut stored, -6, 100, 0);
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    for is_flushed in [false, true] {
        if is_flushed {
            tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        }
        let matchers = [Matcher::equal("__name__", "m")];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let mut batches =
            tsdb.reader().queryable(&TenantId::anonymous()).select(&selector, &ctx).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        let mut found = Vec::new();
        for one in &series {
            assert_eq!(one.labels.get(KIND_LABEL), None);
            let field = one.labels.get(FIELD_LABEL).expect("a field").to_owned();
            let mut columns = Columns::default();
            one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
            let want: Vec<u64> = stored[&field]
                .values()
                .map(|value| match value {
                    Value::Float(bits) => *bits,
                    Value::Integer(value) => (*value as f64).to_bits(),
                    Value::Unsigned(value) => (*value as f64).to_bits(),
                    Value::Text(_) => panic!("texts are no floats"),
                })
                .collect();
            assert_eq!(columns.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), want);
            found.push(field);
        }
        assert_eq!(found, ["f", "fint", "fuint"]);
    }
}

#[test]
fn typed_readers_see_all_labels() {
    let machine = Machine::new(11);
    let (tsdb, mut stored) = (machine.open(), Stored::new());
    put(&tsdb, &mut stored, -6, 10, 0);
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    for is_flushed in [false, true] {
        if is_flushed {
            tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        }
        let queryable = tsdb.reader().typed_queryable(&anonymous());
        let all = Selector { matchers: &[], range: TimeRange::ALL };
        let names = queryable.label_names(&all, 0, &ctx).expect("names");
        assert_eq!(names, [FIELD_LABEL, KIND_LABEL, "__name__", "a"]);
        let kinds = queryable.label_values(KIND_LABEL, &all, 0, &ctx).expect("values");
        assert_eq!(kinds, ["int", "text", "uint"]);
        let of_kind = select(&machine, &tsdb, &[Matcher::equal(KIND_LABEL, "int")]);
        assert_eq!(of_kind.len(), 1);
        assert_eq!(of_kind[0].labels.get(FIELD_LABEL), Some("fint"));
        assert_eq!(select(&machine, &tsdb, &[Matcher::equal(KIND_LABEL, "")]).len(), 1);
        let estimate = queryable.estimate(&all, &ctx).expect("an estimate").expect("an estimate");
        assert_eq!((estimate.series, estimate.samples), (4, 40));
    }
}

/// Texts that no sample names any more leave memory and files; at the budget new ones are refused, and early
/// flushes make room.
#[test]
fn texts_keep_to_their_budget() {
    let mut machine = Machine::new(12);
    machine.options.texts.head_bytes_max = 64 << 10;
    let (mut tsdb, mut stored) = (machine.open(), Stored::new());
    let long = |i: i64| format!("{i:0>1000}").into_bytes();
    let write = |tsdb: &Tsdb, stored: &mut Stored, i: i64| {
        let sample = (START_MS - HOUR_MS + i * 1000, Value::Text(long(i)));
        let mut batch = WriteBatch::from_labels();
        push(&mut batch, "log", std::slice::from_ref(&sample));
        let outcome = tsdb.append(&anonymous(), &batch).expect("an answer");
        let is_stored = outcome.accepted_count == 1;
        assert_eq!(outcome.rejected[Reject::TextLimit as usize], u64::from(!is_stored));
        if is_stored {
            stored.entry("log".to_owned()).or_default().insert(sample.0, sample.1);
        }
        is_stored
    };
    let stored_count = (0..100).take_while(|&i| write(&tsdb, &mut stored, i)).count();
    assert!((60..65).contains(&stored_count), "{stored_count} texts");
    assert!(write(&tsdb, &mut stored, 0), "a known text needs no memory");
    machine.disk.crash();
    drop(tsdb);
    tsdb = machine.open();
    compare(&machine, &tsdb, &stored, "opened again");
    for round in 0..5 {
        assert!(!write(&tsdb, &mut stored, 200 + 100 * round), "no memory in round {round}");
        machine.clock.advance(Duration::from_secs(15));
        tsdb.maintenance().run();
        compare(&machine, &tsdb, &stored, "flushed early");
        let more = (0..100).take_while(|&i| write(&tsdb, &mut stored, 200 + 100 * round + i)).count();
        assert!(more > 20, "{more} texts in round {round}");
    }
    machine.disk.crash();
    drop(tsdb);
    tsdb = machine.open();
    compare(&machine, &tsdb, &stored, "opened after early flushes");
}

/// A program that knows no integers and texts would read their words as floats: it refuses any file of this
/// name pattern.
#[test]
fn a_directory_with_new_kinds_is_marked() {
    let machine = Machine::new(13);
    let tsdb = machine.open();
    let marks = || {
        let names = machine.env.disk.list(&machine.options.data_dir.join("wal")).expect("lists");
        names.iter().filter(|entry| entry.name.starts_with("checkpoint.")).count()
    };
    let mut batch = WriteBatch::from_labels();
    batch.push_booleans(&labels("old"), &[(START_MS, true)]);
    push(&mut batch, "float", &[(START_MS, Value::Float(5))]);
    tsdb.append(&anonymous(), &batch).expect("stored");
    assert_eq!(marks(), 1);
    let mut batch = WriteBatch::from_labels();
    push(&mut batch, "integer", &[(START_MS, Value::Integer(5))]);
    tsdb.append(&anonymous(), &batch).expect("stored");
    assert_eq!(marks(), 2);
    drop(tsdb);
    machine.open();
}

/// Writes one sample of each of several fields as one row; returns the refused samples and the conflict.
fn write_row(tsdb: &Tsdb, hour: i64, host: &str, values: &[(&str, Value)]) -> (u64, Option<FieldConflict>) {
    let mut batch = WriteBatch::from_labels();
    for (field, value) in values {
        let mut labels = labels(field).to_builder();
        labels.set("host", host);
        let (labels, time) = (labels.finish(), START_MS + hour * HOUR_MS);
        match value {
            Value::Float(bits) => batch.push_words(&labels, WordKind::Float, &[(time, *bits)]),
            Value::Integer(value) => {
                batch.push_words(&labels, WordKind::Integer, &[(time, word_of_integer(*value))]);
            }
            Value::Unsigned(value) => {
                batch.push_words(&labels, WordKind::Unsigned, &[(time, word_of_unsigned(*value))]);
            }
            Value::Text(text) => batch.push_texts(&labels, &[(time, text)]),
        }
        batch.rows.push(7);
    }
    let outcome = tsdb.append(&anonymous(), &batch).expect("an answer");
    let refused = outcome.rejected[Reject::FieldTypeConflict as usize];
    assert_eq!(outcome.accepted_count + refused, values.len() as u64, "{outcome:?}");
    if let Some(conflict) = &outcome.field_conflict {
        let (reject, series, _) = outcome.first_reject.as_ref().expect("a reject");
        assert_eq!(*reject, Reject::FieldTypeConflict);
        assert!(series.contains(&conflict.field) && series.contains(conflict.kind.label_value()), "{series}");
    }
    (refused, outcome.field_conflict)
}

/// Writes a row of the field `v`; returns true if it is accepted.
fn takes(tsdb: &Tsdb, hour: i64, host: &str, value: &Value) -> bool {
    write_row(tsdb, hour, host, &[("v", value.clone())]).0 == 0
}

#[test]
fn a_field_has_one_type_per_shard_group() {
    let mut machine = Machine::new(14);
    machine.options.limits.default.databases.shard_group_ms = 24 * HOUR_MS;
    let mut tsdb = machine.open();
    let (float, integer) = (Value::Float(1f64.to_bits()), Value::Integer(1));
    assert!(takes(&tsdb, -30, "a", &float));
    for (host, is_known) in [("a", true), ("b", false), ("a", true)] {
        assert!(!takes(&tsdb, -30, host, &integer), "{host} {is_known}");
    }
    let conflict = write_row(
        &tsdb,
        -30,
        "a",
        &[("other", integer.clone()), ("v", integer.clone()), ("w", float.clone())],
    );
    let want = FieldConflict {
        measurement: "m".to_owned(),
        field: "v".to_owned(),
        kind: WordKind::Integer,
        existing: WordKind::Float,
    };
    assert_eq!(conflict, (3, Some(want)), "all samples of the row are refused");
    // The next shard group: the field may have another type there, and the known series is refused then.
    assert!(takes(&tsdb, -2, "b", &integer));
    assert!(!takes(&tsdb, -2, "a", &float), "a series whose wire key was cached");
    assert!(takes(&tsdb, -29, "a", &float), "in its own shard group");
    for round in 0..2 {
        machine.disk.crash();
        drop(tsdb);
        tsdb = machine.open();
        assert!(!takes(&tsdb, -2, "a", &float), "known since before the start, round {round}");
        assert!(!takes(&tsdb, -30, "b", &integer));
        assert!(takes(&tsdb, -2, "b", &integer) && takes(&tsdb, -30, "a", &float));
        tsdb.wal_jobs().roll_checkpoint();
    }
    // Samples in blocks count.
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    assert_eq!(tsdb.statistics().stats().head.series, 0);
    machine.disk.crash();
    drop(tsdb);
    tsdb = machine.open();
    assert!(!takes(&tsdb, -30, "c", &integer) && !takes(&tsdb, -2, "c", &float));
    assert!(takes(&tsdb, -30, "c", &float) && takes(&tsdb, -2, "c", &integer));
    // After a deletion the field may have another type.
    let by_name = vec![vec![Matcher::equal("__name__", "m")]];
    tsdb.admin().delete_series(&anonymous(), &by_name, TimeRange::ALL).expect("deletes");
    assert!(takes(&tsdb, -30, "a", &integer));
    assert!(!takes(&tsdb, -30, "a", &float));
}

/// The kinds of a field that only blocks have were not known after a start, so that a series that was found
/// by its wire key was stored next to them in their shard group.
#[test]
fn types_in_blocks_hold_for_known_series() {
    let mut machine = Machine::new(16);
    machine.options.limits.default.databases.shard_group_ms = 24 * HOUR_MS;
    let mut tsdb = machine.open();
    let (float, integer) = (Value::Float(1f64.to_bits()), Value::Integer(1));
    assert!(takes(&tsdb, -30, "a", &float));
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    assert!(takes(&tsdb, -2, "b", &integer));
    for round in 0..3 {
        machine.disk.crash();
        drop(tsdb);
        tsdb = machine.open();
        assert!(takes(&tsdb, -2, "b", &integer), "round {round}");
        assert!(!takes(&tsdb, -30, "b", &integer), "a known series, round {round}");
        assert!(!takes(&tsdb, -30, "c", &integer), "a new series, round {round}");
        assert!(takes(&tsdb, -30, "a", &float), "round {round}");
        if round == 1 {
            tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
            assert!(takes(&tsdb, -2, "b", &integer), "in the head again");
        }
        tsdb.wal_jobs().roll_checkpoint();
    }
}

/// The first batch after a start opened each block of the store, also blocks of other times.
#[test]
fn a_batch_opens_blocks_of_its_shard_groups_alone() {
    let mut machine = Machine::new(17);
    machine.options.limits.default.databases.shard_group_ms = 4 * HOUR_MS;
    let tsdb = machine.open();
    let (float, integer) = (Value::Float(1f64.to_bits()), Value::Integer(1));
    for hour in (-30..-4).step_by(2) {
        assert!(takes(&tsdb, hour, "a", &float), "{hour}");
    }
    assert!(takes(&tsdb, -2, "b", &float));
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    tsdb.close().expect("closes");
    drop(tsdb);
    let tsdb = machine.open();
    let opens = || tsdb.statistics().stats().metric("block_opens_total").expect("a metric");
    assert!(takes(&tsdb, -2, "b", &float));
    let first = opens();
    assert!(first <= 2.0, "{first} blocks for one group");
    // Nothing is asked twice, and no group that the batch has no time in.
    assert!(takes(&tsdb, -2, "c", &float));
    assert_eq!(opens(), first);
    assert!(!takes(&tsdb, -20, "a", &integer), "another type in its group");
    assert!(takes(&tsdb, -20, "a", &float));
    let second = opens();
    assert!(first < second && second <= first + 2.0, "{second} blocks for two groups");
    for hour in (-30..-4).step_by(2) {
        assert!(!takes(&tsdb, hour, "d", &integer), "{hour}");
    }
    assert!(opens() >= 10.0, "{} blocks for all groups", opens());
}

#[test]
fn two_types_in_one_batch_conflict() {
    let machine = Machine::new(15);
    let tsdb = machine.open();
    let mut batch = WriteBatch::from_labels();
    for (host, value) in
        [("a", Value::Integer(1)), ("b", Value::Text(b"x".to_vec())), ("c", Value::Integer(2))]
    {
        let mut labels = labels("v").to_builder();
        labels.set("host", host);
        match value {
            Value::Integer(value) => {
                let sample = (START_MS, word_of_integer(value));
                batch.push_words(&labels.finish(), WordKind::Integer, &[sample]);
            }
            _ => batch.push_texts(&labels.finish(), &[(START_MS, b"x")]),
        }
    }
    let outcome = tsdb.append(&anonymous(), &batch).expect("an answer");
    let counts = |outcome: &WriteOutcome| {
        (outcome.accepted_count, outcome.rejected[Reject::FieldTypeConflict as usize])
    };
    assert_eq!(counts(&outcome), (0, 3), "the field is not known: nothing is stored");
    assert!(outcome.has_refused_shard_group);
    let outcome = tsdb.append(&anonymous(), &batch).expect("an answer");
    assert_eq!(counts(&outcome), (2, 1), "it has the type of its first point");
    assert_eq!(outcome.field_conflict.expect("a conflict").existing, WordKind::Integer);
}
