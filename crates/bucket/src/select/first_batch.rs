//! Memory of the first batches of a query: it is refused before it reads a chunk if they cannot be in memory
//! together, as the merge of its blocks needs one batch of each.
//!
//! Invariants: blocks whose chunks fit in any case cost no request; postings and series entries that are read
//! here are cached for the selections that follow; a block that fails here is left to its selection.
//! Not here: memory of later batches, which is reserved before they are requested (`crate::remote`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_block::source::{ByteRange, WAVE_BYTES_MAX};
use chronolith_model::{FetchLimits, QueryError, ReadContext, Selector};
use futures_util::{StreamExt, stream};

use super::{Selected, Sent};
use crate::block::{BucketBlock, ReaderChoice};

/// Blocks that are read at the same time.
const BLOCKS_AT_ONCE: usize = 32;

/// Checks that the first batch of each of `blocks` can be in memory. Waits on the calling thread, which is
/// none of the runtime.
///
/// # Errors
/// [`QueryError::Memory`].
pub fn check_first_batches(
    blocks: &[Arc<BucketBlock>],
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<(), QueryError> {
    let left_bytes = ctx.budget.limit_bytes().saturating_sub(ctx.budget.used_bytes());
    let bytes_max = blocks.iter().map(|block| block.chunk_bytes().min(WAVE_BYTES_MAX));
    let [first, ..] = blocks else { return Ok(()) };
    if bytes_max.fold(0, u64::saturating_add) <= left_bytes {
        return Ok(());
    }
    // The selections count what they read.
    let uncounted = &ctx.clone().with_fetch_limits(FetchLimits::default());
    let sizes = stream::iter(blocks).map(|block| async move {
        Selected::new(block, selector, None, uncounted).first_batch_bytes().await.or_else(|error| {
            let is_of_query = matches!(error, QueryError::Memory(_) | QueryError::Canceled);
            if is_of_query { Err(error) } else { Ok(0) }
        })
    });
    let time = Duration::from_nanos(ctx.source_remaining_ns());
    let sizes = sizes.buffer_unordered(BLOCKS_AT_ONCE).collect::<Vec<_>>();
    // Without an answer in time the selections fail, each with its own error.
    let sizes =
        first.handle().block_on(async { tokio::time::timeout(time, sizes).await }).unwrap_or_default();
    let mut all_bytes = 0u64;
    for bytes in sizes {
        all_bytes = all_bytes.saturating_add(bytes?);
    }
    ctx.budget.reserve(all_bytes).map(drop)?;
    Ok(())
}

impl Selected {
    /// Bytes of the chunks of the first batch; 0 if no series is selected.
    async fn first_batch_bytes(&self) -> Result<u64, QueryError> {
        if !self.range.overlaps(self.block.range()) {
            return Ok(0);
        }
        let opened = self.block.open(ReaderChoice::Any, self.deadline_ns).await?;
        let Some(mut waves) = self.waves(&opened, &Sent::default()).await? else { return Ok(0) };
        loop {
            let is_of_chunks = waves.chunk_counts().chunks > 0;
            let bytes = match waves.next_wave() {
                None => return Ok(0),
                Some(wave) if is_of_chunks => {
                    let mut ranges = Vec::new();
                    wave.ranges(&mut ranges);
                    return Ok(ranges.iter().map(ByteRange::len).sum());
                }
                Some(wave) => {
                    let budget = &self.ctx.budget;
                    opened.files.read(&*wave, budget, self.deadline_ns, None, &|_| Ok(())).await?
                }
            };
            waves.push(bytes, &mut Vec::new())?;
        }
    }
}
