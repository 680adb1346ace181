//! The last position before a gap, over logs with gaps, with frames that starts have removed, and with a
//! checkpoint that covers the first frames.

use chronolith_format::head::wal::POSITION_BYTES;

use super::*;

/// Frame of a log: samples, a position, or a position of a process that went on after a sequence.
#[derive(Clone, Copy)]
enum Entry {
    Samples(u64),
    Position(u64),
    Resumed { sequence: u64, after: u64 },
}

use Entry::{Position as At, Resumed, Samples};

fn frame(resumes_after: u64) -> Option<PositionFrame> {
    let mut payload = [0; POSITION_BYTES];
    payload[28..].copy_from_slice(&resumes_after.to_le_bytes());
    PositionFrame::decode(&payload).ok()
}

/// Returns the sequence of the position that is found, and the number of frames after it.
fn search(needed_after: u64, log: &[Entry]) -> Option<(u64, u64)> {
    let mut search = PositionSearch::new(needed_after);
    for entry in log {
        let (sequence, position) = match *entry {
            Samples(sequence) => (sequence, None),
            At(sequence) => (sequence, frame(0)),
            Resumed { sequence, after } => (sequence, frame(after)),
        };
        search.take_frame(sequence, position, 0, sequence * 100);
    }
    let (found, _) = search.finish();
    found.map(|found| {
        assert_eq!(found.end, found.sequence * 100);
        (found.sequence, found.later_count)
    })
}

#[test]
fn the_last_position_of_a_whole_log_is_found() {
    assert_eq!(search(0, &[At(1), Samples(2), Samples(3), At(4)]), Some((4, 0)));
    assert_eq!(search(0, &[At(1), Samples(2), At(3), Samples(4), Samples(5)]), Some((3, 2)));
    assert_eq!(search(0, &[Samples(1), Samples(2)]), None);
    assert_eq!(search(0, &[]), None);
}

#[test]
fn no_position_after_a_gap_is_found() {
    let log = [At(1), Samples(2), At(3), Samples(5), At(6), At(7)];
    assert_eq!(search(0, &log), Some((3, 3)));
    assert_eq!(search(0, &[Samples(2), At(3)]), None, "the first frame is missing");
    assert_eq!(search(0, &[At(1), At(3)]), Some((1, 1)));
}

#[test]
fn gaps_that_the_checkpoint_covers_are_none() {
    let log = [Samples(2), At(3), Samples(5), At(6), Samples(7)];
    assert_eq!(search(5, &log), Some((6, 1)));
    assert_eq!(search(4, &log), Some((6, 1)));
    assert_eq!(search(3, &log), Some((3, 3)), "frame 4 is needed");
    assert_eq!(search(1, &[Samples(3), At(4)]), None, "frame 2 is needed");
}

#[test]
fn frames_that_a_start_has_removed_are_no_gap() {
    let log = [At(1), Samples(2), At(3), Resumed { sequence: 9, after: 3 }, Samples(10), At(11)];
    assert_eq!(search(0, &log), Some((11, 0)));
    assert_eq!(search(2, &log), Some((11, 0)));
    // The checkpoint was written after the start.
    assert_eq!(search(9, &log[4..]), Some((11, 0)));
    assert_eq!(search(9, &log[3..]), Some((11, 0)));
    // Frame 3 is missing, so the state at the start cannot be restored.
    let lossy = [At(1), Samples(2), Resumed { sequence: 9, after: 3 }, At(10)];
    assert_eq!(search(0, &lossy), Some((1, 3)));
    // Frames that should have been removed were applied again.
    let not_removed = [At(1), Samples(2), Samples(3), Resumed { sequence: 9, after: 1 }];
    assert_eq!(search(0, &not_removed), Some((1, 3)));
}
