//! Uploads of blocks: killed at every request and repeated, each block is in the catalogue once, with the
//! bytes of its files, and is seen completely or not at all.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use chronolith_base::crc::crc32c;
use chronolith_base::{Disk, MemDisk};
use chronolith_format::block::meta::{BlockDesc, BlockMeta, Ulid};
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot};
use chronolith_format::bucket::mimir::ThanosMeta;

use super::faults::Kill;
use super::*;
use crate::error::BucketError;
use crate::external_labels::ExternalLabels;
use crate::snapshots::Snapshots;
use crate::store::list::ListOptions;
use crate::store::multipart::PART_BYTES;
use crate::store::read::ReadRange;
use crate::upload::{Published, SidecarFile, UploadOutcome, Uploader};

const TENANT: &str = "anonymous";

/// A storage with faults, and local blocks in memory.
pub(super) struct Bench {
    pub(super) rig: Rig,
    disk: Arc<MemDisk>,
    pub(super) env: Env,
}

pub(super) fn ulid(n: u64) -> Ulid {
    Ulid::new(1_700_000_000_000, u128::from(n))
}

impl Bench {
    pub(super) fn new(plan: FaultPlan) -> Bench {
        Bench::over(Arc::new(InMemory::new()), plan)
    }

    pub(super) fn over(backend: Arc<dyn Backend>, plan: FaultPlan) -> Bench {
        Bench::in_layout(backend, plan, BucketLayout::Mimir)
    }

    pub(super) fn in_layout(backend: Arc<dyn Backend>, plan: FaultPlan, layout: BucketLayout) -> Bench {
        let rig = Rig::in_layout(backend, plan, 1, layout);
        let disk = Arc::new(MemDisk::new());
        let env = Env { disk: disk.clone(), ..rig.env.clone() };
        Bench { rig, disk, env }
    }

    /// An uploader of a process that has just started.
    pub(super) fn uploader(&self) -> Uploader {
        Uploader::new(self.rig.store.clone(), &self.env, Handle::current())
    }

    pub(super) fn request(&self) -> RequestContext {
        RequestContext { purpose: Purpose::Upload, ..self.rig.query(60_000) }
    }

    fn write(&self, path: &Path, body: &[u8]) {
        self.disk.create_dir_all(path.parent().unwrap()).unwrap();
        self.disk.create(path).unwrap().write_at(body, 0).unwrap();
    }

    /// Writes the files of a block; their content is not read. Returns its directory.
    pub(super) fn block(&self, n: u64, parents: &[u64], segment_bytes: &[usize]) -> PathBuf {
        let dir = PathBuf::from(format!("/blocks/{}", ulid(n)));
        for (number, len) in (1..).zip(segment_bytes) {
            self.write(&dir.join(format!("chunks/{number:06}")), &pattern(n * 100 + number, *len));
        }
        self.write(&dir.join("index"), &pattern(n, 5000));
        let mut tombstones = Tombstones::new();
        tombstones.add(7, Interval { first: 1, last: 2 });
        let mut body = Vec::new();
        tombstones.encode(&mut body);
        self.write(&dir.join("tombstones"), &body);
        let json = format!(
            r#"{{"ulid":"{}","minTime":{n}000,"maxTime":{n}999,"version":1,"stats":{{"numSeries":3,"numTombstones":1}},
               "compaction":{{"level":{},"sources":["{}"]}}}}"#,
            ulid(n),
            1 + u32::from(!parents.is_empty()),
            ulid(n),
        );
        let mut meta = BlockMeta::decode(json.as_bytes()).unwrap();
        let parent = |n: &u64| BlockDesc { ulid: ulid(*n), min_time: 0, max_time: 7_200_000 };
        meta.compaction.parents = parents.iter().map(parent).collect();
        if !parents.is_empty() {
            meta.compaction.sources = parents.iter().map(|n| ulid(*n)).collect();
        }
        let mut text = Vec::new();
        meta.encode(&mut text);
        self.write(&dir.join("meta.json"), &text);
        self.write(&dir.with_extension("sidecar"), &pattern(n + 50, 3000));
        dir
    }

    pub(super) fn sidecar(dir: &Path) -> Option<SidecarFile> {
        Some(SidecarFile { path: dir.with_extension("sidecar"), head_bytes: 100 })
    }

    /// Uploads a block and records it in place of its parents.
    pub(super) async fn run(&self, uploader: &Uploader, dir: &Path) -> Result<Published, BucketError> {
        let record = uploader.upload(&self.request(), dir, Bench::sidecar(dir)).await?;
        uploader.publisher().publish(&self.request(), &[record]).await
    }

    pub(super) async fn latest(&self) -> Option<Arc<Snapshot>> {
        let snapshots = Snapshots::new(self.rig.store.clone(), &self.env);
        snapshots.reader().read_latest(&self.request()).await.unwrap().map(|latest| latest.snapshot)
    }

    /// Prefix of the objects of a block.
    pub(super) fn folder(&self, ulid: Ulid) -> String {
        self.rig.store.layout().block_keys(&self.request().folder).of_block(ulid)
    }

    pub(super) async fn object(&self, key: &str) -> Bytes {
        self.rig.store.read(&self.request(), key, ReadRange::Whole, None).await.unwrap().bytes
    }

    /// Checks that each object that the record names has the bytes of its file.
    pub(super) async fn check_block(&self, record: &BucketBlock) {
        let dir = PathBuf::from(format!("/blocks/{}", record.ulid));
        let folder = self.folder(record.ulid);
        let mut files = vec![("index".to_owned(), record.files.index)];
        for (number, len) in (1..).zip(&record.files.segments) {
            files.push((format!("chunks/{number:06}"), *len));
        }
        files.push(("tombstones".to_owned(), record.tombstones.as_ref().unwrap().len));
        for (name, len) in files {
            let found = self.object(&format!("{folder}/{name}")).await;
            assert_eq!(found.len() as u64, len, "{name}");
            assert!(found == self.disk.read(&dir.join(&name)).unwrap(), "{name}");
        }
        let key = format!("{folder}/chronolith.sidecar");
        let sidecar = self.rig.store.read(&self.request(), &key, ReadRange::Whole, None).await;
        let found = sidecar.ok().map(|read| (read.bytes.len() as u64, crc32c(&read.bytes)));
        assert_eq!(found, record.sidecar.map(|recorded| (recorded.len, recorded.crc)));
        let text = self.object(&format!("{folder}/meta.json")).await;
        assert_eq!(text.len() as u64, record.files.meta);
        let mut meta = BlockMeta::decode(&text).unwrap();
        let thanos = ThanosMeta::of(&meta).unwrap().unwrap();
        let labels = self.rig.store.layout().writer().map(ExternalLabels::to_map);
        assert_eq!(thanos.labels, labels.unwrap_or_default());
        assert_eq!(thanos.size_of("index"), Some(record.files.index));
        assert_eq!(thanos.size_of("chunks/000001"), record.files.segments.first().copied());
        meta.unknown.clear();
        assert_eq!(meta, BlockMeta::decode(&self.disk.read(&dir.join("meta.json")).unwrap()).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_uploaded_and_recorded() {
    for plan in [
        FaultPlan::default(),
        FaultPlan {
            unavailable: 50,
            cut: 50,
            lost_answer: 50,
            conflict: 100,
            flipped: 20,
            ..FaultPlan::default()
        },
    ] {
        let bench = Bench::new(plan);
        let uploader = bench.uploader();
        let dir = bench.block(1, &[], &[4000, 100]);
        bench.run(&uploader, &dir).await.unwrap();
        bench.rig.faults.set_plan(FaultPlan::default());
        let snapshot = bench.latest().await.unwrap();
        let [record] = snapshot.blocks.as_slice() else { panic!("{snapshot:?}") };
        assert_eq!((record.ulid, record.counts.series, record.counts.tombstones), (ulid(1), 3, 1));
        assert_eq!(record.files.segments, [4000, 100]);
        bench.check_block(record).await;
        let counters = uploader.counters();
        assert_eq!(counters.ended[UploadOutcome::Completed as usize], 1);
        assert_eq!((counters.started, counters.published, counters.present_bytes), (1, 1, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_are_sent_in_parts_and_not_again() {
    let dir = tempfile::tempdir().unwrap();
    for backend in [Arc::new(InMemory::new()) as Arc<dyn Backend>, local_backend(dir.path())] {
        let bench = Bench::over(backend, FaultPlan::default());
        let block = bench.block(1, &[], &[2 * PART_BYTES + 77, 10]);
        let first = bench.uploader();
        let record = first.upload(&bench.request(), &block, Bench::sidecar(&block)).await.unwrap();
        bench.check_block(&record).await;
        let second = bench.uploader();
        let again = second.upload(&bench.request(), &block, Bench::sidecar(&block)).await.unwrap();
        assert_eq!(again, BucketBlock { uploaded_ms: again.uploaded_ms, ..record });
        assert_eq!(second.counters().sent_bytes, 0);
        assert_eq!(second.counters().present_bytes, first.counters().sent_bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_with_other_bytes_is_sent_again() {
    let bench = Bench::new(FaultPlan::default());
    let block = bench.block(1, &[], &[2 * PART_BYTES, 10]);
    let folder = format!("{TENANT}/{}", ulid(1));
    for (name, len) in [("index", 5000), ("index", 4999), ("chunks/000001", 2 * PART_BYTES), ("meta.json", 3)]
    {
        bench.rig.faults.inner_put(&format!("{folder}/{name}"), pattern(99, len)).await;
        let uploader = bench.uploader();
        let record = uploader.upload(&bench.request(), &block, Bench::sidecar(&block)).await.unwrap();
        bench.check_block(&record).await;
        assert!(uploader.counters().sent_bytes > 0, "{name}");
    }
}

/// Uploads block `n`, killed at its request number `kill_at`; repeats it without. Returns true if the kill
/// came.
async fn check_kill(bench: &Bench, dir: &Path, parents: &[u64], kill_at: u64, kill: Kill) -> bool {
    bench.rig.faults.kill_after(kill_at, kill);
    {
        let uploader = bench.uploader();
        tokio::select! {
            _ = bench.run(&uploader, dir) => {}
            () = bench.rig.faults.died.notified() => {}
        }
    }
    let is_killed = !bench.rig.faults.is_alive();
    // A reader at this moment: recorded blocks are complete.
    if let Some(snapshot) = bench.latest().await {
        for record in &snapshot.blocks {
            bench.check_block(record).await;
        }
        let is_replaced = |n: &u64| snapshot.blocks.iter().all(|block| block.ulid != ulid(*n));
        let has_merged = snapshot.blocks.iter().any(|block| dir.ends_with(block.ulid.to_string()));
        assert!(parents.iter().all(|n| is_replaced(n) == has_merged), "inputs or result, never both");
    }
    let done = bench.run(&bench.uploader(), dir).await.unwrap();
    assert!(matches!(done, Published::Recorded(_)), "{done:?}");
    is_killed
}

/// Replaces a block in an upload that is killed at each of its requests in turn.
async fn check_replacement(layout: &BucketLayout, kill: Kill) {
    for kill_at in 0.. {
        let bench = Bench::in_layout(Arc::new(InMemory::new()), FaultPlan::default(), layout.clone());
        let (first, merged) = (bench.block(1, &[], &[4000]), bench.block(2, &[1], &[4000, 100]));
        bench.run(&bench.uploader(), &first).await.unwrap();
        let is_killed = check_kill(&bench, &merged, &[1], kill_at, kill).await;
        let snapshot = bench.latest().await.unwrap();
        let blocks: Vec<Ulid> = snapshot.blocks.iter().map(|block| block.ulid).collect();
        assert_eq!(blocks, [ulid(2)], "{kill:?} at request {kill_at}");
        assert_eq!(snapshot.number, 2, "{kill:?} at request {kill_at}: one snapshot per update");
        let marks: Vec<Ulid> = snapshot.deletion_marks.iter().map(|mark| mark.ulid).collect();
        assert_eq!(marks, [ulid(1)]);
        bench.check_block(&snapshot.blocks[0]).await;
        if !is_killed {
            assert!(kill_at > 15, "{kill_at} requests");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_killed_at_any_request_is_done_once_by_repeating_it() {
    let writer = Some(ExternalLabels::parse(r#"cluster="eu""#).unwrap());
    for layout in [BucketLayout::Mimir, BucketLayout::Thanos { writer }] {
        for kill in Kill::ALL {
            check_replacement(&layout, kill).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multipart_upload_that_is_killed_at_any_request_is_done_by_repeating_it() {
    for kill in [Kill::RefusedAfter, Kill::DiesBefore] {
        let mut kill_at = 0;
        loop {
            let bench = Bench::new(FaultPlan::default());
            let block = bench.block(1, &[], &[PART_BYTES + 1]);
            let is_killed = check_kill(&bench, &block, &[], kill_at, kill).await;
            let snapshot = bench.latest().await.unwrap();
            assert_eq!((snapshot.number, snapshot.blocks.len()), (1, 1));
            bench.check_block(&snapshot.blocks[0]).await;
            if !is_killed {
                break;
            }
            kill_at += 1;
        }
        assert!(kill_at > 15, "{kill_at} requests");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_replaced_does_not_come_back() {
    let bench = Bench::new(FaultPlan::default());
    let uploader = bench.uploader();
    let inputs = [bench.block(1, &[], &[10]), bench.block(2, &[], &[10])];
    for dir in &inputs {
        bench.run(&uploader, dir).await.unwrap();
    }
    let merged = bench.block(3, &[1, 2], &[20]);
    bench.run(&uploader, &merged).await.unwrap();
    let rival = bench.block(4, &[1, 2], &[20]);
    let of_rival = bench.run(&uploader, &rival).await.unwrap();
    assert!(
        matches!(of_rival, Published::InputsGone(ref gone) if *gone == [ulid(1), ulid(2)]),
        "{of_rival:?}"
    );
    let of_input = bench.run(&uploader, &inputs[0]).await.unwrap();
    assert_eq!(of_input, Published::Superseded(vec![ulid(1)]));
    let grown = bench.block(5, &[3], &[20]);
    bench.run(&uploader, &grown).await.unwrap();
    let of_merged = bench.run(&uploader, &merged).await.unwrap();
    assert_eq!(of_merged, Published::Superseded(vec![ulid(3)]));
    let blocks: Vec<Ulid> = bench.latest().await.unwrap().blocks.iter().map(|block| block.ulid).collect();
    assert_eq!(blocks, [ulid(5)]);
    assert_eq!(uploader.counters().dropped, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_block_that_is_damaged_or_incomplete_is_not_uploaded() {
    let bench = Bench::new(FaultPlan::default());
    for (name, body) in [
        ("meta.json", Some(&b"{"[..])),
        ("meta.json", None),
        ("index", None),
        ("tombstones", Some(&b"junk"[..])),
        ("tombstones", None),
        ("chunks/000001", None),
    ] {
        let dir = bench.block(1, &[], &[10, 10]);
        match body {
            Some(body) => bench.write(&dir.join(name), body),
            None => bench.disk.remove_file(&dir.join(name)).unwrap(),
        }
        let refused = bench.run(&bench.uploader(), &dir).await.unwrap_err();
        assert!(matches!(refused, BucketError::SourceFile { .. }), "{name}: {refused}");
        let listed = bench.rig.store.list(&bench.request(), &ListOptions::default()).await.unwrap();
        assert!(listed.objects.is_empty(), "{name}");
    }
    assert_eq!(bench.rig.faults.aborts.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_others_are_in_the_first_catalogue() {
    let bench = Bench::new(FaultPlan::default());
    let uploader = bench.uploader();
    // Folders as another program leaves them: no catalogue, one block marked, one not complete.
    for n in 1..=4 {
        let dir = bench.block(n, &[], &[100, 20]);
        uploader.upload(&bench.request(), &dir, None).await.unwrap();
    }
    let marker = format!("{TENANT}/markers/{}-deletion-mark.json", ulid(2));
    bench.rig.faults.inner_put(&marker, Bytes::from_static(b"{}")).await;
    bench.rig.store.remove(&bench.request(), &format!("{TENANT}/{}/meta.json", ulid(3))).await.unwrap();
    assert_eq!(uploader.publisher().create_catalogue(&bench.request()).await.unwrap(), 2);
    let snapshot = bench.latest().await.unwrap();
    let blocks: Vec<Ulid> = snapshot.blocks.iter().map(|block| block.ulid).collect();
    assert_eq!((snapshot.number, blocks.as_slice()), (1, &[ulid(1), ulid(4)][..]));
    for record in &snapshot.blocks {
        assert_eq!(record.files.segments, [100, 20]);
        assert_eq!(record.counts.tombstones, 1);
        assert_eq!(record.tombstones.as_ref().unwrap().name, "tombstones");
        bench.check_block(record).await;
    }
    // A catalogue that is there is left as it is.
    let dir = bench.block(5, &[], &[10]);
    uploader.upload(&bench.request(), &dir, None).await.unwrap();
    assert_eq!(uploader.publisher().create_catalogue(&bench.request()).await.unwrap(), 0);
    assert_eq!(bench.latest().await.unwrap(), snapshot);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_deletions_are_an_object_of_their_own() {
    let bench = Bench::new(FaultPlan::default());
    let uploader = bench.uploader();
    let dir = bench.block(1, &[], &[100]);
    bench.run(&uploader, &dir).await.unwrap();
    let before = bench.latest().await.unwrap();
    let mut tombstones = Tombstones::new();
    tombstones.add(7, Interval { first: 1, last: 2 });
    tombstones.add(9, Interval { first: 1, last: 5 });
    let mut body = Vec::new();
    tombstones.encode(&mut body);
    bench.write(&dir.join("tombstones"), &body);
    bench.run(&uploader, &dir).await.unwrap();
    let after = bench.latest().await.unwrap();
    assert_eq!((after.number, after.blocks[0].counts.tombstones), (2, 2));
    let names = |snapshot: &Snapshot| snapshot.blocks[0].tombstones.clone().unwrap();
    assert_ne!(names(&before).name, names(&after).name);
    for object in [names(&before), names(&after)] {
        let found = bench.object(&format!("{TENANT}/{}/{}", ulid(1), object.name)).await;
        assert_eq!((found.len() as u64, crc32c(&found)), (object.len, object.crc));
    }
    // Nothing changes any more.
    bench.run(&uploader, &dir).await.unwrap();
    assert_eq!(bench.latest().await.unwrap(), after);
}
