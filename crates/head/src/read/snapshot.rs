//! Snapshot of a window for a flush: seals its open chunks, then reads its series in label order.
//!
//! Invariant: a snapshot is all chunks of the window whose [`ChunkRef`] is before its end; references ascend,
//! so samples that arrive later are never part of it and never removed with it. Locks are held for a page of
//! series at a time.
//! Not here: dropping it (`evict::drop_window`).

use std::sync::Arc;

use chronolith_base::sync::MutexGuard;
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_model::{Columns, Labels, LabelsBuilder, QueryError, StoreId, TimeRange};

use crate::index::ids::IdUse;
use crate::index::tables::sort_by_labels;
use crate::index::tenant::TenantHead;
use crate::options::HeadError;
use crate::read::copy::{CopiedChunks, RecentFiles};
use crate::read::source::{ChunkMemory, HeadChunk, merge_chunks, overlapping_len};
use crate::series::sealed_chunks::ChunkRef;
use crate::series::stripe::Stripe;
use crate::series::{SeriesStore, page_runs};
use crate::state::HeadState;
use crate::texts::HeadTexts;

/// One series of a snapshot.
pub struct WindowSeries {
    /// Labels of the series.
    pub labels: Labels,
    /// Chunks of the series with start timestamps: ascending, disjoint, one sample per timestamp. Empty if
    /// all are damaged.
    pub chunks: Vec<EncodedChunk>,
    /// Texts to which the words of a series of texts refer; `None` if the tenant has no texts.
    pub texts: Option<HeadTexts>,
    /// One [`HeadError::Corrupt`] per damaged chunk, which is left out.
    pub damages: Vec<HeadError>,
}

/// Chunks of one window of one tenant.
pub struct WindowSnapshot {
    tenant: Arc<TenantHead>,
    series: Arc<SeriesStore>,
    window: TimeRange,
    /// Series with chunks in the window, in label order.
    ids: Vec<u32>,
    /// Chunks before it are read from an earlier snapshot.
    begin: Option<ChunkRef>,
    end: ChunkRef,
    _ids: IdUse,
}

/// Takes the chunks of `store` in `window`; implements [`crate::HeadWindows::snapshot`].
pub(crate) fn snapshot_window(
    state: &HeadState,
    store: &StoreId,
    window: TimeRange,
) -> Result<WindowSnapshot, HeadError> {
    let store = state.index.tenant_or_create(store, || state.env.rng.next_u64()).ok_or_else(|| {
        HeadError::Corrupt { path: state.options.dir.clone(), what: "too many tenants".to_owned() }
    })?;
    let _ids = state.index.ids.use_ids();
    let all = store.series_ids();
    take_window(state, store, window, &all, |_, _| true)
}

/// Takes the chunks in `window` of the `series` (ascending) that `is_wanted` accepts. The caller keeps the
/// ids in use.
pub(crate) fn take_window(
    state: &HeadState,
    tenant: Arc<TenantHead>,
    window: TimeRange,
    series: &[u32],
    is_wanted: impl Fn(&Stripe, u32) -> bool,
) -> Result<WindowSnapshot, HeadError> {
    let _ids = state.index.ids.use_ids();
    let mut cx = state.series.replay_context(tenant.unit);
    let mut ids = Vec::new();
    for run in page_runs(series) {
        let mut stripe = state.series.lock(run[0]);
        for &id in run {
            if stripe.series(id).is_some()
                && is_wanted(&stripe, id)
                && stripe.seal_window(&mut cx, id, window)
            {
                ids.push(id);
            }
        }
        MutexGuard::unlock_fair(stripe);
        tenant.windows.lock().merge(&mut cx.windows, i64::MAX);
        // Sealed chunks must not pile up in memory.
        state.write_sealed_if_many()?;
    }
    let end = state.series.store.end();
    state.write_sealed()?;
    {
        // Rebuilding the index renumbers its pairs, so it must not run during the sort.
        let _alone = state.maintenance.lock();
        sort_by_labels(&tenant.tables, &mut ids);
    }
    Ok(WindowSnapshot { tenant, series: state.series.clone(), window, ids, begin: None, end, _ids })
}

impl WindowSnapshot {
    pub(crate) fn head_of_tenant(&self) -> &TenantHead {
        &self.tenant
    }

    /// Returns the series with chunks in the window, in label order.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the tenant of the window.
    #[must_use]
    pub fn tenant(&self) -> &StoreId {
        &self.tenant.id
    }

    /// Returns the time range of the window.
    #[must_use]
    pub fn window(&self) -> TimeRange {
        self.window
    }

    /// Returns the number of series with samples in the window.
    #[must_use]
    pub fn series_count(&self) -> usize {
        self.ids.len()
    }

    /// Leaves the chunks of an earlier snapshot of the window out of [`WindowSnapshot::series`]; a drop
    /// removes them as well.
    #[must_use]
    pub fn after(mut self, earlier: &WindowSnapshot) -> WindowSnapshot {
        assert!(
            self.window == earlier.window && self.tenant.id == earlier.tenant.id && earlier.end <= self.end,
            "the other snapshot is an earlier one of the window"
        );
        self.begin = Some(earlier.end);
        self
    }

    /// Returns the series in label order with their chunks. Chunks that overlap no other are returned as they
    /// are, the rest is encoded again. A damaged chunk is left out and reported; an I/O error fails the call.
    /// Samples that were merged with out-of-order ones since the snapshot are missing here and stay in the
    /// head after a drop.
    pub fn series(&self) -> impl Iterator<Item = Result<WindowSeries, HeadError>> {
        let is_new = |chunk_ref| self.begin.is_none_or(|begin| chunk_ref >= begin);
        self.series_of(move |chunk_ref, min_time| is_new(chunk_ref) && self.holds(chunk_ref, min_time))
    }

    /// As [`WindowSnapshot::series`], plus the chunks sealed since, so that no sample from the time of the
    /// snapshot is missing. For copies of a window that stays in the head.
    pub fn series_with_later(&self) -> impl Iterator<Item = Result<WindowSeries, HeadError>> {
        self.series_of(|_, min_time| self.window.contains(min_time))
    }

    fn series_of(
        &self,
        is_part: impl Fn(ChunkRef, i64) -> bool,
    ) -> impl Iterator<Item = Result<WindowSeries, HeadError>> {
        let mut builder = LabelsBuilder::new();
        let texts = self.tenant.texts.snapshot();
        self.ids.iter().filter_map(move |&id| {
            let labels = self.tenant.tables.read().labels(id, &mut builder)?;
            match self.chunks(id, &is_part) {
                Ok((chunks, damages)) if chunks.is_empty() && damages.is_empty() => None,
                Ok((chunks, damages)) => {
                    Some(Ok(WindowSeries { labels, chunks, texts: texts.clone(), damages }))
                }
                Err(error) => Some(Err(error)),
            }
        })
    }

    /// Returns true if a sealed chunk that starts at `min_time` is part of the snapshot.
    pub(crate) fn holds(&self, chunk_ref: ChunkRef, min_time: i64) -> bool {
        self.window.contains(min_time) && chunk_ref < self.end
    }

    fn chunks(
        &self,
        id: u32,
        is_part: impl Fn(ChunkRef, i64) -> bool,
    ) -> Result<(Vec<EncodedChunk>, Vec<HeadError>), HeadError> {
        let stripe = self.series.lock(id);
        let Some(record) = stripe.series(id) else { return Ok(Default::default()) };
        let mut copied = CopiedChunks::default();
        let mut files = RecentFiles::new(&self.series.store);
        copied.push_chunks(&stripe, &mut files, id, record, self.window);
        copied.finish(&stripe);
        drop(stripe);
        copied
            .retain(|chunk| chunk.chunk_ref().is_some_and(|chunk_ref| is_part(chunk_ref, chunk.min_time())));
        let disk = &*self.series.env.disk;
        match encode_all(copied.memory(disk), copied.chunks()) {
            Err(QueryError::Corrupt { .. }) => {}
            all => return all.map(|out| (out, Vec::new())).map_err(from_query),
        }
        let mut damages = Vec::new();
        for idx in (0..copied.chunks().len()).rev() {
            let chunk = &copied.chunks()[idx];
            match chunk.decode(copied.memory(disk), TimeRange::ALL, &mut Columns::default()) {
                Ok(()) => {}
                Err(damage @ QueryError::Corrupt { .. }) => {
                    damages.push(from_query(damage));
                    copied.remove(idx);
                }
                Err(error) => return Err(from_query(error)),
            }
        }
        let out = encode_all(copied.memory(disk), copied.chunks()).map_err(from_query)?;
        Ok((out, damages))
    }
}

/// Encodes the samples of sealed chunks of one series, oldest first, with their start timestamps.
fn encode_all(memory: ChunkMemory<'_>, chunks: &[HeadChunk]) -> Result<Vec<EncodedChunk>, QueryError> {
    let mut out = Vec::with_capacity(chunks.len());
    let mut rest = chunks;
    while !rest.is_empty() {
        let (group, others) = rest.split_at(overlapping_len(rest));
        rest = others;
        if let [one] = group
            && let Some(chunk) = one.copy_plain(memory.disk)?
        {
            out.push(chunk);
            continue;
        }
        let mut samples = Columns::default();
        merge_chunks(memory, group, TimeRange::ALL, &mut samples)?;
        kinds::encode(&samples, &mut out);
    }
    Ok(out)
}

fn from_query(error: QueryError) -> HeadError {
    match error {
        QueryError::Io { path, error } => HeadError::Io { path: path.into(), error },
        QueryError::Corrupt { path, what } => HeadError::Corrupt { path: path.into(), what },
        other => HeadError::Corrupt { path: "chunks".into(), what: other.to_string() },
    }
}
