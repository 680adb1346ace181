//! Distribution of series ids over stripes and pages.
//!
//! Invariant: runs of 1024 consecutive ids share a stripe, so a batch takes few locks.

use crate::series::slots::SLOT_NONE;

/// Number of stripes; each has its own lock.
pub(crate) const STRIPE_COUNT: usize = 16;
/// Consecutive ids per page.
pub(crate) const PAGE_SLOTS: usize = 1024;
/// No list, no tenant.
pub(crate) const NONE: u32 = u32::MAX;

const _: () = assert!(NONE == SLOT_NONE);

/// Returns the stripe of a series.
pub(crate) fn stripe_of(id: u32) -> usize {
    (id as usize / PAGE_SLOTS) % STRIPE_COUNT
}

/// Returns page and slot of a series in its stripe.
pub(super) fn slot_of(id: u32) -> (usize, usize) {
    (id as usize / PAGE_SLOTS / STRIPE_COUNT, id as usize % PAGE_SLOTS)
}
