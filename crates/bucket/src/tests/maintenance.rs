//! Maintenance of a tenant's folder: killed at every request and repeated by another process, blocks of the
//! catalogue stay complete, and marked, expired and leftover blocks are removed.

use std::collections::BTreeSet;

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{Snapshot, TombstonesObject};
use chronolith_model::TimeRange;

use super::block_uploads::{Bench, ulid};
use super::faults::Kill;
use super::*;
use crate::error::BucketError;
use crate::maintenance::MaintenanceRun;
use crate::maintenance::leftovers::{
    LEFTOVER_AGE, LeftoverKind, LeftoverRules, Leftovers, find_leftovers, mark_leftovers,
};
use crate::maintenance::removal::{Removed, find_due, remove_due};
use crate::maintenance::retention::{Expiry, retire_expired};
use crate::snapshots::{Change, Snapshots};
use crate::store::list::ListOptions;
use crate::upload::Published;

const TENANT: &str = "anonymous";
const DELAY: Duration = Duration::from_secs(12 * 3600);
const HOUR_MS: i64 = 3_600_000;

impl Bench {
    /// Runs one step `hours` from now, in a process that has just started.
    pub(super) async fn at<T>(
        &self,
        hours: i64,
        step: impl AsyncFnOnce(&MaintenanceRun<'_>) -> Result<T, BucketError>,
    ) -> Result<T, BucketError> {
        let snapshots = Snapshots::new(self.rig.store.clone(), &self.env);
        let request = RequestContext { purpose: Purpose::Maintenance, ..self.request() };
        let now_ms = self.env.clock.now_ms() + hours * HOUR_MS;
        step(&MaintenanceRun { store: &self.rig.store, snapshots: &snapshots, request: &request, now_ms })
            .await
    }

    /// Names of all objects in the folder of a block.
    pub(super) async fn names(&self, n: u64) -> Vec<String> {
        let prefix = self.folder(ulid(n));
        let options = ListOptions { prefix: prefix.clone(), ..ListOptions::default() };
        let page = self.rig.store.list(&self.request(), &options).await.unwrap();
        let name = |key: &str| key.strip_prefix(&prefix).unwrap().trim_start_matches('/').to_owned();
        page.objects.iter().map(|object| name(&object.key)).collect()
    }

    pub(super) async fn marks(&self) -> Vec<Ulid> {
        let snapshot = self.latest().await.unwrap();
        snapshot.deletion_marks.iter().map(|mark| mark.ulid).collect()
    }

    /// Uploads and publishes block `n` in place of its parents.
    pub(super) async fn publish(&self, n: u64, parents: &[u64]) -> Published {
        let dir = self.block(n, parents, &[4000]);
        self.run(&self.uploader(), &dir).await.unwrap()
    }

    /// Checks that each block of the catalogue is complete.
    pub(super) async fn check_live(&self, want: &[u64]) {
        let snapshot = self.latest().await.unwrap();
        let live: Vec<Ulid> = snapshot.blocks.iter().map(|block| block.ulid).collect();
        assert_eq!(live, want.iter().map(|n| ulid(*n)).collect::<Vec<_>>());
        for record in &snapshot.blocks {
            self.check_block(record).await;
        }
    }
}

pub(super) async fn remove(run: &MaintenanceRun<'_>) -> Result<Removed, BucketError> {
    let due = find_due(run, DELAY).await?;
    remove_due(run, &due).await
}

pub(super) async fn expire(run: &MaintenanceRun<'_>) -> Result<usize, BucketError> {
    let local = [TimeRange::new(3_500, 8_000_000)];
    let expiry = Expiry { oldest_ms: 7_200_000, local: &local };
    Ok(retire_expired(run, &expiry).await?.len())
}

pub(super) async fn find(run: &MaintenanceRun<'_>, includes_foreign: bool) -> Result<Leftovers, BucketError> {
    let kept = BTreeSet::from([ulid(8)]);
    find_leftovers(run, &LeftoverRules { age: LEFTOVER_AGE, kept: &kept, includes_foreign }).await
}

pub(super) async fn clean(run: &MaintenanceRun<'_>) -> Result<(), BucketError> {
    let found = find(run, false).await?;
    mark_leftovers(run, &found).await.map(drop)
}

/// Kills `step` at each of its requests in turn, on a bucket of its own that `prepare` fills; `check` gets
/// the bucket as the dead process left it. Returns the number of requests.
async fn for_each_kill<T>(
    prepare: impl AsyncFn() -> Bench,
    hours: i64,
    step: impl AsyncFn(&MaintenanceRun<'_>) -> Result<T, BucketError>,
    check: impl AsyncFn(&Bench),
) -> u64 {
    let mut requests = 0;
    for kill in Kill::ALL {
        for kill_at in 0.. {
            let bench = prepare().await;
            bench.rig.faults.kill_after(kill_at, kill);
            tokio::select! {
                _ = bench.at(hours, &step) => {}
                () = bench.rig.faults.died.notified() => {}
            }
            let is_alive = bench.rig.faults.is_alive();
            check(&bench).await;
            if is_alive {
                requests = requests.max(kill_at);
                break;
            }
        }
    }
    requests
}

async fn with_replaced() -> Bench {
    let bench = Bench::new(FaultPlan::default());
    bench.publish(1, &[]).await;
    bench.publish(2, &[1]).await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_block_goes_after_the_delay_and_its_mark_after_another_one() {
    let bench = with_replaced().await;
    assert_eq!(bench.at(11, remove).await.unwrap(), Removed::default(), "too early");
    assert_eq!(bench.names(1).await.len(), 5);
    let removed = bench.at(13, remove).await.unwrap();
    assert_eq!((removed.blocks.as_slice(), removed.object_count), (&[ulid(1)][..], 5));
    assert!(removed.bytes > 12_000, "{removed:?}");
    assert!(bench.names(1).await.is_empty());
    assert_eq!(bench.marks().await, [ulid(1)], "readers of the old snapshot and late uploads still see it");
    assert_eq!(bench.at(24, remove).await.unwrap(), Removed::default());
    // An upload of the same block in between leaves objects again: they are removed as well.
    assert_eq!(bench.publish(1, &[]).await, Published::Superseded(vec![ulid(1)]));
    assert_eq!(bench.at(26, remove).await.unwrap().object_count, 5);
    assert_eq!(bench.at(39, remove).await.unwrap().dropped_marks, 1);
    assert!(bench.marks().await.is_empty());
    bench.check_live(&[2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_killed_at_any_request_is_ended_by_another_process() {
    let requests = for_each_kill(with_replaced, 13, remove, async |bench| {
        let names = bench.names(1).await;
        let has_meta = names.iter().any(|name| name == "meta.json");
        assert!(!has_meta || names.len() == 5, "a half-removed block looks like a block: {names:?}");
        bench.check_live(&[2]).await;
        for hours in [13, 26, 39] {
            bench.at(hours, remove).await.unwrap();
            bench.check_live(&[2]).await;
        }
        assert!(bench.names(1).await.is_empty() && bench.marks().await.is_empty());
    });
    let requests = requests.await;
    assert!(requests > 10, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marked_block_that_is_listed_or_whose_catalogue_is_damaged_stays() {
    let bench = with_replaced().await;
    let catalogue = Snapshots::new(bench.rig.store.clone(), &bench.env);
    let mut record = bench.latest().await.unwrap().blocks[0].clone();
    record.ulid = ulid(1);
    let restore = |snapshot: &mut Snapshot| {
        snapshot.blocks.push(record.clone());
        Change::Write
    };
    catalogue.update(&bench.request(), restore).await.unwrap();
    assert_eq!(bench.at(13, remove).await.unwrap(), Removed::default());
    assert_eq!(bench.names(1).await.len(), 5);
    let number = bench.latest().await.unwrap().number + 1;
    let key = format!("{TENANT}/{}", Snapshot::object_name(number));
    bench.rig.faults.inner_put(&key, Bytes::from_static(b"CLCSjunk")).await;
    let refused = [
        bench.at(13, remove).await.map(drop),
        bench.at(100, clean).await,
        bench.at(100, expire).await.map(drop),
    ];
    for error in refused {
        assert!(matches!(error, Err(BucketError::Corrupt { .. })), "{error:?}");
    }
    assert_eq!(bench.names(1).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_catalogue_nothing_is_touched() {
    let bench = Bench::new(FaultPlan::default());
    let dir = bench.block(1, &[], &[10]);
    bench.uploader().upload(&bench.request(), &dir, Bench::sidecar(&dir)).await.unwrap();
    bench.at(1000, remove).await.unwrap();
    bench.at(1000, expire).await.unwrap();
    assert_eq!(bench.at(1000, async |run| find(run, true).await).await.unwrap(), Leftovers::default());
    bench.at(1000, clean).await.unwrap();
    assert_eq!(bench.names(1).await.len(), 5);
    assert!(bench.latest().await.is_none(), "a catalogue would hide the block");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_blocks_leave_in_one_snapshot_whatever_request_it_is_killed_at() {
    let prepare = async || {
        let bench = Bench::new(FaultPlan::default());
        for n in 1..=3 {
            bench.publish(n, &[]).await;
        }
        bench
    };
    let requests = for_each_kill(prepare, 0, expire, async |bench| {
        let blocks = bench.latest().await.unwrap().blocks.len();
        assert!(blocks == 3 || blocks == 1, "{blocks} blocks: all expired ones or none");
        bench.at(0, expire).await.unwrap();
        // A local block overlaps block 3.
        bench.check_live(&[3]).await;
        assert_eq!(bench.marks().await, [ulid(1), ulid(2)]);
        let number = bench.latest().await.unwrap().number;
        assert_eq!(bench.at(0, expire).await.unwrap(), 0);
        assert_eq!(bench.latest().await.unwrap().number, number, "nothing changes any more");
        assert_eq!(bench.publish(1, &[]).await, Published::Superseded(vec![ulid(1)]));
    });
    assert!(requests.await > 3);
}

/// Block 1 is live; 4 has no `meta.json`, 5 was not published, 6 is of another program, 7 is incomplete and
/// marked, 8 is being uploaded.
async fn with_leftovers() -> Bench {
    let bench = Bench::new(FaultPlan::default());
    bench.publish(1, &[]).await;
    for n in 4..=8 {
        let dir = bench.block(n, &[], &[100]);
        let sidecar = Bench::sidecar(&dir).filter(|_| n != 6);
        bench.uploader().upload(&bench.request(), &dir, sidecar).await.unwrap();
    }
    for n in [4, 7] {
        bench.rig.store.remove(&bench.request(), &format!("{TENANT}/{}/meta.json", ulid(n))).await.unwrap();
    }
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_found_by_age_and_those_of_others_only_counted() {
    let bench = with_leftovers().await;
    let young = bench.at(47, async |run| find(run, false).await).await.unwrap();
    assert!(young.folders.is_empty(), "{young:?}");
    let found = bench.at(49, async |run| find(run, false).await).await.unwrap();
    let kinds: Vec<_> = found.folders.iter().map(|folder| (folder.ulid, folder.kind)).collect();
    let want = [
        (ulid(4), LeftoverKind::Incomplete),
        (ulid(5), LeftoverKind::Unpublished),
        (ulid(7), LeftoverKind::Incomplete),
    ];
    assert_eq!(kinds, want);
    assert_eq!(found.foreign_count, 1);
    assert!(found.foreign_bytes > 5000 && found.folders.iter().all(|folder| folder.bytes > 5000));
    let all = bench.at(49, async |run| find(run, true).await).await.unwrap();
    assert_eq!((all.folders.len(), all.foreign_count), (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_is_killed_at_any_request_is_ended_by_another_process() {
    let requests = for_each_kill(with_leftovers, 49, clean, async |bench| {
        bench.check_live(&[1]).await;
        bench.at(49, clean).await.unwrap();
        assert_eq!(bench.marks().await, [ulid(4), ulid(5), ulid(7)]);
        for hours in [62, 75] {
            bench.at(hours, remove).await.unwrap();
        }
        for (n, objects) in [(4, 0), (5, 0), (6, 4), (7, 0), (8, 5)] {
            assert_eq!(bench.names(n).await.len(), objects, "block {n}");
        }
        assert!(bench.marks().await.is_empty());
        bench.check_live(&[1]).await;
    });
    assert!(requests.await > 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_and_the_cleanup_of_its_folder_cannot_both_win() {
    // Published between the search and the mark: the block stays.
    let bench = with_leftovers().await;
    let found = bench.at(49, async |run| find(run, false).await).await.unwrap();
    assert!(matches!(bench.publish(5, &[]).await, Published::Recorded(_)));
    bench.at(49, async |run| mark_leftovers(run, &found).await).await.unwrap();
    bench.at(62, remove).await.unwrap();
    bench.check_live(&[1, 5]).await;
    // Published after the mark: refused until the folder is gone, and recorded after that.
    assert_eq!(bench.publish(4, &[]).await, Published::Superseded(vec![ulid(4)]));
    for hours in [62, 75, 88] {
        bench.at(hours, remove).await.unwrap();
    }
    assert!(matches!(bench.publish(4, &[]).await, Published::Recorded(_)));
    bench.check_live(&[1, 4, 5]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tombstones_go_once_newer_ones_are_old() {
    let bench = Bench::new(FaultPlan::default());
    bench.publish(1, &[]).await;
    let folder = format!("{TENANT}/{}", ulid(1));
    let names = [1, 2, 3].map(|n| format!("tombstones-{n:016x}"));
    for name in names.iter().map(String::as_str).chain(["tombstones-x", "notes"]) {
        bench.rig.faults.inner_put(&format!("{folder}/{name}"), Bytes::from_static(b"t")).await;
    }
    let catalogue = Snapshots::new(bench.rig.store.clone(), &bench.env);
    let name_second = |snapshot: &mut Snapshot| {
        let object = TombstonesObject { name: names[1].clone(), len: 1, crc: 0 };
        snapshot.blocks[0].tombstones = Some(object);
        Change::Write
    };
    catalogue.update(&bench.request(), name_second).await.unwrap();
    bench.at(47, clean).await.unwrap();
    assert_eq!(bench.names(1).await.len(), 10);
    bench.at(49, clean).await.unwrap();
    let left: Vec<String> = bench.names(1).await.into_iter().filter(|name| name.contains("-")).collect();
    assert_eq!(left, [names[1].as_str(), "tombstones-x"]);
    assert_eq!(bench.names(1).await.len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_the_times_of_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::over(local_backend(dir.path()), FaultPlan::default());
    bench.publish(1, &[]).await;
    let block = bench.block(5, &[], &[100]);
    bench.uploader().upload(&bench.request(), &block, Bench::sidecar(&block)).await.unwrap();
    assert!(bench.at(47, async |run| find(run, false).await).await.unwrap().folders.is_empty());
    for hours in [49, 62] {
        bench.at(hours, clean).await.unwrap();
        bench.at(hours, remove).await.unwrap();
    }
    assert!(bench.names(5).await.is_empty());
    bench.check_live(&[1]).await;
}
