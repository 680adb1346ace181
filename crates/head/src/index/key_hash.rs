//! Keyed 128-bit hash of the wire key of a series, with tenant and protocol mixed in.
//!
//! Invariants: without the key of the WAL, no client can make two wire keys collide; the hash of a key
//! without field is the hash of its raw bytes, whatever its kind, because hashes are persisted.

use chronolith_model::WordKind;
use xxhash_rust::xxh3::xxh3_128_with_secret;

const SECRET_BYTES: usize = 192;
/// Longest field key that is hashed in one step.
const FIELD_BYTES_INLINE: usize = 110;
const HASH_BYTES: usize = size_of::<u128>();
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Secrets derived from the key of the WAL.
pub(crate) struct KeyHash {
    series: [u8; SECRET_BYTES],
    tenant: [u8; SECRET_BYTES],
    field: [u8; SECRET_BYTES],
}

impl KeyHash {
    pub(crate) fn new(key: u128) -> KeyHash {
        KeyHash { series: secret(key, 1), tenant: secret(key, 2), field: secret(key, 3) }
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

    /// Returns the hash of a series with a field; `raw_hash` is the hash of its raw key by
    /// [`KeyHash::series`], `field` is not empty.
    ///
    /// The input of this hash starts with the other one, so no client without the key knows what it hashes.
    pub(crate) fn field(&self, raw_hash: u128, field: &[u8], kind: WordKind) -> u128 {
        let mut input = [0; HASH_BYTES + 2 + FIELD_BYTES_INLINE];
        input[..HASH_BYTES].copy_from_slice(&raw_hash.to_le_bytes());
        input[HASH_BYTES] = kind_number(kind);
        let rest = &mut input[HASH_BYTES + 2..];
        let used = if field.len() <= FIELD_BYTES_INLINE {
            rest[..field.len()].copy_from_slice(field);
            field.len()
        } else {
            input[HASH_BYTES + 1] = 1;
            let hash = xxh3_128_with_secret(field, &self.field);
            input[HASH_BYTES + 2..][..HASH_BYTES].copy_from_slice(&hash.to_le_bytes());
            HASH_BYTES
        };
        xxh3_128_with_secret(&input[..HASH_BYTES + 2 + used], &self.field)
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

/// Number of the kind in a hash; persisted through the hash.
fn kind_number(kind: WordKind) -> u8 {
    match kind {
        WordKind::Float => 0,
        WordKind::Boolean => 1,
        WordKind::Integer => 2,
        WordKind::Unsigned => 3,
        WordKind::Text => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Hashes are in the log and the series file: other values for known keys would orphan them.
    #[test]
    fn hashes_are_stable() {
        let hash = KeyHash::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let tenant = hash.tenant("anonymous", 1);
        let raw = hash.series(tenant, b"cpu,host=a");
        let long = [b'f'; FIELD_BYTES_INLINE + 1];
        let found = [
            tenant,
            raw,
            hash.field(raw, b"v", WordKind::Float),
            hash.field(raw, b"v", WordKind::Text),
            hash.field(raw, &long, WordKind::Float),
        ];
        let want: [u128; 5] = [
            0x4b8e_3b8a_7a05_f5e3_fd03_3a79_ffcb_b77b,
            0x05cd_413b_783b_c5a4_c0d1_0560_d795_fe49,
            0xd487_0a8c_4d13_b44e_d643_c0d0_a18d_d42a,
            0x418a_6547_1ec1_c0a9_4d24_515f_4a4f_92fe,
            0xa1d0_cc8e_9da0_46e7_b6b9_ebd1_17a9_138c,
        ];
        assert_eq!(found, want, "{found:#x?}");
    }

    #[test]
    fn every_part_of_the_key_changes_the_hash() {
        let hash = KeyHash::new(7);
        let mut seen = HashSet::new();
        for raw in [&b"m"[..], b"m,a=1", b"n"] {
            let raw_hash = hash.series(hash.tenant("t", 2), raw);
            assert!(seen.insert(raw_hash));
            for len in 1..3 * FIELD_BYTES_INLINE {
                for kind in WordKind::ALL {
                    assert!(seen.insert(hash.field(raw_hash, &b"x".repeat(len), kind)));
                }
            }
            assert!(seen.insert(KeyHash::new(8).field(raw_hash, b"x", WordKind::Float)));
        }
    }
}
