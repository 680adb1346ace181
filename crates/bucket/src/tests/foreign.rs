//! Blocks of other programs, which have no sidecar: requests and rounds of cold queries, answers.

use std::path::Path;

use chronolith_block::{Block, BlockSource, BlockWriter};
use chronolith_model::{BlockEncoding, Matcher, Queryable, Selector, TimeRange};

use super::reading::{Answer, World, labels, read_all, window};
use super::*;
use crate::CatalogOptions;
use crate::block::BucketBlock;

/// Series per metric.
const PODS: i64 = 1000;

/// Writes and uploads a block of `metrics` metrics with 1000 series, each with a sample of every tenth scrape
/// of two hours.
pub(super) fn add_wide_block(world: &mut World, metrics: i64) -> Arc<Block> {
    let range = window(0);
    let mut writer = BlockWriter::create(&world.disk, Path::new("blocks")).unwrap();
    writer = writer.with_encoding(BlockEncoding::Prometheus);
    for metric in 0..metrics {
        for pod in 0..PODS {
            let metric_text = format!("m{metric:02}");
            let pod_text = format!("pod-{pod:04}");
            let labels = labels(&[("__name__", &metric_text), ("pod", &pod_text), ("zone", "a")]);
            let times: Vec<i64> = (0..48).map(|i| range.start + i * 150_000 + (i * pod) % 97).collect();
            let values: Vec<f64> = (0..48).map(|i| (i * pod + metric) as f64).collect();
            writer.add_samples(&labels, &times, &values).unwrap();
        }
    }
    let meta = writer.finish(BlockSource::head(range)).unwrap().unwrap();
    let block = Block::open(&world.disk, &Path::new("blocks").join(meta.ulid.to_string())).unwrap();
    world.local.push(block.clone());
    world.upload(meta.ulid, &[]);
    block
}

pub(super) fn metric(number: i64) -> [Matcher; 1] {
    [Matcher::equal("__name__", &format!("m{number:02}"))]
}

/// Samples of all series of a selection.
pub(super) fn select(world: &World, block: &Arc<BucketBlock>, matchers: &[Matcher]) -> Answer {
    let selector = Selector { matchers, range: TimeRange::ALL };
    read_all(&mut *block.select(&selector, &world.ctx(60_000)), TimeRange::ALL).unwrap()
}

pub(super) fn select_local(world: &World, block: &Block, matchers: &[Matcher]) -> Answer {
    let selector = Selector { matchers, range: TimeRange::ALL };
    read_all(&mut *block.select(&selector, &world.ctx(60_000)).unwrap(), TimeRange::ALL).unwrap()
}

/// Rounds of the reads of a query, each with the last parts of its keys, ascending.
#[track_caller]
pub(super) fn rounds_of(
    world: &World,
    block: &Arc<BucketBlock>,
    local: &Block,
    number: i64,
) -> Vec<Vec<String>> {
    let want = select_local(world, local, &metric(number));
    world.rig.faults.reads.take_rounds();
    assert!(select(world, block, &metric(number)) == want);
    assert_eq!(want.len(), PODS as usize);
    let mut rounds = world.rig.faults.reads.take_rounds();
    for round in &mut rounds {
        round.iter_mut().for_each(|key| *key = key.rsplit('/').next().unwrap_or_default().to_owned());
        round.sort();
    }
    rounds
}

/// A latency of each read, so that all reads of a round start before one of them ends.
fn latency() -> FaultPlan {
    FaultPlan { stalled: 1000, stall_ms: 100, ..FaultPlan::default() }
}

/// The first query reads both ends of the index in the round of the listing, then postings, series entries
/// and chunks: five requests. A second one for another metric takes three.
#[test]
fn a_cold_query_for_one_metric_takes_four_rounds() {
    let mut world = World::new(CatalogOptions::default());
    let local = add_wide_block(&mut world, 100);
    let block = world.blocks().unwrap().remove(0);
    // No sidecar is made, whose requests would be counted with the queries'.
    block.local_sidecar().give_up();
    world.rig.faults.set_plan(latency());
    let first = rounds_of(&world, &block, &local, 42);
    assert_eq!(first, [vec!["index", "index"], vec!["index"], vec!["index"], vec!["000001"]]);
    let second = rounds_of(&world, &block, &local, 43);
    assert_eq!(second, [["index"], ["index"], ["000001"]]);
    assert!(rounds_of(&world, &block, &local, 43).is_empty(), "from the cache");
}

/// A small index comes with its header as a whole: postings and series entries take no request.
#[test]
fn a_small_index_is_read_at_once() {
    let mut world = World::new(CatalogOptions::default());
    let local = add_wide_block(&mut world, 3);
    let block = world.blocks().unwrap().remove(0);
    // No sidecar is made, whose requests would be counted with the queries'.
    block.local_sidecar().give_up();
    world.rig.faults.set_plan(latency());
    let first = rounds_of(&world, &block, &local, 1);
    assert_eq!(first, [vec!["index", "index"], vec!["000001"]]);
    assert_eq!(rounds_of(&world, &block, &local, 2), [["000001"]]);
}
