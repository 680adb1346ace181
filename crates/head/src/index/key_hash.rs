//! Keyed 128-bit hash of the wire key of a series, with tenant and protocol mixed in.
//!
//! Invariant: without the key of the WAL, no client can make two wire keys collide.

use xxhash_rust::xxh3::xxh3_128_with_secret;

const SECRET_BYTES: usize = 192;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Secrets derived from the key of the WAL.
pub(crate) struct KeyHash {
    series: [u8; SECRET_BYTES],
    tenant: [u8; SECRET_BYTES],
}

impl KeyHash {
    pub(crate) fn new(key: u128) -> KeyHash {
        KeyHash { series: secret(key, 1), tenant: secret(key, 2) }
    }

    /// Returns the part that all series of one tenant and protocol share.
    pub(crate) fn tenant(&self, tenant: &str, protocol: u8) -> u128 {
        let mut name = Vec::with_capacity(tenant.len() + 1);
        name.push(protocol);
        name.extend_from_slice(tenant.as_bytes());
        xxh3_128_with_secret(&name, &self.tenant)
    }

    /// Returns the hash of a series.
    pub(crate) fn series(&self, tenant: u128, raw: &[u8]) -> u128 {
        xxh3_128_with_secret(raw, &self.series) ^ tenant
    }
}

/// Derives a secret from the key with SplitMix64 steps.
fn secret(key: u128, domain: u64) -> [u8; SECRET_BYTES] {
    let mut state = (key as u64) ^ domain.wrapping_mul(GOLDEN);
    let high = (key >> 64) as u64;
    let mut out = [0; SECRET_BYTES];
    for (i, part) in out.chunks_mut(8).enumerate() {
        state = state.wrapping_add(GOLDEN);
        let mut z = state ^ if i % 2 == 0 { high } else { high.rotate_left(31) };
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        part.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    out
}
