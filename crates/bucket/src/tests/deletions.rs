//! Tombstones are entered for blocks as they were read, or not at all.

use std::collections::BTreeMap;

use chronolith_format::block::tombstones::{Interval, Tombstones};

use super::block_uploads::{Bench, ulid};
use super::*;
use crate::tombstones::{NewTombstones, enter};

#[tokio::test]
async fn tombstones_are_entered_for_blocks_as_they_were_read_or_not_at_all() {
    let bench = Bench::new(FaultPlan::default());
    let uploader = bench.uploader();
    for n in [1, 2] {
        let dir = bench.block(n, &[], &[1000]);
        bench.run(&uploader, &dir).await.expect("recorded");
    }
    let read = bench.latest().await.expect("a catalogue");
    let new = |n: u64| {
        let block = read.blocks.iter().find(|block| block.ulid == ulid(n)).expect("live");
        let mut tombstones = Tombstones::new();
        tombstones.add(3, Interval { first: 5, last: 6 });
        (block.ulid, NewTombstones::new(&bench.env.rng, &tombstones, block.tombstones.clone()).0)
    };
    let both = BTreeMap::from([new(1), new(2)]);
    let mut snapshot = (*read).clone();
    assert!(enter(&mut snapshot, &both));
    for block in &snapshot.blocks {
        let name = block.tombstones.as_ref().map(|object| &*object.name);
        assert_eq!((name, block.counts.tombstones), (Some(both[&block.ulid].name()), 1));
    }
    let by_another_process = snapshot.clone();
    assert!(!enter(&mut snapshot, &both), "the tombstones are others");
    assert_eq!(snapshot, by_another_process);
    let mut compacted = (*read).clone();
    compacted.blocks.retain(|block| block.ulid != ulid(2));
    let before = compacted.clone();
    assert!(!enter(&mut compacted, &both), "a block is gone");
    assert_eq!(compacted, before);
}
