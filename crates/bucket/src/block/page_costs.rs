//! Costs of the pages of a sidecar, which choose between sidecar and index for selections without a metric
//! name.
//!
//! A sidecar finds a metric by its directory; other selections decode many of its pages, while the index
//! reads postings lists and the entries of its series alone. But its header has the symbols and the postings
//! offset table of the whole block, which are read once.
//! Rule (ski rental): pages are read until they cost as many bytes as the index has at most, then the header.
//! So no block costs more than twice its better reader.
//! Invariants: a block with few pages never reads its header for this; damage of the index leads back to the
//! sidecar.
//! Not here: sidecars that cannot be used (`block`), lists that a sidecar reads (crate `block`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_model::{METRIC_NAME, Matcher};

/// Bytes of pages below which the index is not worth its memory.
const PAGE_BYTES_MIN: u64 = 1 << 20;

/// Costs of the pages of one block.
#[derive(Debug, Default)]
pub(crate) struct PageCosts {
    /// Bytes of pages that selections without a metric name have read.
    page_bytes: AtomicU64,
    is_index_due: AtomicBool,
    is_index_damaged: AtomicBool,
}

impl PageCosts {
    /// Adds bytes of pages of a block whose index has `index_bytes`.
    pub(crate) fn add(&self, page_bytes: u64, index_bytes: u64) {
        let all_bytes = self.page_bytes.fetch_add(page_bytes, Ordering::Relaxed).saturating_add(page_bytes);
        if all_bytes >= index_bytes.max(PAGE_BYTES_MIN) {
            self.is_index_due.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if a selection without a metric name reads the block by its index.
    pub(crate) fn prefers_index(&self) -> bool {
        self.is_index_due.load(Ordering::Relaxed) && !self.is_index_damaged.load(Ordering::Relaxed)
    }

    /// Reads by the sidecar from then on.
    pub(crate) fn refuse_index(&self) {
        self.is_index_damaged.store(true, Ordering::Relaxed);
    }
}

/// Returns true if postings lists select few series and no directory of metrics does.
pub(crate) fn is_by_lists(matchers: &[Matcher]) -> bool {
    let selects = |matcher: &Matcher| !matcher.matches_empty();
    let names_metric = matchers.iter().any(|matcher| *matcher.name == *METRIC_NAME && selects(matcher));
    !names_metric && matchers.iter().any(selects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_read_once_pages_have_cost_as_much() {
        let costs = PageCosts::default();
        let index_bytes = 3 * PAGE_BYTES_MIN;
        for _ in 0..3 {
            assert!(!costs.prefers_index());
            costs.add(PAGE_BYTES_MIN, index_bytes);
        }
        assert!(costs.prefers_index());
        costs.refuse_index();
        costs.add(PAGE_BYTES_MIN, index_bytes);
        assert!(!costs.prefers_index());

        let small = PageCosts::default();
        small.add(PAGE_BYTES_MIN - 1, 10);
        assert!(!small.prefers_index());
    }

    #[test]
    fn matchers_without_a_metric_lead_to_lists() {
        let pod = || Matcher::equal("pod", "a");
        assert!(is_by_lists(&[pod()]));
        assert!(is_by_lists(&[pod(), Matcher::equal(METRIC_NAME, "")]));
        assert!(!is_by_lists(&[pod(), Matcher::equal(METRIC_NAME, "up")]));
        assert!(
            !is_by_lists(&[]) && !is_by_lists(&[Matcher::equal("pod", "")]),
            "they select nearly all series"
        );
    }
}
