//! Selection of series from a block in the bucket: a task reads wave after wave and queues each batch of
//! series once its chunks are in memory.
//!
//! Invariants: the thread that evaluates the query never waits for a request, only for a batch; the task ends
//! when its reader is dropped, and at the deadline of the query.
//! Not here: the waves (`block`), requests of a wave (`remote`).

pub(crate) mod first_batch;
mod queue;
mod reread;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use chronolith_block::source::{RangeBytes, Reread, Wave};
use chronolith_block::{Block, ChunkCounts, FetchedRollups, Selection, Shard, SidecarSelection};
use chronolith_model::query::{FetchLimit, VecBatches};
use chronolith_model::rollup::RollupSpan;
use chronolith_model::{Matcher, QueryError, ReadContext, Selector, SeriesBatches, SeriesRead, TimeRange};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::block::page_costs::is_by_lists;
use crate::block::{BlockReader, BucketBlock, OpenedBlock, ReaderChoice};
use crate::recovery::Recovery;
use crate::remote::RemoteFiles;
use crate::sidecar_builder::request_sidecar;
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
    /// Archives that are read instead of samples where they are kept.
    rollups: Vec<RollupSpan>,
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

    /// As [`BucketBlock::select`], with the windows of these archives. Chunks that they cover are fetched
    /// when their samples are read.
    #[must_use]
    pub fn select_rolled_up(
        self: &Arc<BucketBlock>,
        selector: &Selector<'_>,
        rollups: &[RollupSpan],
        ctx: &ReadContext,
    ) -> Box<dyn SeriesBatches> {
        if self.external_labels().is_some() || rollups.is_empty() {
            return self.select(selector, ctx);
        }
        let selected = Selected::new(self, selector, None, ctx);
        let selected = Selected { rollups: rollups.to_vec(), ..selected };
        Box::new(BucketBatches::start(selected, self.handle()))
    }

    /// As [`BucketBlock::select`], only the series of a shard.
    #[must_use]
    pub fn select_shard(
        self: &Arc<BucketBlock>,
        selector: &Selector<'_>,
        shard: Option<Shard>,
        ctx: &ReadContext,
    ) -> Box<dyn SeriesBatches> {
        let Some(labels) = self.external_labels() else {
            return Box::new(BucketBatches::start(Selected::new(self, selector, shard, ctx), self.handle()));
        };
        let matchers = labels.split(selector.matchers);
        if !matchers.is_selected {
            return Box::new(VecBatches::new(Vec::new()));
        }
        let of_series = Selector { matchers: &matchers.of_series, range: selector.range };
        let selected = Selected::new(self, &of_series, shard, ctx);
        labels.add_to(Box::new(BucketBatches::start(selected, self.handle())))
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

/// Series of a selection that were sent.
#[derive(Default)]
struct Sent {
    /// Number of those that the sidecar named.
    by_sidecar: usize,
    /// Ref of the last one of them: the index goes on after it.
    last_ref: Option<u32>,
    /// Number of those that the index named.
    by_index: usize,
}

/// Selection by one of the readers.
enum Waves {
    Sidecar(Box<SidecarSelection>),
    Index(Box<Selection>),
}

impl Waves {
    fn next_wave(&self) -> Option<Box<dyn Wave + '_>> {
        match self {
            Waves::Sidecar(selection) => selection.next_wave(),
            Waves::Index(selection) => selection.next_wave(),
        }
    }

    fn chunk_counts(&self) -> ChunkCounts {
        match self {
            Waves::Sidecar(selection) => selection.chunk_counts(),
            Waves::Index(selection) => selection.chunk_counts(),
        }
    }

    fn verify_chunks(&self, bytes: &RangeBytes) -> Result<(), QueryError> {
        match self {
            Waves::Sidecar(selection) => selection.verify_chunks(bytes),
            Waves::Index(selection) => selection.verify_chunks(bytes),
        }
    }

    fn push(&mut self, bytes: RangeBytes, out: &mut Vec<SeriesRead>) -> Result<(), QueryError> {
        match self {
            Waves::Sidecar(selection) => selection.push(Ok(bytes), out),
            Waves::Index(selection) => selection.push(Ok(bytes), out),
        }
    }
}

impl Sent {
    fn is_empty(&self) -> bool {
        self.by_sidecar == 0 && self.by_index == 0
    }

    /// Reader that goes on after these series. A sidecar does not know how far the index came, so one that
    /// was made meanwhile is left to later queries.
    fn next_reader(&self, choice: ReaderChoice) -> ReaderChoice {
        if self.by_index > 0 { ReaderChoice::Index } else { choice }
    }

    /// Leaves out series that were sent before, of which `skip_count` are left; counts the others.
    fn add(&mut self, waves: &Waves, skip_count: &mut usize, series: &mut Vec<SeriesRead>) {
        let skipped = series.len().min(*skip_count);
        series.drain(..skipped);
        *skip_count -= skipped;
        match waves {
            Waves::Sidecar(selection) if !series.is_empty() => {
                assert_eq!(self.by_index, 0, "no sidecar goes on after the index");
                self.by_sidecar += series.len();
                self.last_ref = selection.last_ref();
            }
            Waves::Sidecar(_) => {}
            Waves::Index(_) => self.by_index += series.len(),
        }
    }
}

impl Selected {
    fn new(
        block: &Arc<BucketBlock>,
        selector: &Selector<'_>,
        shard: Option<Shard>,
        ctx: &ReadContext,
    ) -> Selected {
        Selected {
            block: block.clone(),
            matchers: selector.matchers.to_vec(),
            range: selector.range,
            shard,
            rollups: Vec::new(),
            deadline_ns: block.deadline_ns(ctx),
            ctx: ctx.clone(),
        }
    }

    /// Sends all batches. After damage the block is read once more past the cache, then by its index.
    async fn fetch(&self, sender: &BatchSender) -> Result<(), QueryError> {
        if !self.range.overlaps(self.block.range()) {
            return Ok(());
        }
        // The hashes of a shard are cached with the index.
        let needs_index = self.shard.is_some();
        let prefers_index = is_by_lists(&self.matchers) && self.block.page_costs().prefers_index();
        let mut choice = if needs_index || prefers_index { ReaderChoice::Index } else { ReaderChoice::Any };
        let mut sent = Sent::default();
        let mut recovery = Recovery::default();
        loop {
            choice = sent.next_reader(choice);
            let result = match self.block.open(choice, self.deadline_ns).await {
                Ok(opened) => {
                    let result = self.fetch_from(&opened, sender, &mut sent).await;
                    self.block.note_memory();
                    match result {
                        Err(error) if recovery.may_retry(&self.block, &opened, &error) => continue,
                        Ok(()) if choice == ReaderChoice::Any => {
                            request_sidecar(&self.block, &opened);
                            Ok(())
                        }
                        result => result,
                    }
                }
                Err(error) => Err(error),
            };
            let is_by_preference = choice == ReaderChoice::Index && !needs_index;
            match result {
                Err(QueryError::Corrupt { .. }) if is_by_preference && sent.is_empty() => {
                    self.block.page_costs().refuse_index();
                    choice = ReaderChoice::Any;
                    recovery = Recovery::default();
                }
                result => return result,
            }
        }
    }

    /// Sends the series after those that were sent.
    async fn fetch_from(
        &self,
        opened: &OpenedBlock,
        sender: &BatchSender,
        sent: &mut Sent,
    ) -> Result<(), QueryError> {
        let files = &opened.files;
        let Some(mut waves) = self.waves(opened, sent).await? else { return Ok(()) };
        let mut skip_count = match &waves {
            Waves::Sidecar(_) => sent.by_sidecar,
            Waves::Index(_) => sent.by_index,
        };
        let reread = QueryReread::new(self.block.clone(), files.clone(), self.deadline_ns, self.ctx.clone());
        let reread: Arc<dyn Reread> = Arc::new(reread);
        let is_by_lists = is_by_lists(&self.matchers);
        let mut series_count = 0u64;
        loop {
            if self.ctx.counts_fetched(FetchLimit::Series) || self.ctx.counts_fetched(FetchLimit::Chunks) {
                let ChunkCounts { series, chunks } = waves.chunk_counts();
                series_count += series;
                self.ctx.check_fetched(FetchLimit::Series, series_count)?;
                // A block that is read again after damage counts again.
                self.ctx.add_fetched(FetchLimit::Chunks, chunks)?;
            }
            let bytes = match waves.next_wave() {
                Some(wave) => {
                    let budget = &self.ctx.budget;
                    let reread = Some(reread.clone());
                    files.read(&*wave, budget, self.deadline_ns, reread, &|bytes| self.count(bytes)).await?
                }
                None => return Ok(()),
            };
            if files.remote.rules.verifies_chunks {
                waves.verify_chunks(&bytes)?;
            }
            let wave_bytes = bytes.fetched_bytes();
            let mut series = Vec::new();
            let pushed = waves.push(bytes, &mut series);
            if series.is_empty() && is_by_lists && matches!(waves, Waves::Sidecar(_)) {
                self.block.page_costs().add(wave_bytes, files.index_bytes());
            }
            // Series before damage of later ones are complete.
            sent.add(&waves, &mut skip_count, &mut series);
            if !series.is_empty() && !sender.send(series, wave_bytes).await {
                return Ok(());
            }
            pushed?;
        }
    }

    /// The selection by the reader of `opened`, which the index begins after the series that a sidecar
    /// named; `None` if no series fits.
    async fn waves(&self, opened: &OpenedBlock, sent: &Sent) -> Result<Option<Waves>, QueryError> {
        match &opened.reader {
            BlockReader::Sidecar(sidecar) => {
                let selection = sidecar.select_waves(&self.matchers, self.range, &self.ctx);
                let selection = match self.rollups(opened).await? {
                    Some(rollups) => selection.with_rollups(rollups),
                    None => selection,
                };
                Ok(Some(Waves::Sidecar(Box::new(selection))))
            }
            BlockReader::Index(index) => {
                let Some(mut selection) = self.select_by_index(index, &opened.files).await? else {
                    return Ok(None);
                };
                if let Some(last_ref) = sent.last_ref {
                    selection.skip_through(last_ref);
                }
                Ok(Some(Waves::Index(Box::new(selection))))
            }
        }
    }

    /// Roll-ups of the block that are read.
    async fn rollups(&self, opened: &OpenedBlock) -> Result<Option<Arc<FetchedRollups>>, QueryError> {
        let Some(record) = self.block.record().filter(|_| !self.rollups.is_empty()) else { return Ok(None) };
        let found = opened.rollups.read_once(&opened.files, record, &self.rollups, self.deadline_ns).await;
        self.block.note_memory();
        found
    }

    /// Counts bytes that are about to be read.
    fn count(&self, bytes: u64) -> Result<(), QueryError> {
        self.ctx.add_fetched(FetchLimit::Bytes, bytes)
    }

    /// Reads the lists; `None` if no series fits.
    async fn select_by_index(
        &self,
        index: &Arc<Block>,
        files: &RemoteFiles,
    ) -> Result<Option<Selection>, QueryError> {
        let Some(plan) = index.plan_postings(&self.matchers)? else { return Ok(None) };
        let wave = plan.wave();
        let budget = &self.ctx.budget;
        let lists = files.read(&wave, budget, self.deadline_ns, None, &|bytes| self.count(bytes)).await?;
        let selection = index.select_planned(&plan, lists, self.range, &self.ctx)?;
        Ok(Some(match self.shard {
            Some(shard) => selection.in_shard(shard),
            None => selection,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block was read by its index and found damaged after some batches. A local sidecar that was made in
    /// the meantime was opened for the second read and sent those series again.
    #[test]
    fn the_index_goes_on_after_its_own_series() {
        let next = |by_sidecar, by_index, choice| {
            Sent { by_sidecar, last_ref: None, by_index }.next_reader(choice) == ReaderChoice::Index
        };
        assert!(!next(0, 0, ReaderChoice::Any));
        assert!(!next(5, 0, ReaderChoice::Any), "a sidecar skips its own series");
        assert!(next(0, 0, ReaderChoice::Index));
        assert!(next(0, 1, ReaderChoice::Any));
        assert!(next(5, 1, ReaderChoice::Any));
    }
}
