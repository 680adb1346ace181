//! Interfaces to the operating system (clock, disk, randomness, threads, memory budget), byte tools, append
//! files, k-way merge, the calendar of UTC.
//!
//! Invariants: no other crate gets time, files, randomness or threads from the operating system, so that a
//! test with fakes for these is replayed from its seed.
//! Not here: samples and everything above them.

pub mod append_file;
pub mod backoff;
pub mod budget;
pub mod bytes;
pub mod clock;
pub mod crc;
pub mod disk;
pub mod hash;
pub mod kway_merge;
pub mod machine;
pub mod rng;
pub mod spare_threads;
pub mod sync;
pub mod thread;
pub mod utc;

use std::sync::Arc;

pub use append_file::AppendFile;
pub use budget::{BudgetExceeded, MemoryBudget, Reservation};
pub use bytes::{ByteReader, DecodeError};
pub use clock::{Clock, ManualClock, SystemClock};
pub use disk::{Disk, DiskFile, Mapped, MemDisk, RealDisk};
pub use kway_merge::KWayMerge;
pub use rng::Rng;
pub use spare_threads::SpareThreads;

/// Clock, disk and randomness of a component, passed down from `main` (real) or from a test (fake).
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
    /// The real environment: system clock, real files, a seed from the operating system.
    #[must_use]
    pub fn real() -> Env {
        Env {
            clock: Arc::new(SystemClock::new()),
            disk: Arc::new(RealDisk::new()),
            rng: Arc::new(Rng::from_os()),
        }
    }

    /// A fake environment for tests: a manual clock at `now_ms`, files in memory, randomness from `seed`.
    #[must_use]
    pub fn fake(now_ms: i64, seed: u64) -> (Env, Arc<ManualClock>, Arc<MemDisk>) {
        let clock = Arc::new(ManualClock::new(now_ms));
        let disk = Arc::new(MemDisk::new());
        let env = Env { clock: clock.clone(), disk: disk.clone(), rng: Arc::new(Rng::from_seed(seed)) };
        (env, clock, disk)
    }
}
