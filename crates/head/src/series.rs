//! Samples of all series in memory: stripes with open chunks and out-of-order samples, and files of sealed
//! chunks.
//!
//! Invariants: a series has one visible value per timestamp; a chunk lies within one window.
//! Not here: labels (`index`), the WAL (`write`).

pub(crate) mod chunk_buffer;
pub(crate) mod decide;
pub(crate) mod sealed;
pub(crate) mod sealed_chunks;
pub(crate) mod slots;
pub(crate) mod stripe;
pub(crate) mod value;
pub(crate) mod verify;
pub(crate) mod windows;

use chronolith_base::Env;
use chronolith_base::sync::{Mutex, MutexGuard};
use chronolith_model::{DuplicatePolicy, TimeUnit};

use crate::memory_part::MemoryPart;
use crate::series::sealed::SealedStore;
use crate::series::stripe::{AppendContext, HistogramBudget, PAGE_SLOTS, STRIPE_COUNT, Stripe, stripe_of};

/// All series of the head, in stripes, and their files of sealed chunks.
pub(crate) struct SeriesStore {
    stripes: Vec<Mutex<Stripe>>,
    pub(crate) store: SealedStore,
    histograms: HistogramBudget,
    pub(crate) env: Env,
    window_ms: i64,
}

impl SeriesStore {
    /// Returns a store without series; `store` has the sealed files that were found.
    pub(crate) fn new(
        env: &Env,
        window_ms: i64,
        store: SealedStore,
        histogram_bytes_max: u64,
    ) -> SeriesStore {
        SeriesStore {
            stripes: (0..STRIPE_COUNT).map(|_| Mutex::new(Stripe::new())).collect(),
            store,
            histograms: HistogramBudget::new(histogram_bytes_max),
            env: env.clone(),
            window_ms,
        }
    }

    /// Returns the budget of all stripes for open and out-of-order histograms.
    pub(crate) fn histograms(&self) -> &HistogramBudget {
        &self.histograms
    }

    /// Returns all stripes, by index.
    pub(crate) fn stripes(&self) -> &[Mutex<Stripe>] {
        &self.stripes
    }

    /// Locks the stripe of a series.
    pub(crate) fn lock(&self, id: u32) -> MutexGuard<'_, Stripe> {
        self.stripes[stripe_of(id)].lock()
    }

    /// Returns the width of the windows of a tenant in its unit.
    pub(crate) fn window_width(&self, unit: TimeUnit) -> i64 {
        unit.from_ms(self.window_ms)
    }

    /// Returns a context for new samples of a tenant; `duplicates` decides about a second value at a
    /// timestamp.
    pub(crate) fn context(&self, unit: TimeUnit, duplicates: DuplicatePolicy) -> AppendContext<'_> {
        self.context_for(self.window_width(unit), duplicates)
    }

    /// As [`SeriesStore::replay_context`] for a tenant whose windows are `width` wide.
    pub(crate) fn replay_context_for(&self, width: i64) -> AppendContext<'_> {
        self.context_for(width, DuplicatePolicy::LastWins)
    }

    fn context_for(&self, width: i64, duplicates: DuplicatePolicy) -> AppendContext<'_> {
        AppendContext::new(&self.store, &*self.env.disk, &self.histograms, width, duplicates)
            .with_narrowest_width(self.window_ms)
    }

    /// Returns a context for samples that were accepted before: of two values at one timestamp, the later
    /// written one wins.
    pub(crate) fn replay_context(&self, unit: TimeUnit) -> AppendContext<'_> {
        self.context(unit, DuplicatePolicy::LastWins)
    }

    /// Removes pages that have a series from `pages` (ascending).
    pub(crate) fn retain_free_pages(&self, pages: &mut Vec<u32>) {
        for (stripe_idx, stripe) in self.stripes.iter().enumerate() {
            let stripe = stripe.lock();
            let is_here = |page: u32| page as usize % STRIPE_COUNT == stripe_idx;
            pages.retain(|&page| !is_here(page) || !stripe.has_page(page as usize / STRIPE_COUNT));
        }
    }

    /// Returns the memory of all stripes and of the sealed files, by part.
    pub(crate) fn memory(&self) -> Vec<MemoryPart> {
        let mut parts = Vec::new();
        for stripe in &self.stripes {
            MemoryPart::add(&mut parts, stripe.lock().memory());
        }
        parts.push(self.store.memory());
        parts
    }
}

/// Splits ascending ids into runs that share a page, and so a stripe.
pub(crate) fn page_runs(ids: &[u32]) -> impl Iterator<Item = &[u32]> {
    let page = |id: u32| id as usize / PAGE_SLOTS;
    ids.chunk_by(move |&a, &b| page(a) == page(b))
}
