//! Databases of a cluster: statements change the original in the bucket, which all processes follow.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Disk;
use chronolith_format::record::{Record, RecordOrigin, RecordStore};
use chronolith_model::databases::{BucketStoreId, CatalogChange, CatalogError, PolicyOptions, TenantCatalog};
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use chronolith_model::{DuplicatePolicy, ReadContext, StoreId, TenantId, WriteBatch};
use chronolith_tsdb::{
    ApplyRecordError, Bucket, BucketOptions, BucketSources, ReplayProgress, SyncMode, Tsdb,
};

use crate::fixture::START_MS;
use crate::upload::World;

fn anonymous() -> TenantId {
    TenantId::anonymous()
}

fn create(name: &str) -> CatalogChange {
    CatalogChange::CreateDatabase { name: name.to_owned(), policy: None }
}

fn drop_database(name: &str) -> CatalogChange {
    CatalogChange::DropDatabase { name: name.to_owned() }
}

fn options() -> BucketOptions {
    BucketOptions { has_original_databases: true, ..BucketOptions::new("file:///bucket") }
}

/// A process that changes databases: a gateway or a query node.
fn sources(world: &World) -> BucketSources {
    BucketSources::open(&options(), &world.machine.env, world.runtime.handle()).expect("opens")
}

/// A process with a store: it maintains the bucket, or owns `partition`.
fn open(world: &World, data_dir: &str, partition: Option<LogPartition>) -> Arc<Tsdb> {
    let bucket = Bucket::open(&options(), &world.machine.env, world.runtime.handle()).expect("opens");
    let mut options = world.machine.options.clone();
    options.data_dir = PathBuf::from(data_dir);
    options.wal.log = partition;
    if partition.is_some() {
        options.sync = SyncMode::Interval(1000);
    }
    let (env, progress) = (world.machine.env.clone(), Arc::new(ReplayProgress::default()));
    Tsdb::open_with_bucket(env, options, progress, Some(Arc::new(bucket))).expect("opens")
}

/// Returns the databases of a process, read again for `name`.
fn read(world: &World, sources: &BucketSources, name: &str) -> Arc<TenantCatalog> {
    world.machine.clock.advance(Duration::from_secs(2));
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    sources.databases_with(&anonymous(), name, &ctx).expect("databases")
}

fn id_of(catalog: &TenantCatalog, name: &str) -> Option<BucketStoreId> {
    catalog.database(name)?.policy("")?.bucket_id
}

/// Id of the store of a database in the local catalogue, after the next time at which it is read.
fn followed(world: &World, tsdb: &Tsdb, name: &str) -> Option<BucketStoreId> {
    world.machine.clock.advance(Duration::from_mins(6));
    tsdb.bucket_jobs().upload_blocks();
    id_of(tsdb.databases().catalog().of(&anonymous())?, name)
}

#[test]
fn every_process_follows_the_statements_of_others() {
    let world = World::new(31);
    let [gateway, query] = [(); 2].map(|()| sources(&world));
    let store = open(&world, "/store", None);
    assert_eq!(followed(&world, &store, "db"), None);
    let created = gateway.change_databases(&anonymous(), &create("db")).expect("created");
    let id = id_of(&created, "db").expect("an id");
    assert_eq!(id_of(&read(&world, &query, "db"), "db"), Some(id), "at once, as the name was missing");
    assert_eq!(followed(&world, &store, "db"), None, "all tenants are read once per hour");
    world.machine.clock.advance(Duration::from_hours(1));
    assert_eq!(followed(&world, &store, "db"), Some(id));

    let options = PolicyOptions { duration_ns: Some(86_400_000_000_000), ..PolicyOptions::default() };
    let policy = CatalogChange::CreatePolicy {
        database: "db".to_owned(),
        name: "day".to_owned(),
        options,
        is_default: true,
    };
    query.change_databases(&anonymous(), &policy).expect("created");
    assert!(followed(&world, &store, "db").is_some_and(|day| day != id), "another default policy");
    let refused = gateway.change_databases(&anonymous(), &create("x/y"));
    assert_eq!(refused.err(), Some(CatalogError::InvalidName));

    // A process that knows the database never brings it back.
    query.change_databases(&anonymous(), &drop_database("db")).expect("dropped");
    assert_eq!(followed(&world, &store, "db"), None);
    store.close().expect("closes");
    drop(store);
    let store = open(&world, "/store", None);
    assert_eq!(followed(&world, &store, "db"), None);
    assert_eq!(id_of(&read(&world, &gateway, "none"), "db"), None);
    let again = gateway.change_databases(&anonymous(), &create("db")).expect("created");
    assert!(id_of(&again, "db").is_some_and(|again| again != id), "created again, with another store");
}

#[test]
fn databases_that_are_created_at_the_same_time_all_exist() {
    const PROCESSES: usize = 4;
    const DATABASES: usize = 6;
    let world = World::new(32);
    let all: Vec<BucketSources> = (0..PROCESSES).map(|_| sources(&world)).collect();
    std::thread::scope(|scope| {
        for (idx, sources) in all.iter().enumerate() {
            scope.spawn(move || {
                for database in 0..DATABASES {
                    for name in [format!("own-{idx}-{database}"), format!("shared-{database}")] {
                        sources.change_databases(&anonymous(), &create(&name)).expect("created");
                    }
                }
            });
        }
    });
    let catalog = read(&world, &all[0], "none");
    assert_eq!(catalog.databases.len(), PROCESSES * DATABASES + DATABASES);
    let ids: BTreeSet<_> =
        catalog.policies().map(|policy| policy.bucket_id.expect("an id").to_bytes()).collect();
    assert_eq!(ids.len(), catalog.databases.len(), "each has a store of its own");
    for sources in &all[1..] {
        assert_eq!(*read(&world, sources, "none"), *catalog);
    }
}

#[test]
fn objects_of_a_dropped_database_go_after_the_delay() {
    let world = World::new(33);
    // A server of its own has filled the bucket, and is gone.
    let tsdb = world.open("/data");
    tsdb.databases().change(&anonymous(), &create("db")).expect("created");
    tsdb.bucket_jobs().upload_blocks();
    let id = id_of(tsdb.databases().catalog().of(&anonymous()).expect("databases"), "db").expect("an id");
    drop(tsdb);
    let key = format!("/bucket/anonymous/stores/{id}/01ARZ3NDEKTSV4RRFFQ69G5FAV/index");
    let path = Path::new(&key);
    world.machine.disk.create_dir_all(path.parent().expect("a directory")).expect("made");
    world.machine.disk.create(path).and_then(|file| file.write_at(b"x", 0)).expect("written");

    let gateway = sources(&world);
    gateway.change_databases(&anonymous(), &drop_database("db")).expect("dropped");
    let store = open(&world, "/store", None);
    assert_eq!(followed(&world, &store, "db"), None);
    assert!(world.machine.disk.exists(path), "objects stay for readers of the earlier copy");
    world.machine.clock.advance(Duration::from_hours(13));
    assert_eq!(followed(&world, &store, "db"), None);
    assert!(!world.machine.disk.exists(path), "objects go after the delay");
}

/// Covers a fault of the first design: a gateway whose databases are half a minute old writes records of a
/// dropped database; they were kept as damaged ones, and a thousand of them stopped the owner.
#[test]
fn records_of_a_dropped_database_are_told_apart_from_those_of_an_unknown_one() {
    let world = World::new(34);
    let gateway = sources(&world);
    let created = gateway.change_databases(&anonymous(), &create("db")).expect("created");
    let id = id_of(&created, "db").expect("an id");
    let partition = LogPartition { topic: TopicId([3; 16]), number: PartitionId(0) };
    let tsdb = open(&world, "/owner", Some(partition));
    let records = tsdb.records().expect("an owner");
    records.start(0).expect("starts");
    let of = |id: BucketStoreId| Record::Samples {
        origin: RecordOrigin {
            tenant: anonymous(),
            store: RecordStore::Database(id),
            request_id: "r".to_owned(),
            arrival_ms: START_MS,
        },
        duplicates: DuplicatePolicy::LastWins,
    };
    let batch = WriteBatch::from_labels();
    let unknown = records.apply(0, &of(id), &batch);
    assert!(matches!(unknown, Err(ApplyRecordError::UnknownStore { .. })), "{unknown:?}");
    tsdb.databases().read_again(&anonymous()).expect("reads");
    records.apply(0, &of(id), &batch).expect("applied");

    gateway.change_databases(&anonymous(), &drop_database("db")).expect("dropped");
    assert_eq!(followed(&world, &tsdb, "db"), None);
    let dropped = records.apply(1, &of(id), &batch);
    assert!(matches!(dropped, Err(ApplyRecordError::DroppedStore)), "{dropped:?}");
    let never = records.apply(1, &of(BucketStoreId::from_bytes([7; 16])), &batch);
    assert!(matches!(never, Err(ApplyRecordError::UnknownStore { .. })), "{never:?}");
    let store = tsdb.databases().catalog().dropped.clone();
    assert_eq!(store.len(), 1, "its samples in memory are removed");
    assert!(matches!(store[0], StoreId::Database { .. }));
}
