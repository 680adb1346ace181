//! Writes head windows to blocks. The files of several blocks are written first and then synced together.
//!
//! Invariants: a block is complete and durable before its samples leave the head. Windows that are published
//! together belong to distinct tenants, so that the names of a tenant's blocks ascend in the order of
//! writing.
//! Not here: which windows (`plan`), the size of a batch (`scheduler`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use chronolith_block::{Block, BlockEntry, BlockError, BlockSource, BlockWriter, WrittenBlock, publish};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::chunk::kinds;
use chronolith_format::store_name;
use chronolith_head::{HeadError, WindowSeries, WindowSnapshot};
use chronolith_model::{BlockEncoding, StoreId, TimeRange, WordKind};

use super::super::counters::FlushCounters;
use crate::blocks::tenant::TenantBlocks;
use crate::encoding::SeriesEncoder;
use crate::storage::Storage;

/// Stores whose blocks [`FlushWriter::flush_all`] writes before it syncs them.
const STORES_PER_SYNC: usize = 64;

/// Error of a flush; the samples stay in the head.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlushError {
    #[error("head: {0}")]
    Head(#[from] HeadError),
    #[error("block: {0}")]
    Block(#[from] BlockError),
    #[error("chunk of the head: {0}")]
    Chunk(#[from] chronolith_base::DecodeError),
    #[error("disk: {0}")]
    Io(#[from] io::Error),
}

/// A window, or part of one, whose block is written and not yet synced.
pub(crate) struct WrittenWindow {
    tenant: StoreId,
    range: TimeRange,
    snapshot: WindowSnapshot,
    blocks: Arc<TenantBlocks>,
    ulid: Ulid,
    bytes: u64,
    /// `None` if there was no sample.
    block: Option<WrittenBlock>,
    started_ns: u64,
}

impl WrittenWindow {
    /// Returns the approximate size of the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Writes windows of the head of the storage.
pub(crate) struct FlushWriter<'a> {
    storage: &'a Storage,
    counters: &'a FlushCounters,
}

impl<'a> FlushWriter<'a> {
    pub(crate) fn new(storage: &'a Storage, counters: &'a FlushCounters) -> FlushWriter<'a> {
        FlushWriter { storage, counters }
    }

    pub(super) fn storage(&self) -> &'a Storage {
        self.storage
    }

    /// Flushes the windows of each store in each of its ranges to one block, in their order. The first blocks
    /// of up to [`STORES_PER_SYNC`] stores are synced together, then the second ones, and so on.
    ///
    /// # Errors
    /// [`FlushError`]; the windows that were written before are flushed.
    pub(crate) fn flush_all(
        &self,
        mut ranges: BTreeMap<StoreId, VecDeque<TimeRange>>,
    ) -> Result<(), FlushError> {
        while !ranges.is_empty() {
            let mut windows = Vec::new();
            let mut failed = None;
            for (store, ranges) in ranges.iter_mut().take(STORES_PER_SYNC) {
                let Some(range) = ranges.pop_front() else { continue };
                match self.write_window(store, range) {
                    Ok(window) => windows.push(window),
                    Err(error) => failed = Some(error),
                }
                if failed.is_some() {
                    break;
                }
            }
            self.publish(windows).into_iter().collect::<Result<(), _>>()?;
            failed.map_or(Ok(()), Err)?;
            ranges.retain(|_, ranges| !ranges.is_empty());
        }
        Ok(())
    }

    fn write_window(&self, store: &StoreId, range: TimeRange) -> Result<WrittenWindow, FlushError> {
        let snapshot = self.storage.head().windows().snapshot(store, range)?;
        self.write(store, range, snapshot)
    }

    /// Flushes `snapshot`, which is part or all of `range`.
    ///
    /// # Errors
    /// [`FlushError`].
    pub(crate) fn flush_snapshot(
        &self,
        store: &StoreId,
        range: TimeRange,
        snapshot: WindowSnapshot,
    ) -> Result<(), FlushError> {
        let window = self.write(store, range, snapshot)?;
        self.publish(vec![window]).into_iter().collect()
    }

    /// Writes the files of a block of `snapshot`, which is part or all of `range`.
    ///
    /// # Errors
    /// [`FlushError`].
    pub(crate) fn write(
        &self,
        store: &StoreId,
        range: TimeRange,
        snapshot: WindowSnapshot,
    ) -> Result<WrittenWindow, FlushError> {
        let env = self.storage.env();
        let started_ns = env.clock.mono_ns();
        let blocks = self.storage.blocks().tenant_or_new(store);
        blocks.make_dir(&*env.disk)?;
        let mut writer = self.begin_block(&blocks, self.storage.newest_ulid(&blocks))?;
        self.put_series(store, &snapshot, &mut writer)?;
        let (ulid, bytes) = (writer.ulid(), writer.size_bytes());
        let block = writer.write(range)?;
        let store = store.clone();
        Ok(WrittenWindow { tenant: store, range, snapshot, blocks, ulid, bytes, block, started_ns })
    }

    /// Adds the series of `snapshot` to a block.
    ///
    /// # Errors
    /// [`FlushError`].
    pub(crate) fn put_series(
        &self,
        store: &StoreId,
        snapshot: &WindowSnapshot,
        writer: &mut BlockWriter,
    ) -> Result<(), FlushError> {
        let encoding = self.storage.block_encoding_of(store);
        let mut encoder = SeriesEncoder::default();
        for series in snapshot.series() {
            let WindowSeries { labels, chunks, texts, damages } = series?;
            for damage in damages {
                self.counters.damaged_chunks.increment();
                tracing::error!(tenant = %store_name(store), %labels, %damage, "damaged chunk omitted from the flushed block");
            }
            if chunks.is_empty() {
                continue;
            }
            // Prometheus would read words of other kinds as floats.
            let is_copied = encoding == BlockEncoding::Prometheus
                && matches!(WordKind::of(&labels), WordKind::Float | WordKind::Boolean)
                && chunks.iter().all(|chunk| kinds::is_of_prometheus(chunk.encoding));
            if is_copied {
                writer.add(&labels, &chunks)?;
            } else {
                encoder.put::<FlushError>(&labels, &chunks, texts.as_ref(), writer)?;
            }
        }
        Ok(())
    }

    /// Begins a block with a name after `previous`, in the unit and encoding of its store.
    pub(super) fn begin_block(
        &self,
        blocks: &TenantBlocks,
        previous: Option<Ulid>,
    ) -> Result<BlockWriter, BlockError> {
        let store = blocks.tenant();
        let writer = BlockWriter::create_after(self.storage.env(), blocks.dir(), previous)?;
        Ok(writer.with_unit(store.time_unit()).with_encoding(self.storage.block_encoding_of(store)))
    }

    /// Syncs the blocks, adds them to the lists of their tenants and removes their samples from the head.
    /// Returns one result per window, in their order.
    pub(crate) fn publish(&self, mut windows: Vec<WrittenWindow>) -> Vec<Result<(), FlushError>> {
        let dirs: BTreeSet<_> = windows.iter().map(|window| window.blocks.dir()).collect();
        assert_eq!(dirs.len(), windows.len(), "windows that are published together are of distinct tenants");
        let tenants = windows.iter().map(|window| &*window.blocks);
        if let Err(error) = TenantBlocks::sync_new_dirs(&*self.storage.env().disk, tenants) {
            let copy = |_| Err(FlushError::Io(io::Error::new(error.kind(), error.to_string())));
            return windows.into_iter().map(copy).collect();
        }
        let written = windows
            .iter_mut()
            .filter_map(|window| Some((window.block.take()?, BlockSource::head(window.range), window.ulid)));
        let (ulids, written): (Vec<Ulid>, Vec<_>) =
            written.map(|(block, source, ulid)| (ulid, (block, source))).unzip();
        let published = publish(written);
        // A window without its result would leave the head as if it had no sample.
        assert_eq!(published.len(), ulids.len(), "each written block has its result");
        let mut published = ulids.into_iter().zip(published).peekable();
        let mut results = Vec::with_capacity(windows.len());
        for window in windows {
            let meta = published.next_if(|(ulid, _)| *ulid == window.ulid).map(|(_, meta)| meta);
            results.push(self.drop_from_head(window, meta));
        }
        results
    }

    fn drop_from_head(
        &self,
        window: WrittenWindow,
        published: Option<Result<BlockMeta, BlockError>>,
    ) -> Result<(), FlushError> {
        let WrittenWindow { tenant, range, snapshot, blocks, ulid, started_ns, .. } = window;
        if let Some(published) = published {
            let block = self.open_published(&blocks, ulid, published)?;
            let meta = block.meta();
            let ms = (self.storage.env().clock.mono_ns() - started_ns) / 1_000_000;
            self.storage.blocks().add(&blocks, BlockEntry::new(block.record()));
            tracing::info!(tenant = %store_name(&tenant), ulid = %meta.ulid, range.start, range.end, series = meta.stats.num_series,
                samples = meta.stats.num_samples, ms, "flush wrote a block");
        }
        self.storage.head().windows().drop(snapshot);
        self.counters.windows.increment();
        Ok(())
    }

    /// Opens a published block. If that fails the block is removed: the head keeps its samples for the retry,
    /// and a deletion in between would not know of the block.
    pub(super) fn open_published(
        &self,
        blocks: &TenantBlocks,
        ulid: Ulid,
        published: Result<BlockMeta, BlockError>,
    ) -> Result<Arc<Block>, BlockError> {
        let env = self.storage.env();
        let dir = blocks.block_dir(ulid);
        published.and_then(|_| Block::open(env, &dir)).inspect_err(|_| {
            if chronolith_block::remove(env, &dir).is_err() {
                self.storage.blocks().schedule_removal(blocks, [dir]);
            }
        })
    }
}
