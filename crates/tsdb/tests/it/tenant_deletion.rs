//! A deleted tenant leaves nothing, whatever fails meanwhile; other tenants keep everything, and the name may
//! be used again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Disk as _, MemoryBudget};
use chronolith_bucket::{BucketLayout, ExternalLabels};
use chronolith_model::databases::CatalogChange;
use chronolith_model::query::TenantSources as _;
use chronolith_model::{
    AnnotationLimits, Labels, Matcher, MetadataEntry, MetricKind, QueryError, ReadContext, Selector, StoreId,
    TenantId, TimeRange, WriteBatch,
};
use chronolith_tsdb::{AdminError, BucketSources, DeletionState, GraphiteEvent, Tsdb, WriteError};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};
use crate::upload::World;

/// The deleted tenant, and two whose data must stay; the name of one of them begins with the first's.
const NAMES: [&str; 3] = ["a", "ab", "b"];

fn id(name: &str) -> TenantId {
    TenantId::new(name).expect("valid")
}

fn store_of(name: &str) -> StoreId {
    StoreId::from(id(name))
}

fn samples(hour: i64) -> Vec<(i64, f64)> {
    (0..20).map(|i| (START_MS + hour * HOUR_MS + i * 30_000, (hour * 1000 + i) as f64)).collect()
}

/// Stores samples in a block and in the head, metadata, an event, a database with points.
fn put(machine: &Machine, tsdb: &Tsdb, name: &str) {
    let store = store_of(name);
    write(tsdb, &store, "m", &samples(-6)).expect("stored");
    let create = CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None };
    tsdb.databases().change(&id(name), &create).expect("created");
    put_points(tsdb, name, -6);
    machine.clock.advance(Duration::from_millis(1));
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    write(tsdb, &store, "m", &samples(-1)).expect("stored");
    put_points(tsdb, name, -1);
    let mut batch = WriteBatch::from_labels();
    batch.metadata = vec![MetadataEntry {
        metric: "m".to_owned(),
        kind: MetricKind::Gauge,
        help: format!("help of <{name}>"),
        unit: String::new(),
    }];
    tsdb.append(&store, &batch).expect("stored");
    let event = GraphiteEvent {
        when_s: START_MS / 1000,
        what: format!("event of <{name}>"),
        tags: Vec::new(),
        data: String::new(),
    };
    tsdb.graphite().add_event(&id(name), &AnnotationLimits::default(), event).expect("stored");
}

fn database_store(tsdb: &Tsdb, name: &str) -> Option<StoreId> {
    let catalog = tsdb.databases().catalog();
    let policy = catalog.of(&id(name))?.database("db")?.policy("")?.store.clone();
    Some(policy)
}

fn put_points(tsdb: &Tsdb, name: &str, hour: i64) {
    let store = database_store(tsdb, name).expect("a database");
    let points: Vec<(i64, f64)> =
        samples(hour).into_iter().map(|(time, value)| (time * 1_000_000, value)).collect();
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", "p"), ("__field__", "value")]), &points);
    tsdb.append(&store, &batch).expect("stored");
}

/// Numbers of what a tenant has: samples, samples of the database, metadata, events.
fn counts(machine: &Machine, tsdb: &Tsdb, name: &str) -> [usize; 4] {
    let points = database_store(tsdb, name).map_or(0, |store| {
        let ctx = ReadContext::unlimited(machine.env.clock.clone());
        usize::from(!tsdb.reader().sample_ranges(&store, &ctx).expect("reads").is_empty())
    });
    [
        machine.read(tsdb, &store_of(name), "m").len(),
        points,
        tsdb.reader().metadata(&id(name), None, 0).len(),
        tsdb.graphite().event_times(&id(name), i64::MIN..=i64::MAX, chronolith_tsdb::EventTags::Any).len(),
    ]
}

const ALL: [usize; 4] = [40, 1, 1, 1];
const NONE: [usize; 4] = [0; 4];

fn filled(machine: &Machine) -> Arc<Tsdb> {
    let tsdb = machine.open();
    NAMES.iter().for_each(|name| put(machine, &tsdb, name));
    tsdb
}

#[track_caller]
fn compare(machine: &Machine, tsdb: &Tsdb, deleted: [usize; 4], when: &str) {
    assert_eq!(counts(machine, tsdb, "a"), deleted, "{when}");
    for other in ["ab", "b"] {
        assert_eq!(counts(machine, tsdb, other), ALL, "{when}: another tenant, {other}");
    }
}

fn is_done(tsdb: &Tsdb) -> bool {
    matches!(tsdb.tenant_deletions().state_of(&id("a")), Some(DeletionState::Done(_)))
}

/// Files below `dir` with part of their path or content.
fn files_with(machine: &Machine, dir: &str, part: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![Path::new(dir).to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in machine.disk.list(&dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            if entry.is_dir {
                dirs.push(path);
                continue;
            }
            let bytes = machine.disk.read(&path).unwrap_or_default();
            let has = bytes.windows(part.len()).any(|window| window == part.as_bytes());
            if has || path.to_string_lossy().contains(part) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// Waits until a process without a data directory reads `want` series named `m`: it answers from the list
/// that it has, and reads the next one in the background.
#[track_caller]
fn wait_for_series(world: &World, reader: &BucketSources, name: &str, want: usize) {
    let mut found = None;
    for _ in 0..1000 {
        world.machine.clock.advance(Duration::from_mins(5));
        let clock = world.machine.env.clock.clone();
        let deadline_ns = clock.mono_ns() + 60_000_000_000;
        let ctx = ReadContext::new(clock, deadline_ns, MemoryBudget::new("test", u64::MAX));
        let matchers = [Matcher::equal("__name__", "m")];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        found = series_count(reader, name, &selector, &ctx).ok();
        if found == Some(want) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{name}: {found:?}, not {want}");
}

fn series_count(
    reader: &BucketSources,
    name: &str,
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<usize, QueryError> {
    let mut batches = reader.queryable(&id(name)).select(selector, ctx)?;
    let mut series = Vec::new();
    while batches.next_batch(&mut series)? {}
    Ok(series.len())
}

#[test]
fn a_deleted_tenant_leaves_nothing_and_its_name_can_be_used_again() {
    let machine = Machine::new(1);
    let tsdb = filled(&machine);
    compare(&machine, &tsdb, ALL, "before");
    tsdb.tenant_deletions().begin(&id("a")).expect("marked");
    tsdb.tenant_deletions().run(|_| Ok(true));
    assert!(is_done(&tsdb));
    compare(&machine, &tsdb, NONE, "deleted");
    assert_eq!(files_with(&machine, "/data", "of <a>"), [] as [String; 0]);
    assert!(files_with(&machine, "/data", "of <b>").len() >= 4, "logs and their copies");
    // The same samples again: none of them is taken for a duplicate.
    put(&machine, &tsdb, "a");
    compare(&machine, &tsdb, ALL, "used again");
    machine.disk.crash();
    drop(tsdb);
    compare(&machine, &machine.open(), ALL, "used again, after a crash");
}

#[test]
fn writes_are_refused_while_a_tenant_is_deleted() {
    let machine = Machine::new(2);
    let tsdb = filled(&machine);
    let store = database_store(&tsdb, "a").expect("a database");
    tsdb.tenant_deletions().begin(&id("a")).expect("marked");
    let text = "tenant \"a\" is being deleted, writes to it are refused until that is done, retry later";
    let refused = write(&tsdb, &store_of("a"), "m", &samples(0)).expect_err("refused");
    assert_eq!(
        (refused.to_string().as_str(), refused.clone()),
        (text, WriteError::TenantDeleted { tenant: "a".to_owned() })
    );
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", "p"), ("__field__", "value")]), &[(START_MS, 1.0)]);
    assert!(tsdb.append(&store, &batch).is_err(), "points of a database");
    let create = CatalogChange::CreateDatabase { name: "db2".to_owned(), policy: None };
    assert_eq!(tsdb.databases().change(&id("a"), &create).expect_err("refused").to_string(), text);
    let event = GraphiteEvent { when_s: 1, what: String::new(), tags: Vec::new(), data: String::new() };
    assert!(tsdb.graphite().add_event(&id("a"), &AnnotationLimits::default(), event).is_err());
    write(&tsdb, &store_of("b"), "m", &samples(0)).expect("another tenant");
    tsdb.tenant_deletions().run(|_| Ok(true));
    write(&tsdb, &store_of("a"), "m", &samples(0)).expect("stored again");
}

/// In Thanos's layout a tenant has no folder, so a deletion that has begun could not find its objects.
#[test]
fn a_bucket_in_thanos_layout_refuses_a_deletion_before_anything_is_marked() {
    let world = World::new(6);
    let labels = ExternalLabels::parse("cluster=\"eu\"").expect("labels");
    let tsdb = world.open_in("/data", BucketLayout::Thanos { writer: Some(labels) });
    let store = StoreId::anonymous();
    write(&tsdb, &store, "m", &samples(0)).expect("stored");
    let tenant = TenantId::anonymous();
    let refused = tsdb.tenant_deletions().begin(&tenant).expect_err("refused");
    assert!(matches!(&refused, AdminError::Bucket(why) if why.contains("(bucket.layout)")), "{refused}");
    assert!(tsdb.tenant_deletions().state_of(&tenant).is_none());
    tsdb.tenant_deletions().run(|_| Ok(true));
    assert_eq!(world.machine.read(&tsdb, &store, "m").len(), 20);
    write(&tsdb, &store, "m", &samples(1)).expect("writes are not refused");
}

#[test]
fn a_crash_at_any_disk_operation_is_followed_by_the_rest_of_the_deletion() {
    let machine = Machine::new(3);
    let tsdb = filled(&machine);
    let before = machine.disk.op_count();
    tsdb.tenant_deletions().begin(&id("a")).expect("marked");
    tsdb.tenant_deletions().run(|_| Ok(true));
    let op_count = machine.disk.op_count() - before;
    assert!(op_count > 30, "{op_count}");
    for survived in 0..=op_count {
        let machine = Machine::new(3);
        let tsdb = filled(&machine);
        machine.disk.fail_after(survived);
        let begun = tsdb.tenant_deletions().begin(&id("a")).is_ok();
        if begun {
            tsdb.tenant_deletions().run(|_| Ok(true));
        }
        let was_done = is_done(&tsdb);
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let when = format!("crash after {survived} of {op_count} operations");
        if was_done {
            compare(&machine, &tsdb, NONE, &when);
        }
        assert!(survived < op_count || was_done, "{when}");
        tsdb.tenant_deletions().run(|_| Ok(true));
        let is_marked = begun || counts(&machine, &tsdb, "a") == NONE;
        compare(&machine, &tsdb, if is_marked { NONE } else { ALL }, &when);
        assert_eq!(tsdb.tenant_deletions().running_count(), 0, "{when}");
        // Nothing comes back with the next start.
        machine.disk.crash();
        drop(tsdb);
        compare(&machine, &machine.open(), if is_marked { NONE } else { ALL }, &format!("{when}, and again"));
    }
}

#[test]
fn a_failure_is_shown_and_the_next_attempt_ends_the_deletion() {
    let machine = Machine::new(4);
    let tsdb = filled(&machine);
    tsdb.tenant_deletions().begin(&id("a")).expect("marked");
    machine.disk.fail_some(0, 1);
    tsdb.tenant_deletions().run(|_| Ok(true));
    let Some(DeletionState::Running(progress)) = tsdb.tenant_deletions().state_of(&id("a")) else {
        panic!("it failed")
    };
    assert!(progress.error.is_some_and(|error| error.contains("injected disk failure")));
    tsdb.tenant_deletions().run(|_| Ok(true));
    assert!(is_done(&tsdb));
    compare(&machine, &tsdb, NONE, "the next attempt");
}

#[test]
fn the_folder_of_a_tenant_in_the_bucket_is_removed_and_no_other_one() {
    let world = World::new(5);
    let tsdb = world.open("/data");
    NAMES.iter().for_each(|name| put(&world.machine, &tsdb, name));
    let objects = |name: &str| files_with(&world.machine, &format!("/bucket/{name}"), "/").len();
    for _ in 0..3 {
        tsdb.bucket_jobs().upload_blocks();
        world.machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    let before = NAMES.map(objects);
    let reader = world.open_read_only();
    wait_for_series(&world, &reader, "a", 1);
    assert!(before.iter().all(|count| *count > 5), "{before:?}");
    tsdb.tenant_deletions().begin(&id("a")).expect("marked");
    tsdb.tenant_deletions().run(|_| Ok(true));
    assert!(is_done(&tsdb), "{:?}", tsdb.tenant_deletions().state_of(&id("a")));
    assert_eq!(NAMES.map(objects)[1..], before[1..]);
    // Empty lists stay, so that other processes notice.
    let left = files_with(&world.machine, "/bucket/a", "/");
    let is_list = |path: &String| {
        ["/bucket/a/catalog/", "/bucket/a/databases/"].iter().any(|list| path.starts_with(list))
    };
    assert!(left.iter().all(is_list), "{left:?}");
    wait_for_series(&world, &reader, "a", 0);
    wait_for_series(&world, &reader, "b", 1);
    compare(&world.machine, &tsdb, NONE, "deleted");
    for _ in 0..3 {
        tsdb.bucket_jobs().upload_blocks();
        world.maintain(&tsdb, 1);
    }
    assert_eq!(files_with(&world.machine, "/bucket/a", "/"), left, "no later round writes anything");
    put(&world.machine, &tsdb, "a");
    compare(&world.machine, &tsdb, ALL, "used again");
    tsdb.bucket_jobs().upload_blocks();
    assert!(objects("a") > left.len() + 5, "blocks of the new tenant are uploaded");
    world.machine.clock.advance(Duration::from_mins(5));
    wait_for_series(&world, &reader, "a", 1);
    drop(tsdb);
    let other = world.open("/other");
    other.bucket_jobs().upload_blocks();
    assert!(database_store(&other, "a").is_some(), "the databases of the new tenant are in the bucket");
}
