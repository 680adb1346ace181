//! Number of threads of a replay.

use chronolith_base::thread::core_count;

use crate::series::stripe::STRIPE_COUNT;

/// Returns one thread per core, at most one per stripe.
pub(super) fn replay_thread_count() -> usize {
    // Loom knows only the threads of its tests.
    if cfg!(loom) { 1 } else { core_count().min(STRIPE_COUNT) }
}
