//! Passwords of users whose hashes are bcrypt's: verification on one thread at a time.
//!
//! Invariants: bcrypt uses at most one core, at low priority and never on an async thread; at most
//! [`QUEUE_COUNT_MAX`] logins wait for it. A user that does not exist costs as much as one that does.
//! Not here: the cache (`right_passwords`), users and their hashes (the caller's table), answers to a
//! refused login (`server`).

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use chronolith_base::{Rng, thread};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::right_passwords::RightPasswords;

/// Logins that wait for bcrypt or run it. The last one of a full queue waits some seconds at the usual cost.
pub const QUEUE_COUNT_MAX: usize = 64;
/// Smallest and largest cost that bcrypt defines.
const COST_MIN: u32 = 4;
const COST_MAX: u32 = 31;
/// Cost of the dummy hash of a table without users.
const COST_DEFAULT: u32 = 10;
/// Characters of salt and digest.
const SALT_CHARS: usize = 22;
const DIGEST_CHARS: usize = 31;

/// Reason why a text is no hash of bcrypt. It never shows the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// The form differs from `$2b$COST$SALTDIGEST`.
    #[error("expected a bcrypt hash like $2y$10$ and 53 characters of salt and digest")]
    Form,
    /// The cost is outside of bcrypt's range.
    #[error("bcrypt cost {0} is outside of the range 4 to 31")]
    Cost(u32),
}

/// Hash of a password in the form that `htpasswd -B` prints. `Debug` shows the cost alone.
#[derive(Clone, PartialEq, Eq)]
pub struct BcryptHash {
    text: Box<str>,
    cost: u32,
}

impl BcryptHash {
    /// Reads a hash: `$2a$`, `$2b$`, `$2x$` or `$2y$`, two digits of cost, `$`, and 53 characters of salt
    /// and digest.
    ///
    /// # Errors
    /// [`HashError`].
    pub fn parse(text: &str) -> Result<BcryptHash, HashError> {
        let mut parts = text.split('$');
        let (Some(""), Some("2a" | "2b" | "2x" | "2y"), Some(cost), Some(rest), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(HashError::Form);
        };
        let is_cost = cost.len() == 2 && cost.bytes().all(|b| b.is_ascii_digit());
        let is_rest = rest.len() == SALT_CHARS + DIGEST_CHARS
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'/');
        if !is_cost || !is_rest {
            return Err(HashError::Form);
        }
        let cost = cost.parse().map_err(|_| HashError::Form)?;
        if !(COST_MIN..=COST_MAX).contains(&cost) {
            return Err(HashError::Cost(cost));
        }
        Ok(BcryptHash { text: text.into(), cost })
    }

    /// Returns a hash that costs as much as others of `cost`, for users that do not exist.
    fn dummy(cost: u32) -> BcryptHash {
        let cost = cost.clamp(COST_MIN, COST_MAX);
        BcryptHash { text: format!("$2b${cost:02}${}", ".".repeat(SALT_CHARS + DIGEST_CHARS)).into(), cost }
    }

    /// Binary logarithm of the number of rounds, 4 to 31.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Returns true if `password` has this hash. Cost: about 50 ms at cost 10, twice that at 11.
    fn verify(&self, password: &[u8]) -> bool {
        bcrypt::verify(password, &self.text).unwrap_or(false)
    }
}

impl fmt::Debug for BcryptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BcryptHash").field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// Too many logins wait for bcrypt; the sender may try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many logins are being verified, at most {QUEUE_COUNT_MAX} at a time")]
pub struct Busy;

/// Verifies passwords and remembers right ones.
pub struct Passwords {
    right: RightPasswords,
    dummy: Mutex<BcryptHash>,
    /// Permits to wait or to run.
    queue: Semaphore,
    /// The one permit to run bcrypt.
    worker: Arc<Semaphore>,
}

impl Passwords {
    /// Makes an empty cache with a random key of its own.
    #[must_use]
    pub fn new(rng: &Rng) -> Passwords {
        Passwords {
            right: RightPasswords::new(rng),
            dummy: Mutex::new(BcryptHash::dummy(COST_DEFAULT)),
            queue: Semaphore::new(QUEUE_COUNT_MAX),
            worker: Arc::new(Semaphore::new(1)),
        }
    }

    /// Takes the highest cost among `hashes`, the hashes of all users, as the cost of unknown users. It is
    /// called again when the table changes.
    pub fn set_users<'a>(&self, hashes: impl IntoIterator<Item = &'a BcryptHash>) {
        let cost = hashes.into_iter().map(BcryptHash::cost).max().unwrap_or(COST_DEFAULT);
        *self.dummy.lock() = BcryptHash::dummy(cost);
    }

    /// Returns true if `password` is the one whose hash is `stored`; `None` stands for an unknown user, whose
    /// password is never right. Cost: one HMAC if the password was right before, one bcrypt otherwise. A
    /// caller that is cancelled leaves the queue; a hash that has started runs to its end.
    ///
    /// # Errors
    /// [`Busy`], never for a remembered password.
    pub async fn is_right(&self, stored: Option<&BcryptHash>, password: &[u8]) -> Result<bool, Busy> {
        let hash = stored.cloned().unwrap_or_else(|| self.dummy.lock().clone());
        let pair = self.right.digest(&hash.text, password);
        if stored.is_some() && self.right.is_known(&pair) {
            return Ok(true);
        }
        let password = password.to_vec();
        // Logins of the same user that waited together need one hash.
        let is_known = || stored.is_some() && self.right.is_known(&pair);
        let is_right = self.run(is_known, move || hash.verify(&password)).await? && stored.is_some();
        if is_right {
            self.right.remember(pair);
        }
        Ok(is_right)
    }

    /// Runs a slow verification in its turn. `is_known` is asked once more when the turn has come: it returns
    /// true if the verification is not needed any more.
    ///
    /// # Errors
    /// [`Busy`].
    pub async fn run(
        &self,
        is_known: impl Fn() -> bool,
        verify: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<bool, Busy> {
        let _waiting = self.queue.try_acquire().map_err(|_| Busy)?;
        // Neither semaphore is ever closed.
        let running = self.worker.clone().acquire_owned().await.map_err(|_| Busy)?;
        if is_known() {
            return Ok(true);
        }
        let (answer, answered) = oneshot::channel();
        let verify = move || {
            // A flood of wrong passwords would keep a core from the requests of others.
            thread::lower_priority_of_long_work(0);
            let is_right = verify();
            // The permit lives as long as the hash, also if the caller has gone.
            drop(running);
            let _ = answer.send(is_right);
        };
        // Starting a thread costs a thousandth of a hash, and its low priority ends with it.
        thread::spawn("password", verify).map_err(|_| Busy)?;
        Ok(answered.await.unwrap_or(false))
    }
}
