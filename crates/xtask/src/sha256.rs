//! SHA-256 (FIPS 180-4), to notice changed text. Not for secrets, not fast.

/// Hash of `bytes` in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut state = fractions(8, |root| root.sqrt());
    let round_keys = fractions(64, |root| root.cbrt());
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        compress(&mut state, block, &round_keys);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

/// First 32 bits of the fractional parts of roots of the first `count` primes, which the standard takes as
/// constants. An f64 holds them exactly: the roots stay below 20, so 47 bits of fraction remain.
fn fractions(count: usize, root: impl Fn(f64) -> f64) -> Vec<u32> {
    let primes = (2u32..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    let first = primes.take(count).map(|prime| (root(f64::from(prime)).fract() * 4_294_967_296.0) as u32);
    first.collect()
}

fn compress(state: &mut [u32], block: &[u8], round_keys: &[u32]) {
    let mut w: Vec<u32> =
        block.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect();
    for i in 16..64 {
        let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
        let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
        w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
    }
    let mut v = state.to_vec();
    for (word, key) in w.iter().zip(round_keys) {
        let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
        let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
        let t1 = v[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(*key).wrapping_add(*word);
        let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
        let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        v.rotate_right(1);
        v[4] = v[4].wrapping_add(t1);
        v[0] = t1.wrapping_add(s0).wrapping_add(majority);
    }
    for (old, new) in state.iter_mut().zip(v) {
        *old = old.wrapping_add(new);
    }
}
