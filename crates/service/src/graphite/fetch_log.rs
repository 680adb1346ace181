//! Log of the fetches of a request: expression, range and hints, and for each series the archive that was
//! chosen and the origin of its points.
//!
//! Invariant: `LoggedSeries::archive_idx` is an index of the archives of the same log.
//! Not here: the fetches (`source`), which of them a result is made of (`lineage`).

use std::collections::BTreeMap;

use chronolith_graphite::storage::FetchRequest;
use chronolith_ingest::carbon::{AggregationMethod, Archive};
use serde_json::{Value, json};

use super::archive::{Choice, PointCounts};

/// Name of no consolidation.
pub const NO_CONSOLIDATOR: &str = "NoneConsolidator";

/// Archive that points of series were read from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoggedArchive {
    /// Section of storage-schemas.conf; empty without one.
    schema_name: String,
    /// Archives of the section; empty without a schema.
    retentions: String,
    /// Index of the archive; 0 is the finest.
    archive_idx: usize,
    /// Seconds per point. `None` without a schema as long as no points are read.
    step_s: Option<i64>,
    consolidator: &'static str,
}

impl LoggedArchive {
    /// The archive of a choice; without one, the points as they are at this step.
    pub(super) fn new(choice: Option<&Choice<'_>>, step_s: Option<i64>) -> LoggedArchive {
        let Some(Choice { schema, archive_idx, archive }) = choice else {
            let (schema_name, retentions) = <(String, String)>::default();
            return LoggedArchive {
                schema_name,
                retentions,
                archive_idx: 0,
                step_s,
                consolidator: NO_CONSOLIDATOR,
            };
        };
        let retentions: Vec<String> = schema.archives().iter().map(Archive::definition).collect();
        LoggedArchive {
            schema_name: schema.name().to_owned(),
            retentions: retentions.join(","),
            archive_idx: *archive_idx,
            step_s: Some(archive.step_s),
            consolidator: consolidator_of(archive.method),
        }
    }

    /// Fields of Metrictank's metadata that describe an archive, with the number of series read from it.
    pub fn to_json(&self, series_count: u64) -> Value {
        json!({
            "schema-name": self.schema_name,
            "schema-retentions": self.retentions,
            "archive-read": self.archive_idx,
            "archive-interval": self.step_s,
            "consolidator-normfetch": self.consolidator,
            "count": series_count,
        })
    }
}

/// Metrictank's name of a method; those that it does not have are named alike.
fn consolidator_of(method: AggregationMethod) -> &'static str {
    match method {
        AggregationMethod::Average => "AverageConsolidator",
        AggregationMethod::AverageZero => "AverageZeroConsolidator",
        AggregationMethod::Sum => "SumConsolidator",
        AggregationMethod::Count => "CountConsolidator",
        AggregationMethod::Min => "MinimumConsolidator",
        AggregationMethod::Max => "MaximumConsolidator",
        AggregationMethod::AbsMin => "AbsoluteMinimumConsolidator",
        AggregationMethod::AbsMax => "AbsoluteMaximumConsolidator",
        AggregationMethod::First => "FirstConsolidator",
        AggregationMethod::Last => "LastConsolidator",
    }
}

/// One series of a fetch.
pub struct LoggedSeries {
    pub name: String,
    pub archive_idx: usize,
    /// Points of the answer, empty ones included.
    pub point_count: usize,
    pub read: PointCounts,
}

/// One expression in one range.
pub struct LoggedFetch {
    pub request: FetchRequest,
    /// Points per series above which a coarser archive is chosen.
    pub points_max: u64,
    pub series: Vec<LoggedSeries>,
}

/// All fetches of a request, in their order.
#[derive(Default)]
pub struct FetchLog {
    pub fetches: Vec<LoggedFetch>,
    archives: Vec<LoggedArchive>,
    idxs: BTreeMap<LoggedArchive, usize>,
}

impl FetchLog {
    /// Begins the next fetch.
    pub fn begin(&mut self, request: &FetchRequest, points_max: u64) {
        self.fetches.push(LoggedFetch { request: request.clone(), points_max, series: Vec::new() });
    }

    /// Adds a series to the last fetch.
    pub(super) fn push(&mut self, archive: LoggedArchive, name: &str, point_count: usize, read: PointCounts) {
        let next_idx = self.archives.len();
        let archive_idx = *self.idxs.entry(archive).or_insert_with_key(|archive| {
            self.archives.push(archive.clone());
            next_idx
        });
        if let Some(fetch) = self.fetches.last_mut() {
            fetch.series.push(LoggedSeries { name: name.to_owned(), archive_idx, point_count, read });
        }
    }

    /// The archive of that index.
    pub fn archive(&self, idx: usize) -> Option<&LoggedArchive> {
        self.archives.get(idx)
    }

    /// All series of all fetches.
    pub fn series(&self) -> impl Iterator<Item = &LoggedSeries> {
        self.fetches.iter().flat_map(|fetch| &fetch.series)
    }
}
