//! Reading: series by matchers, with what they hold at that moment; label names and values.
//!
//! Holds: the tables are locked shared while chunks are copied, so a selected series cannot leave meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_model::index::select_refs;
use chronolith_model::query::ReadEstimate;
use chronolith_model::{LabelsBuilder, QueryError, ReadContext, Selector, SeriesRead, TenantId, TimeRange};

use crate::head::Head;
use crate::source::{HeadSamples, copy_chunks, copy_histograms, overlaps};
use crate::stripe::{PAGE_SLOTS, stripe_of};
use crate::tables::Tables;
use crate::tenant::{EMPTY_NONE, EMPTY_SOME, EMPTY_UNKNOWN, TenantHead};

impl Head {
    /// The series that fit and have chunks in the range, sorted by labels, as they are now.
    ///
    /// # Errors
    /// [`QueryError`]: canceled, timed out, out of memory budget.
    pub fn select(
        &self,
        tenant: &TenantId,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let tables = tenant.tables.read();
        let ids = select_refs(&*tables, selector.matchers)?;
        let mut memory = ctx.budget.reserve(0)?;
        let mut builder = LabelsBuilder::new();
        let mut found = Vec::new();
        for run in page_runs(&ids) {
            ctx.check()?;
            let first = found.len();
            let stripe = self.series.stripes[stripe_of(run[0])].lock();
            for &id in run {
                let Some(hot) = stripe.hot(id) else { continue };
                let mut chunks = copy_chunks(&stripe, &self.series.store, hot, selector.range);
                copy_histograms(&stripe, &self.series.store, id, selector.range, &mut chunks);
                if !chunks.is_empty() {
                    found.push((id, chunks));
                }
            }
            drop(stripe);
            memory.grow(found[first..].iter().map(|(_, chunks)| HeadSamples::heap_bytes(chunks)).sum())?;
        }
        let mut labelled = Vec::with_capacity(found.len());
        for (id, chunks) in found {
            let Some(labels) = tables.labels(id, &mut builder) else { continue };
            memory.grow((labels.heap_bytes() + size_of::<SeriesRead>()) as u64)?;
            labelled.push((labels, chunks));
        }
        drop(tables);
        ctx.check()?;
        let memory = Arc::new(memory);
        let read = |(labels, chunks)| {
            let samples = HeadSamples { chunks, disk: self.env.disk.clone(), _memory: memory.clone() };
            SeriesRead { labels, samples: Box::new(samples) }
        };
        let mut out: Vec<SeriesRead> = labelled.into_iter().map(read).collect();
        out.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        Ok(out)
    }

    /// About how many series fit, and how many samples they have in the range: as many as the average series.
    /// Cost: postings, no series is touched.
    ///
    /// # Errors
    /// As [`Head::select`].
    pub fn estimate(&self, tenant: &TenantId, selector: &Selector<'_>) -> Result<ReadEstimate, QueryError> {
        let Some(tenant) = self.tenant(tenant) else { return Ok(ReadEstimate::default()) };
        let all_samples = tenant.windows.lock().sample_count(self.options.window_ms, selector.range);
        let tables = tenant.tables.read();
        let all_series = tables.live_count() as u64;
        if selector.matchers.is_empty() {
            return Ok(ReadEstimate { series: all_series, samples: all_samples });
        }
        let series = select_refs(&*tables, selector.matchers)?.len() as u64;
        let samples = u128::from(all_samples) * u128::from(series) / u128::from(all_series.max(1));
        Ok(ReadEstimate { series, samples: u64::try_from(samples).unwrap_or(u64::MAX) })
    }

    /// Label names of the series that fit, sorted, each once; at most `limit` (0 = all).
    ///
    /// # Errors
    /// As [`Head::select`].
    pub fn label_names(
        &self,
        tenant: &TenantId,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let tables = tenant.tables.read();
        let only = self.fitting(&tenant, &tables, selector, ctx)?;
        Ok(sorted(tables.names(only.as_deref()), limit))
    }

    /// Values of `name` among the series that fit, sorted, each once; at most `limit` (0 = all).
    ///
    /// # Errors
    /// As [`Head::select`].
    pub fn label_values(
        &self,
        tenant: &TenantId,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let tables = tenant.tables.read();
        let only = self.fitting(&tenant, &tables, selector, ctx)?;
        Ok(sorted(tables.values(name, only.as_deref()), limit))
    }

    /// Series that fit matchers and range; `None` when all do.
    fn fitting(
        &self,
        tenant: &TenantHead,
        tables: &Tables,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Vec<u32>>, QueryError> {
        ctx.check()?;
        let covers = self.range_covers(tenant, selector.range) && self.has_no_empty_series(tenant, tables);
        if covers && selector.matchers.is_empty() {
            return Ok(None);
        }
        let mut ids = select_refs(tables, selector.matchers)?;
        if covers {
            return Ok(Some(ids));
        }
        let mut kept = Vec::with_capacity(ids.len());
        for run in page_runs(&ids) {
            ctx.check()?;
            let stripe = self.series.stripes[stripe_of(run[0])].lock();
            let fits = |id: u32| {
                let floats = stripe.hot(id).is_some_and(|hot| overlaps(&stripe, hot, selector.range));
                floats || stripe.has_histograms_in(id, selector.range)
            };
            kept.extend(run.iter().copied().filter(|&id| fits(id)));
        }
        ids = kept;
        Ok(Some(ids))
    }

    /// Whether every series has samples. After a look that finds it so, the next ones are spared.
    fn has_no_empty_series(&self, tenant: &TenantHead, tables: &Tables) -> bool {
        match tenant.empty_series.load(Ordering::Relaxed) {
            EMPTY_NONE => return true,
            EMPTY_SOME => return false,
            _ => {}
        }
        let ids: Vec<u32> = tables.live_ids().collect();
        let all = page_runs(&ids).all(|run| {
            let stripe = self.series.stripes[stripe_of(run[0])].lock();
            run.iter().all(|&id| stripe.hot(id).is_none() || !stripe.is_empty(id))
        });
        let seen = if all { EMPTY_NONE } else { EMPTY_SOME };
        // A deletion that came meanwhile knows better.
        let noted =
            tenant.empty_series.compare_exchange(EMPTY_UNKNOWN, seen, Ordering::Relaxed, Ordering::Relaxed);
        all && noted != Err(EMPTY_SOME)
    }

    /// Whether all windows of the tenant lie in `range`.
    fn range_covers(&self, tenant: &TenantHead, range: TimeRange) -> bool {
        let windows = tenant.windows.lock();
        let inside =
            |start: &i64| range.start <= *start && start.saturating_add(self.options.window_ms) <= range.end;
        windows.by_start.keys().all(inside)
    }
}

/// Runs of ascending ids that share a page, and so a stripe.
pub(crate) fn page_runs(ids: &[u32]) -> impl Iterator<Item = &[u32]> {
    let page = |id: u32| id as usize / PAGE_SLOTS;
    ids.chunk_by(move |&a, &b| page(a) == page(b))
}

fn sorted(mut found: Vec<&str>, limit: usize) -> Vec<String> {
    found.sort_unstable();
    if limit > 0 {
        found.truncate(limit);
    }
    found.into_iter().map(str::to_owned).collect()
}
