//! The directory against the objects whose bytes it has: random writes and reads within the budget, a process
//! that is killed at each write, flipped bits, a disk that fails.

use chronolith_base::disk::MemDisk;
use chronolith_base::{Env, Rng};
use tokio::runtime::Runtime;

use super::*;

const OBJECT_BYTES: u64 = 4096;
const DIR: &str = "cache";

fn small(bytes_max: u64) -> Geometry {
    let segment_bytes_max = bytes_max / 8;
    Geometry { bytes_max, segment_bytes_max, piece_bytes_max: segment_bytes_max / 4, entry_count_max: 1000 }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap()
}

fn open(disk: &MemDisk, geometry: Geometry, runtime: &Runtime) -> Arc<DiskCache> {
    let disk = Arc::new(disk.clone());
    DiskCache::open_with(disk, Path::new(DIR), geometry, "s3://b", runtime.handle().clone()).unwrap()
}

fn key(tenant: &str, object: u64) -> Arc<str> {
    format!("{tenant}\ns3://b\n{tenant}/{object:026}/index\ncrc {object}").into()
}

/// Bytes of an object, which differ between objects.
fn content(key: &str) -> Bytes {
    let mut bytes = vec![0; OBJECT_BYTES as usize];
    Rng::from_seed(u64::from(chronolith_base::crc::crc32c(key.as_bytes()))).fill(&mut bytes);
    bytes.into()
}

/// Writes a range on this thread.
fn write(cache: &DiskCache, key: &Arc<str>, start: u64, end: u64) {
    let removal_count = cache.index.lock().removal_count();
    let bytes = content(key).slice(start as usize..end as usize);
    cache.queue.push(QueuedWrite { key: key.clone(), start, bytes, removal_count });
    cache.write_queued();
}

/// Returns true if the range is there; its bytes are right.
#[track_caller]
fn read(cache: &DiskCache, key: &str, start: u64, end: u64) -> bool {
    let found = cache.read(key, start, end);
    if let Some(found) = &found {
        assert_eq!(*found, content(key).slice(start as usize..end as usize), "{key} {start}..{end}");
    }
    found.is_some()
}

fn dir_bytes(disk: &MemDisk) -> u64 {
    disk.list(Path::new(DIR)).unwrap().iter().map(|entry| entry.len).sum()
}

/// Draws objects and ranges; checks the budget after each write, and every read.
#[test]
fn random_writes_stay_within_the_budget_and_reads_are_right() {
    let runtime = runtime();
    for seed in 0..8 {
        let (disk, rng) = (MemDisk::new(), Rng::from_seed(seed));
        let geometry = small(24_000 + seed * 5_000);
        let mut cache = open(&disk, geometry, &runtime);
        let mut hit_count = 0;
        for step in 0..1500 {
            let tenant = ["a", "b", "c"][rng.below(3) as usize];
            let key = key(tenant, rng.below(4));
            let start = rng.below(OBJECT_BYTES - 1);
            let end = (start + 1 + rng.below(600)).min(OBJECT_BYTES);
            match rng.below(40) {
                0 => cache.remove_range(&key, start, end),
                1 => {
                    drop(cache);
                    cache = open(&disk, geometry, &runtime);
                }
                2..20 => write(&cache, &key, start, end),
                _ => hit_count += u64::from(read(&cache, &key, start, end)),
            }
            assert!(dir_bytes(&disk) <= geometry.bytes_max, "seed {seed}, step {step}");
            assert_eq!(cache.snapshot().file_bytes, dir_bytes(&disk));
        }
        let found = cache.snapshot();
        assert!(found.is_on && found.damages == 0 && hit_count > 40, "{found:?}, {hit_count} hits");
    }
}

#[test]
fn a_range_that_several_entries_have_together_is_found() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let cache = open(&disk, small(64_000), &runtime);
    let other = key("b", 1);
    let key = key("a", 1);
    [(100, 200), (300, 400), (150, 350)].iter().for_each(|&(start, end)| write(&cache, &key, start, end));
    assert!(read(&cache, &key, 120, 390));
    assert!(!read(&cache, &key, 99, 200), "its first byte is missing");
    assert_eq!(cache.gaps(&key, 0, 500), [(0, 100), (400, 500)]);
    assert_eq!(cache.snapshot().written_bytes, 300, "no byte is written twice");
    assert!(!read(&cache, &other, 120, 390), "another tenant");
}

/// The process is killed after each of its writes to the disk, half of the last one done. Reads
/// return the right bytes, and nothing that was complete before is lost.
#[test]
fn a_process_killed_at_any_write_loses_nothing_else() {
    let runtime = runtime();
    let geometry = small(48_000);
    let writes: Vec<(Arc<str>, u64)> = (0..60).map(|n| (key("a", n % 5), (n / 5) * 300)).collect();
    let mut op_count = 0;
    loop {
        let disk = MemDisk::new();
        let cache = open(&disk, geometry, &runtime);
        disk.fail_after(op_count);
        let mut complete = Vec::new();
        for (key, start) in &writes {
            write(&cache, key, *start, start + 300);
            if !cache.snapshot().is_on {
                break;
            }
            complete.push((key.clone(), *start));
        }
        let is_done = cache.snapshot().is_on;
        let evictions = cache.snapshot().evictions;
        drop(cache);
        disk.kill();
        let cache = open(&disk, geometry, &runtime);
        let found = complete.iter().filter(|(key, start)| read(&cache, key, *start, start + 300)).count();
        let evicted_count = complete.len() - found;
        assert!(evicted_count as u64 <= evictions, "{found} found after {op_count} operations");
        // At most the write that was cut is counted.
        assert!(cache.snapshot().damages <= u64::from(!is_done));
        assert!(dir_bytes(&disk) <= geometry.bytes_max);
        write(&cache, &writes[0].0, 4000, 4096);
        assert!(read(&cache, &writes[0].0, 4000, 4096), "it goes on");
        if is_done {
            break;
        }
        op_count += 1;
    }
    assert!(op_count > 60);
}

/// A power cut leaves any part of the written bytes: reads are right or find nothing.
#[test]
fn a_power_cut_leaves_no_wrong_bytes() {
    let runtime = runtime();
    let geometry = small(48_000);
    for seed in 0..40 {
        let (disk, rng) = (MemDisk::new(), Rng::from_seed(seed));
        let cache = open(&disk, geometry, &runtime);
        (0..80).for_each(|n| write(&cache, &key("a", n % 7), (n / 7) * 300, (n / 7) * 300 + 300));
        drop(cache);
        disk.crash_partly(&rng);
        disk.create_dir_all(Path::new(DIR)).unwrap();
        let cache = open(&disk, geometry, &runtime);
        for n in 0..80 {
            read(&cache, &key("a", n % 7), (n / 7) * 300, (n / 7) * 300 + 300);
        }
        assert!(cache.snapshot().is_on && dir_bytes(&disk) <= geometry.bytes_max);
    }
}

/// A bit flips in each byte of all files, one after the other: reads are right or find nothing, and each flip
/// is counted.
#[test]
fn a_flipped_bit_anywhere_is_a_counted_miss() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let geometry = small(16_000);
    let cache = open(&disk, geometry, &runtime);
    let ranges: Vec<(Arc<str>, u64)> = (0..16).map(|n| (key("a", n % 3), (n / 3) * 200)).collect();
    ranges.iter().for_each(|(key, start)| write(&cache, key, *start, start + 200));
    drop(cache);
    // The last segment gets its table.
    drop(open(&disk, geometry, &runtime));
    let names: Vec<_> = disk.list(Path::new(DIR)).unwrap().into_iter().filter(|file| file.len > 0).collect();
    assert!(names.len() >= 2);
    let files: Vec<_> =
        names.iter().map(|file| (file, disk.read(&Path::new(DIR).join(&file.name)).unwrap())).collect();
    for (file, bytes) in &files {
        for at in 0..bytes.len() {
            let disk = MemDisk::new();
            disk.create_dir_all(Path::new(DIR)).unwrap();
            for (other, other_bytes) in &files {
                let mut bytes = other_bytes.clone();
                if other.name == file.name {
                    bytes[at] ^= 1 << (at % 8);
                }
                disk.create(&Path::new(DIR).join(&other.name)).unwrap().write_at(&bytes, 0).unwrap();
            }
            let cache = open(&disk, geometry, &runtime);
            let found = ranges.iter().filter(|(key, start)| read(&cache, key, *start, start + 200)).count();
            assert!(found >= 4, "{found} found with byte {at} of {}", file.name);
            assert!(cache.snapshot().damages > 0, "byte {at} of {}", file.name);
        }
    }
}

/// Entries that are read stay when their segment goes; those that are not go first.
#[test]
fn entries_that_are_read_outlive_a_scan() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let cache = open(&disk, small(32_000), &runtime);
    let used = key("a", 1000);
    write(&cache, &used, 0, 300);
    for object in 0..200 {
        assert!(read(&cache, &used, 0, 300), "after {object} others");
        write(&cache, &key("a", object), 0, 300);
    }
    assert!(!read(&cache, &key("a", 0), 0, 300));
    assert!(cache.snapshot().evictions > 100);
}

/// A tenant beyond its fair share keeps nothing that others need room for.
#[test]
fn a_scan_of_one_tenant_leaves_what_another_one_reads() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let cache = open(&disk, small(32_000), &runtime);
    // Entries that the large tenant read come first, and would fill the room for copies.
    for object in 1000..1005 {
        write(&cache, &key("large", object), 0, 300);
        assert!(read(&cache, &key("large", object), 0, 300));
    }
    (0..3).for_each(|n| write(&cache, &key("small", n), 0, 300));
    for object in 0..300 {
        (0..3).for_each(|n| assert!(read(&cache, &key("small", n), 0, 300), "after {object} others"));
        write(&cache, &key("large", object), 0, 300);
        read(&cache, &key("large", object), 0, 300);
    }
}

/// The index of a directory is bounded by its entries.
#[test]
fn small_entries_are_bounded_by_their_number() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let geometry = Geometry { entry_count_max: 64, ..small(1 << 20) };
    let cache = open(&disk, geometry, &runtime);
    for n in 0..400 {
        write(&cache, &key("a", n), 0, 1);
        assert!(cache.snapshot().entry_count <= 64);
    }
    assert!(read(&cache, &key("a", 399), 0, 1));
}

/// An error of the disk turns the cache off, and no read fails.
#[test]
fn a_full_disk_turns_the_cache_off() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let cache = open(&disk, small(64_000), &runtime);
    write(&cache, &key("a", 0), 0, 300);
    disk.set_capacity_bytes(dir_bytes(&disk) + 100);
    write(&cache, &key("a", 1), 0, 300);
    assert!(!cache.snapshot().is_on);
    assert_eq!(cache.read(&key("a", 0), 0, 300), None);
    write(&cache, &key("a", 2), 0, 10);
    disk.set_capacity_bytes(u64::MAX);
    drop(cache);
    let cache = open(&disk, small(64_000), &runtime);
    assert!(cache.snapshot().is_on && read(&cache, &key("a", 0), 0, 300), "a restart finds it again");
}

#[test]
fn a_second_process_is_refused() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let cache = open(&disk, small(64_000), &runtime);
    let handle = runtime.handle().clone();
    let options = DiskCacheOptions { dir: DIR.into(), bytes_max: 1 << 24, bucket: "s3://b".to_owned() };
    let again = DiskCache::open(Arc::new(disk.clone()), &options, handle.clone());
    assert_eq!(again.err().unwrap().kind(), io::ErrorKind::WouldBlock);
    drop(cache);
    DiskCache::open(Arc::new(disk), &options, handle).unwrap();
}

/// Bytes that were fetched before a damaged range was removed are not written after it.
#[test]
fn a_write_that_began_before_a_removal_is_dropped() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let cache = open(&disk, small(64_000), &runtime);
    let key = key("a", 1);
    let bytes = content(&key).slice(0..300);
    let removal_count = cache.index.lock().removal_count();
    cache.queue.push(QueuedWrite { key: key.clone(), start: 0, bytes, removal_count });
    cache.remove_range(&key, 0, 10);
    cache.write_queued();
    assert!(!read(&cache, &key, 0, 300));
    write(&cache, &key, 0, 300);
    assert!(read(&cache, &key, 0, 300));
}

/// A smaller budget removes the oldest segments at the next start.
#[test]
fn a_smaller_budget_holds_from_the_start() {
    let (disk, runtime) = (MemDisk::new(), runtime());
    let cache = open(&disk, small(64_000), &runtime);
    (0..200).for_each(|n| write(&cache, &key("a", n), 0, 300));
    drop(cache);
    let large = Geometry { bytes_max: 40_000, ..small(64_000) };
    let cache = open(&disk, large, &runtime);
    assert!(dir_bytes(&disk) <= 40_000);
    assert!(read(&cache, &key("a", 199), 0, 300));
    assert!(!read(&cache, &key("a", 100), 0, 300));
}

/// A directory with a million entries of 1 to 8 KiB is open again within a second.
///
/// `cargo test -p chronolith-bucket million -- --ignored --nocapture`
#[test]
#[ignore = "writes 5 GB; its time is that of a quiet machine"]
fn a_million_entries_are_found_again_within_a_second() {
    let (dir, env, runtime, rng) = (tempfile::tempdir().unwrap(), Env::real(), runtime(), Rng::from_seed(1));
    let open = || {
        let geometry = Geometry::new(16 << 30);
        DiskCache::open_with(env.disk.clone(), dir.path(), geometry, "s3://b", runtime.handle().clone())
    };
    let cache = open().unwrap();
    let bytes = Bytes::from(vec![7; 8 << 10]);
    for n in 0..1_000_000 {
        let bytes = bytes.slice(..1024 + rng.below(7 << 10) as usize);
        cache.queue.push(QueuedWrite { key: key("a", n % 2000), start: n << 16, bytes, removal_count: 0 });
        cache.write_queued();
    }
    drop(cache);
    let start_ns = env.clock.mono_ns();
    let found = open().unwrap().snapshot();
    let elapsed_ns = env.clock.mono_ns() - start_ns;
    println!("{} entries in {} ms, {found:?}", found.entry_count, elapsed_ns / 1_000_000);
    assert_eq!((found.entry_count, found.damages), (1_000_000, 0));
    assert!(elapsed_ns < 1_000_000_000);
}
