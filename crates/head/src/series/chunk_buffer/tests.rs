//! Chunk buffers against a contiguous buffer: the same bytes at every length, with any neighbours in the
//! slab.

use chronolith_base::Rng;
use chronolith_format::chunk::decimal_delta::{DecimalDeltaState, Scale};
use chronolith_format::chunk::xor;

use super::*;

/// The same samples in a chunk buffer and in a contiguous buffer.
struct Pair {
    buffer: ChunkBuffer,
    state: OpenState,
    plain: OpenState,
    buf: Vec<u8>,
}

impl Pair {
    fn new(buffers: &mut ChunkBuffers, start: OpenState, time: i64, value: f64) -> Pair {
        let mut state = start;
        let buffer = buffers.start(&mut state, time, value);
        let mut pair = Pair { buffer, state, plain: start, buf: vec![0; 8 * xor::CHUNK_BYTES_MAX] };
        pair.plain.append_part(&mut pair.buf, 0, time, value).expect("started with the value");
        pair
    }

    /// Appends to both, unless the value is refused by both.
    fn append(&mut self, buffers: &mut ChunkBuffers, time: i64, value: f64) {
        let plain = self.plain.append_part(&mut self.buf, 0, time, value);
        assert_eq!(buffers.append(&mut self.buffer, &mut self.state, time, value), plain);
    }

    #[track_caller]
    fn check(&self, buffers: &ChunkBuffers) {
        assert_eq!(self.state, self.plain);
        // Bytes that are in `out` already must stay.
        let mut out = vec![0xee];
        buffers.copy(self.buffer, &self.state, &mut out);
        assert_eq!(out[0], 0xee);
        assert_eq!(out[1..1 + HEADER_BYTES], self.plain.count().to_be_bytes());
        assert_eq!(out[1 + HEADER_BYTES..], self.buf[HEADER_BYTES..self.plain.byte_len()]);
        let nodes = self.state.byte_len().div_ceil(NODE_BYTES);
        assert_eq!(node_count(buffers, self.buffer), nodes, "as many nodes as bytes need");
    }
}

fn node_count(buffers: &ChunkBuffers, buffer: ChunkBuffer) -> usize {
    let mut count = 1;
    let mut at = buffers.nodes.get(buffer.0).unwrap().next;
    while at != buffer.0 {
        count += 1;
        at = buffers.nodes.get(at).unwrap().next;
    }
    count
}

fn decimal_delta(code: u8) -> OpenState {
    DecimalDeltaState::new(Scale::from_code(code).expect("a scale")).into()
}

/// Requires that copies of many chunks equal single copies, and leave the bytes between them.
fn check_copies(buffers: &ChunkBuffers, pairs: &[Pair]) {
    let mut out = vec![0xee; 1];
    let mut copies = Vec::new();
    for Pair { buffer, state, .. } in pairs {
        let count = state.count();
        let len = state.byte_len();
        copies.push(BufferCopy { buffer: *buffer, count, start: out.len(), len });
        out.resize(out.len() + len + 1, 0xee);
    }
    buffers.copy_many(&copies, &mut out);
    let mut want = vec![0xee];
    for pair in pairs {
        buffers.copy(pair.buffer, &pair.state, &mut want);
        want.push(0xee);
    }
    assert_eq!(out, want);
}

/// Samples of every length from one bit to the longest meet every offset in a node, above all its end.
#[test]
fn every_length_meets_every_offset_of_a_node() {
    let mut buffers = ChunkBuffers::new();
    for lead in 0..80u64 {
        for bits in [0u64, 1, 1 << 20, u64::MAX >> 30, u64::MAX >> 12, u64::MAX] {
            for far in [1i64, 9_000, 70_000, 600_000, 1 << 40] {
                for start in [OpenState::new(), decimal_delta(0)] {
                    let mut pair = Pair::new(&mut buffers, start, 0, 0.0);
                    let mut time = 0;
                    for i in 0..lead {
                        time += 1000;
                        pair.append(&mut buffers, time, (i % 3) as f64);
                    }
                    for i in 0..6 {
                        time += 1000 + far * (i % 2);
                        let last = f64::from_bits(pair.state.value_bits());
                        let value = match pair.state.as_xor() {
                            Some(_) => f64::from_bits(last.to_bits() ^ bits),
                            None => (last as i64 ^ (bits >> 14) as i64) as f64,
                        };
                        pair.append(&mut buffers, time, value);
                        pair.check(&buffers);
                    }
                    assert_eq!(u64::from(pair.state.count()), lead + 7, "no value is refused");
                    buffers.free(pair.buffer);
                }
            }
        }
    }
    assert_eq!((buffers.count(), buffers.nodes.used_count()), (0, 0));
}

#[test]
fn stored_chunks_continue_at_every_byte_count() {
    let rng = Rng::from_seed(3);
    let mut buffers = ChunkBuffers::new();
    let mut pair = Pair::new(&mut buffers, OpenState::new(), 5, 0.5);
    let mut seen = [false; 2 * NODE_BYTES];
    for i in 0..600i64 {
        // Two bits per sample, more where the value changes.
        let value = if rng.below(60) == 0 { i as f64 } else { f64::from_bits(pair.state.value_bits()) };
        pair.append(&mut buffers, 5 + 1000 * (i + 1), value);
        let len = pair.state.byte_len();
        if let Some(seen) = seen.get_mut(len) {
            *seen = true;
        }
        // As after a restart: store the same bytes in a separate chunk buffer, then append one more sample to
        // both.
        let buffer = buffers.store(&pair.buf[..len]);
        let mut again = Pair { buffer, state: pair.state, plain: pair.plain, buf: pair.buf.clone() };
        again.check(&buffers);
        again.append(&mut buffers, i64::MAX / 4, 0.1);
        again.check(&buffers);
        buffers.free(again.buffer);
    }
    let lens = seen.iter().filter(|&&s| s).count();
    assert!(lens > NODE_BYTES, "most byte counts were met: {lens}");
}

#[test]
fn random_chunks_side_by_side_equal_buffers() {
    let rng = Rng::from_seed(11);
    let mut buffers = ChunkBuffers::new();
    let starts = [OpenState::new(), decimal_delta(2)];
    let mut pairs: Vec<Pair> =
        (0..200).map(|i| Pair::new(&mut buffers, starts[i as usize % 2], i, i as f64)).collect();
    for _ in 0..60_000 {
        let idx = rng.below(pairs.len() as u64) as usize;
        let pair = &mut pairs[idx];
        if usize::from(pair.state.count()) >= xor::SAMPLES_PER_CHUNK || rng.below(400) == 0 {
            pair.check(&buffers);
            buffers.free(pair.buffer);
            *pair = Pair::new(&mut buffers, starts[idx % 2], rng.below(1000) as i64, 1.5);
            continue;
        }
        let step = if rng.below(3) == 0 { 1 + rng.below(1 << (1 + rng.below(40))) } else { 15_000 };
        let value = match rng.below(3) {
            0 => pair.state.value_bits(),
            1 => rng.next_u64(),
            _ => (rng.below(10_000) as f64 / 100.0).to_bits(),
        };
        pair.append(&mut buffers, pair.state.time() + step as i64, f64::from_bits(value));
    }
    pairs.iter().for_each(|pair| pair.check(&buffers));
    check_copies(&buffers, &pairs);
    let nodes: usize = pairs.iter().map(|p| node_count(&buffers, p.buffer)).sum();
    assert_eq!((buffers.count(), buffers.nodes.used_count()), (200, nodes as u64));
}
