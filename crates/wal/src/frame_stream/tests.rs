//! Reading block by block finds the frames and the damage that a scan of the whole file finds.

use chronolith_base::{Env, Rng};
use chronolith_format::head::wal::{KIND_SAMPLES, scan_recycled};

use super::*;

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;
const HEADER_BYTES: usize = 40;
const STALE: u64 = 1000;

fn put_frame(sequence: u64, payload_len: usize, out: &mut Vec<u8>) {
    let payload = vec![sequence as u8 | 1; payload_len];
    let header = FrameHeader::for_payload(KIND_SAMPLES, 0, &payload);
    FrameHeader { sequence, ..header }.put_frame(KEY, &payload, out);
}

/// Appends a part of a file: a frame, one of an earlier use, one whose end is missing or changed, zeros, or
/// bytes that are no frame.
fn put_part(rng: &Rng, sequence: &mut u64, out: &mut Vec<u8>) {
    let len = rng.below(300) as usize;
    match rng.below(12) {
        0..6 => {
            *sequence += 1 + rng.below(2);
            let is_long = rng.below(20) == 0;
            put_frame(*sequence, if is_long { BLOCK_BYTES + len } else { len }, out);
        }
        6 => put_frame(rng.below(STALE) + 1, len, out),
        7 => {
            put_frame(rng.below(2 * STALE) + 1, len + 40, out);
            out.truncate((out.len() - 33).next_multiple_of(FRAME_ALIGN_BYTES));
        }
        8 => {
            put_frame(*sequence + 1, len + 1, out);
            let at = out.len() - len - 1;
            out[at] ^= 0x40;
        }
        9 => out.resize((out.len() + 40 * len).next_multiple_of(FRAME_ALIGN_BYTES), 0),
        10 => out.resize((out.len() + len).next_multiple_of(FRAME_ALIGN_BYTES), 0x5a),
        _ => put_frame(*sequence, len, out),
    }
}

#[track_caller]
fn check(bytes: &[u8], stale: u64) {
    let (env, _, _) = Env::fake(0, 1);
    let path = Path::new("/data/file");
    env.disk.create_dir_all(Path::new("/data")).unwrap();
    env.disk.create(path).unwrap().write_at(bytes, 0).unwrap();
    let want = scan_recycled(bytes, KEY, HEADER_BYTES, stale, stale);
    let buffers = BlockBuffers::default();
    let mut stream =
        FrameStream::open_recycled(&*env.disk, path, KEY, HEADER_BYTES, stale, &buffers).unwrap();
    let mut found = Vec::new();
    while let Some(block) = stream.next_block().unwrap() {
        for frame in &block.frames {
            let start = block.offset as usize + frame.payload.start;
            assert_eq!(block.payload(frame), &bytes[start..start + frame.payload.len()]);
            found.push(FrameRef { header: frame.header, payload: start..start + frame.payload.len() });
        }
        buffers.put(block);
    }
    assert_eq!(found, want.frames);
    assert_eq!((&stream.damage, stream.end), (&want.damage, want.end as u64));
}

#[test]
fn blocks_have_the_frames_and_the_damage_of_a_scan() {
    let (mut frame_count, mut damage_count) = (0, 0);
    for seed in 0..60 {
        let rng = Rng::from_seed(seed);
        for stale in [0, STALE] {
            let (mut bytes, mut sequence) = (vec![7; HEADER_BYTES], stale);
            for _ in 0..rng.below(30) {
                put_part(&rng, &mut sequence, &mut bytes);
            }
            if rng.below(3) == 0 {
                bytes.truncate(bytes.len() - rng.below(20).min(bytes.len() as u64 - 40) as usize);
            }
            check(&bytes, stale);
            let scan = scan_recycled(&bytes, KEY, HEADER_BYTES, stale, stale);
            frame_count += scan.frames.len();
            damage_count += scan.damage.len();
        }
    }
    assert!(frame_count > 500 && damage_count > 80, "{frame_count} frames, {damage_count} damages");
}
