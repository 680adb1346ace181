//! `target_info`: one series per resource with the attributes that its other series lack.
//!
//! Invariants: samples are at the earliest and latest time of the points of a resource and at each interval
//! between, as in Prometheus, and at most [`TARGET_INFO_COUNT_MAX`], of which the newest are kept; equal ones
//! of several resources of a request are stored once.
//! Not here: labels (`labels`).

use chronolith_base::hash::HashSet;
use chronolith_model::{MetadataEntry, MetricKind};

use super::attributes::Attributes;
use super::key_memory::{Identity, Part, Verdict};
use super::limits::TARGET_INFO_COUNT_MAX;
use super::refused::PointReject;
use super::series_names::SeriesNames;
use super::writer::{TimeRange, Writer};
use crate::remote_write::DecodeError;
use chronolith_model::labels::METRIC_NAME;

const NAME: &str = "target_info";
const HELP: &str = "Target metadata";
const NANOS_PER_MILLI: i64 = 1_000_000;
/// Set in the record of a resource that has a job or an instance.
const HAS_TARGET: u8 = 1;
/// Set in the record of a resource whose `target_info` has no valid labels.
const IS_REFUSED: u8 = 2;

/// Records of the resources of a request.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// Flags and key of the resource at hand; the key is empty if there is no series.
    record: Vec<u8>,
    /// Series and times of the request.
    seen: HashSet<(Identity, i64)>,
    has_metadata: bool,
}

impl Targets {
    /// Prepares for the next request.
    pub(super) fn clear(&mut self) {
        self.record.clear();
        self.seen.clear();
        self.has_metadata = false;
    }

    /// Begins a resource: looks its record up, or makes it. Returns true if its series have a job or an
    /// instance.
    pub(super) fn begin(
        &mut self,
        identity: Identity,
        attributes: Attributes<'_>,
        writer: &mut Writer<'_, '_>,
    ) -> bool {
        self.record.clear();
        match writer.memory.find(identity) {
            Some(Verdict::Key(record)) => self.record.extend_from_slice(record),
            _ => {
                self.describe(attributes, &mut writer.names);
                writer.memory.insert(identity, Verdict::Key(&self.record));
            }
        }
        self.flags() & HAS_TARGET != 0
    }

    fn flags(&self) -> u8 {
        self.record.first().copied().unwrap_or(0)
    }

    fn describe(&mut self, attributes: Attributes<'_>, names: &mut SeriesNames<'_>) {
        let settings = names.settings();
        let mut key = Vec::new();
        let mut flags = 0;
        let described = names.resource_labels().and_then(|labels| -> Result<(), PointReject> {
            flags = u8::from(labels.has_target()) * HAS_TARGET;
            match labels.target_info(settings, attributes)? {
                Some(base) => base.write_key(&[(METRIC_NAME, NAME)], &mut key),
                None => Ok(()),
            }
        });
        if described.is_err() {
            key.clear();
            flags |= IS_REFUSED;
        }
        self.record.push(flags);
        self.record.extend_from_slice(&key);
    }

    /// Ends a resource with points in `times`: appends its series.
    pub(super) fn end(
        &mut self,
        times: TimeRange,
        interval_ms: i64,
        writer: &mut Writer<'_, '_>,
    ) -> Result<(), DecodeError> {
        if times == TimeRange::EMPTY {
            return Ok(());
        }
        if self.flags() & IS_REFUSED != 0 {
            writer.refused.target_info_count += 1;
        }
        debug_assert!(!self.record.is_empty(), "the resource began");
        let Some(key) = self.record.get(1..).filter(|key| !key.is_empty()) else { return Ok(()) };
        let earliest = times.earliest_ns.cast_signed();
        let latest = times.latest_ns.cast_signed();
        let interval = interval_ms.max(1).saturating_mul(NANOS_PER_MILLI);
        let steps = latest.saturating_sub(earliest).max(0).saturating_add(interval - 1) / interval;
        debug_assert!(steps >= 0, "the latest time is not before the earliest");
        let skipped = (steps + 1 - TARGET_INFO_COUNT_MAX).max(0);
        writer.refused.target_info_count += skipped.unsigned_abs();
        let identity = writer.memory.identity(Part::Target, key);
        let seen = &mut self.seen;
        let times = (skipped..steps)
            .map(|step| earliest.saturating_add(step.saturating_mul(interval)))
            .chain([latest])
            .map(|time| time.div_euclid(NANOS_PER_MILLI))
            .filter(|&time| seen.insert((identity, time)));
        writer.push_known(key, times, 1.0)?;
        if !std::mem::replace(&mut self.has_metadata, true) {
            writer.push_metadata(MetadataEntry {
                metric: NAME.to_owned(),
                kind: MetricKind::Gauge,
                help: HELP.to_owned(),
                unit: String::new(),
            })?;
        }
        Ok(())
    }
}
