//! Local sidecars: after a query has read a block without a sidecar by its index, a sidecar is made of that
//! index in the background and kept in the cache.
//!
//! Invariants: nothing is written to the bucket; bytes that are read for it count as requests in flight in
//! the memory of the bucket, and do not stay there; a block gets one at a time.
//! Not here: the content (`block`), the order of tasks (`sidecar_queue`), which reader answers
//! (`crate::block`).

mod error;
mod pieces;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use chronolith_base::MemoryBudget;
use chronolith_block::IndexSidecar;
use tokio::time::Instant;

use self::error::BuildError;
use self::pieces::PieceWriter;
use crate::block::{BlockReader, BucketBlock, BuildSource, OpenedBlock};
use crate::sidecar_queue::SidecarQueue;

/// Longest index of which a sidecar is made.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// Part of the cache that one sidecar may take.
const CACHE_FRACTION_MAX: u64 = 4;
/// A sidecar has at least this part of the bytes of the index.
const SIDECAR_FRACTION_MIN: u64 = 128;
/// Time of the requests of one wave.
const WAVE_TIMEOUT_NS: u64 = 120_000_000_000;

/// Queues the sidecar of a block that a query has read by the reader `opened`, if that is the index, and a
/// sidecar is due, worthwhile, and may fit into the cache.
pub(crate) fn request_sidecar(block: &Arc<BucketBlock>, opened: &OpenedBlock) {
    if matches!(opened.reader, BlockReader::Sidecar(_)) {
        return;
    }
    let queue = block.sidecar_queue();
    let index_bytes = opened.files.index_bytes();
    let rules = queue.rules();
    let is_worthwhile = index_bytes > rules.index_bytes_min && index_bytes <= INDEX_BYTES_MAX;
    let sidecar_bytes_min = index_bytes / SIDECAR_FRACTION_MIN;
    let fits = sidecar_bytes_min < opened.files.cache_bytes_max() / CACHE_FRACTION_MAX;
    if !is_worthwhile || !fits || !block.local_sidecar().begin(block.now_ns()) {
        return;
    }
    let start = Instant::now() + rules.delay;
    let task = make(Arc::downgrade(block), queue.clone(), start);
    if !queue.push(block.handle(), task) {
        block.local_sidecar().end();
    }
}

/// Makes the sidecar of `block` from `start` on, unless it was removed, and records the outcome.
async fn make(block: Weak<BucketBlock>, queue: Arc<SidecarQueue>, start: Instant) {
    tokio::time::sleep_until(start).await;
    let Some(block) = block.upgrade() else { return };
    let key = block.key();
    match build(&block).await {
        Ok(len) => {
            queue.built.fetch_add(1, Ordering::Relaxed);
            queue.built_bytes.fetch_add(len, Ordering::Relaxed);
            tracing::debug!(%key, len, "made a sidecar of a block");
        }
        Err(BuildError::Refused(error)) => {
            queue.failures.fetch_add(1, Ordering::Relaxed);
            block.local_sidecar().give_up();
            tracing::warn!(%key, %error, "making a sidecar of a block is not possible, queries read its index");
        }
        Err(BuildError::Failed(error)) => {
            queue.failures.fetch_add(1, Ordering::Relaxed);
            block.local_sidecar().note_failure(block.now_ns());
            tracing::warn!(%key, %error, "making a sidecar of a block failed, retrying later");
        }
    }
    block.local_sidecar().end();
}

/// Makes the sidecar of `block`, keeps it, and has the block read by it. Returns its length.
async fn build(block: &Arc<BucketBlock>) -> Result<u64, BuildError> {
    let source = block.build_source(deadline_ns(block)).await?;
    let len = write(block, source).await?;
    if !block.use_local_sidecar(len, deadline_ns(block)).await? {
        return Err(BuildError::Failed("the cache has evicted a part of it".to_owned()));
    }
    Ok(len)
}

/// Reads the index in waves, each of which is decoded on a thread that may wait.
async fn write(block: &Arc<BucketBlock>, source: BuildSource) -> Result<u64, BuildError> {
    let BuildSource { index, files, target } = source;
    let bytes_max = target.cache_bytes_max() / CACHE_FRACTION_MAX;
    let pieces = Arc::new(PieceWriter::new(target, bytes_max));
    let receiver = pieces.clone();
    let mut sidecar = IndexSidecar::new(&index, move |bytes: &[u8]| receiver.push(bytes))?;
    let budget = MemoryBudget::new("making a sidecar", u64::MAX);
    loop {
        let bytes = {
            let Some(wave) = sidecar.next_wave() else { break };
            files.read(&*wave, &budget, deadline_ns(block), None, &|_| Ok(())).await
        };
        files.drop_ranges();
        let bytes = bytes?;
        let pushed = block.handle().spawn_blocking(move || {
            let pushed = sidecar.push(&bytes);
            (sidecar, pushed)
        });
        let (next, pushed) = pushed.await?;
        pushed?;
        sidecar = next;
        pieces.check()?;
        if Arc::strong_count(block) == 1 {
            return Err(BuildError::Failed("the block is gone".to_owned()));
        }
    }
    let finish = move || -> Result<u64, BuildError> {
        sidecar.finish()?;
        pieces.finish()
    };
    block.handle().spawn_blocking(finish).await?
}

fn deadline_ns(block: &BucketBlock) -> u64 {
    block.now_ns().saturating_add(WAVE_TIMEOUT_NS)
}
