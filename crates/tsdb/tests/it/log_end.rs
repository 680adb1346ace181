//! A start and `check` distinguish a WAL that has lost its end from one that was never longer.

use std::path::Path;

use chronolith_base::Disk;
use chronolith_model::StoreId;
use chronolith_tsdb::check::check_dir;

use crate::fixture::{Machine, START_MS, write};

/// A machine whose process was killed after some writes.
fn killed() -> Machine {
    let machine = Machine::new(1);
    let tsdb = machine.open();
    tsdb.wal_jobs().prepare_segment();
    for step in 0..20 {
        let samples = [(START_MS + step, step as f64)];
        write(&tsdb, &StoreId::anonymous(), "up", &samples).expect("written");
    }
    drop(tsdb);
    machine.disk.kill();
    machine
}

fn damages(machine: &Machine) -> Vec<String> {
    let report = check_dir(&machine.env, &machine.options.data_dir).expect("listed");
    report.damages.iter().map(|damage| format!("{}: {}", damage.path.display(), damage.what)).collect()
}

/// A missing newest segment was no finding, and `check` ended with exit code 0.
#[test]
fn a_missing_newest_segment_is_a_damage_and_a_note() {
    let machine = killed();
    assert_eq!(damages(&machine), Vec::<String>::new());
    machine.disk.remove_file(Path::new("/data/wal/00000001.seg")).expect("removed");
    assert!(damages(&machine).iter().any(|damage| damage.contains("missing")), "{:?}", damages(&machine));
    let notes = machine.open().statistics().stats().replay.notes;
    assert!(notes.iter().any(|note| note.contains("newest segment")), "{notes:?}");
}

/// The last frames, damaged, passed for the torn write of a kill.
#[test]
fn damage_in_the_last_frame_is_no_torn_tail() {
    let machine = killed();
    let path = Path::new("/data/wal/00000001.seg");
    let bytes = machine.disk.read(path).expect("read");
    let last = bytes.iter().rposition(|&byte| byte != 0).expect("frames");
    machine.disk.open(path).expect("opened").write_at(&[bytes[last] ^ 1], last as u64).expect("written");
    assert!(damages(&machine).iter().any(|damage| damage.contains("are missing")), "{:?}", damages(&machine));
    let notes = machine.open().statistics().stats().replay.notes;
    assert!(notes.iter().any(|note| note.contains("1 frames are missing after a kill")), "{notes:?}");
}

/// A clean stop leaves a log whose end is where the control file says.
#[test]
fn a_clean_stop_has_no_damage() {
    let machine = killed();
    let tsdb = machine.open();
    tsdb.close().expect("closed");
    drop(tsdb);
    assert_eq!(damages(&machine), Vec::<String>::new());
    assert!(machine.open().statistics().stats().replay.notes.is_empty());
}
