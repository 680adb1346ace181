//! Deletions with real modules: two owners of a partition and one of another, a gateway that dies and repeats
//! its records, owners that stop at any request and lose their disks. The ledger is what the log has.

mod worlds;

use std::sync::LazyLock;

use chronolith_base::ManualClock;
use chronolith_bucket::store::faults::{FaultStore, MemoryBucket};
use chronolith_model::databases::BucketStoreId;
use tokio::runtime::Runtime;

use super::*;

const START_MS: i64 = 1_795_132_800_000;
const TOPIC: TopicId = TopicId([7; 16]);
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

struct TestBucket {
    env: Env,
    clock: Arc<ManualClock>,
    bucket: Arc<MemoryBucket>,
}

impl TestBucket {
    fn new() -> TestBucket {
        let (env, clock, _) = Env::fake(START_MS, 1);
        TestBucket { env, clock, bucket: Arc::new(MemoryBucket::new()) }
    }

    fn store(&self) -> Arc<Store> {
        let client: Arc<FaultStore> = self.bucket.connect(self.env.rng.next_u64());
        Arc::new(Store::simulated(client, &self.env, RUNTIME.handle().clone()))
    }

    fn deletions(&self) -> Deletions {
        Deletions::new(self.store(), &self.env, RUNTIME.handle().clone())
    }
}

fn partition(number: u32) -> LogPartition {
    LogPartition { topic: TOPIC, number: PartitionId(number) }
}

fn new(request_id: &str, store: RecordStore) -> NewDeletion {
    NewDeletion {
        tenant: TenantId::anonymous(),
        store,
        request_id: request_id.to_owned(),
        selectors: vec![vec![Matcher::equal("__name__", "s1")]],
        range: TimeRange::ALL,
        topic: TOPIC,
        partitions: vec![PartitionId(0), PartitionId(3)],
    }
}

#[track_caller]
fn created(deletions: &Deletions, new: &NewDeletion) -> ClusterDeletion {
    match deletions.create(new).expect("an answer") {
        Created::Open(deletion) => deletion,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_deletion_per_store_is_open() {
    let bucket = TestBucket::new();
    let (one, other) = (bucket.deletions(), bucket.deletions());
    let first = created(&one, &new("a", RecordStore::Default));
    assert_eq!(created(&one, &new("a", RecordStore::Default)), first, "the same call finds it");
    let busy = other.create(&new("b", RecordStore::Default)).expect("an answer");
    assert_eq!(busy, Created::Busy { number: 1, created_ms: START_MS });
    let store = RecordStore::Database(BucketStoreId::from_bytes([1; 16]));
    assert_eq!(created(&other, &new("c", store)).number, 2, "another store");
    assert_eq!(one.read().expect("a list").open().count(), 2);
}

#[test]
fn a_mark_is_created_once() {
    let bucket = TestBucket::new();
    let (one, other) = (bucket.deletions(), bucket.deletions());
    let number = created(&one, &new("a", RecordStore::Default)).number;
    assert_eq!(other.mark_of(number, partition(3)), Ok(None));
    assert_eq!(one.mark(number, partition(3).at(17)), Ok(17));
    assert_eq!(other.mark(number, partition(3).at(19)), Ok(17), "a repeat has another offset");
    assert_eq!(other.mark_of(number, partition(3)), Ok(Some(17)));
    assert_eq!(other.mark_of(number, partition(0)), Ok(None));
}

#[test]
fn a_deletion_waits_for_all_partitions_and_a_store_without_blocks_has_no_tombstones() {
    let bucket = TestBucket::new();
    let deletions = bucket.deletions();
    let deletion = created(&deletions, &new("a", RecordStore::Default));
    deletions.mark(deletion.number, partition(3).at(5)).expect("a mark");
    assert_eq!(deletions.settle(&deletion).expect("read"), Settled::Missing(vec![PartitionId(0)]));
    deletions.mark(deletion.number, partition(0).at(2)).expect("a mark");
    let done = Settled::Done { catalogue: 0, series_count: 0, block_count: 0 };
    assert_eq!(deletions.settle(&deletion).expect("settled"), done);
    assert_eq!(bucket.deletions().settle(&deletion).expect("another process"), done);
    let list = deletions.read().expect("a list");
    let ended = list.find(deletion.number).expect("kept");
    assert_eq!(ended.state, DeletionState::Done { done_ms: START_MS, catalogue: 0, marks: vec![2, 5] });
    assert_eq!(created(&deletions, &new("b", RecordStore::Default)).number, 2, "the next one of the store");
}

#[test]
fn deletions_are_forgotten_once_no_owner_reads_their_records_first() {
    let bucket = TestBucket::new();
    let deletions = bucket.deletions();
    let deletion = created(&deletions, &new("a", RecordStore::Default));
    deletions.mark(deletion.number, partition(0).at(2)).expect("a mark");
    deletions.mark(deletion.number, partition(3).at(5)).expect("a mark");
    deletions.settle(&deletion).expect("settled");
    let forget = |resume: &dyn Fn(PartitionId) -> Option<Position>| {
        bucket.deletions().forget_old(TOPIC, &|number| Ok(resume(number))).expect("an answer")
    };
    let passed = |number: PartitionId| Some(partition(number.0).at(6));
    assert_eq!(forget(&passed), 0, "it is younger than a day");
    bucket.clock.advance(KEPT_TIME);
    assert_eq!(forget(&|_| None), 0, "no offset is stored");
    assert_eq!(forget(&|number| Some(partition(number.0).at(5))), 0, "the mark of partition 3 is read again");
    assert_eq!(forget(&passed), 1);
    let list = deletions.read().expect("a list");
    assert_eq!((list.deletions.len(), list.last_number), (0, 1), "numbers are not used again");
    assert_eq!(deletions.mark_of(deletion.number, partition(0)), Ok(None));
}

/// Covers a deletion that stayed open for ever, and refused all others of its store, after its topic was made
/// again.
#[test]
fn a_deletion_of_another_topic_is_given_up() {
    let bucket = TestBucket::new();
    let deletions = bucket.deletions();
    let other = TopicId([8; 16]);
    let number = created(&deletions, &new("a", RecordStore::Default)).number;
    let store = RecordStore::Database(BucketStoreId::from_bytes([1; 16]));
    created(&deletions, &new("b", store));
    let next = NewDeletion { topic: other, ..new("c", RecordStore::Default) };
    assert_eq!(created(&bucket.deletions(), &next).number, 3);
    let list = deletions.read().expect("a list");
    assert!(list.find(number).is_none() && list.open().count() == 2, "one of the other store: {list:?}");
    let forget = || bucket.deletions().forget_old(other, &|_| Ok(None)).expect("an answer");
    assert_eq!(forget(), 0, "it is younger than a day");
    bucket.clock.advance(KEPT_TIME);
    assert_eq!(forget(), 1);
    let list = deletions.read().expect("a list");
    assert_eq!(list.open().map(|open| open.number).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_damaged_mark_is_named() {
    let bucket = TestBucket::new();
    let deletions = bucket.deletions();
    let number = created(&deletions, &new("a", RecordStore::Default)).number;
    let key = format!("cluster/deletion-marks/{number:020}/0");
    let request =
        RequestContext::with_timeout(&*bucket.env.clock, cluster_folder(), TIMEOUT, Purpose::Catalog);
    RUNTIME.block_on(bucket.store().put(&request, &key, Bytes::from_static(b"no mark"))).expect("written");
    for error in [
        deletions.mark_of(number, partition(0)).expect_err("damage"),
        deletions.mark(number, partition(0).at(1)).expect_err("damage"),
    ] {
        let text = error.to_string();
        assert!(text.contains(&key) && text.contains("mark of a deletion"), "{text}");
    }
}

#[test]
fn the_list_has_a_limit() {
    let bucket = TestBucket::new();
    let deletions = bucket.deletions();
    let store = |idx: usize| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&idx.to_le_bytes());
        RecordStore::Database(BucketStoreId::from_bytes(id))
    };
    let request = deletions.request();
    let update = deletions.snapshots.update(&request, |snapshot| {
        let fill = |idx: usize| new("x", store(idx)).with_number(idx as u64 + 1, START_MS);
        snapshot.deletions = (0..DELETIONS_MAX).map(fill).collect();
        snapshot.last_number = DELETIONS_MAX as u64;
        Change::Write
    });
    RUNTIME.block_on(update).expect("written");
    assert_eq!(deletions.create(&new("a", RecordStore::Default)), Ok(Created::Full));
}
