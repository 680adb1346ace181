//! Queries that need the same range at the same time send one request.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use chronolith_base::MemoryBudget;
use chronolith_block::source::{BlockFile, BlockFiles, ByteRange};

use super::*;
use crate::buffers::BufferPool;
use crate::cache::BlockCache;
use crate::cache::disk::FileVersions;
use crate::remote::{ReadRules, Remote, RemoteFiles};

const INDEX_BYTES: usize = 10_000;
const STALLED: FaultPlan = FaultPlan {
    unavailable: 0,
    cut: 0,
    flipped: 0,
    lost_answer: 0,
    conflict: 0,
    delayed: 0,
    delay_ms: 0,
    stalled: 1000,
    stall_ms: 400,
    unanswered: 0,
};

async fn files(rig: &Rig) -> Arc<RemoteFiles> {
    rig.store.put(&rig.query(10_000), "t/block/index", pattern(5, INDEX_BYTES)).await.unwrap();
    let remote = Remote {
        store: rig.store.clone(),
        clock: rig.env.clock.clone(),
        handle: Handle::current(),
        folder: TenantId::anonymous().into(),
        key: "t/block".to_owned(),
        rules: ReadRules::default(),
        purpose: Purpose::Query,
        sidecars: Arc::default(),
        buffers: BufferPool::new(1 << 20),
    };
    let cache = BlockCache::new(1 << 20, None);
    let key = cache.new_block();
    let lengths = BlockFiles::new(PathBuf::from("t/block"), INDEX_BYTES as u64, Vec::new());
    let head = rig.store.head(&rig.query(10_000), "t/block/index").await.unwrap();
    let mut versions = FileVersions::default();
    versions.add_etag(BlockFile::Index, INDEX_BYTES as u64, head.etag.as_deref());
    Arc::new(RemoteFiles::new(remote, lengths, &versions, cache, key))
}

/// Reads bytes 100..900 of the index; returns true if they are right.
async fn read(files: Arc<RemoteFiles>, deadline_ns: u64) -> bool {
    let budget = MemoryBudget::new("query", 1 << 20);
    let wanted = vec![ByteRange { file: BlockFile::Index, start: 100, end: 900 }];
    let batch = files.read_cached(wanted, &budget, deadline_ns).await.unwrap();
    assert_eq!(budget.used_bytes(), 800, "the query pays for what it keeps alive");
    let mut fetched = chronolith_block::source::FetchedRanges::new(Arc::new(BlockFiles::new(
        PathBuf::new(),
        INDEX_BYTES as u64,
        Vec::new(),
    )));
    fetched.push(batch);
    let is_equal = fetched.at(BlockFile::Index, 100) == &pattern(5, INDEX_BYTES)[100..900];
    drop(fetched);
    assert_eq!(budget.used_bytes(), 0);
    is_equal
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_send_one_request() {
    let rig = Rig::memory(FaultPlan::default());
    let files = files(&rig).await;
    rig.faults.set_plan(STALLED);
    let before = rig.faults.requests.load(Ordering::Relaxed);
    let deadline_ns = rig.env.clock.mono_ns() + WAIT_TIMEOUT_NS;
    let readers: Vec<_> = (0..8).map(|_| tokio::spawn(read(files.clone(), deadline_ns))).collect();
    for reader in readers {
        assert!(reader.await.unwrap());
    }
    assert_eq!(rig.faults.requests.load(Ordering::Relaxed) - before, 1);
    let snapshot = files.cache.snapshot();
    assert_eq!((snapshot.misses, snapshot.in_flight_bytes), (1, 0));
    assert_eq!(snapshot.waits + snapshot.hits, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_reader_leaves_its_request_to_the_next() {
    let rig = Rig::memory(FaultPlan::default());
    let files = files(&rig).await;
    rig.faults.set_plan(STALLED);
    let deadline_ns = rig.env.clock.mono_ns() + WAIT_TIMEOUT_NS;
    let first = tokio::spawn(read(files.clone(), deadline_ns));
    while files.cache.snapshot().misses < 1 {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn(read(files.clone(), deadline_ns));
    while files.cache.snapshot().waits < 1 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(second.await.unwrap());
    assert!(first.await.unwrap_err().is_cancelled());
    let snapshot = files.cache.snapshot();
    assert_eq!((snapshot.misses, snapshot.range_bytes, snapshot.in_flight_bytes), (2, 800, 0));
}
