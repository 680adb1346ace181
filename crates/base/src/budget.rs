//! Memory budgets: a tree of counters; a reservation counts in its budget and in all ancestors.
//! Invariants: the used bytes never exceed the limit of a budget; dropping a reservation releases it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit in bytes, shared by everything that reserves from it.
#[derive(Clone)]
pub struct MemoryBudget(Arc<Inner>);

struct Inner {
    what: &'static str,
    limit_bytes: u64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    parent: Option<MemoryBudget>,
}

/// A reservation exceeded this budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} memory limit of {limit_bytes} bytes reached: {used_bytes} in use, {asked_bytes} more requested"
)]
pub struct BudgetExceeded {
    /// Owner of the budget, for the message.
    pub what: &'static str,
    /// Limit of the budget.
    pub limit_bytes: u64,
    /// Bytes in use before the reservation.
    pub used_bytes: u64,
    /// Bytes of the reservation.
    pub asked_bytes: u64,
}

impl MemoryBudget {
    /// A budget without a parent.
    #[must_use]
    pub fn new(what: &'static str, limit_bytes: u64) -> MemoryBudget {
        MemoryBudget::build(what, limit_bytes, None)
    }

    /// A budget whose reservations count in this one, too.
    #[must_use]
    pub fn child(&self, what: &'static str, limit_bytes: u64) -> MemoryBudget {
        MemoryBudget::build(what, limit_bytes, Some(self.clone()))
    }

    fn build(what: &'static str, limit_bytes: u64, parent: Option<MemoryBudget>) -> MemoryBudget {
        let (used_bytes, peak_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        MemoryBudget(Arc::new(Inner { what, limit_bytes, used_bytes, peak_bytes, parent }))
    }

    /// Reserves `bytes` until the reservation is dropped.
    ///
    /// # Errors
    /// [`BudgetExceeded`] of the first budget on the path without room; nothing is reserved then.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, BudgetExceeded> {
        self.take(bytes)?;
        Ok(Reservation { budget: self.clone(), bytes })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Maximum of the bytes in use.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }

    /// Limit in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    fn take(&self, bytes: u64) -> Result<(), BudgetExceeded> {
        let inner = &*self.0;
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= inner.limit_bytes);
        match inner.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(before) => {
                if let Some(parent) = &inner.parent
                    && let Err(full) = parent.take(bytes)
                {
                    inner.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
                    return Err(full);
                }
                inner.peak_bytes.fetch_max(before + bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(used_bytes) => Err(BudgetExceeded {
                what: inner.what,
                limit_bytes: inner.limit_bytes,
                used_bytes,
                asked_bytes: bytes,
            }),
        }
    }

    fn release(&self, bytes: u64) {
        self.0.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.0.parent {
            parent.release(bytes);
        }
    }
}

/// Reserved bytes of a budget; released on drop.
pub struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl Reservation {
    /// Reserves `more` bytes in addition.
    ///
    /// # Errors
    /// [`BudgetExceeded`]; the reservation is unchanged then.
    pub fn grow(&mut self, more: u64) -> Result<(), BudgetExceeded> {
        self.budget.take(more)?;
        self.bytes += more;
        Ok(())
    }

    /// Releases `less` bytes, at most all.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.bytes);
        self.budget.release(less);
        self.bytes -= less;
    }

    /// Reserved bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_of_a_child_count_in_its_parent_until_dropped() {
        let root = MemoryBudget::new("process", 100);
        let query = root.child("query", 80);
        let held = query.reserve(70).unwrap();
        assert_eq!((root.used_bytes(), query.used_bytes()), (70, 70));
        assert_eq!(query.reserve(20).err().unwrap().what, "query");
        let other = root.child("query", 80);
        assert_eq!(other.reserve(40).err().unwrap().what, "process");
        assert_eq!(other.used_bytes(), 0, "a refused reservation reserves nothing");
        drop(held);
        assert_eq!((root.used_bytes(), root.peak_bytes()), (0, 70));
    }
}
