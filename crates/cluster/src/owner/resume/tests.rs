//! Stored offsets in a bucket in memory.

use chronolith_bucket::store::faults::{FaultPlan, MemoryBucket};
use chronolith_model::log_position::{PartitionId, TopicId};
use tokio::runtime::Runtime;

use super::*;

const OLD: LogPartition = LogPartition { topic: TopicId([1; 16]), number: PartitionId(3) };
const NEW: LogPartition = LogPartition { topic: TopicId([2; 16]), number: PartitionId(3) };

/// Offsets of two processes over one bucket, whose answers are lost now and then.
#[test]
fn offsets_of_a_topic_only_grow_and_other_topics_stay_unless_they_are_named() {
    let runtime = Runtime::new().expect("threads");
    let bucket = MemoryBucket::new();
    let process = |partition, seed| {
        let (env, _, _) = Env::fake(0, seed);
        let client = bucket.connect(seed);
        client.set_plan(FaultPlan { lost_answer: 200, conflict: 100, ..FaultPlan::default() });
        let store = Arc::new(Store::simulated(client, &env, runtime.handle().clone()));
        StoredResume::new(store, &env, runtime.handle().clone(), partition)
    };
    let position = |of: &StoredResume| of.read().expect("reads").map(|stored| stored.position);
    let (first, second) = (process(OLD, 1), process(OLD, 2));
    let other = process(LogPartition { number: PartitionId(33), ..OLD }, 3);
    assert_eq!(first.read().expect("reads"), None);
    for (owner, offset, want) in [(&first, 0, 0), (&second, 5, 5), (&first, 3, 5), (&second, 5, 5)] {
        assert_eq!(owner.store(offset, None).expect("stores"), Stored::Done);
        assert_eq!(position(&first), Some(OLD.at(want)));
    }
    assert_eq!(other.read().expect("reads"), None, "each partition has its own");

    let remade = process(NEW, 4);
    assert_eq!(remade.store(9, None).expect("answers"), Stored::OtherTopic(OLD.at(5)));
    assert_eq!(remade.store(9, Some(OLD.at(4))).expect("answers"), Stored::OtherTopic(OLD.at(5)));
    assert_eq!(remade.store(2, Some(OLD.at(5))).expect("stores"), Stored::Done);
    assert_eq!(first.store(8, None).expect("answers"), Stored::OtherTopic(NEW.at(2)));
    assert_eq!(position(&second), Some(NEW.at(2)));
}
