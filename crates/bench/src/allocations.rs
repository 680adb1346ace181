//! Allocator of the program, which counts allocations. Not here: reports (`reorder`, `block_series`).

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Counts allocations of the whole program; benchmarks that do not look pay a few instructions per
/// allocation.
#[global_allocator]
pub(crate) static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
