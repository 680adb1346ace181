//! Changes of a map in a bucket, and changes that are refused.

use std::sync::LazyLock;

use chronolith_base::ManualClock;
use chronolith_bucket::StoreConfig;
use tokio::runtime::Runtime;

use super::*;

const NOW_MS: i64 = 1_795_132_800_000;
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

struct Fixture {
    env: Env,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
}

impl Fixture {
    fn new() -> Fixture {
        let (env, clock, _) = Env::fake(NOW_MS, 1);
        let store = Store::open(&StoreConfig::new("memory://"), &env, RUNTIME.handle().clone());
        Fixture { env, clock, store: Arc::new(store.expect("a bucket")) }
    }

    fn change(&self, change: PartitionChange<'_>) -> Result<Vec<u32>, String> {
        let changed = change_map(&self.store, &self.env, RUNTIME.handle(), change);
        changed.map(|snapshot| snapshot.map.accepting().to_vec()).map_err(|error| error.to_string())
    }

    fn newest(&self) -> Option<Arc<PartitionsSnapshot>> {
        newest_map(&self.store, &self.env, RUNTIME.handle()).expect("the bucket answers")
    }
}

#[test]
fn partitions_are_added_and_drained_one_snapshot_each() {
    let fixture = Fixture::new();
    assert_eq!(fixture.newest(), None);
    assert_eq!(fixture.change(PartitionChange::Add(&[2, 0, 1])), Ok(vec![0, 1, 2]));
    fixture.clock.advance(Duration::from_secs(60));
    assert_eq!(fixture.change(PartitionChange::Drain(&[1])), Ok(vec![0, 2]));
    let newest = fixture.newest().expect("a map");
    assert_eq!(newest.stamp.number, 2);
    let times: Vec<i64> = newest.map.epochs().iter().map(|epoch| epoch.since_ms).collect();
    assert_eq!(times, [NOW_MS, NOW_MS + 60_000]);
}

#[test]
fn changes_that_cannot_be_name_the_partition_and_write_nothing() {
    let fixture = Fixture::new();
    let refused = |change| fixture.change(change).expect_err("refused");
    assert_eq!(refused(PartitionChange::Drain(&[0])), "partition 0 does not accept writes");
    assert_eq!(refused(PartitionChange::Add(&[3, 1, 3])), "partition 3 is named twice");
    assert_eq!(refused(PartitionChange::Add(&[10_000])), "partition 10000, expected less than 10000");
    assert_eq!(fixture.newest(), None);
    assert_eq!(fixture.change(PartitionChange::Add(&[0])), Ok(vec![0]));
    assert_eq!(refused(PartitionChange::Add(&[1, 0])), "partition 0 accepts writes already");
    assert_eq!(refused(PartitionChange::Drain(&[0])), "no partition would accept writes");
    assert_eq!(fixture.newest().map(|newest| newest.stamp.number), Some(1));
}

/// A history without end would end with a map that cannot be changed any more.
#[test]
fn changes_of_a_month_ago_leave_the_history() {
    let fixture = Fixture::new();
    fixture.change(PartitionChange::Add(&[0, 1])).expect("a map");
    fixture.clock.advance(Duration::from_secs(86_400));
    fixture.change(PartitionChange::Drain(&[1])).expect("drained");
    fixture.clock.advance(Duration::from_secs(31 * 86_400));
    fixture.change(PartitionChange::Add(&[1])).expect("added again");
    assert_eq!(fixture.newest().expect("a map").map.epochs().len(), 2);
}
