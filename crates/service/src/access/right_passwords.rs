//! Passwords that were right, so that their slow hash is not computed again.
//!
//! Invariants: an entry is a keyed digest of stored hash and password, never a password, so it is worth
//! nothing once the stored hash of its user has changed. The least recently used entry makes room.
//! Not here: hashes (`passwords`, `influx::password`).

use chronolith_base::Rng;
use hashlink::LruCache;
use parking_lot::Mutex;
use ring::hmac;

/// Entries over all users.
const COUNT_MAX: usize = 4096;

/// Digest of a stored hash and a password.
pub(crate) type PairDigest = [u8; 32];

/// Digests of stored hashes and passwords that belong together.
pub(crate) struct RightPasswords {
    digests: Mutex<LruCache<PairDigest, ()>>,
    key: hmac::Key,
}

impl RightPasswords {
    /// Makes an empty cache with a key of its own.
    pub(crate) fn new(rng: &Rng) -> RightPasswords {
        let mut key = [0u8; 32];
        rng.fill(&mut key);
        RightPasswords {
            digests: Mutex::new(LruCache::new(COUNT_MAX)),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        }
    }

    /// Returns the digest of a stored hash and a password. Lookups by it reveal no byte of either by their
    /// time.
    pub(crate) fn digest(&self, stored: &str, password: &[u8]) -> PairDigest {
        let mut of_pair = hmac::Context::with_key(&self.key);
        of_pair.update(&(stored.len() as u64).to_le_bytes());
        of_pair.update(stored.as_bytes());
        of_pair.update(password);
        let mut pair = PairDigest::default();
        pair.copy_from_slice(of_pair.sign().as_ref());
        pair
    }

    /// Returns true if the pair was right before.
    pub(crate) fn is_known(&self, pair: &PairDigest) -> bool {
        self.digests.lock().get(pair).is_some()
    }

    /// Remembers a pair that is right.
    pub(crate) fn remember(&self, pair: PairDigest) {
        self.digests.lock().insert(pair, ());
    }

    /// Number of remembered pairs.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.digests.lock().len()
    }
}
