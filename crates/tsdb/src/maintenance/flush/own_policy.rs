//! Blocks of batches whose duplicate policy is not the one of their store (ADR 0119).
//!
//! Invariants: the block ranks before every other block of its store, and a later one before an earlier one,
//! so under keep-first its samples win and under last-wins they lose, whatever is flushed or merged later;
//! the blocks of a batch are durable when the writer returns.
//! Not here: checks of the batch (`head`), the lock and the rest of the write (`admin`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use chronolith_block::{BlockEntry, BlockSource, WrittenBlock, publish};
use chronolith_format::block::meta::Ulid;
use chronolith_format::chunk::kinds;
use chronolith_format::store_name;
use chronolith_head::DecodedSeries;
use chronolith_model::{Columns, StoreId, TimeRange};

use super::writer::{FlushError, FlushWriter};
use crate::blocks::tenant::TenantBlocks;
use crate::encoding::SeriesEncoder;
use crate::storage::Storage;
use crate::window::{BlockRanges, WINDOW_MS};

/// Time of the ranks, in September 2001: before the name of every block. Seconds of the clock are subtracted,
/// so that ranks descend even if a block with a lower rank is not known.
const RANK_MS: i64 = 1_000_000_000_000;
/// Blocks whose files are open at the same time.
const BLOCKS_PER_SYNC: usize = 64;

impl FlushWriter<'_> {
    /// Writes `series`, which ascend by labels, to one block per block range. Returns the number of blocks.
    ///
    /// # Errors
    /// [`FlushError`]; blocks of some ranges may stay, each complete.
    pub(crate) fn write_own_policy(
        &self,
        store: &StoreId,
        series: &[DecodedSeries],
    ) -> Result<usize, FlushError> {
        let blocks = self.storage().blocks().tenant_or_new(store);
        blocks.make_dir(&*self.storage().env().disk)?;
        let by_range = by_block_range(self.storage(), store, series);
        let block_count = by_range.len();
        let mut by_range = by_range.into_iter().peekable();
        let mut latest = self.storage().newest_ulid(&blocks);
        while by_range.peek().is_some() {
            let mut written = Vec::new();
            for (range, of_range) in by_range.by_ref().take(BLOCKS_PER_SYNC) {
                let block = self.write_range(&blocks, latest, range, &of_range)?;
                latest = Some(block.ulid());
                written.push((block, range));
            }
            self.publish_ranked(&blocks, written)?;
        }
        Ok(block_count)
    }

    /// Writes the files of one block.
    fn write_range(
        &self,
        blocks: &TenantBlocks,
        latest: Option<Ulid>,
        range: TimeRange,
        series: &[(&DecodedSeries, Columns)],
    ) -> Result<WrittenBlock, FlushError> {
        let mut writer = self.begin_block(blocks, latest)?;
        let mut encoder = SeriesEncoder::default();
        let mut chunks = Vec::new();
        for (series, samples) in series {
            chunks.clear();
            kinds::encode(samples, &mut chunks);
            encoder.put::<FlushError>(&series.labels, &chunks, None, &mut writer)?;
        }
        let block = writer.write(range)?;
        Ok(block.expect("a range has samples"))
    }

    /// Makes blocks durable and adds them to the list of their store, each before all others.
    fn publish_ranked(
        &self,
        blocks: &Arc<TenantBlocks>,
        written: Vec<(WrittenBlock, TimeRange)>,
    ) -> Result<(), FlushError> {
        TenantBlocks::sync_new_dirs(&*self.storage().env().disk, std::iter::once(&**blocks))?;
        let ulids: Vec<Ulid> = written.iter().map(|(block, _)| block.ulid()).collect();
        let mut lowest = lowest_rank(self.storage(), blocks);
        let mut ranked = Vec::with_capacity(written.len());
        for (block, range) in written {
            let rank = self.rank_before(lowest)?;
            lowest = Some(rank);
            ranked.push((block, BlockSource { sources: vec![rank], ..BlockSource::head(range) }));
        }
        let mut failed = None;
        for (ulid, published) in ulids.into_iter().zip(publish(ranked)) {
            match self.open_published(blocks, ulid, published) {
                Ok(block) => {
                    let stats = &block.meta().stats;
                    tracing::info!(tenant = %store_name(blocks.tenant()), %ulid, series = stats.num_series,
                        samples = stats.num_samples, "a batch with a duplicate policy of its own became a block");
                    self.storage().blocks().add(blocks, BlockEntry::new(block.record()));
                }
                Err(error) => failed = Some(error.into()),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns a rank before `lowest` and all ranks given so far.
    fn rank_before(&self, lowest: Option<Ulid>) -> Result<Ulid, FlushError> {
        let env = self.storage().env();
        let by_clock = Ulid::new(RANK_MS.saturating_sub(env.clock.now_ms() / 1000), 0);
        let before = lowest.map_or(by_clock, |lowest| lowest.min(by_clock));
        // The difference makes ranks unique: a merged block is known by the ranks of its parts.
        let difference = u128::from(env.rng.next_u64()) + 1;
        let bits = u128::from_be_bytes(before.to_bytes()).checked_sub(difference);
        let no_rank = || io::Error::other("a block of the store claims to be the oldest that can be");
        Ok(bits.map(Ulid::from_bits).ok_or_else(no_rank)?)
    }
}

/// Returns the rank of the first block of a store, known blocks of the bucket included.
fn lowest_rank(storage: &Storage, blocks: &TenantBlocks) -> Option<Ulid> {
    let local = blocks.list().first().map(|entry| entry.precedence().0);
    let in_bucket = storage.places_in_bucket(blocks.tenant()).unwrap_or_default();
    local.into_iter().chain(in_bucket.iter().map(|place| place.precedence.0)).min()
}

/// Returns the samples of each block range with their series. Cost: one copy of the samples.
fn by_block_range<'s>(
    storage: &Storage,
    store: &StoreId,
    series: &'s [DecodedSeries],
) -> BTreeMap<TimeRange, Vec<(&'s DecodedSeries, Columns)>> {
    let ranges = BlockRanges::new(store, storage.env().clock.now_ms());
    let width = store.time_unit().from_ms(WINDOW_MS);
    let mut by_range: BTreeMap<TimeRange, Vec<_>> = BTreeMap::new();
    for one in series {
        let all = &one.samples;
        let mut done = 0;
        while let Some(&time) = all.times.get(done) {
            let range = ranges.of(TimeRange::window_of(time, width));
            let end = all.indices_in(range).end;
            let mut samples = Columns::default();
            samples.extend_from(all, done..end);
            by_range.entry(range).or_default().push((one, samples));
            done = end;
        }
    }
    by_range
}
