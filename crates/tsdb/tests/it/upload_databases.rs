//! Databases of InfluxDB clients move to a bucket and back: their stores keep every value of every type to
//! the nanosecond, and their names, policies and drops outlive the data directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Disk;
use chronolith_model::databases::{CatalogChange, PolicyOptions, RetentionPolicy};
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::query::{TenantSources, TypedColumns};
use chronolith_model::{
    Columns, FIELD_LABEL, Labels, Matcher, Queryable, ReadContext, Selector, StoreId, TenantId, TimeRange,
    WordKind, WriteBatch,
};
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, START_MS};
use crate::upload::World;

const HOURS: [i64; 3] = [-10, -8, -4];
const SAMPLES: i64 = 50;

/// Selects all series.
const ALL: Selector<'static> = Selector { matchers: &[], range: TimeRange::ALL };

fn anonymous() -> TenantId {
    TenantId::anonymous()
}

fn create(tsdb: &Tsdb, name: &str) {
    let change = CatalogChange::CreateDatabase { name: name.to_owned(), policy: None };
    tsdb.databases().change(&anonymous(), &change).expect("created");
}

fn drop_database(tsdb: &Tsdb, name: &str) {
    let change = CatalogChange::DropDatabase { name: name.to_owned() };
    tsdb.databases().change(&anonymous(), &change).expect("dropped");
}

fn policy(tsdb: &Tsdb, database: &str) -> RetentionPolicy {
    let catalog = tsdb.databases().catalog();
    let own = catalog.of(&anonymous()).expect("databases");
    own.database(database).expect("the database").policy("").expect("its policy").clone()
}

fn labels(field: &str) -> Labels {
    Labels::from_pairs([("__name__", "m"), (FIELD_LABEL, field), ("host", "a")])
}

/// Writes samples of every type, a nanosecond beyond whole seconds.
fn put(tsdb: &Tsdb, store: &StoreId, hour: i64) {
    let time = |i: i64| (START_MS + hour * HOUR_MS + i * 10_000) * 1_000_000 + i % 7;
    let mut batch = WriteBatch::from_labels();
    let words =
        |word: &dyn Fn(i64) -> u64| -> Vec<(i64, u64)> { (0..SAMPLES).map(|i| (time(i), word(i))).collect() };
    let integers = words(&|i| word_of_integer(i64::MIN + 20 + i * 3 + hour));
    batch.push_words(&labels("integer"), WordKind::Integer, &integers);
    batch.push_words(
        &labels("unsigned"),
        WordKind::Unsigned,
        &words(&|i| word_of_unsigned(u64::MAX - i as u64)),
    );
    batch.push_words(&labels("float"), WordKind::Float, &words(&|i| (i as f64 / 10.0).to_bits()));
    let booleans: Vec<(i64, bool)> = (0..SAMPLES).map(|i| (time(i), i % 3 == 0)).collect();
    batch.push_booleans(&labels("boolean"), &booleans);
    let texts: Vec<(i64, String)> =
        (0..SAMPLES).map(|i| (time(i), format!("state {} of {hour}", i / 5))).collect();
    let texts: Vec<(i64, &[u8])> = texts.iter().map(|(time, text)| (*time, text.as_bytes())).collect();
    batch.push_texts(&labels("text"), &texts);
    let outcome = tsdb.append(store, &batch).expect("stored");
    assert_eq!(outcome.rejected_count(), 0, "{outcome:?}");
}

/// All series of a source with all their samples, as text.
fn dump(world: &World, source: &Arc<dyn Queryable>) -> Vec<String> {
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    let mut batches = source.select(&ALL, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut lines = Vec::new();
    for one in series {
        let samples = if WordKind::of(&one.labels) == WordKind::Float {
            let mut columns = Columns::default();
            one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
            let bits: Vec<u64> = columns.values.iter().map(|value| value.to_bits()).collect();
            format!("{:?} {bits:?}", columns.times)
        } else {
            let mut columns = TypedColumns::new(one.samples.column_type());
            one.samples.read_typed(TimeRange::ALL, &mut columns).expect("reads");
            format!("{:?} {:?}", columns.times, columns.values)
        };
        lines.push(format!("{:?} {samples}", one.labels));
    }
    lines
}

/// The typed series of a store, and the view of PromQL, which must not depend on where the blocks lie.
fn answers(world: &World, tsdb: &Tsdb, database: &str) -> [Vec<String>; 2] {
    let store = policy(tsdb, database).store;
    [dump(world, &tsdb.reader().typed_queryable(&store)), dump(world, &tsdb.reader().queryable(&anonymous()))]
}

/// A server with a database in blocks.
fn filled(world: &World) -> (Arc<Tsdb>, StoreId) {
    let tsdb = world.open("/data");
    create(&tsdb, "db");
    let store = policy(&tsdb, "db").store;
    for hour in HOURS {
        put(&tsdb, &store, hour);
        world.machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
    }
    assert!(tsdb.statistics().stats().blocks > 0);
    (tsdb, store)
}

/// Objects of stores in the bucket, by the id of the store.
fn objects_of(world: &World, policy: &RetentionPolicy) -> bool {
    let id = policy.bucket_id.expect("an id in the bucket");
    world.machine.disk.exists(Path::new(&format!("/bucket/anonymous/stores/{id}/catalog/latest")))
}

#[test]
fn stores_of_databases_answer_alike_from_the_bucket_alone() {
    let world = World::new(11);
    let (tsdb, store) = filled(&world);
    let want = answers(&world, &tsdb, "db");
    assert_eq!(want[0].len(), 5, "a series per field");
    assert_eq!(want[1].len(), 4, "PromQL sees no texts");
    world.move_all(&tsdb, &|when| assert!(answers(&world, &tsdb, "db") == want, "{when}"));

    let by_field = [vec![Matcher::equal(FIELD_LABEL, "float")]];
    let end = (START_MS - 8 * HOUR_MS) * 1_000_000;
    let report =
        tsdb.admin().delete_series(&store, &by_field, TimeRange::new(i64::MIN, end)).expect("deletes");
    assert!(report.block_count > 0, "blocks that only the bucket has");
    let after = answers(&world, &tsdb, "db");
    assert!(after != want && after[0].len() == 5);

    // A new process with an empty data directory, whose first query reads the databases of the bucket.
    let other = world.open("/empty");
    assert!(
        other.databases().catalog().of(&anonymous()).is_none() && !other.databases().are_known(&anonymous())
    );
    assert!(dump(&world, &other.reader().queryable(&anonymous())) == after[1], "PromQL");
    assert!(other.databases().are_known(&anonymous()));
    assert!(answers(&world, &other, "db") == after, "without the data directory");
    assert_eq!(policy(&other, "db").bucket_id, policy(&tsdb, "db").bucket_id);

    // A process without a data directory.
    let reader = world.open_read_only();
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    assert!(dump(&world, &reader.queryable(&anonymous())) == after[1], "PromQL, read-only");
    let catalog = reader.databases_of(&anonymous(), &ctx).expect("databases");
    let own = catalog.database("db").and_then(|database| database.policy("")).expect("a policy");
    let typed = reader.typed_queryable(&anonymous(), &catalog, &own.store).expect("a source");
    assert!(dump(&world, &typed) == after[0], "typed, read-only");
    let fields = typed.label_values(FIELD_LABEL, &ALL, 0, &ctx).expect("fields");
    assert_eq!(fields, ["boolean", "float", "integer", "text", "unsigned"]);

    // Samples written there join the samples of the bucket in the same store.
    put(&other, &policy(&other, "db").store, -1);
    put(&tsdb, &store, -1);
    assert!(answers(&world, &other, "db") == answers(&world, &tsdb, "db"), "head and bucket");
}

#[test]
fn a_database_that_is_dropped_and_created_again_has_no_old_samples() {
    let world = World::new(12);
    let (tsdb, _) = filled(&world);
    world.move_all(&tsdb, &|_| {});
    let old = policy(&tsdb, "db");
    drop_database(&tsdb, "db");
    // The drop is not in the bucket yet: a crash must not bring the database back.
    world.machine.disk.crash();
    drop(tsdb);
    let tsdb = world.open("/data");
    tsdb.bucket_jobs().upload_blocks();
    assert!(tsdb.databases().catalog().of(&anonymous()).is_none());
    create(&tsdb, "db");
    assert!(dump(&world, &tsdb.reader().queryable(&anonymous())).is_empty());
    tsdb.bucket_jobs().upload_blocks();
    assert!(policy(&tsdb, "db").bucket_id.is_some_and(|id| Some(id) != old.bucket_id));

    let other = world.open("/empty");
    other.bucket_jobs().upload_blocks();
    assert!(dump(&world, &other.reader().queryable(&anonymous())).is_empty());
    assert!(policy(&other, "db").bucket_id == policy(&tsdb, "db").bucket_id);

    assert!(objects_of(&world, &old), "objects stay for readers of the earlier copy");
    world.machine.clock.advance(Duration::from_hours(13));
    tsdb.bucket_jobs().upload_blocks();
    assert!(!objects_of(&world, &old), "objects go after the delay");
}

#[test]
fn a_local_database_is_kept_where_the_bucket_has_another_of_its_name() {
    let world = World::new(13);
    let (tsdb, _) = filled(&world);
    create(&tsdb, "only there");
    world.move_all(&tsdb, &|_| {});
    let in_bucket = policy(&tsdb, "db");

    // The same names in a data directory that never saw the bucket.
    let other = world.machine.open_at("/other");
    create(&other, "db");
    put(&other, &policy(&other, "db").store, -2);
    other.close().expect("closes");
    drop(other);
    let other = world.open("/other");
    let own = dump(&world, &other.reader().typed_queryable(&policy(&other, "db").store));
    other.bucket_jobs().upload_blocks();
    assert!(policy(&other, "only there").bucket_id == policy(&tsdb, "only there").bucket_id, "adopted");
    let kept = policy(&other, "db");
    assert!(kept.bucket_id.is_some() && kept.bucket_id != in_bucket.bucket_id);
    assert!(dump(&world, &other.reader().typed_queryable(&kept.store)) == own, "nothing is merged");
    assert!(objects_of(&world, &in_bucket), "nothing of the other store is removed");
}

#[test]
fn expired_blocks_of_a_policy_are_not_read_from_the_bucket() {
    let world = World::new(14);
    let (tsdb, store) = filled(&world);
    tsdb.maintenance().pause_compaction();
    world.move_all(&tsdb, &|_| {});
    let options = PolicyOptions { duration_ns: Some(5 * HOUR_MS * 1_000_000), ..PolicyOptions::default() };
    let change = CatalogChange::AlterPolicy {
        database: "db".to_owned(),
        name: "autogen".to_owned(),
        options: PolicyOptions { shard_group_ns: Some(HOUR_MS * 1_000_000), ..options },
        is_default: true,
    };
    tsdb.databases().change(&anonymous(), &change).expect("altered");
    let newest_ns = (START_MS - 4 * HOUR_MS) * 1_000_000;
    let first_ns = format!("[{newest_ns}, ");
    let is_newest =
        |lines: Vec<String>| lines.len() == 5 && lines.iter().all(|line| line.contains(&first_ns));
    assert!(is_newest(dump(&world, &tsdb.reader().typed_queryable(&store))), "hidden at once");
    tsdb.maintenance().run();
    tsdb.bucket_jobs().upload_blocks();
    let other = world.open("/empty");
    other.bucket_jobs().upload_blocks();
    assert!(is_newest(dump(&world, &other.reader().typed_queryable(&policy(&other, "db").store))), "removed");
}

#[test]
fn while_the_bucket_is_away_no_database_counts_as_missing() {
    let world = World::new(15);
    let (tsdb, _) = filled(&world);
    world.move_all(&tsdb, &|_| {});
    let other = world.open("/empty");
    other.bucket_jobs().stop();
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    let refused = other.reader().queryable(&anonymous()).select(&ALL, &ctx).err().expect("no shorter answer");
    assert!(refused.to_string().contains("databases of tenant anonymous"), "{refused}");
    assert!(other.databases().await_known(&anonymous(), &ctx).is_err());
    assert!(!other.databases().are_known(&anonymous()));
}

#[test]
fn blocks_of_databases_are_compacted_in_the_bucket_and_their_inputs_removed() {
    let world = World::new(19);
    let (tsdb, _) = filled(&world);
    let want = answers(&world, &tsdb, "db");
    world.move_all(&tsdb, &|_| {});
    let metric = |name: &str| tsdb.statistics().stats().metric(name).expect("a metric");
    world.maintain(&tsdb, 48);
    assert!(metric("bucket_compactions_total") > 0.0);
    assert_eq!(metric("bucket_removed_blocks_total"), 0.0, "the delay is not over");
    assert!(answers(&world, &tsdb, "db") == want, "compacted");
    let other = world.open("/other");
    other.bucket_jobs().upload_blocks();
    assert!(answers(&world, &other, "db") == want, "compacted, another process");
    world.maintain(&tsdb, 13);
    assert!(metric("bucket_removed_blocks_total") >= 2.0, "{}", metric("bucket_removed_blocks_total"));
    assert_eq!(metric("bucket_maintenance_failures_total"), 0.0);
    assert!(answers(&world, &tsdb, "db") == want, "inputs removed");
    assert!(answers(&world, &other, "db") == want, "inputs removed, a process with an old list");
}
