//! A bucket directory over a disk that loses power, and names that must not escape it.

use std::path::Path as FilePath;

use chronolith_base::{Disk, MemDisk, Rng};

use super::*;

const ROOT: &str = "/bucket";

fn rig(seed: u64) -> (Env, Arc<MemDisk>, Files) {
    let (env, _, disk) = Env::fake(1_700_000_000_000, seed);
    disk.create_dir_all(FilePath::new(ROOT)).unwrap();
    disk.sync_dir(FilePath::new("/")).unwrap();
    let files = Files::open(&env, PathBuf::from(ROOT)).unwrap();
    (env, disk, files)
}

fn write(files: &Files, key: &str, body: &[u8], is_create: bool) -> io::Result<()> {
    let temporary = files.new_temporary()?;
    files.write_temporary(&temporary, [Bytes::copy_from_slice(body)].iter())?;
    let placed = if is_create { files.create(&temporary, key) } else { files.replace(&temporary, key) };
    files.discard(&temporary);
    placed
}

#[test]
fn written_objects_survive_a_power_cut() {
    for is_create in [false, true] {
        let (_, disk, files) = rig(1);
        for key in ["x", "tenant/01H/chunks/000001", "tenant/01H/index"] {
            write(&files, key, key.as_bytes(), is_create).unwrap();
        }
        disk.crash();
        for key in ["x", "tenant/01H/chunks/000001", "tenant/01H/index"] {
            assert_eq!(disk.read(&FilePath::new(ROOT).join(key)).unwrap(), key.as_bytes(), "{key}");
        }
    }
}

#[test]
fn a_power_cut_leaves_no_half_object() {
    let rng = Rng::from_seed(2);
    let (old, new) = (vec![1; 5_000], vec![2; 9_000]);
    for seed in 0..100 {
        let (_, disk, files) = rig(seed);
        write(&files, "t/old", &old, false).unwrap();
        // The writes that follow are cut anywhere before their last sync.
        let temporary = files.new_temporary().unwrap();
        files.write_part_file(&temporary, &new);
        if seed % 2 == 0 {
            disk.crash_partly(&rng);
        } else {
            files.sync_temporary(&temporary).unwrap();
            disk.rename(
                &FilePath::new(ROOT).join(TEMPORARY).join(&temporary),
                &FilePath::new(ROOT).join("t/old"),
            )
            .unwrap();
            disk.crash_partly(&rng);
        }
        let found = disk.read(&FilePath::new(ROOT).join("t/old")).unwrap();
        assert!(found == old || (seed % 2 == 1 && found == new), "seed {seed}: {} bytes", found.len());
    }
}

const TEMPORARY: &str = files::TEMPORARY_DIR;

impl Files {
    fn write_part_file(&self, id: &str, body: &[u8]) {
        self.write_temporary(id, [].iter()).unwrap();
        self.write_part(id, 0, [Bytes::copy_from_slice(body)].iter()).unwrap();
    }
}

#[test]
fn a_creation_never_replaces() {
    let (_, disk, files) = rig(1);
    write(&files, "n/1", b"first", true).unwrap();
    let refused = write(&files, "n/1", b"second", true).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.read(FilePath::new("/bucket/n/1")).unwrap(), b"first");
    let left = disk.list(&FilePath::new(ROOT).join(TEMPORARY)).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn keys_stay_below_the_root() {
    let (_, _, files) = rig(1);
    let keys = ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "a\\b", "a\0b", "a/"];
    for key in keys.into_iter().chain([TEMPORARY, ".chronolith-tmp/x"]) {
        assert!(files.path(key).is_err(), "{key:?}");
        assert!(files.open_key(key).is_err(), "{key:?}");
    }
    for id in ["", "..", "../x", "a/b", "x"] {
        assert!(files.sync_temporary(id).is_err(), "{id:?}");
    }
    assert_eq!(files.path("a/.b/c d").unwrap(), FilePath::new("/bucket/a/.b/c d"));
}

#[test]
fn leftovers_of_a_crash_are_removed_after_a_day() {
    let (env, disk, files) = rig(1);
    let dir = FilePath::new(ROOT).join(TEMPORARY);
    let old = format!("{:016x}-1", env.clock.now_ms() - 25 * 3_600_000);
    let young = format!("{:016x}-1", env.clock.now_ms() - 3_600_000);
    for id in [&old, &young] {
        files.new_temporary().unwrap();
        files.write_temporary(id, [].iter()).unwrap();
    }
    let left = || disk.list(&dir).unwrap().into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    let reopened = Files::open(&env, PathBuf::from(ROOT)).unwrap();
    assert_eq!(left().len(), 2, "a reader removes nothing");
    reopened.new_temporary().unwrap();
    assert_eq!(left(), [young]);
}

#[test]
fn an_absent_directory_is_an_error() {
    let (env, disk, files) = rig(1);
    assert!(Files::open(&env, PathBuf::from("/absent")).is_err());
    disk.remove_dir_all(FilePath::new(ROOT)).unwrap();
    assert!(walk::page(&files, "", "").is_err(), "not an empty bucket");
}

#[test]
fn open_files_are_bounded_and_follow_writes() {
    let (_, _, files) = rig(1);
    let mut out = [0; 1];
    for i in 0..600 {
        let key = format!("k{i}");
        write(&files, &key, b"a", false).unwrap();
        files.read_at(&key, 0, &mut out).unwrap();
    }
    assert!(files.open_count() <= 256, "{}", files.open_count());
    write(&files, "k599", b"b", false).unwrap();
    files.read_at("k599", 0, &mut out).unwrap();
    assert_eq!(&out, b"b");
    files.remove("k599").unwrap();
    assert_eq!(files.read_at("k599", 0, &mut out).unwrap_err().kind(), io::ErrorKind::NotFound);
}
