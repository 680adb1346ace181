//! Passwords of InfluxDB's users: hashes with argon2id.
//!
//! Not here: the cache of right passwords (`access::right_passwords`).

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use chronolith_base::Rng;

use crate::access::right_passwords::RightPasswords;

/// Memory of one hash in KiB and its passes, with one thread: OWASP's second recommendation.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;
const THREADS: u32 = 1;

/// Hash of the usual cost for users that do not exist. No known password has this digest.
const DUMMY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Verifies passwords of users, and remembers right ones.
pub struct Passwords {
    right: RightPasswords,
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, THREADS, None).expect("constants within argon2's limits");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Returns the hash of a password in PHC format. Cost: about 20 ms and 19 MiB.
pub fn hash(password: &str, rng: &Rng) -> String {
    let mut salt = [0u8; 16];
    rng.fill(&mut salt);
    let salt = SaltString::encode_b64(&salt).expect("16 bytes are a salt");
    let hashed = argon2().hash_password(password.as_bytes(), &salt);
    hashed.expect("argon2 hashes any password below 4 GiB").to_string()
}

impl Passwords {
    /// An empty cache with a key of its own.
    pub fn new(rng: &Rng) -> Passwords {
        Passwords { right: RightPasswords::new(rng) }
    }

    /// Returns true if `password` was right before for this stored hash. Cost: one HMAC.
    pub fn is_known(&self, stored: &str, password: &str) -> bool {
        self.right.is_known(&self.right.digest(stored, password.as_bytes()))
    }

    /// As [`Passwords::is_right`] for a user that may not exist, which takes as long and is never right.
    pub fn verify_user(&self, stored: Option<&str>, password: &str) -> bool {
        let is_right = self.is_right(stored.unwrap_or(DUMMY_HASH), password);
        is_right && stored.is_some()
    }

    /// Returns true if `password` is the one whose hash is `stored`. Cost: one [`hash`] unless the password
    /// was right before.
    pub fn is_right(&self, stored: &str, password: &str) -> bool {
        let pair = self.right.digest(stored, password.as_bytes());
        if self.right.is_known(&pair) {
            return true;
        }
        let is_right = PasswordHash::new(stored)
            .is_ok_and(|stored| argon2().verify_password(password.as_bytes(), &stored).is_ok());
        if is_right {
            self.right.remember(pair);
        }
        is_right
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
        assert_eq!(passwords.right.count(), 1);
    }

    /// Covers a dummy hash that cannot be read: logins of unknown users would take another time.
    #[test]
    fn a_user_that_does_not_exist_costs_one_hash() {
        let dummy = PasswordHash::new(DUMMY_HASH).expect("PHC");
        let stored = hash("secret", &Rng::from_seed(1));
        let of_user = PasswordHash::new(&stored).expect("PHC");
        assert_eq!((dummy.algorithm, &dummy.params), (of_user.algorithm, &of_user.params));
        let lens =
            |hash: &PasswordHash<'_>| (hash.salt.expect("salt").len(), hash.hash.expect("digest").len());
        assert_eq!(lens(&dummy), lens(&of_user));
        let passwords = Passwords::new(&Rng::from_seed(1));
        assert!(!passwords.verify_user(None, "secret") && passwords.verify_user(Some(&stored), "secret"));
    }
}
