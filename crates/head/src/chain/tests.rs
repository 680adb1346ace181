//! Chains against one buffer: the same bytes at every length, whatever lies beside.

use chronolith_base::Rng;
use chronolith_format::xor;

use super::*;

/// The same samples in a chain and in a buffer.
struct Pair {
    chain: Chain,
    state: XorState,
    plain: XorState,
    buf: Vec<u8>,
}

impl Pair {
    fn new(chains: &mut Chains, time: i64, value: f64) -> Pair {
        let mut state = XorState::new();
        let chain = chains.start(&mut state, time, value);
        let mut pair = Pair { chain, state, plain: XorState::new(), buf: vec![0; 8 * xor::CHUNK_BYTES_MAX] };
        pair.plain.append(&mut pair.buf, time, value);
        pair
    }

    fn append(&mut self, chains: &mut Chains, time: i64, value: f64) {
        self.chain = chains.append(self.chain, &mut self.state, time, value);
        self.plain.append(&mut self.buf, time, value);
    }

    #[track_caller]
    fn check(&self, chains: &Chains) {
        assert_eq!(self.state, self.plain);
        // What is there is left alone.
        let mut out = vec![0xee];
        chains.copy(self.chain, &self.state, &mut out);
        assert_eq!(out[0], 0xee);
        assert_eq!(out[1..], self.buf[..self.plain.byte_len()]);
        let links = self.state.byte_len().div_ceil(LINK_BYTES);
        assert_eq!(link_count(chains, self.chain), links, "as many links as bytes need");
    }
}

fn link_count(chains: &Chains, chain: Chain) -> usize {
    let mut count = 1;
    let mut at = chains.links.get(chain.0).unwrap().next;
    while at != chain.0 {
        count += 1;
        at = chains.links.get(at).unwrap().next;
    }
    count
}

/// Samples of every length from a bit to the longest meet every place of a link, its end above all.
#[test]
fn every_length_meets_every_place_of_a_link() {
    let mut chains = Chains::new();
    for lead in 0..80u64 {
        for bits in [0u64, 1, 1 << 20, u64::MAX >> 30, u64::MAX >> 12, u64::MAX] {
            for far in [1i64, 9_000, 70_000, 600_000, 1 << 40] {
                let mut pair = Pair::new(&mut chains, 0, 0.0);
                let mut time = 0;
                for i in 0..lead {
                    time += 1000;
                    pair.append(&mut chains, time, (i % 3) as f64);
                }
                for i in 0..6 {
                    time += 1000 + far * (i % 2);
                    let value = f64::from_bits(pair.state.value_bits() ^ bits);
                    pair.append(&mut chains, time, value);
                    pair.check(&chains);
                }
                chains.free(pair.chain);
            }
        }
    }
    assert_eq!((chains.count(), chains.links.used_count()), (0, 0));
}

#[test]
fn stored_chunks_go_on_at_every_byte_count() {
    let rng = Rng::from_seed(3);
    let mut chains = Chains::new();
    let mut pair = Pair::new(&mut chains, 5, 0.5);
    let mut seen = [false; 2 * LINK_BYTES];
    for i in 0..600i64 {
        // Two bits a sample, more where the value changes.
        let value = if rng.below(60) == 0 { i as f64 } else { f64::from_bits(pair.state.value_bits()) };
        pair.append(&mut chains, 5 + 1000 * (i + 1), value);
        let len = pair.state.byte_len();
        if let Some(seen) = seen.get_mut(len) {
            *seen = true;
        }
        // As after a restart: the same bytes in a chain of its own, and one sample more in both.
        let chain = chains.store(&pair.buf[..len]);
        let mut again = Pair { chain, state: pair.state, plain: pair.plain, buf: pair.buf.clone() };
        again.check(&chains);
        again.append(&mut chains, i64::MAX / 4, 0.1);
        again.check(&chains);
        chains.free(again.chain);
    }
    let lens = seen.iter().filter(|&&s| s).count();
    assert!(lens > LINK_BYTES, "most byte counts were met: {lens}");
}

#[test]
fn random_chunks_side_by_side_equal_buffers() {
    let rng = Rng::from_seed(11);
    let mut chains = Chains::new();
    let mut pairs: Vec<Pair> = (0..200).map(|i| Pair::new(&mut chains, i, i as f64)).collect();
    for _ in 0..60_000 {
        let idx = rng.below(pairs.len() as u64) as usize;
        let pair = &mut pairs[idx];
        if usize::from(pair.state.count()) >= xor::SAMPLES_PER_CHUNK || rng.below(400) == 0 {
            pair.check(&chains);
            chains.free(pair.chain);
            *pair = Pair::new(&mut chains, rng.below(1000) as i64, 1.5);
            continue;
        }
        let step = if rng.below(3) == 0 { 1 + rng.below(1 << (1 + rng.below(40))) } else { 15_000 };
        let value = match rng.below(3) {
            0 => pair.state.value_bits(),
            1 => rng.next_u64(),
            _ => (rng.below(10_000) as f64 / 100.0).to_bits(),
        };
        pair.append(&mut chains, pair.state.time() + step as i64, f64::from_bits(value));
    }
    pairs.iter().for_each(|pair| pair.check(&chains));
    let links: usize = pairs.iter().map(|p| link_count(&chains, p.chain)).sum();
    assert_eq!((chains.count(), chains.links.used_count()), (200, links as u64));
}
