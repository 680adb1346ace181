//! Passwords of users: hashes with argon2id, and a cache of passwords that were right.
//!
//! Invariants: the cache has keyed hashes of passwords, never a password, and an entry is worth nothing once
//! the stored hash of its user has changed.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use chronolith_base::Rng;
use parking_lot::Mutex;
use ring::hmac;

/// Users whose last right password is remembered.
const CACHE_COUNT_MAX: usize = 4096;
/// Memory of one hash in KiB and its passes, with one thread: OWASP's second recommendation.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;
const THREADS: u32 = 1;

/// Verifies passwords of users, and remembers right ones.
pub struct Passwords {
    /// Keyed hashes of stored hash and password that belong together, in order of use.
    right: Mutex<Vec<[u8; 32]>>,
    key: hmac::Key,
}

/// Returns random bytes.
fn random<const N: usize>(rng: &Rng) -> [u8; N] {
    let mut out = [0u8; N];
    for part in out.chunks_mut(8) {
        part.copy_from_slice(&rng.next_u64().to_le_bytes()[..part.len()]);
    }
    out
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, THREADS, None).expect("constants within argon2's limits");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Returns the hash of a password in PHC format. Cost: about 20 ms and 19 MiB.
pub fn hash(password: &str, rng: &Rng) -> String {
    let salt = SaltString::encode_b64(&random::<16>(rng)).expect("16 bytes are a salt");
    let hashed = argon2().hash_password(password.as_bytes(), &salt);
    hashed.expect("argon2 hashes any password below 4 GiB").to_string()
}

impl Passwords {
    /// An empty cache with a key of its own.
    pub fn new(rng: &Rng) -> Passwords {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &random::<32>(rng));
        Passwords { right: Mutex::default(), key }
    }

    /// Returns true if `password` is the one whose hash is `stored`. Cost: one [`hash`] unless the password
    /// was right before.
    pub fn is_right(&self, stored: &str, password: &str) -> bool {
        let mut of_pair = hmac::Context::with_key(&self.key);
        of_pair.update(&(stored.len() as u64).to_le_bytes());
        of_pair.update(stored.as_bytes());
        of_pair.update(password.as_bytes());
        let mut pair = [0u8; 32];
        pair.copy_from_slice(of_pair.sign().as_ref());
        if self.is_known(pair) {
            return true;
        }
        let is_right = PasswordHash::new(stored)
            .is_ok_and(|stored| argon2().verify_password(password.as_bytes(), &stored).is_ok());
        if is_right {
            let mut right = self.right.lock();
            right.truncate(CACHE_COUNT_MAX - 1);
            right.insert(0, pair);
        }
        is_right
    }

    fn is_known(&self, pair: [u8; 32]) -> bool {
        let mut right = self.right.lock();
        let Some(at) = right.iter().position(|known| *known == pair) else { return false };
        right[..=at].rotate_right(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_right_for_its_hash_alone() {
        let rng = Rng::from_seed(1);
        let (stored, other) = (hash("secret", &rng), hash("other", &rng));
        let passwords = Passwords::new(&rng);
        for _ in 0..2 {
            assert!(passwords.is_right(&stored, "secret"));
            assert!(!passwords.is_right(&stored, "Secret"));
            assert!(!passwords.is_right(&other, "secret"));
            assert!(!passwords.is_right("no hash", "secret"));
        }
        assert_eq!(passwords.right.lock().len(), 1);
    }
}
