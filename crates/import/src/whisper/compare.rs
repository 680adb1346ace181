//! Comparison of written blocks with the files that they were made of: number of points and sum of values of
//! each series.
//!
//! Invariants: values are summed in the order of time on both sides, so that equal values have equal sums.
//! Not here: reading files (`part`).

use std::path::Path;

use chronolith_base::Env;
use chronolith_block::Block;
use chronolith_format::block::meta::Ulid;
use chronolith_model::{Columns, Queryable as _, ReadContext, Selector, TimeRange};

use super::error::WhisperError;
use super::report::WhisperReport;
use super::source::WhisperFile;

/// Points of one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileTotals<'a> {
    pub(super) file: &'a WhisperFile,
    pub(super) count: u64,
    pub(super) sum: f64,
}

/// Points of a series in the blocks that were read so far.
#[derive(Debug, Clone, Copy, Default)]
struct SeriesTotals {
    count: u64,
    sum: f64,
}

/// Reads the blocks, which ascend by time, and compares their points with `totals`, which ascend by labels.
pub(crate) fn compare(
    env: &Env,
    blocks_dir: &Path,
    ulids: &[Ulid],
    totals: &[FileTotals<'_>],
    report: &mut WhisperReport,
) -> Result<(), WhisperError> {
    let mut found = vec![SeriesTotals::default(); totals.len()];
    for ulid in ulids {
        let block = Block::open(env, &blocks_dir.join(ulid.to_string()))?;
        add_block(env, &block, totals, &mut found, report)?;
    }
    for (wanted, found) in totals.iter().zip(&found) {
        report.files_compared += 1;
        // Infinities of both signs have the sum NaN.
        let is_same_sum = wanted.sum == found.sum || (wanted.sum.is_nan() && found.sum.is_nan());
        if wanted.count != found.count || !is_same_sum {
            report.differ(format!(
                "{}: {} points with the sum {} in the file, {} with {} in the blocks",
                wanted.file.path, wanted.count, wanted.sum, found.count, found.sum
            ));
        }
    }
    Ok(())
}

fn add_block(
    env: &Env,
    block: &Block,
    totals: &[FileTotals<'_>],
    found: &mut [SeriesTotals],
    report: &mut WhisperReport,
) -> Result<(), WhisperError> {
    let failed = |error: chronolith_model::query::QueryError| WhisperError::Compare(error.to_string());
    let ctx = ReadContext::unlimited(env.clock.clone());
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut batches = block.select(&selector, &ctx).map_err(failed)?;
    let mut rest = totals.iter().zip(found).peekable();
    let mut columns = Columns::default();
    let mut batch = Vec::new();
    let mut more = true;
    while more {
        more = batches.next_batch(&mut batch).map_err(failed)?;
        for series in batch.drain(..) {
            while rest.next_if(|(wanted, _)| wanted.file.labels < series.labels).is_some() {}
            let Some((_, totals)) = rest.next_if(|(wanted, _)| wanted.file.labels == series.labels) else {
                report.differ(format!("{}: a series of no file", series.labels));
                continue;
            };
            columns.clear();
            series.samples.read(TimeRange::ALL, &mut columns).map_err(failed)?;
            totals.count += columns.times.len() as u64;
            totals.sum = columns.values.iter().fold(totals.sum, |sum, value| sum + value);
        }
    }
    Ok(())
}
