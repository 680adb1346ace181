//! Recycled segments and the record of where the log ends: no frame of a file's earlier use comes back, nothing
//! acknowledged is lost, and what is missing is named, wherever the power goes and whatever is damaged.

mod harness;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Disk, MemDisk, Rng};
use chronolith_head::{Head, ReplayReport, SyncMode};
use harness::fault_disk::{Fault, FaultDisk};
use harness::{Model, NOW_MS, World, batch, labels, read_all, tenant};

/// What a script has sent, and what of it was acknowledged.
#[derive(Default)]
struct Told {
    acked: Model,
    sent: Model,
}

impl Told {
    /// One sample for each of some series: a frame for each of their stripes.
    fn write(&mut self, world: &World, head: &Head, step: i64) {
        let rows: Vec<_> = (0..4).map(|idx| (labels(idx), vec![(NOW_MS + step, step as f64)])).collect();
        let written = world.write(head, &tenant("a"), &batch(&rows));
        for (labels, samples) in rows {
            let of = |model: &mut Model| {
                let key = ("a".to_owned(), labels.clone());
                let bits = samples.iter().map(|(time, value)| (*time, value.to_bits()));
                model.entry(key).or_default().extend(bits.collect::<BTreeMap<_, _>>());
            };
            of(&mut self.sent);
            if written.is_ok() {
                of(&mut self.acked);
            }
        }
    }

    #[track_caller]
    fn check(&self, found: &Model, what: &str) {
        for (key, samples) in &self.acked {
            for (time, value) in samples {
                assert_eq!(
                    found.get(key).and_then(|s| s.get(time)),
                    Some(value),
                    "{what}: lost {key:?} {time}"
                );
            }
        }
        for (key, samples) in found {
            for (time, value) in samples {
                assert_eq!(
                    self.sent.get(key).and_then(|s| s.get(time)),
                    Some(value),
                    "{what}: {key:?} {time}"
                );
            }
        }
    }
}

/// A world whose segments take some ten writes.
fn world(seed: u64) -> World {
    let mut world = World::new(seed);
    world.options.wal_segment_bytes = 1 << 10;
    world
}

/// Writes with checkpoints in between, so that each segment is used several times.
fn life(world: &World, told: &mut Told, steps: std::ops::Range<i64>) -> Option<Head> {
    let (head, _) = world.try_open().ok()?;
    for step in steps {
        told.write(world, &head, step);
        if step % 7 == 3 {
            let _ = head.prepare_segment();
        }
        if step % 20 == 19 {
            let _ = head.checkpoint();
        }
    }
    Some(head)
}

fn is_loss(note: &str) -> bool {
    note.contains("missing") || note.contains("control")
}

/// A power cut at each disk operation, in a log whose files were used several times: frames of their earlier
/// use are whole and carry the right key.
#[test]
fn a_power_cut_at_any_operation_brings_no_frame_of_a_files_earlier_use_back() {
    let mut op_count = 0;
    loop {
        let world = world(op_count);
        let mut told = Told::default();
        world.disk.fail_after(op_count);
        let head = life(&world, &mut told, 0..50);
        if let Some(head) = &head {
            let used = head.stats().wal_spare_used_count;
            assert!(used > 3 || world.disk.op_count() > op_count, "segments are used again: {used}");
        }
        let is_over = world.disk.op_count() <= op_count;
        drop(head);
        world.disk.crash_partly(&Rng::from_seed(op_count));
        let (head, report) = world.open();
        told.check(&read_all(&world, &head, &["a"]), &format!("op {op_count}"));
        let lost: Vec<_> = report.notes.iter().filter(|note| is_loss(note)).collect();
        assert!(lost.is_empty(), "op {op_count}: nothing is missing: {lost:?}");
        told.write(&world, &head, 100);
        assert!(head.prepare_segment().is_ok());
        drop(head);
        world.disk.crash();
        let (head, report) = world.open();
        told.check(&read_all(&world, &head, &["a"]), &format!("op {op_count}, second start"));
        assert_eq!(report.notes, Vec::<String>::new(), "op {op_count}: the second start is clean");
        if is_over {
            break;
        }
        // Neighbouring operations are alike; a step that divides nothing meets all kinds of them.
        op_count += 3;
    }
    assert!(op_count > 200, "the script has many operations, found {op_count}");
}

#[test]
fn modes_without_a_sync_name_no_loss_after_a_power_cut() {
    for (seed, sync) in [(1, SyncMode::Os), (2, SyncMode::Interval(1000))] {
        let mut world = world(seed);
        world.options.sync = sync;
        let mut told = Told::default();
        drop(life(&world, &mut told, 0..50));
        world.disk.crash();
        let (head, report) = world.open();
        let found = read_all(&world, &head, &["a"]);
        Told { acked: Model::new(), sent: told.sent }.check(&found, "power cut");
        assert_eq!(report.notes, Vec::<String>::new());
    }
}

fn files(disk: &MemDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    for dir in ["/data/wal", "/data/chunks"] {
        for entry in disk.list(Path::new(dir)).expect("listed") {
            let path = Path::new(dir).join(entry.name);
            out.push((path.clone(), disk.read(&path).expect("read")));
        }
    }
    out
}

/// What a start makes of `files`.
fn start(files: &[(PathBuf, Vec<u8>)]) -> (Model, ReplayReport) {
    let world = world(9);
    for (path, bytes) in files {
        world.disk.create_dir_all(path.parent().expect("a directory")).expect("made");
        world.disk.create(path).expect("made").write_at(bytes, 0).expect("written");
    }
    let (head, report) = world.open();
    (read_all(&world, &head, &["a"]), report)
}

/// The files of a killed process whose newest segment has a few writes, in a recycled file or a new one.
fn killed(is_recycled: bool) -> (Told, Vec<(PathBuf, Vec<u8>)>) {
    let world = world(3);
    let mut told = Told::default();
    let steps = if is_recycled { 0..44 } else { 0..4 };
    drop(life(&world, &mut told, steps));
    (told, files(&world.disk))
}

fn newest_segment(files: &[(PathBuf, Vec<u8>)]) -> usize {
    let is_segment = |file: &(PathBuf, Vec<u8>)| file.0.extension().is_some_and(|e| e == "seg");
    files.iter().rposition(is_segment).expect("a segment")
}

/// Checks that `files` start with all that was acknowledged, or with a note of the loss.
#[track_caller]
fn check_named(told: &Told, files: &[(PathBuf, Vec<u8>)], what: &str) {
    let (found, report) = start(files);
    Told { acked: Model::new(), sent: told.sent.clone() }.check(&found, what);
    if found != told.acked {
        assert!(!report.notes.is_empty(), "{what}: lost without a note");
    }
}

/// A log without its last frames, or without its newest file, looked like one that was never longer. The
/// control file says how long it was.
#[test]
fn damage_of_the_newest_segment_after_a_kill_is_named() {
    for is_recycled in [false, true] {
        let (told, whole) = killed(is_recycled);
        let newest = newest_segment(&whole);
        let (found, report) = start(&whole);
        assert_eq!((found, report.notes), (told.acked.clone(), vec![]));
        let len = whole[newest].1.len();
        // All kinds of damage come to all kinds of places: the step divides no length.
        for (at, kind) in (0..len).step_by(3).zip((0..5).cycle()) {
            let mut bad = whole.clone();
            let bytes = &mut bad[newest].1;
            match kind {
                0 => bytes[at] ^= 0x20,
                1 => bytes[at] = !bytes[at],
                2 => bytes[at..].fill(0),
                3 => bytes.truncate(at),
                _ => bytes.resize(len + at, 0x55),
            }
            check_named(&told, &bad, &format!("recycled {is_recycled}: damage {kind} at {at}"));
        }
        let mut bad = whole.clone();
        bad.remove(newest);
        let (found, report) = start(&bad);
        assert!(
            found != told.acked && report.notes.iter().any(|note| note.contains("missing")),
            "{report:?}"
        );
    }
}

/// The control file is no more than a record: without it, or with any byte of it changed, nothing is lost.
#[test]
fn a_damaged_control_file_loses_nothing() {
    for is_recycled in [false, true] {
        let (told, whole) = killed(is_recycled);
        let control = whole.iter().position(|file| file.0.ends_with("control")).expect("a control file");
        let len = whole[control].1.len();
        for at in (0..len).filter(|at| at % 512 < 70) {
            let mut bad = whole.clone();
            bad[control].1[at] ^= 1;
            assert_eq!(start(&bad).0, told.acked, "byte {at}");
            bad[control].1.truncate(at);
            assert_eq!(start(&bad).0, told.acked, "cut to {at}");
        }
        let mut bad = whole.clone();
        bad[control].1.fill(0);
        let (found, report) = start(&bad);
        assert_eq!(found, told.acked);
        assert!(report.notes.iter().any(|note| note.contains("control")), "{report:?}");
        bad.remove(control);
        assert_eq!(start(&bad).0, told.acked);
    }
}

/// After a clean stop nothing is missing, and spares wait for the next start.
#[test]
fn a_clean_stop_leaves_spares_and_nothing_to_note() {
    let world = world(4);
    let mut told = Told::default();
    for round in 0..4 {
        let head = life(&world, &mut told, round * 50..round * 50 + 50).expect("opens");
        head.close().expect("closed");
        let stats = head.stats();
        assert!(stats.wal_spare_count > 0 && stats.wal_spare_count <= 3, "{}", stats.wal_spare_count);
        drop(head);
        let (head, report) = world.open();
        assert_eq!(report.notes, Vec::<String>::new());
        assert!(head.stats().wal_spare_count >= stats.wal_spare_count, "spares outlive a stop");
        told.check(&read_all(&world, &head, &["a"]), "after a clean stop");
        head.close().expect("closed");
    }
}

/// On a full disk the space of spares is given back before writes are refused for good.
#[test]
fn spares_give_their_space_back_to_a_full_disk() {
    let mut world = world(5);
    world.options.free_bytes_min = 64 << 10;
    world.disk.set_capacity_bytes(1 << 20);
    let mut told = Told::default();
    let head = life(&world, &mut told, 0..45).expect("opens");
    assert!(head.stats().wal_spare_count > 0);
    world.disk.set_capacity_bytes(world.disk.len_bytes() + (63 << 10));
    world.clock.advance(std::time::Duration::from_secs(2));
    told.write(&world, &head, 45);
    head.recover_space();
    assert_eq!(head.stats().wal_spare_count, 0);
}

/// A disk on which writes of sealed chunks panic.
struct PanicsAtSealed;

impl Fault for PanicsAtSealed {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        assert!(path.extension().is_none_or(|extension| extension != "sealed"), "a bug in the disk's driver");
        Ok(())
    }
}

/// The thread that syncs in interval mode ended in a panic without anybody noticing: writes were
/// acknowledged, and never synced again.
#[test]
fn a_panic_of_the_interval_sync_poisons_the_log() {
    let mut world = World::new(6);
    world.options.sync = SyncMode::Interval(1000);
    world.env.disk = Arc::new(FaultDisk::new(world.disk.clone(), Arc::new(PanicsAtSealed)));
    let (head, _) = world.open();
    let row = (0..300).map(|i| (NOW_MS + i, i as f64)).collect();
    world.write(&head, &tenant("a"), &batch(&[(labels(1), row)])).expect("written");
    head.poison_on_panic("the interval's sync", || head.recover_space());
    assert!(head.stats().wal_poisoned, "sealed chunks were written");
    world.write(&head, &tenant("a"), &batch(&[(labels(2), vec![(NOW_MS, 1.0)])])).expect_err("poisoned");
}
