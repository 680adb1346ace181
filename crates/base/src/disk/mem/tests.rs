//! Crashes and faults of the disk in memory.

use super::*;

#[test]
fn a_crash_keeps_synced_bytes_under_synced_names_only() {
    let disk = MemDisk::new();
    let dir = Path::new("/d");
    disk.create_dir_all(&dir.join("new.tmp")).unwrap();
    let kept = disk.create(&dir.join("new.tmp/kept")).unwrap();
    kept.write_at(b"abc", 0).unwrap();
    kept.sync_data().unwrap();
    kept.write_at(b"xyz", 3).unwrap();
    let unnamed = disk.create(&dir.join("unnamed")).unwrap();
    unnamed.sync_data().unwrap();
    disk.sync_dir(&dir.join("new.tmp")).unwrap();
    disk.rename(&dir.join("new.tmp"), &dir.join("new")).unwrap();
    disk.remove_file(&dir.join("unnamed")).unwrap();
    disk.sync_dir(dir).unwrap();
    disk.create(&dir.join("late")).unwrap();
    disk.crash();
    assert_eq!(disk.read(&dir.join("new/kept")).unwrap(), b"abc");
    assert!(!disk.exists(&dir.join("late")) && !disk.exists(&dir.join("unnamed")));
    assert!(kept.read_at(&mut [0], 0).is_err(), "handles do not survive a crash");
}

#[test]
fn hard_links_share_bytes() {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/a")).unwrap();
    disk.create_dir_all(Path::new("/b")).unwrap();
    let file = disk.create(Path::new("/a/x")).unwrap();
    file.write_at(b"abc", 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/a")).unwrap();
    disk.hard_link(Path::new("/a/x"), Path::new("/b/y")).unwrap();
    assert_eq!(disk.read(Path::new("/b/y")).unwrap(), b"abc");
    let again = disk.hard_link(Path::new("/a/x"), Path::new("/b/y"));
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    disk.crash();
    assert!(!disk.exists(Path::new("/b/y")), "its directory was not synced");
    disk.create_dir_all(Path::new("/b")).unwrap();
    disk.hard_link(Path::new("/a/x"), Path::new("/b/y")).unwrap();
    disk.sync_dir(Path::new("/b")).unwrap();
    disk.remove_file(Path::new("/a/x")).unwrap();
    disk.sync_dir(Path::new("/a")).unwrap();
    disk.crash();
    assert_eq!(disk.read(Path::new("/b/y")).unwrap(), b"abc", "the file keeps its other name");
}

#[test]
fn a_partial_power_cut_keeps_synced_bytes_and_any_part_of_the_others() {
    let (mut lost, mut torn, mut whole, mut unnamed) = (0, 0, 0, 0);
    for seed in 0..200 {
        let (disk, rng) = (MemDisk::new(), Rng::from_seed(seed));
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = disk.create(Path::new("/d/x")).unwrap();
        file.write_at(&[1; 600], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_at(&[2; 2000], 600).unwrap();
        disk.rename(Path::new("/d/x"), Path::new("/d/y")).unwrap();
        disk.crash_partly(&rng);
        unnamed += u64::from(disk.exists(Path::new("/d/x")));
        let name = if disk.exists(Path::new("/d/x")) { "/d/x" } else { "/d/y" };
        let bytes = disk.read(Path::new(name)).unwrap();
        assert_eq!(bytes[..600], [1; 600], "synced bytes survive");
        assert!(bytes[600..].iter().all(|&b| b == 0 || b == 2), "other bytes are written or zero");
        let kept = bytes.iter().filter(|&&b| b == 2).count();
        lost += u64::from(kept == 0);
        whole += u64::from(kept == 2000);
        torn += u64::from(kept > 0 && kept < 2000);
        disk.crash();
        assert_eq!(disk.read(Path::new(name)).unwrap(), bytes, "bytes that survive a power cut are durable");
    }
    assert!(lost > 10 && torn > 10 && whole > 10 && unnamed > 10, "{lost} {torn} {whole} {unnamed}");
}

#[test]
fn operations_after_injected_failures_succeed() {
    let disk = MemDisk::new();
    let file = disk.create(Path::new("f")).unwrap();
    disk.fail_some(1, 2);
    file.write_at(&[1; 4], 0).unwrap();
    assert!(file.write_at(&[2; 4], 0).is_err() && file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!((disk.read(Path::new("f")).unwrap(), disk.refused_count()), (vec![2, 2, 1, 1], 2));
    disk.kill();
    assert!(file.write_at(&[3; 4], 0).is_err(), "the process that opened it was killed");
    assert_eq!(disk.read(Path::new("f")).unwrap(), [2, 2, 1, 1]);
}

#[test]
fn a_full_disk_and_injected_failures_return_errors() {
    let disk = MemDisk::new();
    let file = disk.create(Path::new("f")).unwrap();
    disk.set_capacity_bytes(10);
    assert_eq!(file.allocate(11).unwrap_err().kind(), io::ErrorKind::StorageFull);
    file.write_at(&[1; 10], 0).unwrap();
    disk.fail_after(1);
    file.sync_data().unwrap();
    assert!(file.sync_data().is_err());
    disk.heal();
    file.sync_data().unwrap();
}
