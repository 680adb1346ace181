//! Seeded random numbers (SplitMix64, Steele et al. 2014), shared between threads.
//! Invariants: the sequence depends on the seed and the number of calls only.
//! Not for secrets: the seed may come from the operating system, the sequence is predictable from it.

use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Lock-free random source; one atomic add per number.
pub struct Rng {
    state: AtomicU64,
}

impl Rng {
    /// A reproducible sequence.
    #[must_use]
    pub fn from_seed(seed: u64) -> Rng {
        Rng { state: AtomicU64::new(seed) }
    }

    /// A sequence seeded by the operating system.
    #[must_use]
    pub fn from_os() -> Rng {
        let mut seed = [0u8; 8];
        os_random(&mut seed);
        Rng::from_seed(u64::from_le_bytes(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        let mut z = self.state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `[0, bound)`; `bound` must not be 0. Bias below 2^-32 for bounds under 2^32.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "bound of a random number must not be 0");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
}

/// Fills `out` with random bytes of the operating system; with zeros if it returns an error.
fn os_random(out: &mut [u8]) {
    #[expect(clippy::disallowed_methods, reason = "a device, no file of the server")]
    let filled = File::open("/dev/urandom").and_then(|mut f| f.read_exact(out));
    if filled.is_err() {
        out.fill(0);
    }
}
