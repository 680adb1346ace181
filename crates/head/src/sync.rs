//! The locks whose order decides what is true: stripes, tables, raw keys, the queue of the log.
//!
//! Holds: under `--cfg loom` they are loom's, so that tests run every order of threads over the code that uses
//! them; otherwise `parking_lot`'s. Leaf locks that guard a value and no order of events stay with
//! `parking_lot` in every build: each lock here multiplies the orders to try.

#[cfg(loom)]
mod model;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(loom)]
pub(crate) use model::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, Ordering};
