//! Deletes samples whose text is lost: its frame in the WAL or its file is damaged.
//!
//! Invariants: only samples without a text are deleted, each deletion has its WAL frame, and the number of
//! deleted samples is returned to be reported. A power cut may keep the frame of a sample and lose the frame
//! of its text, which lies before it; a sample without its text was never acknowledged.
//! Not here: freeing texts without samples (`unused`).

use chronolith_format::head::wal;
use chronolith_model::index::select_refs;
use chronolith_model::{Columns, KIND_LABEL, Matcher, TimeRange, WordKind};

use crate::counters::Counter;
use crate::index::tenant::TenantHead;
use crate::read::copy::{CopiedChunks, RecentFiles};
use crate::series::page_runs;
use crate::series::stripe::stripe_of;
use crate::state::HeadState;

/// Deletes the samples of all tenants whose text is lost; returns their number. To be called at a start that
/// found damage, before writes are accepted. Cost: each chunk of texts is decoded.
pub(crate) fn delete_all(state: &HeadState) -> u64 {
    let deleted_count = state.index.tenants().iter().map(|tenant| delete(state, tenant)).sum();
    state.counters.add(Counter::SamplesDeleted, deleted_count);
    deleted_count
}

fn delete(state: &HeadState, tenant: &TenantHead) -> u64 {
    let of_texts = [Matcher::equal(KIND_LABEL, WordKind::Text.label_value())];
    let ids = select_refs(&*tenant.tables.read(), &of_texts).expect("lookups in memory do not fail");
    let mut cx = state.series.replay_context(tenant.unit);
    let mut payload = Vec::new();
    let mut deleted_count = 0;
    for run in page_runs(&ids) {
        for &id in run {
            let lost = lost_times(state, tenant, id);
            let mut stripe = state.series.lock(id);
            for time in lost {
                let range = TimeRange::new(time, time.saturating_add(1));
                deleted_count += stripe.erase(&mut cx, id, range).unwrap_or(0);
                wal::encode_deletes(range, &[id], &mut payload);
                state.wal.append(wal::KIND_DELETES, stripe_of(id) as u8, &payload);
            }
        }
        tenant.windows.lock().merge(&mut cx.windows, i64::MAX);
    }
    deleted_count
}

/// Returns the times of the samples of a series whose text is in no dictionary. A chunk that cannot be
/// decoded is left to its reader.
fn lost_times(state: &HeadState, tenant: &TenantHead, id: u32) -> Vec<i64> {
    let mut files = RecentFiles::new(&state.series.store);
    let mut copied = CopiedChunks::default();
    let stripe = state.series.lock(id);
    if let Some(record) = stripe.series(id) {
        copied.push_chunks(&stripe, &mut files, id, record, TimeRange::ALL);
    }
    copied.finish(&stripe);
    drop(stripe);
    let texts = tenant.texts.snapshot();
    let is_lost =
        |time: i64, word: f64| texts.as_ref().is_none_or(|texts| texts.get(time, word.to_bits()).is_none());
    let mut lost = Vec::new();
    let mut columns = Columns::default();
    for chunk in copied.chunks() {
        columns.clear();
        if chunk.decode(copied.memory(&*state.env.disk), TimeRange::ALL, &mut columns).is_ok() {
            let samples = columns.times.iter().zip(&columns.values);
            lost.extend(samples.filter(|(time, word)| is_lost(**time, **word)).map(|(time, _)| *time));
        }
    }
    lost
}
