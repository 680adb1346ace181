//! Seams to the world (clock, disk, randomness, threads, memory budget), byte tools, append file, k-way merge.
//!
//! Holds: nothing else in the workspace asks the operating system for time, files, randomness or
//! threads; a test that passes fakes for these replays from its seed.
//! Not here: anything that knows what a sample is.

pub mod append_file;
pub mod budget;
pub mod bytes;
pub mod clock;
pub mod crc;
pub mod disk;
pub mod hash;
pub mod kway_merge;
pub mod machine;
pub mod rng;
pub mod sync;
pub mod thread;

use std::sync::Arc;

pub use append_file::AppendFile;
pub use budget::{BudgetExceeded, MemoryBudget, Reservation};
pub use bytes::{ByteReader, DecodeError};
pub use clock::{Clock, ManualClock, SystemClock};
pub use disk::{Disk, DiskFile, Mapped, MemDisk, RealDisk};
pub use kway_merge::KWayMerge;
pub use rng::Rng;

/// The world as a component sees it: passed down from `main` (real) or from a test (fake).
#[derive(Clone)]
pub struct Env {
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Files below the data directory.
    pub disk: Arc<dyn Disk>,
    /// Seeded randomness (block ids, hash keys).
    pub rng: Arc<Rng>,
}

impl Env {
    /// The real machine: system clock, real files, a seed from the operating system.
    #[must_use]
    pub fn real() -> Env {
        Env {
            clock: Arc::new(SystemClock::new()),
            disk: Arc::new(RealDisk::new()),
            rng: Arc::new(Rng::from_os()),
        }
    }

    /// A fake machine for tests: a clock at `now_ms` that moves only when told, files in memory, `seed`.
    #[must_use]
    pub fn fake(now_ms: i64, seed: u64) -> (Env, Arc<ManualClock>, Arc<MemDisk>) {
        let clock = Arc::new(ManualClock::new(now_ms));
        let disk = Arc::new(MemDisk::new());
        let env = Env { clock: clock.clone(), disk: disk.clone(), rng: Arc::new(Rng::from_seed(seed)) };
        (env, clock, disk)
    }
}
