//! Blocks by way of the cache directory: a restart finds ranges read before; damage on disk, damage of
//! transfers and a disk that fails change no answer.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use chronolith_base::disk::{Disk, MemDisk};
use chronolith_model::BlockEncoding;

use super::catalogued::{publish, upload};
use super::reading::{World, check_equal, check_equal_with_retries, window};
use super::*;
use crate::cache::disk::{FileVersions, ObjectFolder};
use crate::{BlockCatalog, CatalogOptions, DiskCache, DiskCacheOptions, DiskCacheSnapshot};

const DIR: &str = "cache";

/// Begins a process with the directory on `disk`, as the one before has ended.
pub(super) fn restart(world: &mut World, disk: &MemDisk, memory_bytes_max: u64) {
    settle(world);
    let (store, clock) = (world.rig.store.clone(), world.rig.env.clock.clone());
    let handle = world.runtime.handle().clone();
    let options = CatalogOptions { memory_bytes_max, ..CatalogOptions::default() };
    world.catalog = BlockCatalog::new(store.clone(), clock.clone(), handle.clone(), &options);
    let disk_options = DiskCacheOptions { dir: DIR.into(), bytes_max: 64 << 20, bucket: "memory://".into() };
    let deadline_ns = world.now_ns() + WAIT_TIMEOUT_NS;
    // The last write of the process before may still hold the lock.
    let cache = loop {
        match DiskCache::open(Arc::new(disk.clone()), &disk_options, handle.clone()) {
            Ok(cache) => break cache,
            Err(error) => assert!(world.now_ns() < deadline_ns, "{error}"),
        }
        std::thread::yield_now();
    };
    world.catalog = BlockCatalog::with_disk_cache(store, clock, handle, &options, Some(cache));
}

/// Waits until everything is written.
pub(super) fn settle(world: &World) {
    world.wait_until(|| counters(world).waiting_bytes == 0, || counters(world));
}

pub(super) fn counters(world: &World) -> DiskCacheSnapshot {
    world.catalog.cache().disk
}

/// Blocks in a catalogue, with sidecars.
fn recorded_world(count: i64) -> World {
    let mut world = World::new(CatalogOptions::default());
    for idx in 0..count {
        let meta = world.write_block(window(idx), BlockEncoding::Dense);
        let record = upload(&world, meta.ulid);
        publish(&world, record);
    }
    world
}

pub(super) fn files(disk: &MemDisk) -> Vec<PathBuf> {
    let files = disk.list(Path::new(DIR)).unwrap().into_iter().filter(|file| file.len > 0);
    files.map(|file| Path::new(DIR).join(file.name)).collect()
}

/// A query after a restart sends no request, as all bytes of the one before it are in the directory.
#[test]
fn a_query_after_a_restart_sends_no_request() {
    let disk = MemDisk::new();
    let mut world = recorded_world(3);
    restart(&mut world, &disk, 64 << 20);
    check_equal(&world);
    restart(&mut world, &disk, 64 << 20);
    world.blocks().unwrap();
    let gets = world.gets();
    check_equal(&world);
    assert_eq!(world.gets(), gets, "{:?}", counters(&world));
    assert_eq!(counters(&world).misses, 0);
    assert!(counters(&world).hit_bytes > 0);
}

/// Without room in memory each query reads the directory.
#[test]
fn what_memory_evicts_is_read_from_the_directory() {
    let disk = MemDisk::new();
    let mut world = recorded_world(2);
    restart(&mut world, &disk, 1);
    check_equal(&world);
    settle(&world);
    let gets = world.gets();
    check_equal(&world);
    assert_eq!(world.gets(), gets);
}

/// A block that was listed is opened by the list of its objects, which has the versions of what the directory
/// has; the listing has read its `meta.json`.
#[test]
fn a_listed_block_is_opened_by_its_small_files_after_a_restart() {
    let disk = MemDisk::new();
    let mut world = World::with_blocks(2, BlockEncoding::Prometheus);
    restart(&mut world, &disk, 64 << 20);
    check_equal(&world);
    restart(&mut world, &disk, 64 << 20);
    world.blocks().unwrap();
    let gets = world.gets();
    check_equal(&world);
    assert_eq!(world.gets() - gets, 0);
}

/// A bit flips in each of many entries of the directory: each answer stays equal, and damage is counted.
#[test]
fn flipped_bits_in_the_directory_change_no_answer() {
    let disk = MemDisk::new();
    let mut world = recorded_world(2);
    restart(&mut world, &disk, 64 << 20);
    check_equal(&world);
    settle(&world);
    let mut damages = 0;
    for offset in [50, 700, 2_000, 9_000] {
        let catalog = world.catalog.clone();
        restart(&mut world, &MemDisk::new(), 1);
        drop(catalog);
        for path in files(&disk) {
            let mut bytes = disk.read(&path).unwrap();
            bytes.iter_mut().skip(offset).step_by(10_007).for_each(|byte| *byte ^= 4);
            disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
        }
        restart(&mut world, &disk, 1);
        check_equal(&world);
        settle(&world);
        damages += counters(&world).damages;
        check_equal(&world);
    }
    assert!(damages >= 4, "{damages}");
}

/// Bits flip on the way from the bucket, so that the directory has wrong bytes under right checksums: they
/// are dropped when an item fails its own checksum, and the answers stay equal.
#[test]
fn flipped_bits_of_answers_do_not_stay_in_the_directory() {
    let disk = MemDisk::new();
    let mut world = World::with_blocks(2, BlockEncoding::Dense);
    restart(&mut world, &disk, 1);
    world.rig.faults.set_plan(FaultPlan { flipped: 400, ..FaultPlan::default() });
    check_equal_with_retries(&world);
    assert!(world.rig.faults.injected.load(Ordering::Relaxed) > 2);
    world.rig.faults.set_plan(FaultPlan::default());
    restart(&mut world, &disk, 64 << 20);
    check_equal(&world);
}

/// A disk that fails at any time turns the cache off; queries go on.
#[test]
fn a_failing_disk_changes_no_answer() {
    for op_count in [0, 1, 2] {
        let disk = MemDisk::new();
        let mut world = recorded_world(1);
        restart(&mut world, &disk, 1);
        disk.fail_after(op_count);
        check_equal(&world);
        settle(&world);
        assert!(!counters(&world).is_on);
        check_equal(&world);
    }
}

/// Objects of other tenants, buckets and folders, and other versions of an object, have other keys.
#[test]
fn another_object_under_the_same_name_has_another_key() {
    use chronolith_block::source::BlockFile;
    let versions = |add: fn(&mut FileVersions)| {
        let mut versions = FileVersions::default();
        add(&mut versions);
        versions
    };
    let key = |tenant: &str, bucket: &str, folder: &str, versions: &FileVersions| {
        let folder = ObjectFolder::new(&TenantId::new(tenant).unwrap(), bucket, folder);
        folder.keys(versions, BlockFile::name).remove(&BlockFile::Index)
    };
    let etag = versions(|v| v.add_etag(BlockFile::Index, 7, Some("a")));
    let mut keys = vec![
        key("a", "s3://b", "a/01", &etag),
        key("b", "s3://b", "a/01", &etag),
        key("a", "s3://c", "a/01", &etag),
        key("a", "s3://b", "a/02", &etag),
        key("a", "s3://b", "a/01", &versions(|v| v.add_etag(BlockFile::Index, 7, Some("b")))),
        key("a", "s3://b", "a/01", &versions(|v| v.add_etag(BlockFile::Index, 8, Some("a")))),
        key("a", "s3://b", "a/01", &versions(|v| v.add_checksum(BlockFile::Index, 7, 10))),
    ];
    assert!(keys.iter().all(Option::is_some));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 7);
    assert_eq!(key("a", "s3://b", "a/01", &versions(|v| v.add_etag(BlockFile::Index, 7, None))), None);
}
