//! Selection of series from a block in the bucket: a task reads wave after wave and queues each batch of
//! series once its chunks are in memory.
//!
//! Invariants: the thread that evaluates the query never waits for a request, only for a batch; the task ends
//! when its reader is dropped, and at the deadline of the query.
//! Not here: the waves (`block`), requests of a wave (`remote`).

mod queue;
mod reread;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use chronolith_block::Shard;
use chronolith_block::source::Reread;
use chronolith_model::{Matcher, QueryError, ReadContext, Selector, SeriesBatches, SeriesRead, TimeRange};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::block::{BucketBlock, OpenedBlock};
use queue::{BatchReceiver, BatchSender, batch_queue};
use reread::QueryReread;

/// Bytes of batches that wait for their reader.
const QUEUE_BYTES_MAX: u64 = 16 << 20;

/// A selection from a block.
struct Selected {
    block: Arc<BucketBlock>,
    matchers: Vec<Matcher>,
    range: TimeRange,
    shard: Option<Shard>,
    /// End of the requests.
    deadline_ns: u64,
    ctx: ReadContext,
}

/// Batches of a selection, in the order of labels.
struct BucketBatches {
    receiver: BatchReceiver,
    ctx: ReadContext,
    /// `None` if all batches are in the queue.
    task: Option<AbortHandle>,
}

impl BucketBlock {
    /// Series that fit, with their samples, fetched by a task. Returns at once, so that all blocks of a query
    /// are fetched at the same time; the first batch waits.
    #[must_use]
    pub fn select(
        self: &Arc<BucketBlock>,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Box<dyn SeriesBatches> {
        self.select_shard(selector, None, ctx)
    }

    /// As [`BucketBlock::select`], only the series of a shard.
    #[must_use]
    pub fn select_shard(
        self: &Arc<BucketBlock>,
        selector: &Selector<'_>,
        shard: Option<Shard>,
        ctx: &ReadContext,
    ) -> Box<dyn SeriesBatches> {
        let selected = Selected {
            block: self.clone(),
            matchers: selector.matchers.to_vec(),
            range: selector.range,
            shard,
            deadline_ns: self.deadline_ns(ctx),
            ctx: ctx.clone(),
        };
        Box::new(BucketBatches::start(selected, self.handle()))
    }
}

impl BucketBatches {
    /// Starts the task of `selected`.
    fn start(selected: Selected, handle: &Handle) -> BucketBatches {
        let (sender, receiver) = batch_queue(QUEUE_BYTES_MAX);
        let ctx = selected.ctx.clone();
        let mut fetching = Box::pin(async move {
            let result = selected.fetch(&sender).await;
            sender.finish(result);
        });
        // PERF: a selection whose ranges are all cached ends within its first poll, without a task and a wait
        // for it. One that needs a request is pending: the task polls it again.
        let polled = {
            let _entered = handle.enter();
            fetching.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let task = polled.is_pending().then(|| handle.spawn(fetching).abort_handle());
        BucketBatches { receiver, ctx, task }
    }
}

impl SeriesBatches for BucketBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        self.receiver.receive(&self.ctx, out)
    }
}

impl Drop for BucketBatches {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Selected {
    /// Sends all batches. Damage of lists or entries may be that of cached bytes: all of the block are
    /// dropped, as others may be damaged too, and read once more from the bucket.
    async fn fetch(&self, sender: &BatchSender) -> Result<(), QueryError> {
        if !self.range.overlaps(self.block.range()) {
            return Ok(());
        }
        let opened = self.block.open(self.deadline_ns).await?;
        let mut sent_count = 0;
        match self.fetch_from(&opened, sender, &mut sent_count).await {
            Err(QueryError::Corrupt { .. }) => {
                self.block.forget();
                self.fetch_from(&opened, sender, &mut sent_count).await
            }
            result => result,
        }
    }

    /// Sends the batches after the first `sent_count` series, and counts those that it sends.
    async fn fetch_from(
        &self,
        opened: &OpenedBlock,
        sender: &BatchSender,
        sent_count: &mut usize,
    ) -> Result<(), QueryError> {
        let Selected { matchers, range, shard, deadline_ns, ctx, .. } = self;
        let OpenedBlock { block, files } = opened;
        let reread: Arc<dyn Reread> = Arc::new(QueryReread::new(files.clone(), *deadline_ns, ctx.clone()));
        let mut selection = {
            let Some(plan) = block.plan_postings(matchers)? else { return Ok(()) };
            let lists = files.read(&plan.wave(), &ctx.budget, *deadline_ns, None).await?;
            let selection = block.select_planned(&plan, lists, *range, ctx)?;
            match shard {
                Some(shard) => selection.in_shard(*shard),
                None => selection,
            }
        };
        let mut skip_count = *sent_count;
        loop {
            let bytes = match selection.next_wave() {
                Some(wave) => files.read(&*wave, &ctx.budget, *deadline_ns, Some(reread.clone())).await?,
                None => return Ok(()),
            };
            if files.remote.rules.verifies_chunks {
                selection.verify_chunks(&bytes)?;
            }
            let wave_bytes = bytes.fetched_bytes();
            let mut series = Vec::new();
            selection.push(Ok(bytes), &mut series)?;
            let skipped = skip_count.min(series.len());
            series.drain(..skipped);
            skip_count -= skipped;
            *sent_count += series.len();
            if !series.is_empty() && !sender.send(series, wave_bytes).await {
                return Ok(());
            }
        }
    }
}
