//! A window on its way to a block: seal what is open in it, read it in label order, drop exactly that.
//!
//! Holds: a snapshot is all chunks of the window whose place lies before the snapshot's end; places ascend, so
//! samples that come later are never part of it, and dropping it never takes them along.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_base::hash::HashSet;
use chronolith_format::xor::{self, EncodedChunk};
use chronolith_model::{Columns, Labels, LabelsBuilder, QueryError, TenantId, TimeRange};

use crate::head::{Head, Series};
use crate::options::HeadError;
use crate::sealed::SealedPlace;
use crate::source::{HeadChunk, copy_chunks, merge_chunks, overlapping_len};
use crate::stripe::{SealedNode, stripe_of};
use crate::tenant::TenantHead;
use crate::windows::WindowTally;

/// Chunks of one window of one tenant.
pub struct WindowSnapshot {
    tenant: Arc<TenantHead>,
    series: Arc<Series>,
    window: TimeRange,
    /// Series with chunks in the window, by labels.
    ids: Vec<u32>,
    end: SealedPlace,
}

/// What a drop removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropStats {
    /// Chunks.
    pub chunk_count: u64,
    /// Samples in them.
    pub sample_count: u64,
    /// Series that left the head, none of their chunks being left.
    pub series_count: u64,
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
        let world = self.series.world();
        let mut ids = Vec::new();
        let all: Vec<u32> = tenant.tables.read().live_ids().collect();
        for run in all.chunk_by(|&a, &b| stripe_of(a) == stripe_of(b)) {
            let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
            for &id in run {
                let Some(hot) = stripe.hot(id) else { continue };
                if !hot.slab.is_none() && window.contains(hot.open_min) {
                    stripe.seal_open(&world, id);
                }
                stripe.seal_late(&world, id, window);
                let Some(hot) = stripe.hot(id) else { continue };
                if stripe.nodes.list(hot.sealed).any(|n| window.contains(n.min_time)) {
                    ids.push(id);
                }
            }
        }
        let end = self.series.store.end();
        self.write_sealed()?;
        tenant.tables.read().sort_by_labels(&mut ids);
        Ok(WindowSnapshot { tenant, series: self.series.clone(), window, ids, end })
    }

    /// Removes exactly the chunks of `snapshot`, and series of its tenant that have no chunk left. The samples
    /// must be durable elsewhere (in a block). Sealed files go with the next checkpoint.
    pub fn drop_window(&self, snapshot: WindowSnapshot) -> DropStats {
        let _alone = self.maintenance.lock();
        let mut stats = DropStats::default();
        let mut tally = WindowTally::new(self.options.window_ms);
        let mut order = snapshot.ids.clone();
        order.sort_unstable();
        for run in order.chunk_by(|&a, &b| stripe_of(a) == stripe_of(b)) {
            let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
            for &id in run {
                let Some(start) = stripe.hot(id).map(|hot| hot.sealed) else { continue };
                let kept = stripe.nodes.remove(start, |node| {
                    let is_gone = snapshot.holds(node);
                    if is_gone {
                        stats.chunk_count += 1;
                        stats.sample_count += u64::from(node.count);
                        tally.add(node.min_time, -i64::from(node.count));
                        self.release(node);
                    }
                    is_gone
                });
                if let Some(hot) = stripe.hot_mut(id) {
                    hot.sealed = kept;
                }
            }
        }
        snapshot.tenant.windows.lock().merge(&mut tally, i64::MAX);
        stats.series_count = self.remove_empty_series(&snapshot.tenant);
        stats
    }

    fn release(&self, node: &SealedNode) {
        if let Some(file) = self.series.store.file(node.place.file) {
            file.live_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes series without any chunk. An append that looked one up meanwhile finds it gone and makes it anew.
    fn remove_empty_series(&self, tenant: &TenantHead) -> u64 {
        let mut tables = tenant.tables.write();
        let all: Vec<u32> = tables.live_ids().collect();
        let mut gone = HashSet::default();
        for run in all.chunk_by(|&a, &b| stripe_of(a) == stripe_of(b)) {
            let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
            for &id in run {
                if stripe.hot(id).is_none_or(|hot| hot.has_no_chunk()) {
                    stripe.remove(id);
                    gone.insert(id);
                }
            }
        }
        for &id in &gone {
            tables.remove(id);
        }
        tables.compact_if_sparse();
        drop(tables);
        if !gone.is_empty() {
            self.raw_keys.write().remove(|id| gone.contains(&id));
        }
        gone.len() as u64
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

    /// The series in order of labels with their chunks: ascending, not overlapping, one sample a time. Chunks
    /// that overlap none are given as they are, the others are encoded again.
    pub fn series(&self) -> impl Iterator<Item = Result<(Labels, Vec<EncodedChunk>), HeadError>> {
        let mut builder = LabelsBuilder::new();
        self.ids.iter().filter_map(move |&id| {
            let labels = self.tenant.tables.read().labels(id, &mut builder)?;
            match self.chunks(id) {
                Ok(chunks) if chunks.is_empty() => None,
                Ok(chunks) => Some(Ok((labels, chunks))),
                Err(error) => Some(Err(from_query(error))),
            }
        })
    }

    fn holds(&self, node: &SealedNode) -> bool {
        self.window.contains(node.min_time) && node.place < self.end
    }

    fn chunks(&self, id: u32) -> Result<Vec<EncodedChunk>, QueryError> {
        let stripe = self.series.stripes[stripe_of(id)].lock();
        let Some(hot) = stripe.hot(id) else { return Ok(Vec::new()) };
        let mut chunks = copy_chunks(&stripe, &self.series.store, hot, self.window);
        drop(stripe);
        chunks.retain(|chunk| matches!(chunk, HeadChunk::Sealed { node, .. } if self.holds(node)));
        let disk = &*self.series.env.disk;
        let mut out = Vec::with_capacity(chunks.len());
        let mut rest = chunks.as_slice();
        while !rest.is_empty() {
            let (group, behind) = rest.split_at(overlapping_len(rest));
            rest = behind;
            if let [HeadChunk::Sealed { file, node }] = group {
                let bytes =
                    file.read_chunk(disk, node.place.offset, usize::from(node.len), <[u8]>::to_vec)?;
                out.push(EncodedChunk {
                    encoding: xor::ENCODING_XOR,
                    min_time: node.min_time,
                    max_time: node.max_time(),
                    count: node.count,
                    bytes,
                });
                continue;
            }
            let mut samples = Columns::default();
            merge_chunks(disk, group, TimeRange::ALL, &mut samples)?;
            out.extend(xor::encode(&samples.times, &samples.values));
        }
        Ok(out)
    }
}

fn from_query(error: QueryError) -> HeadError {
    match error {
        QueryError::Io { path, error } => HeadError::Io { path: path.into(), error },
        QueryError::Corrupt { path, what } => HeadError::Corrupt { path: path.into(), what },
        other => HeadError::Corrupt { path: "chunks".into(), what: other.to_string() },
    }
}
