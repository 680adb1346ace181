//! Whisper files: `FilePoints`.
//!
//! Properties: times ascend strictly, no value is NaN, no slot is counted twice; points that are written to a
//! file with the same archives are read again. Not here: the comparison with whisper (`kits/whisper-import`).

use chronolith_base::Rng;
use chronolith_import::whisper::{FileBuilder, FilePoints, Header, SlotCounts, TimeSelection};
use chronolith_ingest::carbon::{AggregationMethod, Archive};

use super::mutate::pick;
use super::reader::{Reader, check_equal};

/// Clock of the reader.
const NOW_S: i64 = 1_700_000_000;
const POINT_BYTES: usize = 12;
/// Bytes of the header before the table of archives, and of one of its entries.
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 12;
/// Archives of a file that are changed.
const ENTRIES_MAX: u64 = 6;

const TOKENS: &[&[u8]] = &[
    &[0; 4],
    &[0; 12],
    &[0, 0, 0, 1],
    &[0, 0, 0, 60],
    &[0xff; 4],
    &[0x3f, 0, 0, 0],
    &[0x65, 0x53, 0xf1, 0],
    &[0x7f, 0xf8, 0, 0, 0, 0, 0, 0],
    &[0x7f, 0xf0, 0, 0, 0, 0, 0, 0],
    b"whis",
];

/// The reader of files.
#[derive(Default)]
pub(super) struct WhisperReader {
    points: FilePoints,
    again: FilePoints,
}

impl Reader for WhisperReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let methods = [
            AggregationMethod::Average,
            AggregationMethod::Sum,
            AggregationMethod::Last,
            AggregationMethod::Max,
            AggregationMethod::AbsMin,
        ];
        let mut seeds = Vec::new();
        for (number, method) in (0..).zip(methods) {
            let archive = |step_s, point_count| Archive { step_s, point_count };
            let archives = [archive(1, 12), archive(10, 6 + number), archive(60, 10), archive(120, 90)];
            let count = 1 + number as usize % archives.len();
            seeds.extend(file_of(method, &archives[..count], NOW_S as u32 - 7 * number));
        }
        seeds
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Changes a field of the header, of an entry of the table, or of a point; moves and resizes archives.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        let entry = HEADER_BYTES + ENTRY_BYTES * rng.below(ENTRIES_MAX) as usize;
        let len = input.len();
        match rng.below(8) {
            0 => set(input, 4 * rng.below(4) as usize, rng.below(12) as u32),
            1 => set(
                input,
                entry,
                *pick(rng, &[0, 16, 28, 40, len as u32, (len as u32).wrapping_sub(12), u32::MAX]),
            ),
            2 => set(input, entry + 4, *pick(rng, &[0, 1, 2, 7, 60, 3600, 1 << 31, u32::MAX])),
            3 => {
                let slots = (len / POINT_BYTES) as u32;
                set(input, entry + 8, *pick(rng, &[0, 1, 2, slots, slots + 1, u32::MAX / 12, u32::MAX]));
            }
            4 => input.resize(len + POINT_BYTES * rng.below(8) as usize, 0),
            5 => {
                // The offset of an archive, equal to another one's or after it.
                let other = HEADER_BYTES + ENTRY_BYTES * rng.below(ENTRIES_MAX) as usize;
                let shift = *pick(rng, &[0, 1, 12, u32::MAX]);
                let offset = word(input, other).wrapping_add(shift);
                set(input, entry, offset);
            }
            _ => {
                let count = word(input, 12).min(ENTRIES_MAX as u32) as usize;
                let start = HEADER_BYTES + ENTRY_BYTES * count;
                let slots = len.saturating_sub(start) / POINT_BYTES;
                let at = start + POINT_BYTES * rng.below(slots as u64 + 1) as usize;
                let time = word(input, at);
                let now = NOW_S as u32;
                let times =
                    [0, 1, now, now + 60, time.wrapping_add(60), time.wrapping_sub(10), time ^ 1, u32::MAX];
                set(input, at, *pick(rng, &times));
            }
        }
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let header = match self.points.read(input, NOW_S, TimeSelection::ALL) {
            Ok(header) => header,
            Err(damage) => return Ok(damage.what),
        };
        check(&self.points, &header)?;
        let part = TimeSelection { first_s: NOW_S - 100, last_s: NOW_S - 10 };
        self.again.read(input, NOW_S, part).map_err(|damage| format!("read again: {damage}"))?;
        check(&self.again, &header)?;
        self.check_written(&header)?;
        let kinds: Vec<String> = self.points.archives.iter().map(describe).collect();
        Ok(format!("{} {} {}", kinds.join(" "), self.points.damages.len(), header.method.name()))
    }
}

impl WhisperReader {
    /// Writes the points of each archive to one of another file.
    fn check_written(&mut self, header: &Header) -> Result<(), String> {
        let archives: Vec<Archive> = header.archives.iter().map(|stored| stored.archive).collect();
        let builder = FileBuilder::new(header.method, header.x_files_factor, &archives);
        let mut builder = builder.ok_or("a file of these archives cannot be written")?;
        let mut end = self.points.times.len();
        for (idx, counts) in self.points.archives.iter().enumerate() {
            // The points of coarser archives are older.
            let start = end - counts.taken as usize;
            let times = self.points.times[start..end].iter().map(|time| (time / 1000) as u32);
            builder.put_points(idx, times.zip(self.points.values[start..end].iter().copied()));
            end = start;
        }
        let bytes = builder.into_bytes();
        let again = self.again.read(&bytes, NOW_S, TimeSelection::ALL);
        let again = again.map_err(|damage| format!("written and refused: {damage}"))?;
        let kept = |header: &Header| (header.method, header.x_files_factor.to_bits());
        check_equal("headers", &kept(header), &kept(&again))?;
        check_equal("times", &self.points.times, &self.again.times)?;
        let bits =
            |points: &FilePoints| points.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        check_equal("values", &bits(&self.points), &bits(&self.again))
    }
}

fn check(points: &FilePoints, header: &Header) -> Result<(), String> {
    if !points.times.is_sorted_by(|a, b| a < b) {
        return Err("times do not ascend".to_owned());
    }
    if points.values.iter().any(|value| value.is_nan()) {
        return Err("a value is NaN".to_owned());
    }
    check_equal("archives", &points.archives.len(), &header.archives.len())?;
    for (counts, stored) in points.archives.iter().zip(&header.archives) {
        let SlotCounts { taken, covered, unselected, nan, outdated, future, misplaced } = *counts;
        let slots = taken + covered + unselected + nan + outdated + future + misplaced;
        if slots * POINT_BYTES as u64 > stored.byte_count() as u64 {
            return Err(format!("a slot is counted twice: {counts:?}"));
        }
    }
    let taken: u64 = points.archives.iter().map(|counts| counts.taken).sum();
    check_equal("points taken", &taken, &(points.times.len() as u64))?;
    check_equal("values", &points.values.len(), &points.times.len())
}

/// Returns a letter for each kind of slot that an archive has.
fn describe(counts: &SlotCounts) -> String {
    let SlotCounts { taken, covered, unselected, nan, outdated, future, misplaced } = *counts;
    let kinds = [
        (taken, 't'),
        (covered, 'c'),
        (unselected, 'u'),
        (nan, 'n'),
        (outdated, 'o'),
        (future, 'f'),
        (misplaced, 'm'),
    ];
    kinds.iter().filter(|(count, _)| *count > 0).map(|(_, letter)| *letter).collect()
}

/// A file whose archives are filled up to `newest_s`.
fn file_of(method: AggregationMethod, archives: &[Archive], newest_s: u32) -> Option<Vec<u8>> {
    let mut builder = FileBuilder::new(method, 0.5, archives)?;
    for (idx, archive) in archives.iter().enumerate() {
        let last_s = newest_s - newest_s % archive.step_s;
        let count = archive.point_count.min(20);
        let times = (0..count).map(|at| last_s - (count - 1 - at) * archive.step_s);
        builder.put_points(idx, times.map(|time_s| (time_s, f64::from(time_s % 1000))));
    }
    Some(builder.into_bytes())
}

/// Returns the big-endian word at an offset; 0 after the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn set(bytes: &mut [u8], at: usize, word: u32) {
    if let Some(out) = bytes.get_mut(at..at + 4) {
        out.copy_from_slice(&word.to_be_bytes());
    }
}
