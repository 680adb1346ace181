//! Reads everything back through the contract that queries use, and sums it up.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use chronolith_base::Env;
use chronolith_model::{Columns, MatchOp, Matcher, ReadContext, Selector, TenantId, TimeRange};
use chronolith_tsdb::{ReplayProgress, SyncMode, Tsdb, TsdbOptions};

use super::content::{Checksum, labels_hash};

/// Opens the store over `dir`, as a server does; nothing of it runs in the background.
pub(crate) fn open(dir: &Path) -> Result<Arc<Tsdb>> {
    open_with(dir, SyncMode::Fsync)
}

/// As [`open`], for writing samples that are read back later: a kill loses nothing that the kernel has, so
/// nothing waits for the disk.
pub(crate) fn open_to_fill(dir: &Path) -> Result<Arc<Tsdb>> {
    open_with(dir, SyncMode::Os)
}

fn open_with(dir: &Path, sync: SyncMode) -> Result<Arc<Tsdb>> {
    let mut options = TsdbOptions { sync, ..TsdbOptions::new(dir.to_owned()) };
    options.wal.checkpoint_bytes = u64::MAX;
    Ok(Tsdb::open(Env::real(), options, Arc::new(ReplayProgress::default()))?)
}

/// Reads the last sample of one series: the first answer.
pub(crate) fn first_answer(tsdb: &Tsdb, name: &str) -> Result<usize> {
    let matchers = [Matcher::new("__name__", MatchOp::Equal, name)?];
    let sum = read(tsdb, &matchers, 1)?;
    ensure!(sum.count > 0, "no samples of {name}");
    Ok(sum.count as usize)
}

/// Count and checksum of all samples.
pub(crate) fn all(tsdb: &Tsdb) -> Result<Checksum> {
    read(tsdb, &[], usize::MAX)
}

fn read(tsdb: &Tsdb, matchers: &[Matcher], series_max: usize) -> Result<Checksum> {
    let env = Env::real();
    let ctx = ReadContext::unlimited(env.clock.clone());
    let queryable = tsdb.reader().queryable(&TenantId::anonymous());
    let selector = Selector { matchers, range: TimeRange::ALL };
    let mut batches = queryable.select(&selector, &ctx)?;
    let mut sum = Checksum::default();
    let mut columns = Columns::default();
    let mut more = true;
    let mut left = series_max;
    while more && left > 0 {
        let mut batch = Vec::new();
        more = batches.next_batch(&mut batch)?;
        for series in batch.into_iter().take(left) {
            left -= 1;
            columns.clear();
            series.samples.read(TimeRange::ALL, &mut columns)?;
            ensure!(columns.times.is_sorted_by(|a, b| a < b), "times of {} do not ascend", series.labels);
            let hash = labels_hash(&series.labels);
            for (&time, value) in columns.times.iter().zip(&columns.values) {
                sum.add(hash, time, value.to_bits());
            }
        }
    }
    Ok(sum)
}
