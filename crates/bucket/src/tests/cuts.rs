//! Two owners that publish the same cuts, with answers that get lost.

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, DeletionMark, Snapshot};
use chronolith_model::TenantId;
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use tokio::runtime::Runtime;

use super::snapshots::record;
use crate::snapshots::{Change, Snapshots};
use crate::store::faults::{FaultPlan, MemoryBucket};
use crate::upload::{PublishedCut, catalogue_for_cuts, publish_cut};
use crate::{Folder, Purpose, RequestContext, Store, Uploader};

const P: LogPartition = LogPartition { topic: TopicId([7; 16]), number: PartitionId(3) };

fn block(number: u128) -> BucketBlock {
    BucketBlock { ulid: Ulid::new(1, number), ..record(1) }
}

#[test]
fn one_of_two_owners_gets_its_blocks_into_the_catalogue() {
    let runtime = Runtime::new().expect("threads");
    let bucket = MemoryBucket::new();
    let (env, _, _) = Env::fake(0, 1);
    let request = || {
        let folder = Folder::of_tenant(&TenantId::anonymous());
        RequestContext::with_timeout(
            &*env.clock,
            folder,
            std::time::Duration::from_secs(600),
            Purpose::Upload,
        )
    };
    let owner = |seed| {
        let client = bucket.connect(seed);
        client.set_plan(FaultPlan {
            lost_answer: 300,
            conflict: 200,
            unavailable: 100,
            ..FaultPlan::default()
        });
        let store = Arc::new(Store::simulated(client, &env, runtime.handle().clone()));
        Uploader::new(store, &env, runtime.handle().clone())
    };
    let (first, second) = (owner(1), owner(2));
    let publish = |owner: &Uploader, cut, blocks: &[u128]| {
        let records: Vec<BucketBlock> = blocks.iter().map(|number| block(*number)).collect();
        let publisher = owner.publisher();
        let catalogue = runtime.block_on(catalogue_for_cuts(publisher, &request())).expect("a catalogue");
        assert!(catalogue.number > 0);
        runtime.block_on(publish_cut(publisher, &request(), P.at(cut), &records)).expect("answers")
    };
    let live = |snapshot: &Snapshot| {
        let mut numbers: Vec<Ulid> = snapshot.blocks.iter().map(|block| block.ulid).collect();
        numbers.sort_unstable();
        (numbers, snapshot.cut_of(P))
    };
    let ulids = |numbers: &[u128]| numbers.iter().map(|number| Ulid::new(1, *number)).collect::<Vec<_>>();

    let PublishedCut::Live(snapshot) = publish(&first, 5, &[1, 2]) else { panic!("the first one") };
    assert_eq!(live(&snapshot), (ulids(&[1, 2]), Some(5)));
    assert!(matches!(publish(&second, 5, &[3, 4]), PublishedCut::Superseded(_)));
    assert!(matches!(publish(&first, 5, &[1, 2]), PublishedCut::Live(_)), "a repeat after a lost answer");
    let PublishedCut::Live(snapshot) = publish(&second, 9, &[6]) else { panic!("a later cut") };
    assert_eq!(live(&snapshot), (ulids(&[1, 2, 6]), Some(9)));
    // An owner that wakes up finds a later cut, also without blocks of its own.
    for blocks in [&[7][..], &[]] {
        assert!(matches!(publish(&first, 8, blocks), PublishedCut::Superseded(_)));
    }
    let PublishedCut::Live(snapshot) = publish(&first, 12, &[]) else { panic!("a cut without blocks") };
    assert_eq!(live(&snapshot), (ulids(&[1, 2, 6]), Some(12)));

    let store = Arc::new(Store::simulated(bucket.connect(3), &env, runtime.handle().clone()));
    let mark = DeletionMark { ulid: Ulid::new(1, 20), marked_ms: 1 };
    let marked = Snapshots::new(store, &env);
    let request = request();
    let update = marked.update(&request, |snapshot| {
        snapshot.deletion_marks.push(mark);
        Change::Write
    });
    runtime.block_on(update).expect("marks");
    assert_eq!(publish(&first, 15, &[20]), PublishedCut::NameTaken);
    assert!(matches!(publish(&first, 15, &[21]), PublishedCut::Live(_)));
}
