//! Requests for series, owned: views change them on their way to a source, and they can be handed to another
//! thread, printed and encoded.
//!
//! Invariant: a source may ignore each wish of a request but the matchers, the range, the column type and the
//! shard, by which no caller filters.
//! Not here: the source ([`Source`](super::Source)); memory, time and threads of a read
//! ([`super::ReadContext`]); bytes of an encoded read (`format::read`).

use std::sync::Arc;

use super::hints::{PresenceHints, Projection, SampleNeed, Shard};
use super::typed::ColumnType;
use crate::rollup::RollupSpan;
use crate::{Matcher, TimeRange};

/// Selection of series and of a time range.
#[derive(Debug, Clone)]
pub struct Selector<'a> {
    /// Series must be selected by all of them.
    pub matchers: &'a [Matcher],
    /// Only series that may have samples in it are returned; a source may return a few that have none.
    pub range: TimeRange,
}

/// Estimated cost of reading a selector. Neither count is intended to be below half of the actual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadEstimate {
    /// Selected series.
    pub series: u64,
    /// Samples of the series in the range.
    pub samples: u64,
}

/// Selection of series and of a range of time, with the needs of its reader.
///
/// A request has no store and no unit: the source that is asked is one of a tenant or of a store already, and
/// times are in its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectRequest {
    /// Series must be selected by all of them.
    pub matchers: Vec<Matcher>,
    /// Only series that may have samples in it are returned; a source may return a few that have none.
    pub range: TimeRange,
    /// Samples that are read.
    pub samples: SampleNeed,
    /// True for `count` and `group`: neither values nor labels outside of `grouping` are read, but each
    /// series is checked for a sample that is not a staleness marker.
    ///
    /// A source may then leave out the other labels, the values and the start times; several series have
    /// the same labels, and the series of a group are in any order. If only the newest samples are
    /// needed, the groups are in the order of their first series whose newest sample is not a staleness
    /// marker, by the order of a selection without this wish. Groups without such series are last. If
    /// all samples are needed, the order of the groups is not defined.
    pub presence_only: bool,
    /// Function or aggregation directly above; empty if there is none, or several.
    pub function: Arc<str>,
    /// Grouping, if that is an aggregation.
    pub grouping: Option<Projection>,
    /// Labels that are read; `None`: all. A source may leave out others: several series then have the same
    /// labels, in the order of all their labels.
    pub projection: Option<Projection>,
    /// Distance of evaluation times in ms; 0 if there is one.
    pub step_ms: i64,
    /// Width of a range selector in ms; 0 for an instant selector.
    pub range_ms: i64,
    /// Type in which samples are read: only series that have it are returned.
    pub column_type: ColumnType,
    /// The only series to be returned; `None`: all.
    pub shard: Option<Shard>,
    /// Roll-up archives that the reader uses in place of samples. A source in object storage may fetch
    /// samples that they cover when these are read.
    pub rollups: Vec<RollupSpan>,
    /// Entries that a list of names or values has at most; 0: all.
    pub limit: usize,
    /// True if the reader prefers a partial result to none: a source that fails may be left out and named in
    /// a warning.
    pub allows_partial: bool,
}

impl SelectRequest {
    /// All samples, labels and types of what `selector` selects.
    #[must_use]
    pub fn new(selector: &Selector<'_>) -> SelectRequest {
        SelectRequest {
            matchers: selector.matchers.to_vec(),
            range: selector.range,
            samples: SampleNeed::All,
            presence_only: false,
            function: Arc::default(),
            grouping: None,
            projection: None,
            step_ms: 0,
            range_ms: 0,
            column_type: ColumnType::Float,
            shard: None,
            rollups: Vec::new(),
            limit: 0,
            allows_partial: false,
        }
    }

    /// As [`SelectRequest::new`] for a reader that needs only the newest sample of each series in the range.
    #[must_use]
    pub fn newest(selector: &Selector<'_>) -> SelectRequest {
        SelectRequest { samples: SampleNeed::Newest, ..SelectRequest::new(selector) }
    }

    /// Matchers and range.
    #[must_use]
    pub fn selector(&self) -> Selector<'_> {
        Selector { matchers: &self.matchers, range: self.range }
    }

    /// Needs of a reader that uses presence only; `None` for other readers. Without a grouping, it reads no
    /// label.
    #[must_use]
    pub fn presence(&self) -> Option<PresenceHints<'_>> {
        const NO_LABEL: &Projection = &Projection { names: Vec::new(), include: true };
        let projection = self.grouping.as_ref().unwrap_or(NO_LABEL);
        self.presence_only.then_some(PresenceHints { samples: self.samples, projection })
    }

    /// Returns true if a source may leave out labels.
    #[must_use]
    pub fn needs_some_labels(&self) -> bool {
        self.presence_only || self.projection.is_some()
    }

    /// Request of the same reader for all samples and labels of the series that `matchers` select in its
    /// range.
    #[must_use]
    pub fn for_matchers(&self, matchers: Vec<Matcher>) -> SelectRequest {
        let selector = Selector { matchers: &[], range: self.range };
        SelectRequest { matchers, allows_partial: self.allows_partial, ..SelectRequest::new(&selector) }
    }

    /// The same request of a reader that needs all labels and values, as one that merges series does.
    #[must_use]
    pub fn with_all_labels(self) -> SelectRequest {
        SelectRequest { presence_only: false, projection: None, ..self }
    }

    /// The same request for a source whose series get other labels before [`SelectRequest::filter`] is
    /// applied.
    #[must_use]
    pub fn before_relabeling(self) -> SelectRequest {
        SelectRequest { shard: None, ..self.with_all_labels() }
    }
}

/// A request, and in which form the answer is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Series and samples.
    pub request: SelectRequest,
    /// Form of the answer.
    pub wanted: Wanted,
}

/// Form of the answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Series with their samples that can be read as the column type.
    Series,
    /// Estimated cost of all of that.
    Estimate,
    /// Label names of the selected series.
    LabelNames,
    /// Values of a label of the selected series.
    LabelValues {
        /// Name of the label.
        name: Arc<str>,
    },
    /// Values of a label, one part of the source after another, of all series whose blocks or head windows
    /// overlap the range. There are no matchers.
    EachLabelValue {
        /// Name of the label.
        name: Arc<str>,
        /// Only values that begin with it.
        prefix: Arc<str>,
    },
    /// Search for values of a label among series that have no other label and whose blocks or head windows
    /// overlap the range. There are no matchers.
    SoleLabelValues {
        /// Name of the label.
        name: Arc<str>,
    },
}

impl Read {
    /// Series of `request`.
    #[must_use]
    pub fn series(request: SelectRequest) -> Read {
        Read { request, wanted: Wanted::Series }
    }

    /// An answer in the form `wanted` for what `selector` selects.
    #[must_use]
    pub fn of(selector: &Selector<'_>, wanted: Wanted) -> Read {
        Read { request: SelectRequest::new(selector), wanted }
    }
}
