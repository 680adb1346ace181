//! Windows to blocks, in groups: the files of many small blocks are written first and synced together.
//!
//! Holds: a block is complete and named before its samples leave the head. A group has at most one block of a
//! tenant, so that names of a tenant's blocks ascend in the order of their writing, and is bounded in blocks
//! (each has four files open) and in bytes.
//! Not here: which windows are due (`due`), when (`upkeep`).

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_block::{Block, BlockEntry, BlockError, BlockSource, BlockWriter, WrittenBlock, publish};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_head::{WindowSeries, WindowSnapshot};
use chronolith_model::{BlockEncoding, TenantId, TimeRange};

use super::FlushError;
use super::retry::{Retries, TenantRange};
use crate::encoding::SeriesEncoder;
use crate::store::Tsdb;
use crate::tenant::{TenantBlocks, sync_new_dirs};

/// Blocks of a group; 256 open files.
const GROUP_BLOCKS_MAX: usize = 64;
/// Bytes of blocks at which a group ends.
const GROUP_BYTES_MAX: u64 = 16 << 20;

/// A window, or part of one, whose block is written.
struct WrittenWindow {
    tenant: TenantId,
    range: TimeRange,
    snapshot: WindowSnapshot,
    blocks: Arc<TenantBlocks>,
    ulid: Ulid,
    /// None if there was no sample.
    block: Option<WrittenBlock>,
    started_ns: u64,
}

/// Windows whose blocks are synced together.
#[derive(Default)]
struct Group {
    windows: Vec<WrittenWindow>,
    bytes: u64,
}

impl Group {
    fn is_full(&self) -> bool {
        self.windows.len() >= GROUP_BLOCKS_MAX || self.bytes >= GROUP_BYTES_MAX
    }

    fn has(&self, tenant: &TenantId) -> bool {
        self.windows.iter().any(|window| window.tenant == *tenant)
    }
}

/// What became of the ranges that were to be flushed.
struct Flushed<'a> {
    retries: &'a mut Retries,
    now_ms: i64,
    count: usize,
    result: Result<(), FlushError>,
}

impl Flushed<'_> {
    fn note(&mut self, range: TenantRange, done: Result<(), FlushError>) {
        match done {
            Ok(()) => {
                self.count += 1;
                self.retries.succeed(&range);
            }
            Err(error) => {
                let (tenant, range_start, range_end) = (range.0.clone(), range.1.start, range.1.end);
                let pause_ms = self.retries.fail(range, self.now_ms);
                tracing::error!(%tenant, range_start, range_end, %error, pause_ms,
                    "flushing a window to a block failed; it is tried again after the pause");
                self.result = Err(error);
            }
        }
    }
}

impl Tsdb {
    /// Flushes each range to a block; gives how many were, and the last failure.
    pub(super) fn flush_ranges(
        &self,
        ranges: Vec<TenantRange>,
        retries: &mut Retries,
        now_ms: i64,
    ) -> (usize, Result<(), FlushError>) {
        let mut flushed = Flushed { retries, now_ms, count: 0, result: Ok(()) };
        let mut group = Group::default();
        for (tenant, range) in ranges {
            // What is left is due at the next look; an operator does not wait for all of it.
            let has_begun = flushed.count > 0 || !group.windows.is_empty();
            if has_begun && self.compaction.waiting.load(Ordering::SeqCst) > 0 {
                break;
            }
            if group.is_full() || group.has(&tenant) {
                self.publish_group(&mut group, &mut flushed);
            }
            let snapshot = self.head.windows().snapshot(&tenant, range).map_err(FlushError::Head);
            match snapshot.and_then(|snapshot| self.write_window(&tenant, range, snapshot)) {
                Ok((window, bytes)) => {
                    group.windows.push(window);
                    group.bytes += bytes;
                }
                Err(error) => flushed.note((tenant, range), Err(error)),
            }
        }
        self.publish_group(&mut group, &mut flushed);
        (flushed.count, flushed.result)
    }

    pub(crate) fn flush_window(&self, tenant: &TenantId, range: TimeRange) -> Result<(), FlushError> {
        self.write_and_drop(tenant, range, self.head.windows().snapshot(tenant, range)?)
    }

    /// Writes a block of `snapshot`, which is part or all of `range`, and takes its samples out of the head.
    pub(super) fn write_and_drop(
        &self,
        tenant: &TenantId,
        range: TimeRange,
        snapshot: WindowSnapshot,
    ) -> Result<(), FlushError> {
        let (window, _) = self.write_window(tenant, range, snapshot)?;
        self.publish_windows(vec![window]).into_iter().try_for_each(|(_, done)| done)
    }

    fn publish_group(&self, group: &mut Group, flushed: &mut Flushed<'_>) {
        for (range, done) in self.publish_windows(mem::take(group).windows) {
            flushed.note(range, done);
        }
    }

    /// Writes the files of a block; also gives about how many bytes they have.
    fn write_window(
        &self,
        tenant: &TenantId,
        range: TimeRange,
        snapshot: WindowSnapshot,
    ) -> Result<(WrittenWindow, u64), FlushError> {
        let started_ns = self.env.clock.mono_ns();
        let blocks = self.blocks_of(tenant);
        blocks.make_dir(&*self.env.disk)?;
        let encoding = self.limits_of(tenant).block_encoding;
        let writer = BlockWriter::create_after(&self.env, &blocks.dir, blocks.newest_ulid())?;
        let mut writer = writer.with_encoding(encoding);
        let mut encoder = SeriesEncoder::default();
        for series in snapshot.series() {
            let WindowSeries { labels, chunks, damages } = series?;
            for damage in damages {
                self.counters.damaged_chunks.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%tenant, %labels, %damage, "a damaged chunk is left out of its block");
            }
            if chunks.is_empty() {
                continue;
            }
            match encoding {
                BlockEncoding::Prometheus => writer.add(&labels, &chunks)?,
                BlockEncoding::Dense => encoder.put::<FlushError>(&labels, &chunks, &mut writer)?,
            }
        }
        let (ulid, bytes) = (writer.ulid(), writer.size_bytes());
        let block = writer.write(range)?;
        let tenant = tenant.clone();
        Ok((WrittenWindow { tenant, range, snapshot, blocks, ulid, block, started_ns }, bytes))
    }

    /// Names the blocks and takes their samples out of the head.
    fn publish_windows(&self, mut windows: Vec<WrittenWindow>) -> Vec<(TenantRange, Result<(), FlushError>)> {
        let tenants = windows.iter().map(|window| &*window.blocks);
        if let Err(error) = sync_new_dirs(&*self.env.disk, tenants) {
            let failed = |window: WrittenWindow| {
                let error = io::Error::new(error.kind(), error.to_string());
                ((window.tenant, window.range), Err(FlushError::Io(error)))
            };
            return windows.into_iter().map(failed).collect();
        }
        let written = windows
            .iter_mut()
            .filter_map(|window| Some((window.block.take()?, BlockSource::head(window.range), window.ulid)));
        let (ulids, written): (Vec<Ulid>, Vec<_>) =
            written.map(|(block, source, ulid)| (ulid, (block, source))).unzip();
        let mut published = ulids.into_iter().zip(publish(written)).peekable();
        let mut done = Vec::with_capacity(windows.len());
        for window in windows {
            let meta = published.next_if(|(ulid, _)| *ulid == window.ulid).map(|(_, meta)| meta);
            let range = (window.tenant.clone(), window.range);
            done.push((range, self.drop_published(window, meta)));
        }
        done
    }

    fn drop_published(
        &self,
        window: WrittenWindow,
        published: Option<Result<BlockMeta, BlockError>>,
    ) -> Result<(), FlushError> {
        let WrittenWindow { tenant, range, snapshot, blocks, ulid, started_ns, .. } = window;
        if let Some(published) = published {
            let block = self.open_published(&blocks, ulid, published)?;
            let (meta, ms) = (block.meta().clone(), (self.env.clock.mono_ns() - started_ns) / 1_000_000);
            blocks.add(&self.blocks, BlockEntry::new(block.record()));
            if self.blocks.catalogue.is_overdue() {
                self.blocks.commit();
            }
            tracing::info!(%tenant, ulid = %meta.ulid, range.start, range.end, series = meta.stats.num_series,
                samples = meta.stats.num_samples, ms, "window flushed to a block");
        }
        self.head.windows().drop(snapshot);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Opens a block that was published. One that was complete when the disk failed goes again: the head
    /// keeps its samples for the next try, and a deletion in between would not know of it.
    fn open_published(
        &self,
        blocks: &TenantBlocks,
        ulid: Ulid,
        published: Result<BlockMeta, BlockError>,
    ) -> Result<Arc<Block>, BlockError> {
        let dir = blocks.block_dir(ulid);
        published.and_then(|_| Block::open(&self.env, &dir)).inspect_err(|_| {
            if chronolith_block::remove(&self.env, &dir).is_err() {
                blocks.doom([dir]);
            }
        })
    }
}
