//! Blocks by the catalogue: no listing, no `meta.json`; a list follows the snapshots, and a block is seen
//! completely or not at all while it is uploaded.

use std::path::Path;

use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::catalogue::BucketBlock;
use chronolith_model::{BlockEncoding, TimeRange};

use super::faults::Kill;
use super::reading::{TENANT, World, check_equal, window};
use super::*;
use crate::store::request::Operation;
use crate::store::retry::Outcome;
use crate::upload::{Published, Uploader};
use crate::{BlockCatalog, CatalogOptions};

/// A catalog whose lists are always refreshed.
fn polling() -> CatalogOptions {
    CatalogOptions { poll: Duration::ZERO, ..CatalogOptions::default() }
}

fn request(world: &World) -> RequestContext {
    let timeout = Duration::from_secs(60);
    let tenant = TenantId::new(TENANT).unwrap();
    RequestContext::with_timeout(&*world.rig.env.clock, tenant, timeout, Purpose::Upload)
}

fn uploader(world: &World) -> Uploader {
    let env = Env { disk: world.disk.disk.clone(), ..world.rig.env.clone() };
    Uploader::new(world.rig.store.clone(), &env, world.runtime.handle().clone())
}

pub(super) fn upload(world: &World, ulid: Ulid) -> BucketBlock {
    let dir = Path::new("blocks").join(ulid.to_string());
    world.runtime.block_on(uploader(world).upload(&request(world), &dir, None)).unwrap()
}

pub(super) fn publish(world: &World, record: BucketBlock) {
    let request = request(world);
    let published = world.runtime.block_on(uploader(world).publisher().publish(&request, &[record])).unwrap();
    assert!(matches!(published, Published::Recorded(_)), "{published:?}");
}

/// Writes, uploads and records a block.
fn add_block(world: &mut World, idx: i64) -> BlockMeta {
    let meta = world.write_block(window(idx), BlockEncoding::Dense);
    let record = upload(world, meta.ulid);
    publish(world, record);
    meta
}

/// Forgets all lists.
fn restart(world: &mut World, options: &CatalogOptions) {
    let (store, clock) = (world.rig.store.clone(), world.rig.env.clock.clone());
    world.catalog = BlockCatalog::new(store, clock, world.runtime.handle().clone(), options);
}

#[track_caller]
fn wait_for(world: &World, want: &[Ulid]) {
    world.wait_until(|| world.ulids() == want, || (world.ulids(), want));
}

#[test]
fn a_catalogued_block_is_read_without_listing_and_meta() {
    let mut world = World::new(CatalogOptions::default());
    (0..3).for_each(|idx| drop(add_block(&mut world, idx)));
    for meta in world.local.iter().map(|block| block.meta().ulid) {
        let key = format!("{TENANT}/{meta}/meta.json");
        world.runtime.block_on(world.rig.store.remove(&world.rig.query(1000), &key)).unwrap();
    }
    let lists = world.counters().requests(Operation::List, Outcome::Ok);
    check_equal(&world);
    assert_eq!(world.counters().requests(Operation::List, Outcome::Ok), lists, "no listing");
    let blocks = world.blocks().unwrap();
    assert!(blocks.iter().all(|block| block.record().is_some()));
}

#[test]
fn a_tenant_with_a_catalogue_has_only_the_blocks_of_it() {
    let mut world = World::new(polling());
    let foreign = world.write_block(window(0), BlockEncoding::Dense).ulid;
    world.upload(foreign, &[]);
    assert_eq!(world.ulids(), [foreign]);
    let own = world.write_block(window(1), BlockEncoding::Dense).ulid;
    let record = upload(&world, own);
    restart(&mut world, &CatalogOptions::default());
    let mut listed = vec![foreign, own];
    listed.sort_unstable();
    assert_eq!(world.ulids(), listed, "a complete upload without a catalogue is like a block of others");
    restart(&mut world, &polling());
    assert_eq!(world.ulids().len(), 2);
    publish(&world, record);
    wait_for(&world, &[own]);
}

/// Without it, samples of a partition that was removed were missing from queries until the list was polled.
#[test]
fn a_list_that_was_outdated_is_read_again_before_it_is_used() {
    let mut world = World::new(CatalogOptions::default());
    let first = add_block(&mut world, 0).ulid;
    assert_eq!(world.ulids(), [first]);
    let second = add_block(&mut world, 1).ulid;
    assert_eq!(world.ulids(), [first], "the next poll has not come");
    world.catalog.outdate_lists();
    assert_eq!(world.ulids(), [first.min(second), first.max(second)]);
}

#[test]
fn a_list_follows_the_snapshots_and_keeps_its_blocks() {
    let mut world = World::new(polling());
    let first = add_block(&mut world, 0).ulid;
    wait_for(&world, &[first]);
    let block = world.blocks().unwrap().remove(0);
    let generation = world.catalog.generation(TenantId::new(TENANT).unwrap());
    let second = add_block(&mut world, 1).ulid;
    wait_for(&world, &[first.min(second), first.max(second)]);
    assert!(world.blocks().unwrap().iter().any(|one| Arc::ptr_eq(one, &block)), "the same object");
    assert!(world.catalog.generation(TenantId::new(TENANT).unwrap()) > generation);
    let merged = world.write_block(TimeRange::new(window(0).start, window(1).end), BlockEncoding::Dense);
    let mut record = upload(&world, merged.ulid);
    record.ancestry.parents = vec![first, second];
    publish(&world, record);
    wait_for(&world, &[merged.ulid]);
}

/// Killed at each request: a process that starts then, and one that polls, see both inputs or the result.
#[test]
fn a_block_that_is_being_uploaded_is_seen_completely_or_not_at_all() {
    for kill in [Kill::RefusedAfter, Kill::DiesAfter] {
        for kill_at in (0..).step_by(3) {
            let mut world = World::new(polling());
            add_block(&mut world, 0);
            check_equal(&world);
            let next = world.write_block(window(1), BlockEncoding::Dense).ulid;
            world.rig.faults.kill_after(kill_at, kill);
            let uploader = uploader(&world);
            let dir = Path::new("blocks").join(next.to_string());
            let request = request(&world);
            world.runtime.block_on(async {
                let run = async {
                    let record = uploader.upload(&request, &dir, None).await?;
                    uploader.publisher().publish(&request, &[record]).await
                };
                tokio::select! {
                    _ = run => {}
                    () = world.rig.faults.died.notified() => {}
                }
            });
            let is_killed = !world.rig.faults.is_alive();
            restart(&mut world, &polling());
            let has_next = world.ulids().contains(&next);
            let not_seen = world.local.iter().position(|block| block.meta().ulid == next && !has_next);
            let not_seen = not_seen.map(|idx| world.local.remove(idx));
            check_equal(&world);
            world.local.extend(not_seen);
            world.local.sort_by_key(|block| block.meta().ulid);
            let record = upload(&world, next);
            publish(&world, record);
            let mut all: Vec<Ulid> = world.local.iter().map(|block| block.meta().ulid).collect();
            all.sort_unstable();
            wait_for(&world, &all);
            check_equal(&world);
            if !is_killed {
                break;
            }
        }
    }
}
