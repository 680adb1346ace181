//! Locks that model checking replaces: loom's under `--cfg loom`, `parking_lot`'s otherwise.
//!
//! Invariants: every lock whose acquisition order can change a result comes from here (stripes, head index,
//! series keys, the queue of group commit), so that loom tests run all interleavings over production code.
//! Not here: leaf locks that only guard a value; each lock here multiplies the interleavings to try.

#[cfg(loom)]
mod model;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(loom)]
pub use model::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(loom))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU8, Ordering};
