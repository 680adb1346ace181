//! Selection of series from a block in the bucket: a task reads wave after wave and queues each batch of
//! series once its chunks are in memory.
//!
//! Invariants: the thread that evaluates the query never waits for a request, only for a batch; the task ends
//! when its reader is dropped, and at the deadline of the query.
//! Not here: the waves (`block`), requests of a wave (`remote`).

mod queue;

use std::sync::Arc;

use chronolith_block::source::RangeBytes;
use chronolith_block::{Block, SidecarSelection};
use chronolith_model::{Matcher, QueryError, ReadContext, Selector, SeriesBatches, SeriesRead, TimeRange};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::block::{BlockReader, BucketBlock};
use crate::remote::RemoteFiles;
use queue::{BatchReceiver, BatchSender, batch_queue};

/// Bytes of batches that wait for their reader.
const QUEUE_BYTES_MAX: u64 = 16 << 20;

/// A selection from a block.
struct Selected {
    block: Arc<BucketBlock>,
    matchers: Vec<Matcher>,
    range: TimeRange,
    /// End of the requests.
    deadline_ns: u64,
    ctx: ReadContext,
}

/// Batches of a selection, in the order of labels.
struct BucketBatches {
    receiver: BatchReceiver,
    ctx: ReadContext,
    task: AbortHandle,
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
        let selected = Selected {
            block: self.clone(),
            matchers: selector.matchers.to_vec(),
            range: selector.range,
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
        let task = handle.spawn(async move {
            let result = selected.fetch(&sender).await;
            sender.finish(result);
        });
        BucketBatches { receiver, ctx, task: task.abort_handle() }
    }
}

impl SeriesBatches for BucketBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        self.receiver.receive(&self.ctx, out)
    }
}

impl Drop for BucketBatches {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Selected {
    async fn fetch(&self, sender: &BatchSender) -> Result<(), QueryError> {
        let Selected { block, matchers, range, deadline_ns, ctx } = self;
        if !range.overlaps(block.range()) {
            return Ok(());
        }
        let mut opened = block.open(*deadline_ns).await?;
        let mut last_ref = None;
        if let BlockReader::Sidecar(sidecar) = &opened.reader {
            let mut selection = sidecar.select_waves(matchers, *range, ctx);
            let result = self.fetch_by_sidecar(&mut selection, &opened.files, sender).await;
            block.note_memory(&opened);
            match (result, sidecar.damage()) {
                // The series after the last one that was sent follow from the index.
                (Err(_), Some(damage)) => block.drop_sidecar(damage),
                (result, _) => return result,
            }
            last_ref = selection.last_ref();
            opened = block.open(*deadline_ns).await?;
        }
        match &opened.reader {
            BlockReader::Index(index) => self.fetch_by_index(index, last_ref, &opened.files, sender).await,
            BlockReader::Sidecar(_) => Err(QueryError::Canceled),
        }
    }

    /// Sends the series that fit.
    async fn fetch_by_sidecar(
        &self,
        selection: &mut SidecarSelection,
        files: &RemoteFiles,
        sender: &BatchSender,
    ) -> Result<(), QueryError> {
        loop {
            let bytes = match selection.next_wave() {
                Some(wave) => files.read(&*wave, &self.ctx.budget, self.deadline_ns).await,
                None => return Ok(()),
            };
            let wave_bytes = bytes.as_ref().map_or(0, RangeBytes::fetched_bytes);
            let mut series = Vec::new();
            let pushed = selection.push(bytes, &mut series);
            // Series before damage are sent: the index goes on after them.
            if !series.is_empty() && !sender.send(series, wave_bytes).await {
                return Ok(());
            }
            pushed?;
        }
    }

    /// Sends the series that fit and come after `last_ref`.
    async fn fetch_by_index(
        &self,
        index: &Block,
        last_ref: Option<u32>,
        files: &RemoteFiles,
        sender: &BatchSender,
    ) -> Result<(), QueryError> {
        let Selected { matchers, range, deadline_ns, ctx, .. } = self;
        let mut selection = {
            let Some(plan) = index.plan_postings(matchers)? else { return Ok(()) };
            let lists = files.read(&plan.wave(), &ctx.budget, *deadline_ns).await?;
            index.select_planned(&plan, lists, *range, ctx)?
        };
        if let Some(last_ref) = last_ref {
            selection.skip_through(last_ref);
        }
        loop {
            let bytes = match selection.next_wave() {
                Some(wave) => files.read(&*wave, &ctx.budget, *deadline_ns).await,
                None => return Ok(()),
            };
            let wave_bytes = bytes.as_ref().map_or(0, RangeBytes::fetched_bytes);
            let mut series = Vec::new();
            selection.push(bytes, &mut series)?;
            if !series.is_empty() && !sender.send(series, wave_bytes).await {
                return Ok(());
            }
        }
    }
}
