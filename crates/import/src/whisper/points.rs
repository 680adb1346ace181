//! Points of a whisper file: the points of the finest archive, and older points of each coarser one.
//!
//! An archive is a ring of slots. The time of its first slot is the base: the slot of a time is the distance
//! to it in steps, modulo the number of slots. A slot counts if its time is the time that the ring has there,
//! counted back from the newest time of the file; older times are left over from an earlier turn.
//! Invariants: points ascend strictly by time; whatever is left out is counted.
//! Not here: the table of archives (`header`), reading the file (`part`).

use chronolith_base::ByteReader;
use chronolith_ingest::carbon::Archive;

use super::header::{FileDamage, Header, POINT_BYTES, StoredArchive};

/// Milliseconds per second: times are seconds in files.
const MS: i64 = 1000;

/// Points of one file, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilePoints {
    /// Times, ascending strictly.
    pub times: Vec<i64>,
    /// One value per time, never NaN.
    pub values: Vec<f64>,
    /// Counts of the slots of each archive.
    pub archives: Vec<SlotCounts>,
    /// Archives that cannot be read.
    pub damages: Vec<FileDamage>,
}

/// Slots of an archive by what became of them. The remaining ones are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Points taken.
    pub taken: u64,
    /// Points of a time that a finer archive covers.
    pub covered: u64,
    /// Points before or after the times that were asked for.
    pub unselected: u64,
    /// Values that are NaN.
    pub nan: u64,
    /// Times that the archive does not keep any more: whisper returns none of them.
    pub outdated: u64,
    /// Times after the clock of this machine, which whisper does not return either.
    pub future: u64,
    /// Times that do not belong to their slot: damage.
    pub misplaced: u64,
}

impl SlotCounts {
    /// Adds the counts of another archive.
    pub fn add(&mut self, other: &SlotCounts) {
        self.taken += other.taken;
        self.covered += other.covered;
        self.unselected += other.unselected;
        self.nan += other.nan;
        self.outdated += other.outdated;
        self.future += other.future;
        self.misplaced += other.misplaced;
    }
}

/// Times to take, in seconds, both inclusive.
#[derive(Debug, Clone, Copy)]
pub struct TimeSelection {
    /// First time.
    pub first_s: i64,
    /// Last time.
    pub last_s: i64,
}

impl TimeSelection {
    /// All times.
    pub const ALL: TimeSelection = TimeSelection { first_s: i64::MIN, last_s: i64::MAX };
}

type Slot = [u8; POINT_BYTES];

/// An archive as a ring of slots.
struct Ring<'a> {
    slots: &'a [Slot],
    step_s: i64,
    base_s: i64,
}

/// Slots of a ring in the order of time.
struct Window<'a> {
    parts: [&'a [Slot]; 2],
    first_s: i64,
    step_s: i64,
}

impl FilePoints {
    /// Reads the points of a file of these bytes, in place of the points of another file. `now_s` is the
    /// clock.
    ///
    /// # Errors
    /// [`FileDamage`]: the header cannot be read.
    pub fn read(&mut self, bytes: &[u8], now_s: i64, selection: TimeSelection) -> Result<Header, FileDamage> {
        let header = Header::decode(bytes)?;
        self.clear();
        self.archives.resize(header.archives.len(), SlotCounts::default());
        let rings: Vec<Option<Ring<'_>>> =
            header.archives.iter().map(|archive| self.ring(bytes, archive)).collect();
        let newest = rings.iter().flatten().filter_map(|ring| ring.newest(now_s)).max();
        let windows: Vec<Option<Window<'_>>> =
            rings.iter().map(|ring| Some(ring.as_ref()?.window(newest?))).collect();
        // Per archive, the time from which on finer ones have points.
        let mut covered_from = i64::MAX;
        let mut bounds = Vec::new();
        for window in &windows {
            bounds.push(covered_from);
            let oldest = window.as_ref().and_then(Window::oldest);
            covered_from = covered_from.min(oldest.unwrap_or(i64::MAX));
        }
        for idx in (0..windows.len()).rev() {
            let bound = bounds.get(idx).copied().unwrap_or(i64::MAX);
            let Some(counts) = self.archives.get_mut(idx) else { continue };
            if let Some(Some(window)) = windows.get(idx) {
                let output = Output { times: &mut self.times, values: &mut self.values, counts };
                window.take(bound, selection, output);
            }
            if let Some(Some(ring)) = rings.get(idx) {
                let window = windows.get(idx).and_then(Option::as_ref);
                ring.count_others(window, now_s, counts);
            }
        }
        Ok(header)
    }

    /// Sum of the values in order of time.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.values.iter().sum()
    }

    fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.archives.clear();
        self.damages.clear();
    }

    /// Returns the ring of an archive with points.
    fn ring<'a>(&mut self, bytes: &'a [u8], stored: &StoredArchive) -> Option<Ring<'a>> {
        let Archive { step_s, .. } = stored.archive;
        let part = bytes.get(stored.offset..)?.get(..stored.byte_count())?;
        let slots = part.as_chunks::<POINT_BYTES>().0;
        let base_s = i64::from(ByteReader::new(part).be_u32("base time").ok()?);
        let step_s = i64::from(step_s);
        if base_s % step_s != 0 {
            let what = format!("base time {base_s} is not a multiple of {step_s} s: the archive is lost");
            self.damages.push(FileDamage::new(stored.offset, what));
            return None;
        }
        (base_s != 0).then_some(Ring { slots, step_s, base_s })
    }
}

fn time_of(slot: &Slot) -> i64 {
    let [a, b, c, d, ..] = *slot;
    i64::from(u32::from_be_bytes([a, b, c, d]))
}

fn value_of(slot: &Slot) -> f64 {
    let [_, _, _, _, a, b, c, d, e, f, g, h] = *slot;
    f64::from_be_bytes([a, b, c, d, e, f, g, h])
}

impl<'a> Ring<'a> {
    fn slot_count(&self) -> i64 {
        self.slots.len() as i64
    }

    /// Slot of a time that is a multiple of the step.
    fn slot_of(&self, time_s: i64) -> usize {
        let distance = (time_s - self.base_s) / self.step_s;
        // Not negative, and below the number of slots.
        distance.rem_euclid(self.slot_count()) as usize
    }

    fn is_in_place(&self, idx: usize, time_s: i64) -> bool {
        time_s != 0 && time_s % self.step_s == 0 && self.slot_of(time_s) == idx
    }

    /// Newest time up to `now_s` of the slots that are in place.
    fn newest(&self, now_s: i64) -> Option<i64> {
        // PERF: a division per slot is avoided where, as in every sound file, the newest time is in place.
        let times = self.slots.iter().map(time_of).enumerate();
        let newest =
            times.clone().filter(|(_, time_s)| *time_s <= now_s).max_by_key(|(_, time_s)| *time_s)?;
        if self.is_in_place(newest.0, newest.1) {
            return Some(newest.1);
        }
        times.filter(|&(idx, time_s)| time_s <= now_s && self.is_in_place(idx, time_s)).map(|at| at.1).max()
    }

    /// Slots of the times that whisper returns when the clock is `newest_s`.
    fn window(&self, newest_s: i64) -> Window<'a> {
        let last_s = newest_s - newest_s.rem_euclid(self.step_s);
        let first_s = last_s - (self.slot_count() - 1) * self.step_s;
        let first_idx = self.slot_of(first_s).min(self.slots.len());
        let (after, before) = self.slots.split_at(first_idx);
        Window { parts: [before, after], first_s, step_s: self.step_s }
    }

    /// Counts the slots that are not of the window.
    fn count_others(&self, window: Option<&Window<'_>>, now_s: i64, counts: &mut SlotCounts) {
        let seen = counts.taken + counts.covered + counts.unselected + counts.nan;
        let used = self.slots.iter().filter(|slot| time_of(slot) != 0).count() as u64;
        if seen == used {
            return;
        }
        let end_s = self.step_s * self.slot_count();
        let range = window.map(|window| window.first_s..window.first_s + end_s);
        for (idx, slot) in self.slots.iter().enumerate() {
            let time_s = time_of(slot);
            if time_s == 0 {
                continue;
            }
            let is_in_place = self.is_in_place(idx, time_s);
            if is_in_place && range.as_ref().is_some_and(|range| range.contains(&time_s)) {
                continue;
            }
            match is_in_place {
                false => counts.misplaced += 1,
                true if time_s > now_s => counts.future += 1,
                true => counts.outdated += 1,
            }
        }
    }
}

/// Destination of the points of a window.
struct Output<'a> {
    times: &'a mut Vec<i64>,
    values: &'a mut Vec<f64>,
    counts: &'a mut SlotCounts,
}

impl Window<'_> {
    /// Slots with the times that they have if they are valid.
    fn slots(&self) -> impl Iterator<Item = (i64, &Slot)> {
        let slots = self.parts.iter().copied().flatten();
        slots.zip(0i64..).map(|(slot, idx)| (self.first_s + idx * self.step_s, slot))
    }

    /// Time of the oldest point.
    fn oldest(&self) -> Option<i64> {
        let is_valid =
            |time_s: i64, slot: &Slot| time_s != 0 && time_of(slot) == time_s && !value_of(slot).is_nan();
        self.slots().find(|(time_s, slot)| is_valid(*time_s, slot)).map(|(time_s, _)| time_s)
    }

    /// Appends the points before `bound_s`.
    fn take(&self, bound_s: i64, selection: TimeSelection, output: Output<'_>) {
        let Output { times, values, counts } = output;
        let mut first_s = self.first_s;
        for part in self.parts {
            for slot in part {
                let time_s = first_s;
                first_s += self.step_s;
                if time_of(slot) != time_s || time_s == 0 {
                    continue;
                }
                let value = value_of(slot);
                if value.is_nan() {
                    counts.nan += 1;
                } else if time_s >= bound_s {
                    counts.covered += 1;
                } else if time_s < selection.first_s || time_s > selection.last_s {
                    counts.unselected += 1;
                } else {
                    counts.taken += 1;
                    times.push(time_s * MS);
                    values.push(value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
