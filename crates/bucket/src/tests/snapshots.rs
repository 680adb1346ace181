//! Catalogue snapshots: racing writers over faulty storage lose no update; the newest one is found with and
//! without hint; damaged and old ones.

use std::sync::atomic::Ordering;

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::SnapshotKey;
use chronolith_format::bucket::catalogue::{
    Ancestry, BlockCounts, BlockFiles, BlockFolder, BucketBlock, EtagSums, Snapshot,
};
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::databases::BucketStoreId;
use chronolith_model::{TimeRange, TimeUnit};

use super::s3_server::S3Server;
use super::*;
use crate::error::BucketError;
use crate::folder::Folder;
use crate::snapshots::{Change, Snapshots};
use crate::store::read::ReadRange;
use crate::store::request::Operation;
use crate::store::retry::Outcome;

const WRITERS: u64 = 32;
const HINT: &str = "catalog/latest";
const TENANT: &str = "anonymous";

pub(super) fn record(n: u64) -> BucketBlock {
    let ulid = Ulid::new(1_700_000_000_000, u128::from(n));
    BucketBlock {
        ulid,
        folder: BlockFolder::Mimir,
        time_unit: TimeUnit::Milli,
        range: TimeRange::new(0, 7_200_000),
        counts: BlockCounts::default(),
        files: BlockFiles::default(),
        etags: EtagSums::default(),
        sidecar: None,
        tombstones: None,
        ancestry: Ancestry {
            level: 1,
            oldest_source: ulid,
            sources: vec![ulid],
            parents: Vec::new(),
            split_set: None,
            split_blocks: Vec::new(),
            is_compaction_failed: false,
        },
        uploaded_ms: 0,
    }
}

/// Adds block `n` unless it is there.
fn add(n: u64) -> impl FnMut(&mut Snapshot) -> Change {
    move |snapshot| {
        if snapshot.blocks.iter().any(|block| block.ulid == record(n).ulid) {
            return Change::Keep;
        }
        snapshot.blocks.push(record(n));
        Change::Write
    }
}

fn snapshots(rig: &Rig) -> Snapshots {
    Snapshots::new(rig.store.clone(), &rig.env)
}

async fn add_all(rig: &Rig, blocks: std::ops::Range<u64>) {
    for n in blocks {
        snapshots(rig).update(&rig.query(60_000), add(n)).await.unwrap();
    }
}

async fn newest(rig: &Rig) -> Option<(u64, usize)> {
    let latest = snapshots(rig).reader().read_latest(&rig.query(60_000)).await.unwrap();
    latest.map(|latest| (latest.snapshot.number, latest.snapshot.blocks.len()))
}

/// Makes one update; a failed one is repeated, as by a process.
async fn update_until_done(store: Arc<Store>, env: Env, n: u64) {
    let snapshots = Snapshots::new(store, &env);
    loop {
        let timeout = Duration::from_secs(120);
        let tenant = TenantId::anonymous();
        let request = RequestContext::with_timeout(&*env.clock, tenant, timeout, Purpose::Catalog);
        match snapshots.update(&request, add(n)).await {
            Ok(_) => return,
            Err(BucketError::Unavailable { .. }) => {}
            Err(error) => panic!("writer {n}: {error}"),
        }
    }
}

/// Checks concurrent updates, one per writer, each with a store of its own.
async fn check_races(backends: Vec<Arc<dyn Backend>>, plan: FaultPlan, seed: u64) {
    let mut writers = tokio::task::JoinSet::new();
    let rigs: Vec<Rig> =
        (seed * 1000..).zip(backends).map(|(seed, backend)| Rig::over(backend, plan, seed)).collect();
    for (n, rig) in (0..).zip(&rigs) {
        writers.spawn(update_until_done(rig.store.clone(), rig.env.clone(), n));
    }
    writers.join_all().await;
    let injected: u64 = rigs.iter().map(|rig| rig.faults.injected.load(Ordering::Relaxed)).sum();
    rigs.iter().for_each(|rig| rig.faults.set_plan(FaultPlan::default()));
    let count = rigs.len() as u64;
    assert!(injected > count, "{injected} faults");
    // One snapshot per block: no update was lost, and none was made twice.
    assert_eq!(newest(&rigs[0]).await, Some((count, rigs.len())));
}

fn all_faults() -> FaultPlan {
    FaultPlan {
        unavailable: 100,
        cut: 100,
        lost_answer: 200,
        conflict: 100,
        flipped: 20,
        delayed: 500,
        delay_ms: 4,
        ..FaultPlan::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_writers_lose_no_update_in_memory() {
    for seed in 0..4 {
        let backend: Arc<dyn Backend> = Arc::new(InMemory::new());
        check_races((0..WRITERS).map(|_| backend.clone()).collect(), all_faults(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_writers_lose_no_update_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    check_races((0..WRITERS).map(|_| local_backend(dir.path())).collect(), all_faults(), 7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_writers_lose_no_update_over_http() {
    let server = S3Server::start(all_faults(), 11).await;
    let env = Env::real();
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..WRITERS {
        writers.spawn(update_until_done(Arc::new(server.open(&env)), env.clone(), n));
    }
    writers.join_all().await;
    server.set_faults(FaultPlan::default());
    let rig = Rig::memory(FaultPlan::default());
    let over_http = Snapshots::new(Arc::new(server.open(&env)), &env);
    let latest = over_http.reader().read_latest(&rig.query(60_000)).await.unwrap().unwrap();
    assert_eq!(latest.snapshot.number, WRITERS);
    assert_eq!(latest.snapshot.blocks, (0..WRITERS).map(record).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_bucket_without_snapshots_has_no_catalogue() {
    let rig = Rig::memory(FaultPlan::default());
    assert_eq!(newest(&rig).await, None);
    let kept = snapshots(&rig).update(&rig.query(1000), |_| Change::Keep).await.unwrap();
    assert!(kept.snapshot.is_none() && !kept.is_written);
    assert_eq!(newest(&rig).await, None);
}

#[tokio::test]
async fn the_newest_snapshot_is_found_whatever_the_hint() {
    let rig = Rig::memory(FaultPlan::default());
    add_all(&rig, 0..20).await;
    let hint = format!("{TENANT}/{HINT}");
    for text in ["00000000000000000003", "00000000000000000019", "00000000000000000021", "junk", ""] {
        rig.faults.inner_put(&hint, Bytes::from(text)).await;
        assert_eq!(newest(&rig).await, Some((20, 20)), "{text:?}");
    }
    rig.store.remove(&rig.query(1000), &hint).await.unwrap();
    assert_eq!(newest(&rig).await, Some((20, 20)));
}

#[tokio::test]
async fn a_poll_without_news_is_one_request() {
    let rig = Rig::memory(FaultPlan::default());
    add_all(&rig, 0..3).await;
    let catalogue = snapshots(&rig);
    let request = rig.query(60_000);
    let before = rig.faults.requests.load(Ordering::Relaxed);
    let known = catalogue.reader().read_latest(&request).await.unwrap().unwrap();
    let read_count = rig.faults.requests.load(Ordering::Relaxed) - before;
    assert_eq!(read_count, 4, "hint, the next one and its head, the newest one");
    let before = rig.faults.requests.load(Ordering::Relaxed);
    let same = catalogue.reader().poll(&request, &known).await.unwrap().unwrap();
    assert_eq!(rig.faults.requests.load(Ordering::Relaxed) - before, 1);
    assert!(Arc::ptr_eq(&same.snapshot, &known.snapshot));
    add_all(&rig, 3..30).await;
    let polled = catalogue.reader().poll(&request, &known).await.unwrap().unwrap();
    assert_eq!((polled.snapshot.number, polled.snapshot.blocks.len()), (30, 30));
}

/// Covers a regression: a damaged newest snapshot was passed over for an older one, and answers lacked
/// blocks, or all databases, with status 200. It is an error that names the object, for readers, polls and
/// updates alike.
#[tokio::test]
async fn a_damaged_newest_snapshot_is_refused_and_not_built_upon() {
    let rig = Rig::memory(FaultPlan::default());
    add_all(&rig, 0..5).await;
    let catalogue = snapshots(&rig);
    let known = catalogue.reader().read_latest(&rig.query(1000)).await.unwrap().unwrap();
    for number in [6, 7] {
        let name = Snapshot::object_name(number);
        rig.faults.inner_put(&format!("{TENANT}/{name}"), Bytes::from_static(b"CLCSjunk")).await;
    }
    for hint in ["00000000000000000005", "00000000000000000007"] {
        rig.faults.inner_put(&format!("{TENANT}/{HINT}"), Bytes::from(hint)).await;
        check_refused(catalogue.reader().read_latest(&rig.query(10_000)).await, 7);
    }
    check_refused(catalogue.reader().poll(&rig.query(10_000), &known).await, 7);
    check_refused(catalogue.update(&rig.query(10_000), add(9)).await, 7);
    // A whole one after it counts, since each snapshot is complete.
    rig.store.remove(&rig.query(1000), &format!("{TENANT}/{}", Snapshot::object_name(7))).await.unwrap();
    rig.store.remove(&rig.query(1000), &format!("{TENANT}/{}", Snapshot::object_name(6))).await.unwrap();
    rig.faults.inner_put(&format!("{TENANT}/{HINT}"), Bytes::from_static(b"junk")).await;
    assert_eq!(newest(&rig).await, Some((5, 5)));
}

#[track_caller]
fn check_refused<T: std::fmt::Debug>(result: Result<T, BucketError>, number: u64) {
    let error = result.unwrap_err();
    let name = Snapshot::object_name(number);
    assert!(matches!(&error, BucketError::Corrupt { key, .. } if key.ends_with(&name)), "{error}");
}

/// Covers a regression: a missing newest snapshot looked like a folder whose newest one is older, or like a
/// folder without any.
#[tokio::test]
async fn a_newest_snapshot_that_the_hint_proves_is_not_replaced_by_an_older_one() {
    for count in [1, 2, 20] {
        let rig = Rig::memory(FaultPlan::default());
        add_all(&rig, 0..count).await;
        let newest_key = format!("{TENANT}/{}", Snapshot::object_name(count));
        rig.store.remove(&rig.query(1000), &newest_key).await.unwrap();
        check_refused(snapshots(&rig).reader().read_latest(&rig.query(10_000)).await, count);
        check_refused(snapshots(&rig).update(&rig.query(10_000), add(99)).await, count);
    }
}

#[tokio::test]
async fn a_hint_of_any_kind_without_snapshots_is_an_error() {
    for hint in ["00000000000000000002", "junk", "", "00000000000000000002 00000000"] {
        let rig = Rig::memory(FaultPlan::default());
        rig.faults.inner_put(&format!("{TENANT}/{HINT}"), Bytes::from(hint)).await;
        check_refused(snapshots(&rig).reader().read_latest(&rig.query(10_000)).await, 1);
    }
}

/// Covers a regression: a name damaged on its way was missing in a listing, and a tenant had no databases
/// until a restart.
#[tokio::test]
async fn a_listing_that_lacks_a_key_hides_no_tenant_and_no_databases() {
    let rig = Rig::memory(FaultPlan::default());
    let databases = Snapshots::<DatabasesSnapshot>::of_kind(rig.store.clone(), &rig.env);
    databases.update(&rig.query(1000), |_| Change::Write).await.unwrap();
    add_all(&rig, 0..1).await;
    for short_lists in 0..3 {
        rig.faults.short_lists_left.store(short_lists, Ordering::Relaxed);
        let tenants = crate::folders::tenants(&rig.store, &rig.query(1000)).await.unwrap();
        // Two equal damaged listings at the same time look like whole ones.
        assert!(short_lists == 2 || tenants == [TenantId::anonymous()], "{short_lists}: {tenants:?}");
    }
    rig.store.remove(&rig.query(1000), &format!("{TENANT}/databases/latest")).await.unwrap();
    rig.faults.short_lists_left.store(1, Ordering::Relaxed);
    let found = databases.reader().read_latest(&rig.query(1000)).await.unwrap();
    assert_eq!(found.map(|latest| latest.snapshot.stamp.number), Some(1));
}

#[tokio::test]
async fn writers_remove_snapshots_that_are_old_and_many() {
    let dir = tempfile::tempdir().unwrap();
    for backend in [Arc::new(InMemory::new()) as Arc<dyn Backend>, local_backend(dir.path())] {
        let rig = Rig::over(backend, FaultPlan::default(), 3);
        let young = snapshots(&rig);
        for n in 0..31 {
            young.update(&rig.query(60_000), add(n)).await.unwrap();
        }
        assert_eq!(young.reader().listed(&rig.query(1000)).await.unwrap().len(), 31, "younger than an hour");
        let known = young.reader().read_latest(&rig.query(1000)).await.unwrap().unwrap();
        let mut old = snapshots(&rig);
        old.keep_for(Duration::ZERO);
        for n in 31..64 {
            old.update(&rig.query(60_000), add(n)).await.unwrap();
        }
        let kept: Vec<u64> =
            old.reader().listed(&rig.query(1000)).await.unwrap().iter().map(|(n, _)| *n).collect();
        assert_eq!(kept, (49..=64).collect::<Vec<_>>());
        assert_eq!(newest(&rig).await, Some((64, 64)));
        let hint = format!("{TENANT}/{HINT}");
        rig.faults.inner_put(&hint, Bytes::from_static(b"00000000000000000031")).await;
        assert_eq!(newest(&rig).await, Some((64, 64)), "the hint names a removed one");
        let polled = old.reader().poll(&rig.query(1000), &known).await.unwrap().unwrap();
        assert_eq!(polled.snapshot.number, 64, "what is known was removed");
    }
}

#[tokio::test]
async fn an_update_that_reads_its_own_snapshot_damaged_is_made_once() {
    let rig = Rig::memory(FaultPlan { lost_answer: 1000, flipped: 1000, ..FaultPlan::default() });
    rig.faults.flips_left.store(1, Ordering::Relaxed);
    let mut applied = 0;
    let (catalogue, request) = (snapshots(&rig), rig.query(60_000));
    let updated = catalogue.update(&request, |snapshot| {
        applied += 1;
        snapshot.blocks.push(record(snapshot.blocks.len() as u64));
        Change::Write
    });
    let updated = updated.await.unwrap();
    assert!(updated.is_written);
    assert_eq!(applied, 1);
    rig.faults.set_plan(FaultPlan::default());
    assert_eq!(newest(&rig).await, Some((1, 1)));
    assert!(rig.store.counters().requests(Operation::Create, Outcome::Network) > 0);
    let object = format!("{TENANT}/{}", Snapshot::object_name(1));
    let body = rig.store.read(&rig.query(1000), &object, ReadRange::Whole, None).await.unwrap().bytes;
    let key = SnapshotKey { folder: TENANT, number: 1 };
    assert_eq!(Snapshot::decode(&body, key).unwrap(), *updated.snapshot.unwrap());
}

/// Covers a regression: the object of another tenant under the key of a snapshot was read as the own one,
/// and answers had the blocks of the other tenant, and none of the own ones.
#[tokio::test]
async fn a_snapshot_of_another_tenant_or_store_is_damage() {
    let rig = Rig::memory(FaultPlan::default());
    add_all(&rig, 0..3).await;
    let stores = [1, 2].map(|n| Folder::of_store(&TenantId::anonymous(), BucketStoreId::from_bytes([n; 16])));
    let folders = [Folder::of_tenant(&TenantId::new("other").unwrap())].into_iter().chain(stores);
    for folder in folders {
        let request = RequestContext { folder, ..rig.query(60_000) };
        for n in 10..13 {
            snapshots(&rig).update(&request, add(n)).await.unwrap();
        }
        let foreign = format!("{}/{}", request.folder, Snapshot::object_name(3));
        let bytes = rig.store.read(&request, &foreign, ReadRange::Whole, None).await.unwrap().bytes;
        let own = format!("{TENANT}/{}", Snapshot::object_name(3));
        let before = rig.store.read(&request, &own, ReadRange::Whole, None).await.unwrap().bytes;
        rig.faults.inner_put(&own, bytes).await;
        let error = snapshots(&rig).reader().read_latest(&rig.query(60_000)).await.unwrap_err();
        assert!(matches!(&error, BucketError::Corrupt { key, .. } if *key == own), "{error}");
        let updated = snapshots(&rig).update(&rig.query(60_000), add(7)).await;
        assert!(matches!(updated, Err(BucketError::Corrupt { .. })), "{updated:?}");
        rig.faults.inner_put(&own, before).await;
        assert_eq!(newest(&rig).await, Some((3, 3)));
    }
}

/// Objects of versions without a folder or ETags are read, and the next one has both.
#[tokio::test]
async fn snapshots_of_earlier_versions_are_read_and_continued() {
    let golden: [&[u8]; 3] = [
        include_bytes!("../../../format/testdata/bucket/version-1.catalogue"),
        include_bytes!("../../../format/testdata/bucket/version-2.catalogue"),
        include_bytes!("../../../format/testdata/bucket/version-3.catalogue"),
    ];
    for (bytes, block_count) in golden.into_iter().zip([9, 20, 20]) {
        let rig = Rig::memory(FaultPlan::default());
        let own = format!("{TENANT}/{}", Snapshot::object_name(42));
        rig.faults.inner_put(&own, Bytes::from_static(bytes)).await;
        assert_eq!(newest(&rig).await, Some((42, block_count)));
        add_all(&rig, 0..1).await;
        assert_eq!(newest(&rig).await, Some((43, block_count + 1)));
        let next = format!("{TENANT}/{}", Snapshot::object_name(43));
        let written = rig.store.read(&rig.query(1000), &next, ReadRange::Whole, None).await.unwrap().bytes;
        assert_eq!(written[4], 4, "the version that is written");
    }
}
