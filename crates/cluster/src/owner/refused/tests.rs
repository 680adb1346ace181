//! Refused records in a bucket.

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_bucket::store::faults::{FaultPlan, MemoryBucket};
use chronolith_bucket::{Purpose, RequestContext, Store};
use chronolith_model::log_position::{PartitionId, TopicId};

use super::*;

#[test]
fn a_refused_record_is_an_object_of_the_cluster() {
    let (env, _, _) = Env::fake(0, 1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = MemoryBucket::new().connect(1);
    let store = Arc::new(Store::simulated(client.clone(), &env, runtime.handle().clone()));
    let kept = KeptObjects::new(store.clone(), env.clock.clone(), runtime.handle().clone());
    let refused = RefusedRecords::new(kept);
    let partition = LogPartition { topic: TopicId([1; 16]), number: PartitionId(3) };
    let record = Bytes::from_static(b"cut short");
    client.set_plan(FaultPlan { unavailable: 1000, ..FaultPlan::default() });
    let error = refused.keep(partition, 17, &record).expect_err("the bucket is away");
    assert!(error.contains("cluster/refused/3/17"), "{error}");
    client.set_plan(FaultPlan::default());
    // The answer to the first one may be lost.
    for _ in 0..2 {
        refused.keep(partition, 17, &record).expect("kept");
    }
    let request = RequestContext::with_timeout(
        &*env.clock,
        crate::folder::cluster_folder(),
        Duration::from_secs(10),
        Purpose::Tool,
    );
    let head = runtime.block_on(store.head(&request, "cluster/refused/3/17")).expect("an object");
    assert_eq!(head.object_bytes, record.len() as u64);
}
