//! One writer: a batch of its series that is written again and again with later samples.
//! Invariants: the names of the series are encoded once; a step overwrites times and values.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use chronolith_model::{LabelsBuilder, StoreId, WriteBatch};
use chronolith_tsdb::Tsdb;

use crate::traffic::{self, STEP_MS, Values};

/// A writer and its series.
pub(super) struct Writer {
    batch: WriteBatch,
    values: Values,
    next_ms: i64,
}

impl Writer {
    /// A writer of `count` series from `first_idx` on, whose first sample is at `start_ms`.
    pub(super) fn new(first_idx: usize, count: usize, start_ms: i64) -> Writer {
        let mut batch = WriteBatch::from_labels();
        let mut builder = LabelsBuilder::new();
        for idx in first_idx..first_idx + count {
            builder.clear();
            for (name, value) in traffic::labels(idx) {
                builder.push(name, &value);
            }
            batch.push_labels(&builder.finish(), &[(start_ms, 0.0)]);
        }
        Writer { batch, values: Values::new(first_idx, count), next_ms: start_ms }
    }

    /// Writes one sample of each series; gives the time until that was acknowledged.
    pub(super) fn append(&mut self, tsdb: &Tsdb, tenant: &StoreId) -> Result<Duration> {
        self.batch.times.fill(self.next_ms);
        for (place, value) in self.batch.values.iter_mut().zip(self.values.step()) {
            *place = value;
        }
        self.next_ms += STEP_MS;
        let start = Instant::now();
        let outcome = tsdb.append(tenant, &self.batch).map_err(|error| anyhow!("{error}"))?;
        let elapsed = start.elapsed();
        let reject = outcome.first_reject.as_ref().map(|(kind, series, _)| format!("{kind:?}: {series}"));
        ensure!(outcome.rejected_count() == 0, reject.context("rejected without a reason")?);
        Ok(elapsed)
    }
}
