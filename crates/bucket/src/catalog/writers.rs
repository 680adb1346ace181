//! Catalogues of the servers that upload to a bucket in Thanos's layout, one per set of external labels.
//!
//! Invariants: a process that reads has the newest snapshot of each writer or fails; a writer whose catalogue
//! cannot be decoded at all has none.
//! Not here: which writers there are (`listing`), reading snapshots (`snapshots`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_format::bucket::catalogue::Snapshot;
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use crate::external_labels::ExternalLabels;
use crate::snapshots::{Latest, SnapshotReader};
use crate::{BucketError, RequestContext, Store};

/// Catalogues that are read at the same time.
const WRITERS_AT_ONCE: usize = 16;

/// Catalogues of all writers.
pub(super) struct WriterCatalogues {
    reader: SnapshotReader,
    /// Newest snapshots that were read.
    known: Mutex<BTreeMap<ExternalLabels, Latest>>,
}

/// The catalogue of one writer.
pub(super) struct WriterCatalogue {
    pub(super) labels: ExternalLabels,
    pub(super) snapshot: Arc<Snapshot>,
}

impl WriterCatalogues {
    pub(super) fn new(store: Arc<Store>, clock: Arc<dyn Clock>) -> WriterCatalogues {
        WriterCatalogues { reader: SnapshotReader::new(store, clock), known: Mutex::default() }
    }

    /// Reads the catalogues in these folders. Cost: one request per writer whose catalogue has not changed.
    ///
    /// # Errors
    /// As [`SnapshotReader::read_latest`].
    pub(super) async fn read(
        &self,
        request: &RequestContext,
        folders: &BTreeSet<String>,
    ) -> Result<Vec<WriterCatalogue>, BucketError> {
        let mut writers = Vec::new();
        for folder in folders {
            match ExternalLabels::of_folder(folder) {
                Some(labels) => writers.push(labels),
                None => {
                    tracing::warn!(
                        folder,
                        "catalogue ignored: the name of its folder has no external labels"
                    );
                }
            }
        }
        let reads = stream::iter(writers).map(|labels| self.read_one(request, labels));
        let read: Vec<Option<(ExternalLabels, Latest)>> =
            reads.buffered(WRITERS_AT_ONCE).try_collect().await?;
        let read: BTreeMap<ExternalLabels, Latest> = read.into_iter().flatten().collect();
        self.known.lock().clone_from(&read);
        let catalogues = read.into_iter();
        Ok(catalogues.map(|(labels, latest)| WriterCatalogue { labels, snapshot: latest.snapshot }).collect())
    }

    async fn read_one(
        &self,
        request: &RequestContext,
        labels: ExternalLabels,
    ) -> Result<Option<(ExternalLabels, Latest)>, BucketError> {
        let reader = self.reader.of_writer(labels.clone());
        let known = self.known.lock().get(&labels).cloned();
        let latest = match known {
            Some(known) => reader.poll(request, &known).await?,
            None => reader.read_latest(request).await?,
        };
        Ok(latest.map(|latest| (labels, latest)))
    }
}
