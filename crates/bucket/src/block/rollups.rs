//! Tables of the roll-ups of a block, read at their first use: which series have windows, and where.
//!
//! Invariants: a table is read once for all queries, and its memory counts with the header's; queries
//! read samples instead of an archive whose table is damaged or gone.
//! Not here: the windows, which are fetched with the chunks of their series (`block`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_block::FetchedRollups;
use chronolith_block::source::{BlockFile, ByteRange};
use chronolith_format::block::rollup::RollupTail;
use chronolith_format::bucket::catalogue::{BucketBlock as BlockRecord, RollupObject};
use chronolith_model::QueryError;
use chronolith_model::rollup::RollupSpan;
use parking_lot::Mutex;

use crate::remote::RemoteFiles;

/// Tables of the archives that were asked for; `None` for one that cannot be used.
#[derive(Default)]
pub(crate) struct RollupTables(Mutex<BTreeMap<RollupSpan, Option<Arc<RollupTail>>>>);

impl RollupTables {
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.0.lock().values().flatten().map(|tail| tail.heap_bytes() as u64).sum()
    }

    /// Roll-ups of the block of `record` that a query with `spans` reads; `None` if there are none. Cost: a
    /// request per archive, of 16 bytes per series of the block, at the first use.
    ///
    /// # Errors
    /// [`QueryError::Timeout`] and [`QueryError::Canceled`]. After others the samples are read.
    pub(crate) async fn read_once(
        &self,
        files: &RemoteFiles,
        record: &BlockRecord,
        spans: &[RollupSpan],
        deadline_ns: u64,
    ) -> Result<Option<Arc<FetchedRollups>>, QueryError> {
        let mut tables = Vec::new();
        for object in &record.files.rollups {
            if !spans.contains(&object.span) {
                continue;
            }
            let tail = self.table(files, object, record.counts.series, deadline_ns).await?;
            tables.extend(tail.map(|tail| (object.span, tail)));
        }
        if tables.is_empty() {
            return Ok(None);
        }
        let samples_per_chunk = record.counts.samples / record.counts.chunks.max(1);
        let samples_per_chunk = usize::try_from(samples_per_chunk).unwrap_or(usize::MAX);
        Ok(Some(Arc::new(FetchedRollups::new(tables, record.range, samples_per_chunk))))
    }

    async fn table(
        &self,
        files: &RemoteFiles,
        object: &RollupObject,
        series_count: u64,
        deadline_ns: u64,
    ) -> Result<Option<Arc<RollupTail>>, QueryError> {
        let known = self.0.lock().get(&object.span).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let start = object.len.saturating_sub(RollupTail::bytes_max(series_count));
        let range = ByteRange { file: BlockFile::Rollup(object.span), start, end: object.len };
        let tail = match files.read_exact(range, deadline_ns).await {
            Ok(bytes) => RollupTail::decode(&bytes, object.len).map_err(|error| error.to_string()),
            Err(error @ (QueryError::Timeout | QueryError::Canceled)) => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        // The header accounts for the memory of the table.
        files.drop_cached(&[range]);
        let tail = match tail {
            Ok(tail) => Some(Arc::new(tail)),
            Err(error) => {
                let key = files.remote.key_of(&range.file.name());
                tracing::warn!(
                    key,
                    error,
                    "reading roll-ups of a block in the bucket failed, queries read its samples"
                );
                None
            }
        };
        self.0.lock().insert(object.span, tail.clone());
        Ok(tail)
    }
}
