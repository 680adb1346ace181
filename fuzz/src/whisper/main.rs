//! Fuzzer of the reader of whisper files: sound files with changed, cut and repeated bytes, and any bytes.
//! `cargo run --release -p chronolith-fuzz --bin whisper -- SEED SECONDS`.
//!
//! Invariants that are checked: nothing panics, times ascend strictly, no value is NaN, and no slot is
//! counted twice.
//! Not here: the comparison with whisper itself (`kits/whisper-import`).

use chronolith_base::{Env, Rng};
use chronolith_import::whisper::{FileBuilder, FilePoints, SlotCounts, TimeSelection};
use chronolith_ingest::carbon::{AggregationMethod, Archive};

/// Clock of the reader.
const NOW_S: i64 = 1_700_000_000;
const POINT_BYTES: u64 = 12;
/// Files between two looks at the time.
const FILES_PER_CHECK: u64 = 10_000;

fn main() {
    let words: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (seed, seconds) = match words[..] {
        [seed, seconds] => (seed, seconds),
        _ => {
            eprintln!("usage: whisper SEED SECONDS");
            std::process::exit(2);
        }
    };
    let env = Env::real();
    let rng = Rng::from_seed(seed);
    let start_ns = env.clock.mono_ns();
    let mut points = FilePoints::default();
    let mut file_count = 0u64;
    let mut sound_count = 0u64;
    while env.clock.mono_ns() - start_ns < seconds * 1_000_000_000 {
        for _ in 0..FILES_PER_CHECK {
            file_count += 1;
            sound_count += u64::from(read(&random_file(&rng), &mut points));
        }
    }
    println!("{file_count} files, {sound_count} of them with a sound header, seed {seed}");
}

fn random_file(rng: &Rng) -> Vec<u8> {
    if rng.below(20) == 0 {
        return (0..rng.below(200)).map(|_| rng.below(256) as u8).collect();
    }
    let mut step_s = 1 + rng.below(60) as u32;
    let mut archives = Vec::new();
    let mut point_count = 1 + rng.below(20) as u32;
    for _ in 0..=rng.below(3) {
        archives.push(Archive { step_s, point_count });
        let factor = 2 + rng.below(5) as u32;
        step_s *= factor;
        point_count = point_count / factor + 1 + rng.below(9) as u32;
    }
    let mut builder = FileBuilder::new(AggregationMethod::Max, 0.5, &archives).expect("a method of whisper");
    for (idx, archive) in archives.iter().enumerate() {
        let first_s = NOW_S as u32 - (rng.below(40) as u32) * archive.step_s;
        let points = (0..rng.below(40)).map(|at| (first_s + at as u32 * archive.step_s, at as f64));
        builder.put_points(idx, points);
    }
    let mut bytes = builder.into_bytes();
    for _ in 0..rng.below(6) {
        change(rng, &mut bytes);
    }
    bytes
}

/// Changes a byte or a word, cuts the end, or repeats a part.
fn change(rng: &Rng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    match rng.below(8) {
        0 => bytes.truncate(at),
        1 => {
            let part: Vec<u8> = bytes[at..].iter().copied().take(rng.below(40) as usize).collect();
            bytes.splice(at..at, part);
        }
        2 | 3 => {
            let word = [0, 1, u32::MAX, u32::MAX / 12, NOW_S as u32, 1 << 31][rng.below(6) as usize];
            let at = at / 4 * 4;
            if let Some(out) = bytes.get_mut(at..at + 4) {
                out.copy_from_slice(&word.to_be_bytes());
            }
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = rng.below(256) as u8;
            }
        }
    }
}

/// Reads a file and checks what came out; returns false if it was refused.
fn read(bytes: &[u8], points: &mut FilePoints) -> bool {
    let Ok(header) = points.read(bytes, NOW_S, TimeSelection::ALL) else { return false };
    assert!(points.times.is_sorted_by(|a, b| a < b), "{bytes:?}");
    assert!(points.values.iter().all(|value| !value.is_nan()), "{bytes:?}");
    assert_eq!(points.archives.len(), header.archives.len());
    for (counts, stored) in points.archives.iter().zip(&header.archives) {
        let SlotCounts { taken, covered, unselected, nan, outdated, future, misplaced } = *counts;
        let slots = taken + covered + unselected + nan + outdated + future + misplaced;
        assert!(slots * POINT_BYTES <= stored.byte_count() as u64, "{counts:?} {bytes:?}");
    }
    let taken: u64 = points.archives.iter().map(|counts| counts.taken).sum();
    assert_eq!(taken, points.times.len() as u64, "{bytes:?}");
    true
}
