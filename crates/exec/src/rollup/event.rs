//! Events between neighbours: resets and changes.
//! Invariants: they are found once per series, so that a window costs only its events; an event is the index
//! of the sample after it, and is inside a window if the sample before it is, too.

use super::window::Window;

/// Samples that are checked together: most have no event.
const BLOCK_LEN: usize = 256;

/// Replaces `events` by the indices of samples for which `happened`, given the value before and its own, is
/// true.
// PERF: whole blocks are compared without an early end, several pairs per instruction:
//   cargo xtask bench rate-kernel
pub(super) fn find(values: &[f64], happened: impl Fn(f64, f64) -> bool, events: &mut Vec<usize>) {
    events.clear();
    let after = values.get(1..).unwrap_or(&[]);
    for (block, (before, after)) in values.chunks(BLOCK_LEN).zip(after.chunks(BLOCK_LEN)).enumerate() {
        let pairs = || before.iter().zip(after).map(|(&before, &after)| happened(before, after));
        if pairs().fold(false, |any, event| any | event) {
            let first = block * BLOCK_LEN + 1;
            events.extend(pairs().enumerate().filter(|(_, event)| *event).map(|(at, _)| first + at));
        }
    }
}

/// A kernel that counts the events inside a window.
pub(super) fn count_inside<'e>(events: &'e [usize]) -> impl FnMut(Window<'_>) -> f64 + 'e {
    let mut inside = Inside::new(events);
    move |window| inside.of(&window).len() as f64
}

/// Events of windows that slide forwards.
pub(super) struct Inside<'e> {
    events: &'e [usize],
    start: usize,
    end: usize,
}

impl<'e> Inside<'e> {
    /// Before the first window.
    pub(super) fn new(events: &'e [usize]) -> Inside<'e> {
        Inside { events, start: 0, end: 0 }
    }

    /// The events of the next window. Cost: the events that it passes.
    pub(super) fn of(&mut self, window: &Window<'_>) -> &'e [usize] {
        if self.events.is_empty() {
            return &[];
        }
        let behind = window.first_idx + window.values.len();
        while self.events.get(self.start).is_some_and(|&at| at <= window.first_idx) {
            self.start += 1;
        }
        self.end = self.end.max(self.start);
        while self.events.get(self.end).is_some_and(|&at| at < behind) {
            self.end += 1;
        }
        &self.events[self.start..self.end]
    }
}

pub(super) fn is_reset(before: f64, after: f64) -> bool {
    after < before
}

pub(super) fn is_change(before: f64, after: f64) -> bool {
    // Both tests are made, without a branch, so that many pairs are compared at once.
    (after != before) & !(after.is_nan() & before.is_nan())
}
