//! Creates or finds series whose wire keys are not cached: parses labels, checks limits, looks them up in the
//! index.
//!
//! Invariant: a series is in the index and its series record is queued for the WAL before any append can use
//! it.

use chronolith_format::head::wal::{self, SeriesRecord};
use chronolith_model::batch::FullTagValue;
use chronolith_model::kind::is_reserved;
use chronolith_model::{LabelsBuilder, METRIC_NAME, Reject, TenantLimits, WriteOutcome};

use super::job::{AppendJob, AppendScratch, series_text};
use super::overflow::{Folding, entry_or_create, is_foldable, may_fold};
use super::reached::note_label_limit;
use crate::counters::Counter;
use crate::index::overflow::OverflowState;
use crate::index::series_keys::{ID_NONE, key_count_max};
use crate::index::tables::{FullTag, TenantIndex};
use crate::series::stripe::stripe_of;
use chronolith_base::sync::RwLockWriteGuard;

/// Bytes of series records at which a WAL frame is queued.
const SERIES_FRAME_BYTES: usize = 1 << 20;

/// New series that are created under one lock: the longest wait of queries and of writers of known series.
const SLICE_COUNT: usize = 128;

/// Limit of the label text of one series, whatever the limits of the tenant: a series record fits a WAL
/// frame.
const SERIES_TEXT_BYTES_MAX: usize = 8 << 20;

const _: () = assert!(SERIES_FRAME_BYTES + SERIES_TEXT_BYTES_MAX + (4 << 20) < wal::FRAME_PAYLOAD_BYTES_MAX);

/// Assigns ids to `scratch.misses`; series that are refused are counted as rejected.
pub(super) fn resolve_misses(job: &mut AppendJob<'_>, scratch: &mut AppendScratch) {
    scratch.created.clear();
    let tenant = job.tenant;
    let protocol = job.batch.source.protocol;
    wal::encode_series(tenant.name(), protocol, &mut scratch.payload);
    let misses = std::mem::take(&mut scratch.misses);
    let may_use_overflow = job.emit.is_some() && (tenant.overflow().is_used() || may_fold(job));
    let first = match job.unfolded_at.take() {
        _ if !may_use_overflow => resolve_all(job, scratch, &misses, Overflow::Unused),
        // Creation of series does not wait for the table, unless a limit refuses one.
        Some(insert_count) => resolve_all(job, scratch, &misses, Overflow::Unlocked(insert_count)),
        None => 0,
    };
    let rest = &misses[first..];
    if !rest.is_empty() {
        let mut overflow = tenant.overflow().lock();
        let mut folding = Folding::default();
        resolve_all(job, scratch, rest, Overflow::Locked(&mut overflow, &mut folding));
        end_folded(job, scratch, &mut overflow, rest);
        folding.finish(job, &mut overflow);
    }
    scratch.misses = misses;
}

/// Overflow table of the tenant during creation of series.
enum Overflow<'a> {
    /// Series are created or refused.
    Unused,
    /// The table had none of the series when it had got this many: it is not locked.
    Unlocked(u64),
    /// Series that a limit refuses are folded.
    Locked(&'a mut OverflowState, &'a mut Folding),
}

/// Resolves series in order up to the first that needs the table, which is not locked; returns the number of
/// those before it.
fn resolve_all(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    misses: &[u32],
    mut overflow: Overflow<'_>,
) -> usize {
    let empty_len = scratch.payload.len();
    let tenant = job.tenant;
    let mut count = 0;
    for slice in misses.chunks(SLICE_COUNT) {
        let mut tables = tenant.tables.write();
        if let Overflow::Unlocked(insert_count) = overflow
            && tenant.overflow().insert_count() != insert_count
        {
            // Another writer has folded series, which may be of this batch.
            return count;
        }
        let mut done = 0;
        for &idx in slice {
            match resolve_one(job, scratch, &mut tables, &mut overflow, idx) {
                Ok(Resolved::Series(id)) => scratch.ids[idx as usize] = id,
                Ok(Resolved::Folded(entry)) => {
                    if let Overflow::Locked(_, folding) = &mut overflow {
                        folding.collect(job, idx, entry);
                    }
                }
                Ok(Resolved::NeedsTable) => break,
                Err(reject) => reject_series(job, idx, reject),
            }
            done += 1;
            if scratch.payload.len() >= SERIES_FRAME_BYTES {
                publish(job, scratch, empty_len);
            }
        }
        publish(job, scratch, empty_len);
        RwLockWriteGuard::unlock_fair(tables);
        cache_keys(job, scratch, &slice[..done]);
        count += done;
        if done < slice.len() {
            break;
        }
    }
    count
}

/// Counts the samples of a refused series, those out of bounds by their own reject.
fn reject_series(job: &mut AppendJob<'_>, idx: u32, reject: Reject) {
    let batch = job.batch;
    let series = &batch.series[idx as usize];
    let is_for_time = matches!(reject, Reject::TooOld | Reject::OutOfBounds | Reject::OutOfOrder);
    for &time in &batch.times[series.samples.start as usize..series.samples.end as usize] {
        let own = job.bounds.refuse(time).filter(|_| is_for_time);
        job.outcome.reject(own.unwrap_or(reject), 1, time, || series_text(batch, idx));
    }
}

/// Removes series from the overflow table that are series of the head now.
fn end_folded(job: &AppendJob<'_>, scratch: &AppendScratch, overflow: &mut OverflowState, misses: &[u32]) {
    if overflow.table().series_count() == 0 {
        return;
    }
    let resolved = misses.iter().filter(|&&idx| scratch.ids[idx as usize] != ID_NONE);
    let keys: Vec<u128> = resolved.map(|&idx| scratch.keys[idx as usize]).collect();
    overflow.remove(&job.state.wal, job.tenant.name(), &keys);
}

/// Destination of the samples of a series.
enum Resolved {
    /// Id of a series of the head.
    Series(u32),
    /// Entry of the overflow table.
    Folded(usize),
    /// A limit refuses the series, which may be folded once the table is locked.
    NeedsTable,
}

/// Caches the wire keys of resolved series.
fn cache_keys(job: &AppendJob<'_>, scratch: &AppendScratch, slice: &[u32]) {
    let state = job.state;
    let count_max = key_count_max(state.counters.get(Counter::SeriesLive));
    // Locked until the keys are cached: another thread that finds a second kind removes them after that.
    let types = job.tenant.field_types.lock();
    let field_of = |idx: &u32| scratch.fields.binary_search_by_key(idx, |(of, _)| *of).ok();
    let is_cached = |idx: &&u32| field_of(idx).is_none_or(|at| !types.is_contested(scratch.fields[at].1));
    let keys =
        slice.iter().filter(is_cached).map(|&idx| (scratch.keys[idx as usize], scratch.ids[idx as usize]));
    state.index.cache_keys(keys, count_max);
}

/// Returns the id of one series, or its entry in the overflow table if a limit refuses it. A series of which
/// no sample would be stored is not created.
fn resolve_one(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    tables: &mut TenantIndex,
    overflow: &mut Overflow<'_>,
    idx: u32,
) -> Result<Resolved, Reject> {
    let series = &job.batch.series[idx as usize];
    let builder = &mut scratch.builder;
    builder.clear();
    (job.batch.source.parse)(job.batch.key_of(idx as usize), builder)?;
    builder.sort();
    let pairs = check_labels(builder, job.limits, job.batch.source.is_typed)
        .inspect_err(|kind| note_label_limit(&mut job.outcome, builder, job.limits, *kind))?;
    if let Some(id) = tables.find(pairs.iter().copied(), &mut scratch.members) {
        return Ok(Resolved::Series(id));
    }
    let times = &job.batch.times[series.samples.start as usize..series.samples.end as usize];
    if times.iter().all(|&t| job.bounds.refuse(t).is_some()) {
        // The caller counts each sample by its own reject.
        let first = times.first().and_then(|&t| job.bounds.refuse(t));
        return Err(first.unwrap_or(Reject::OutOfBounds));
    }
    let text_len: usize = pairs.iter().map(|(n, v)| n.len() + v.len()).sum();
    if text_len > SERIES_TEXT_BYTES_MAX {
        return Err(Reject::LabelValueTooLong);
    }
    let fold = |overflow: &mut Overflow<'_>| match overflow {
        _ if !may_fold(job) || !is_foldable(job, idx) => None,
        Overflow::Unused => None,
        Overflow::Unlocked(_) => Some(Resolved::NeedsTable),
        Overflow::Locked(state, _) => {
            entry_or_create(job, state, idx, scratch.keys[idx as usize], &pairs).map(Resolved::Folded)
        }
    };
    if tables.live_count() >= job.limits.series_max || !tables.has_room(text_len) {
        return fold(overflow).ok_or(Reject::SeriesLimit);
    }
    if job.batch.source.is_typed
        && job.limits.databases.tag_values_max > 0
        && let Some(full) = tables.full_tag(&pairs, job.limits.databases.tag_values_max)
    {
        note_full_tag(&mut job.outcome, &pairs, full);
        return Err(Reject::TagValueLimit);
    }
    if let Some(full) = tables.full_limit(&pairs, job.limits) {
        let kind = full.kind;
        if kind == Reject::MetricSeriesLimit
            && let Some(folded) = fold(overflow)
        {
            return Ok(folded);
        }
        job.outcome.note_reached(full);
        return Err(kind);
    }
    let id = job.state.index.ids.take().ok_or(Reject::SeriesIdsExhausted)?;
    tables.insert(id, pairs.iter().copied(), &mut scratch.members);
    let record = SeriesRecord { id, raw_hash: scratch.keys[idx as usize] };
    record.encode(pairs.into_iter(), &mut scratch.payload);
    scratch.created.push(id);
    job.outcome.series_created_count += 1;
    Ok(Resolved::Series(id))
}

/// Keeps the first tag that has too many values for the answer.
#[cold]
fn note_full_tag(outcome: &mut WriteOutcome, pairs: &[(&str, &str)], full: FullTag<'_>) {
    let measurement = pairs.iter().find(|(name, _)| *name == METRIC_NAME).map_or("", |(_, value)| *value);
    outcome.full_tag.get_or_insert_with(|| FullTagValue {
        measurement: measurement.to_owned(),
        tag: full.name.to_owned(),
        value: full.value.to_owned(),
        value_count: full.value_count as u64,
    });
}

/// Creates the series records of new series and queues their series records. The caller holds the lock of the
/// index.
fn publish(job: &AppendJob<'_>, scratch: &mut AppendScratch, empty_len: usize) {
    job.state.counters.add(Counter::SeriesLive, scratch.created.len() as u64);
    for run in scratch.created.chunk_by(|&a, &b| stripe_of(a) == stripe_of(b)) {
        let mut stripe = job.state.series.lock(run[0]);
        run.iter().for_each(|&id| stripe.create(id, job.tenant.idx));
    }
    if !scratch.created.is_empty() {
        job.state.wal.append(wal::KIND_SERIES, wal::STRIPE_NONE, &scratch.payload);
    }
    scratch.created.clear();
    scratch.payload.truncate(empty_len);
}

/// Checks sorted labels, which may be reserved ones if the protocol is typed; returns those that are not
/// empty.
pub(super) fn check_labels<'a>(
    builder: &'a LabelsBuilder,
    limits: &TenantLimits,
    is_typed: bool,
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
        if name.starts_with('_') && !is_typed && is_reserved(name) {
            return Err(Reject::ReservedLabel);
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
