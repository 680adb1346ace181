//! Series that the raw keys do not know: parse, check, find by labels or make.
//!
//! Holds: a series is in the tables and its definition is queued in the log before anyone can append to it.

use std::sync::atomic::Ordering;

use chronolith_format::wal::{self, SeriesRecord};
use chronolith_model::{LabelsBuilder, METRIC_NAME, Reject, TenantLimits};

use crate::append::{AppendJob, AppendScratch, series_text};
use crate::head::Head;
use crate::raw_keys::{ID_NONE, key_count_max};
use crate::stripe::stripe_of;
use crate::sync::RwLockWriteGuard;
use crate::tables::Tables;

/// Bytes of definitions after which a log frame is queued.
const SERIES_FRAME_BYTES: usize = 1 << 20;

/// New series that are made under one lock: queries and writers of known series wait that long at most.
const SLICE_COUNT: usize = 128;

/// Label text of one series, whatever the tenant's limits say: a definition fits a log frame.
const SERIES_TEXT_BYTES_MAX: usize = 8 << 20;

const _: () = assert!(SERIES_FRAME_BYTES + SERIES_TEXT_BYTES_MAX + (4 << 20) < wal::FRAME_PAYLOAD_BYTES_MAX);

impl Head {
    /// Gives ids to `scratch.misses`; those that cannot have one are counted as rejected.
    pub(crate) fn resolve_misses(&self, job: &mut AppendJob<'_>, scratch: &mut AppendScratch) {
        scratch.created.clear();
        let tenant = job.tenant;
        let protocol = job.batch.source.protocol;
        wal::encode_series(tenant.id.as_str(), protocol, &mut scratch.payload);
        let empty_len = scratch.payload.len();
        let misses = std::mem::take(&mut scratch.misses);
        for slice in misses.chunks(SLICE_COUNT) {
            let mut tables = tenant.tables.write();
            for &idx in slice {
                let series = &job.batch.series[idx as usize];
                match self.resolve_one(job, scratch, &mut tables, idx) {
                    Ok(id) => scratch.ids[idx as usize] = id,
                    Err(reject) => {
                        let batch = job.batch;
                        let is_for_time =
                            matches!(reject, Reject::TooOld | Reject::OutOfBounds | Reject::OutOfOrder);
                        for &time in &batch.times[series.samples.start as usize..series.samples.end as usize]
                        {
                            let own = job.bounds.refuse(time).filter(|_| is_for_time);
                            let kind = own.unwrap_or(reject);
                            job.outcome.reject(kind, 1, time, || series_text(batch, idx));
                        }
                    }
                }
                if scratch.payload.len() >= SERIES_FRAME_BYTES {
                    self.publish(job, scratch, empty_len);
                }
            }
            self.publish(job, scratch, empty_len);
            RwLockWriteGuard::unlock_fair(tables);
            self.remember_keys(scratch, slice);
        }
        scratch.misses = misses;
    }

    /// Maps the raw bytes of resolved series to their ids.
    fn remember_keys(&self, scratch: &AppendScratch, slice: &[u32]) {
        let count_max = key_count_max(self.counters.series_live.load(Ordering::Relaxed));
        let mut raw_keys = self.raw_keys.write();
        for &idx in slice {
            let id = scratch.ids[idx as usize];
            if id != ID_NONE {
                raw_keys.insert(scratch.keys[idx as usize], id, count_max);
            }
        }
        RwLockWriteGuard::unlock_fair(raw_keys);
    }

    /// The id of one series. Nothing is made for a series of which no sample would be stored.
    fn resolve_one(
        &self,
        job: &mut AppendJob<'_>,
        scratch: &mut AppendScratch,
        tables: &mut Tables,
        idx: u32,
    ) -> Result<u32, Reject> {
        let series = &job.batch.series[idx as usize];
        let builder = &mut scratch.builder;
        builder.clear();
        (job.batch.source.parse)(job.batch.raw_of(series), builder)?;
        builder.sort();
        let pairs = check_labels(builder, job.limits)?;
        if let Some(id) = tables.find(pairs.iter().copied(), &mut scratch.members) {
            return Ok(id);
        }
        let times = &job.batch.times[series.samples.start as usize..series.samples.end as usize];
        if times.iter().all(|&t| job.bounds.refuse(t).is_some()) {
            // The caller counts each by its own reason.
            let first = times.first().and_then(|&t| job.bounds.refuse(t));
            return Err(first.unwrap_or(Reject::OutOfBounds));
        }
        let text_len: usize = pairs.iter().map(|(n, v)| n.len() + v.len()).sum();
        if text_len > SERIES_TEXT_BYTES_MAX {
            return Err(Reject::LabelValueTooLong);
        }
        if tables.live_count() >= job.limits.series_max || !tables.has_room(text_len) {
            return Err(Reject::SeriesLimit);
        }
        let id = self.ids.take().ok_or(Reject::SeriesIdsExhausted)?;
        tables.insert(id, pairs.iter().copied(), &mut scratch.members);
        let record = SeriesRecord { id, raw_hash: scratch.keys[idx as usize] };
        record.encode(pairs.into_iter(), &mut scratch.payload);
        scratch.created.push(id);
        job.outcome.series_created_count += 1;
        Ok(id)
    }

    /// Makes the records of created series and queues their definitions. The tables are locked by the caller.
    fn publish(&self, job: &AppendJob<'_>, scratch: &mut AppendScratch, empty_len: usize) {
        self.counters.series_live.fetch_add(scratch.created.len() as u64, Ordering::Relaxed);
        for run in scratch.created.chunk_by(|&a, &b| stripe_of(a) == stripe_of(b)) {
            let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
            run.iter().for_each(|&id| stripe.create(id, job.tenant.idx));
        }
        if !scratch.created.is_empty() {
            self.wal.queue(wal::KIND_SERIES, wal::STRIPE_NONE, &scratch.payload);
        }
        scratch.created.clear();
        scratch.payload.truncate(empty_len);
    }
}

/// Checks sorted labels; gives those that are not empty.
fn check_labels<'a>(
    builder: &'a LabelsBuilder,
    limits: &TenantLimits,
) -> Result<Vec<(&'a str, &'a str)>, Reject> {
    let mut pairs: Vec<(&str, &str)> = Vec::with_capacity(builder.len());
    for (name, value) in builder.iter().filter(|(_, value)| !value.is_empty()) {
        if name.is_empty() {
            return Err(Reject::EmptyLabelName);
        }
        if name.len() > limits.label_name_bytes_max {
            return Err(Reject::LabelNameTooLong);
        }
        if value.len() > limits.label_value_bytes_max {
            return Err(Reject::LabelValueTooLong);
        }
        if pairs.last().is_some_and(|last| last.0 == name) {
            return Err(Reject::DuplicateLabel);
        }
        pairs.push((name, value));
    }
    if pairs.len() > limits.label_count_max {
        return Err(Reject::TooManyLabels);
    }
    if !pairs.iter().any(|(name, _)| *name == METRIC_NAME) {
        return Err(Reject::NoMetricName);
    }
    Ok(pairs)
}
