//! A store as its blocks in the bucket and the samples of other nodes, without a gap between both.
//!
//! Invariants: a call has the number of a catalogue whose blocks are read. A node from which samples have
//! left since they are in blocks of a later catalogue refuses the call; the catalogue is then read again, and
//! the store is opened again, before its first series is returned, while that finds a later catalogue, at
//! most [`ATTEMPTS_MAX`] times. Samples that both have count once.
//! Not here: when samples may leave a node (`cluster`), merges (`fanout`).

use std::sync::Arc;

use chronolith_model::query::{Opened, Read, Source, Wanted, visit_listed};
use chronolith_model::{
    DuplicatePolicy, QueryError, Queryable, ReadContext, SeriesBatches, SeriesRead, TenantId, TimeRange,
};

use super::fanout::stores_as_one;
use super::peer::PeerStore;
use super::peer::sources::PeerSources;
use super::peer::stale::StaleCalls;
use crate::bucket::folder_source::FolderSource;

/// Times that a store is opened again: windows may leave a node while the blocks of one are opened.
const ATTEMPTS_MAX: usize = 4;

/// Catalogue of the blocks of a store.
pub(super) trait SeamCatalogue: Send + Sync {
    /// Waits for the first read of the list of blocks, and for another one if the list is so old that owners
    /// no longer keep the samples of blocks which are not in it. If that one fails, the query has a warning.
    ///
    /// # Errors
    /// As a query that reads the list.
    fn wait(&self, ctx: &ReadContext) -> Result<(), QueryError>;

    /// Returns the number of the catalogue in use; 0 = none.
    fn number(&self) -> u64;

    /// Reads the newest catalogue. Waits for the bucket.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer.
    fn refresh(&self, ctx: &ReadContext) -> Result<(), QueryError>;
}

impl SeamCatalogue for FolderSource {
    fn wait(&self, ctx: &ReadContext) -> Result<(), QueryError> {
        self.blocks_in(TimeRange::new(0, 0), ctx)?;
        if !self.is_older_than_seam() {
            return Ok(());
        }
        if let Err(error) = FolderSource::refresh(self, ctx) {
            // An owner that has not started since then refuses the list if that matters.
            let folder = &self.folder;
            ctx.warn(format!(
                "the list of blocks of {folder} is old, and samples of owners that have started since it was read may be missing: {error}"
            ));
        }
        Ok(())
    }

    fn number(&self) -> u64 {
        self.catalogue_number()
    }

    fn refresh(&self, ctx: &ReadContext) -> Result<(), QueryError> {
        FolderSource::refresh(self, ctx)
    }
}

/// Blocks and nodes of a store.
#[derive(Clone)]
pub(super) struct SeamSource {
    pub(super) recent: Arc<PeerSources>,
    pub(super) tenant: TenantId,
    pub(super) store: PeerStore,
    /// Policy for samples with one timestamp.
    pub(super) duplicates: DuplicatePolicy,
    /// Catalogue of the blocks.
    pub(super) catalogue: Arc<dyn SeamCatalogue>,
    pub(super) blocks: Arc<dyn Queryable>,
}

impl SeamSource {
    /// Opens blocks and nodes. The number belongs to the list of blocks that is read, or to an older one.
    fn begin(&self, read: Read, ctx: &ReadContext) -> Result<(Opened, Arc<StaleCalls>), QueryError> {
        ctx.begin_wait()?;
        // Before the list of blocks: a partition is removed once its samples are in blocks of a new list.
        let known = self.recent.known();
        // The first read of the list is waited for, so that there is a number.
        self.catalogue.wait(ctx)?;
        let stale = Arc::new(StaleCalls::default());
        let number = self.catalogue.number();
        let nodes = self.recent.source_at(known, &self.tenant, self.store, number, &stale);
        let mut parts = vec![("bucket", self.blocks.clone()), ("owners", nodes)];
        if self.duplicates == DuplicatePolicy::LastWins {
            parts.reverse();
        }
        Ok((stores_as_one(parts).open(read, ctx)?, stale))
    }

    /// Opens both with later catalogues after a refusal, until `use_opened` is not refused.
    fn repeat<T>(
        &self,
        read: &Read,
        ctx: &ReadContext,
        mut use_opened: impl FnMut(Opened) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let mut attempts = 0;
        loop {
            let refused = self.catalogue.number();
            self.catalogue.refresh(ctx)?;
            let (opened, stale) = self.begin(read.clone(), ctx)?;
            let result = use_opened(opened);
            let Some(why) = stale.take() else { return result };
            attempts += 1;
            if self.catalogue.number() == refused || attempts == ATTEMPTS_MAX {
                return Err(still_stale(why));
            }
        }
    }
}

/// Returns the error of a store whose nodes refuse the newest catalogue too.
fn still_stale(why: String) -> QueryError {
    QueryError::Unavailable { what: format!("{why}, and the bucket has none that is new enough; try again") }
}

impl Source for SeamSource {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        match read.wanted {
            Wanted::EachLabelValue { name, prefix } => visit_listed(self, read.request, name, prefix, ctx),
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
            Wanted::Series | Wanted::Estimate | Wanted::LabelNames | Wanted::LabelValues { .. } => {
                let (opened, stale) = self.begin(read.clone(), ctx)?;
                let source = self.clone();
                let ctx = ctx.clone();
                Ok(match opened {
                    Opened::Series(batches) => {
                        let again = Some(Again { source, read, stale, ctx });
                        Opened::Series(Box::new(SeamBatches { batches, again }))
                    }
                    Opened::List(list) => Opened::List(Box::new(move || {
                        let result = list();
                        if stale.take().is_none() {
                            return result;
                        }
                        source.repeat(&read, &ctx, |opened| opened.into_list()())
                    })),
                    other => other,
                })
            }
        }
    }
}

/// Read that may have to be opened again.
struct Again {
    source: SeamSource,
    read: Read,
    stale: Arc<StaleCalls>,
    ctx: ReadContext,
}

/// Series of blocks and nodes. The first batch waits for all of them, and refusals come before it.
struct SeamBatches {
    batches: Box<dyn SeriesBatches>,
    again: Option<Again>,
}

impl SeriesBatches for SeamBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let start = out.len();
        let result = self.batches.next_batch(out);
        let Some(Again { source, read, stale, ctx }) = self.again.take() else { return result };
        if stale.take().is_none() {
            return result;
        }
        source.repeat(&read, &ctx, |opened| {
            out.truncate(start);
            self.batches = opened.into_series();
            self.batches.next_batch(out)
        })
    }
}

#[cfg(test)]
mod tests;
