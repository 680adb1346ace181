//! A window on its way to a block: seal what is open in it, read it in label order.
//!
//! Holds: a snapshot is all chunks of the window whose place lies before the snapshot's end; places ascend, so
//! samples that come later are never part of it, and dropping it never takes them along. Locks are held for a
//! page of series at a time.
//! Not here: dropping it (`drop`).

use std::sync::Arc;

use crate::sync::MutexGuard;
use chronolith_base::Disk;
use chronolith_format::kinds;
use chronolith_format::starts::{self, StartRun};
use chronolith_format::xor::EncodedChunk;
use chronolith_model::{Columns, Labels, LabelsBuilder, QueryError, TenantId, TimeRange};

use crate::head::{Head, Series};
use crate::ids::IdUse;
use crate::options::HeadError;
use crate::sealed::SealedPlace;
use crate::select::page_runs;
use crate::source::{HeadChunk, RecentFiles, copy_chunks, copy_histograms, merge_chunks, overlapping_len};
use crate::stripe::{Stripe, stripe_of};
use crate::tables::sort_by_labels;
use crate::tenant::TenantHead;
use crate::windows::WindowTally;

/// What a snapshot has of one series.
pub struct WindowSeries {
    /// Its labels.
    pub labels: Labels,
    /// Its chunks: ascending, not overlapping, one sample a time, start times with them. Empty if all are damaged.
    pub chunks: Vec<EncodedChunk>,
    /// One [`HeadError::Corrupt`] for each chunk that is damaged and therefore left out.
    pub damages: Vec<HeadError>,
}

/// Chunks of one window of one tenant.
pub struct WindowSnapshot {
    pub(crate) tenant: Arc<TenantHead>,
    series: Arc<Series>,
    window: TimeRange,
    /// Series with chunks in the window, by labels.
    pub(crate) ids: Vec<u32>,
    end: SealedPlace,
    _ids: IdUse,
}

impl Head {
    /// Takes what `tenant` has in `window` (one window or several neighbours), sealing open chunks and late
    /// samples of it.
    ///
    /// # Errors
    /// [`HeadError::Io`] if sealed chunks cannot be written.
    pub fn snapshot_window(&self, tenant: &TenantId, window: TimeRange) -> Result<WindowSnapshot, HeadError> {
        let tenant = match self.tenant(tenant) {
            Some(tenant) => tenant,
            None => self.tenants.write().get_or_create(tenant, self.env.rng.next_u64()).ok_or_else(|| {
                HeadError::Corrupt { path: self.options.dir.clone(), what: "too many tenants".to_owned() }
            })?,
        };
        let _ids = self.ids.use_ids();
        let all = tenant.series_ids();
        self.take_window(tenant, window, &all, |_, _| true)
    }

    /// Takes what those of `series` (ascending) that are wanted have in `window`. The caller keeps the ids in use.
    pub(crate) fn take_window(
        &self,
        tenant: Arc<TenantHead>,
        window: TimeRange,
        series: &[u32],
        is_wanted: impl Fn(&Stripe, u32) -> bool,
    ) -> Result<WindowSnapshot, HeadError> {
        let _ids = self.ids.use_ids();
        let world = self.series.world();
        let mut tally = WindowTally::new(self.options.window_ms);
        let mut ids = Vec::new();
        for run in page_runs(series) {
            let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
            for &id in run {
                let Some(hot) = stripe.hot(id).filter(|_| is_wanted(&stripe, id)) else { continue };
                if !hot.open.is_none() && window.contains(hot.open_min) {
                    stripe.seal_open(&world, &mut tally, id);
                }
                self.seal_late_in_slices(&mut stripe, &mut tally, id, window);
                stripe.seal_late(&world, &mut tally, id, window);
                stripe.seal_histograms(&world, &mut tally, id, window);
                let Some(hot) = stripe.hot(id) else { continue };
                let has_floats = stripe.nodes.list(hot.sealed).any(|n| window.contains(n.min_time));
                if has_floats || stripe.has_sealed_histograms(id, window) {
                    ids.push(id);
                }
            }
            MutexGuard::unlock_fair(stripe);
            tenant.windows.lock().merge(&mut tally, i64::MAX);
            // What is sealed does not pile up in memory.
            let written = self.series.store.write_if_many();
            self.note_sealed_failure(written)?;
        }
        let end = self.series.store.end();
        self.write_sealed()?;
        {
            // Tables that are built anew meanwhile would number their pairs anew.
            let _alone = self.maintenance.lock();
            sort_by_labels(&tenant.tables, &mut ids);
        }
        Ok(WindowSnapshot { tenant, series: self.series.clone(), window, ids, end, _ids })
    }
}

impl WindowSnapshot {
    /// Whose window it is.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant.id
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> TimeRange {
        self.window
    }

    /// Series with samples in the window.
    #[must_use]
    pub fn series_count(&self) -> usize {
        self.ids.len()
    }

    /// The series in order of labels with their chunks. Chunks that overlap none are given as they are, the
    /// others are encoded again. A damaged chunk is left out and named; a disk that cannot be read is an error.
    /// Samples that late ones were merged with since are missing here and stay in the head at a drop.
    pub fn series(&self) -> impl Iterator<Item = Result<WindowSeries, HeadError>> {
        self.series_of(|place, min_time| self.holds(place, min_time))
    }

    /// As [`WindowSnapshot::series`], with what has been sealed since: nothing that was there when the snapshot was taken is
    /// missing. For copies of a window that stays in the head.
    pub fn series_with_later(&self) -> impl Iterator<Item = Result<WindowSeries, HeadError>> {
        self.series_of(|_, min_time| self.window.contains(min_time))
    }

    fn series_of(
        &self,
        is_part: impl Fn(SealedPlace, i64) -> bool,
    ) -> impl Iterator<Item = Result<WindowSeries, HeadError>> {
        let mut builder = LabelsBuilder::new();
        self.ids.iter().filter_map(move |&id| {
            let labels = self.tenant.tables.read().labels(id, &mut builder)?;
            match self.chunks(id, &is_part) {
                Ok((chunks, damages)) if chunks.is_empty() && damages.is_empty() => None,
                Ok((chunks, damages)) => Some(Ok(WindowSeries { labels, chunks, damages })),
                Err(error) => Some(Err(error)),
            }
        })
    }

    /// Whether a sealed chunk that starts at `min_time` is part of it.
    pub(crate) fn holds(&self, place: SealedPlace, min_time: i64) -> bool {
        self.window.contains(min_time) && place < self.end
    }

    fn chunks(
        &self,
        id: u32,
        is_part: impl Fn(SealedPlace, i64) -> bool,
    ) -> Result<(Vec<EncodedChunk>, Vec<HeadError>), HeadError> {
        let stripe = self.series.stripes[stripe_of(id)].lock();
        let Some(hot) = stripe.hot(id) else { return Ok(Default::default()) };
        let mut chunks = Vec::new();
        let mut files = RecentFiles::new(&self.series.store);
        copy_chunks(&stripe, &mut files, hot, self.window, &mut chunks);
        copy_histograms(&stripe, &mut files, id, self.window, &mut chunks);
        let starts = stripe.copy_starts(id, self.window);
        drop(stripe);
        chunks.sort_by_key(HeadChunk::min_time);
        chunks.retain(|chunk| chunk.place().is_some_and(|place| is_part(place, chunk.min_time())));
        let disk = &*self.series.env.disk;
        match encode_all(disk, &chunks, &starts) {
            Err(QueryError::Corrupt { .. }) => {}
            all => return all.map(|out| (out, Vec::new())).map_err(from_query),
        }
        let mut damages = Vec::new();
        for idx in (0..chunks.len()).rev() {
            match chunks[idx].decode(disk, TimeRange::ALL, &mut Columns::default()) {
                Ok(()) => {}
                Err(damage @ QueryError::Corrupt { .. }) => {
                    damages.push(from_query(damage));
                    chunks.remove(idx);
                }
                Err(error) => return Err(from_query(error)),
            }
        }
        let out = encode_all(disk, &chunks, &starts).map_err(from_query)?;
        Ok((out, damages))
    }
}

/// The samples of sealed chunks of one series, oldest first, with their start times.
fn encode_all(
    disk: &dyn Disk,
    chunks: &[HeadChunk],
    starts: &[StartRun],
) -> Result<Vec<EncodedChunk>, QueryError> {
    let mut out = Vec::with_capacity(chunks.len());
    let mut rest = chunks;
    while !rest.is_empty() {
        let (group, behind) = rest.split_at(overlapping_len(rest));
        rest = behind;
        if let [one] = group
            && starts.is_empty()
            && let Some(chunk) = one.sealed(disk)?
        {
            out.push(chunk);
            continue;
        }
        let mut samples = Columns::default();
        merge_chunks(disk, group, TimeRange::ALL, &mut samples)?;
        starts::fill(starts, 0, &mut samples);
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
