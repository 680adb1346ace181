//! Frees texts that no sample of the head names: dictionaries of windows without samples, and, when memory is
//! short, single texts of the others.
//!
//! Invariants: no append or selection of the tenant uses ids meanwhile. A dictionary never loses a text: one
//! with fewer takes its place, and readers keep the old one.

use chronolith_base::hash::HashSet;
use chronolith_base::sync::MutexGuard;
use chronolith_model::index::select_refs;
use chronolith_model::{Columns, KIND_LABEL, Matcher, TimeRange, WordKind};

use crate::counters::Counter;
use crate::index::tenant::TenantHead;
use crate::read::copy::{CopiedChunks, RecentFiles};
use crate::series::page_runs;
use crate::state::HeadState;

/// Frees the texts of `tenant` that no sample names; returns the number of dictionaries that changed. Does
/// nothing while they are in use. Cost: a visit of each series of texts; when memory is short, one chunk
/// decoded per chunk of theirs.
pub(crate) fn free_unused(state: &HeadState, tenant: &TenantHead) -> usize {
    if tenant.texts.is_empty() {
        return 0;
    }
    let of_texts = [Matcher::equal(KIND_LABEL, WordKind::Text.label_value())];
    // The index comes first in the lock order: a selection waits for dictionaries while it holds the index.
    let tables = tenant.tables.read();
    let Some(texts) = tenant.texts.try_free() else { return 0 };
    let ids = select_refs(&*tables, &of_texts).expect("lookups in memory do not fail");
    drop(tables);
    let mut changed = 0;
    for (start, dictionary) in tenant.texts.all() {
        let window = TimeRange::window_of(start, state.series.window_width(tenant.unit));
        if !has_samples(state, &ids, window) {
            texts.remove(start);
            changed += 1;
        } else if state.texts.budget.is_short()
            && let Some(live) = live_ids(state, &ids, window)
            && let Some(smaller) = dictionary.with_ids(&live)
        {
            texts.replace(start, smaller);
            changed += 1;
        }
    }
    if changed > 0 {
        // Slices that were written before may still name these texts.
        state.counters.add(Counter::Changes, 1);
        state.texts.file.lock().note_freed(state.counters.get(Counter::Changes));
    }
    changed
}

/// As [`free_unused`], of all tenants.
pub(crate) fn free_all_unused(state: &HeadState) {
    for tenant in state.index.tenants() {
        free_unused(state, &tenant);
    }
}

fn has_samples(state: &HeadState, ids: &[u32], window: TimeRange) -> bool {
    page_runs(ids).any(|run| {
        let stripe = state.series.lock(run[0]);
        let found = run.iter().any(|&id| stripe.overlaps(id, window));
        MutexGuard::unlock_fair(stripe);
        found
    })
}

/// Returns the ids that samples in `window` name; `None` if a chunk cannot be read.
fn live_ids(state: &HeadState, ids: &[u32], window: TimeRange) -> Option<HashSet<u64>> {
    let mut live = HashSet::default();
    let mut files = RecentFiles::new(&state.series.store);
    let mut columns = Columns::default();
    for run in page_runs(ids) {
        let mut copied = CopiedChunks::default();
        let stripe = state.series.lock(run[0]);
        for &id in run {
            if let Some(record) = stripe.series(id) {
                copied.push_chunks(&stripe, &mut files, id, record, window);
            }
        }
        copied.finish(&stripe);
        MutexGuard::unlock_fair(stripe);
        for chunk in copied.chunks() {
            columns.clear();
            chunk.decode(copied.memory(&*state.env.disk), TimeRange::ALL, &mut columns).ok()?;
            live.extend(columns.values.iter().map(|value| value.to_bits()));
        }
    }
    Some(live)
}
