//! Operations on the block, timed and counted.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, Env};
use chronolith_block::Shard;
use chronolith_bucket::store::request::Operation;
use chronolith_bucket::{BlockCatalog, BucketBlock, CatalogOptions, Store, StoreConfig};
use chronolith_model::{MatchOp, Matcher, ReadContext, Selector, SeriesRead, TenantId, TimeRange};
use stats_alloc::Region;
use tokio::runtime::Runtime;

use super::content::{Content, Expected};
use super::shape::{Shape, TENANT, VARIANT_COUNT};
use crate::allocations::ALLOCATOR;
use crate::proc::Stopwatch;
use crate::workers::in_parallel;

const MEMORY_BYTES_MAX: u64 = 512 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Chunks are copied from the bucket in each operation.
    Owned,
    /// And their checksums are verified.
    OwnedVerified,
    /// Chunks are references into the range cache.
    Cached,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Owned => "owned",
            Mode::OwnedVerified => "owned + CRC",
            Mode::Cached => "cached",
        }
    }
}

/// One cell of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) shape: Shape,
    pub(super) worker_count: usize,
    pub(super) operation_count: usize,
}

/// Figures of a cell, each per operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) ms: f64,
    cpu_ms: f64,
    pub(super) allocations: f64,
    allocated_kb: f64,
    fetched_mb: f64,
    requests: f64,
    /// NaN if nothing is fetched.
    pub(super) fetched_per_returned: f64,
}

impl Figures {
    pub(super) fn cells(&self) -> [f64; 7] {
        let Figures { ms, cpu_ms, allocations, allocated_kb, fetched_mb, requests, fetched_per_returned } =
            *self;
        [ms, cpu_ms, allocations, allocated_kb, fetched_mb, requests, fetched_per_returned]
    }

    pub(super) fn faster(self, other: Figures) -> Figures {
        if other.ms < self.ms { other } else { self }
    }
}

/// A bucket with the block, opened, its lists and entries in memory.
pub(super) struct World {
    // Dropped last: requests run on it.
    block: Arc<BucketBlock>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    _runtime: Runtime,
}

impl World {
    /// The bucket in `dir`.
    pub(super) fn open(dir: &Path, mode: Mode) -> Result<World> {
        let env = Env::real();
        let workers = chronolith_base::thread::core_count();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
        let url = format!("file://{}", dir.canonicalize()?.display());
        let store = Arc::new(Store::open(&StoreConfig::new(&url), &env, runtime.handle().clone())?);
        let options = CatalogOptions {
            memory_bytes_max: MEMORY_BYTES_MAX,
            keeps_chunks: mode == Mode::Cached,
            verifies_chunks: mode == Mode::OwnedVerified,
            ..CatalogOptions::default()
        };
        let catalog = BlockCatalog::new(store.clone(), env.clock.clone(), runtime.handle().clone(), &options);
        let ctx = ReadContext::unlimited(env.clock.clone());
        let blocks = catalog.blocks_in(&TenantId::new(TENANT)?, TimeRange::ALL, &ctx)?;
        ensure!(blocks.len() == 1, "{} blocks in the bucket", blocks.len());
        let block = blocks.into_iter().next().context("no block")?;
        Ok(World { block, store, clock: env.clock, _runtime: runtime })
    }

    /// Runs the operations of one cell after as many that are not counted as there are variants.
    pub(super) fn measure(&self, content: &Content, cell: Cell) -> Result<Figures> {
        for idx in 0..VARIANT_COUNT {
            self.operation(content, cell.shape, idx)?;
        }
        let before = self.fetched();
        let stopwatch = Stopwatch::of_this_process()?;
        let allocations = Region::new(ALLOCATOR);
        let per_worker = cell.operation_count / cell.worker_count;
        let returned_bytes = in_parallel(0..cell.worker_count, |_, _| -> Result<u64> {
            (0..per_worker as u64).map(|idx| self.operation(content, cell.shape, idx)).sum()
        })?;
        let counted = allocations.change();
        let spent = stopwatch.spent()?;
        let after = self.fetched();
        let count = (per_worker * cell.worker_count) as f64;
        let fetched_bytes = (after.bytes - before.bytes) as f64;
        let ratio = if fetched_bytes > 0.0 {
            fetched_bytes / returned_bytes.iter().sum::<u64>() as f64
        } else {
            f64::NAN
        };
        Ok(Figures {
            ms: spent.wall_seconds * 1e3 / count,
            cpu_ms: spent.cpu.total() * 1e3 / count,
            allocations: (counted.allocations + counted.reallocations) as f64 / count,
            allocated_kb: counted.bytes_allocated as f64 / 1e3 / count,
            fetched_mb: fetched_bytes / 1e6 / count,
            requests: (after.requests - before.requests) as f64 / count,
            fetched_per_returned: ratio,
        })
    }

    /// One operation; returns the bytes of its chunks.
    fn operation(&self, content: &Content, shape: Shape, idx: u64) -> Result<u64> {
        let variant = idx % VARIANT_COUNT;
        let (pattern, shard) = match shape {
            Shape::Unsharded => (format!(".*{variant}.*"), None),
            Shape::Sharded => {
                let count = VARIANT_COUNT.try_into().context("no shards")?;
                (".+".to_owned(), Some(Shard { idx: variant, count }))
            }
        };
        let matchers = [Matcher::new("i", MatchOp::Regex, &pattern)?];
        let ctx = ReadContext::unlimited(self.clock.clone());
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let mut batches = self.block.select_shard(&selector, shard, &ctx);
        let mut series: Vec<SeriesRead> = Vec::new();
        while batches.next_batch(&mut series)? {}
        let expected: &Expected = content.expected(shape, idx)?;
        let first = series.first().map(|series| &series.labels);
        ensure!(series.len() as u64 == expected.series_count, "operation {idx}: {} series", series.len());
        ensure!(first == expected.first.as_ref(), "operation {idx} begins with {first:?}");
        black_box(&series);
        Ok(expected.chunk_bytes)
    }

    fn fetched(&self) -> Fetched {
        let counters = self.store.counters();
        let gets = counters.operations.iter().find(|found| found.operation == Operation::Get);
        let requests = gets.map_or(0, |gets| gets.requests.iter().map(|(_, count)| count).sum());
        Fetched { requests, bytes: gets.map_or(0, |gets| gets.received_bytes) }
    }
}

/// Requests and bytes so far.
struct Fetched {
    requests: u64,
    bytes: u64,
}
