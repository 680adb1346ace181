//! Overlapping chunks are merged on read; checked against a map.

use std::collections::BTreeMap;

use chronolith_base::{Env, Rng};
use chronolith_format::chunk::xor::{ENCODING_XOR, HEADER_BYTES, SAMPLE_BYTES_MAX, XorState};

use super::*;

/// Appends the bytes of the chunk to `open_bytes`.
fn open_chunk(samples: &[(i64, f64)], open_bytes: &mut Vec<u8>) -> HeadChunk {
    let mut bytes = vec![0; HEADER_BYTES + samples.len() * SAMPLE_BYTES_MAX + 64];
    let mut state = XorState::new();
    samples.iter().for_each(|&(time, value)| state.append(&mut bytes, time, value));
    bytes.truncate(state.byte_len());
    let (min_time, max_time) = (samples[0].0, samples[samples.len() - 1].0);
    let count = samples.len() as u16;
    let start = open_bytes.len() as u32;
    let len = bytes.len() as u32;
    open_bytes.append(&mut bytes);
    HeadChunk::Open(OpenChunkCopy { min_time, max_time, start, len, count, encoding: ENCODING_XOR })
}

fn ooo_chunk(samples: &BTreeMap<i64, f64>, duplicates: DuplicatePolicy) -> HeadChunk {
    let mut columns = Columns::default();
    samples.iter().for_each(|(&time, &value)| columns.push(time, value));
    HeadChunk::OutOfOrder(Box::new(columns), duplicates)
}

#[test]
fn out_of_order_samples_are_merged_by_time() {
    let (env, _, _) = Env::fake(0, 1);
    for seed in 0..2000 {
        let rng = Rng::from_seed(seed);
        let (mut chunks, mut want, mut time) = (Vec::new(), BTreeMap::new(), 0);
        let mut open_bytes = Vec::new();
        for _ in 0..rng.below(4) {
            let mut samples = Vec::new();
            for _ in 0..1 + rng.below(60) {
                time += 1 + rng.below(20) as i64;
                samples.push((time, time as f64));
            }
            want.extend(samples.iter().copied());
            chunks.push(open_chunk(&samples, &mut open_bytes));
        }
        let ooo_count = 1 + rng.below(50);
        let ooo: BTreeMap<i64, f64> =
            (0..ooo_count).map(|at| (rng.below(time as u64 + 30) as i64 - 10, -(at as f64))).collect();
        let duplicates = if seed % 2 == 0 { DuplicatePolicy::KeepFirst } else { DuplicatePolicy::LastWins };
        for (&time, &value) in &ooo {
            match duplicates {
                DuplicatePolicy::KeepFirst => *want.entry(time).or_insert(value) += 0.0,
                DuplicatePolicy::LastWins => *want.entry(time).or_default() = value,
            }
        }
        chunks.push(ooo_chunk(&ooo, duplicates));
        chunks.sort_by_key(HeadChunk::min_time);
        let start = rng.below(time as u64 + 1) as i64 - 5;
        let ranges = [TimeRange::ALL, TimeRange::new(start, start + rng.below(200) as i64)];
        for range in ranges {
            let mut found = Columns::default();
            found.push(i64::MIN, 0.5);
            let memory = ChunkMemory { disk: &*env.disk, open_bytes: &open_bytes };
            merge_chunks(memory, &chunks, range, &mut found).expect("chunks are readable");
            let found: Vec<(i64, f64)> = found.times.into_iter().zip(found.values).skip(1).collect();
            let want: Vec<(i64, f64)> =
                want.iter().filter(|(time, _)| range.contains(**time)).map(|(t, v)| (*t, *v)).collect();
            assert_eq!(found, want, "seed {seed}, {range:?}");
        }
    }
}
