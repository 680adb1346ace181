//! Hints of a selection: samples and labels that its reader needs, operators above it, type and shard.
//!
//! Invariants: a source may ignore every hint but type and shard, by which no caller filters.

use super::typed::ColumnType;
use crate::rollup::RollupSpan;
use crate::{Labels, QueryError, SeriesBatches, SeriesRead};

/// Grouping of an aggregation (`by` or `without`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Projection<'a> {
    /// Label names, ascending.
    pub names: &'a [&'a str],
    /// True for `by`: `names` are the labels of the group; false for `without`.
    pub include: bool,
}

impl Projection<'_> {
    /// Returns true if the label is used.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        self.names.binary_search(&name).is_ok() == self.include
    }

    /// Returns true if no label is used: all series are one group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.include && self.names.is_empty()
    }
}

/// Samples of a series that a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SampleNeed {
    /// All in the range.
    #[default]
    All,
    /// The newest in the range: older ones may be left out.
    Newest,
}

/// Needs of a reader that uses no values and only the labels of groups.
#[derive(Debug, Clone, Copy)]
pub struct PresenceHints<'a> {
    /// Samples of which time and staleness are read.
    pub samples: SampleNeed,
    /// Labels that are read.
    pub projection: Projection<'a>,
}

/// One of several parts into which the series of a query are split by a hash of their labels, so that
/// each part is computed apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    idx: u32,
    count: u32,
}

impl Shard {
    /// Shard `idx` of `count`; `None` if there is no such shard.
    #[must_use]
    pub fn new(idx: u32, count: u32) -> Option<Shard> {
        (idx < count).then_some(Shard { idx, count })
    }

    /// Returns true if the series is in this shard. Depends on nothing but the labels, on any machine.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        // FNV-1a; a byte that is not UTF-8 ends each text.
        let text = |text: &str| text.bytes().chain([0xff]).collect::<Vec<u8>>();
        let bytes = labels.iter().flat_map(|(name, value)| [text(name), text(value)]).flatten();
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, step);
        (hash >> 32) % u64::from(self.count) == u64::from(self.idx)
    }
}

/// Series of a type and shard.
struct FilteredBatches {
    column_type: ColumnType,
    shard: Option<Shard>,
    batches: Box<dyn SeriesBatches>,
    batch: Vec<SeriesRead>,
}

impl FilteredBatches {
    fn selects(&self, series: &SeriesRead) -> bool {
        let found = series.samples.column_type();
        let has_type = match self.column_type {
            ColumnType::Float => found != ColumnType::Text,
            ColumnType::Histogram => matches!(found, ColumnType::Float | ColumnType::Histogram),
            wanted => found == wanted,
        };
        has_type && self.shard.is_none_or(|shard| shard.selects(&series.labels))
    }
}

impl SeriesBatches for FilteredBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let mut batch = std::mem::take(&mut self.batch);
        let has_more = self.batches.next_batch(&mut batch);
        out.extend(batch.drain(..).filter(|series| self.selects(series)));
        self.batch = batch;
        has_more
    }
}

/// Description of the reader of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SelectHints<'a> {
    /// Samples that are read.
    pub samples: SampleNeed,
    /// True for `count` and `group`: neither values nor labels outside of `grouping` are read, but each
    /// series is checked for a sample that is not a staleness marker.
    ///
    /// A source may then leave out the other labels, the values and the start times; several series have the
    /// same labels, and the series of a group are in any order. If only the newest samples are needed, the
    /// groups are in the order of their first series whose newest sample is not a staleness marker, by the
    /// order of [`crate::Queryable::select`]. Groups without such series are last. If all samples are needed,
    /// the order of the groups is not defined.
    pub presence_only: bool,
    /// Function or aggregation directly above; empty if there is none, or several.
    pub function: &'a str,
    /// Grouping, if that is an aggregation.
    pub grouping: Option<Projection<'a>>,
    /// Labels that are read; `None`: all. A source may leave out others: several series then have the same
    /// labels, in the order of all their labels.
    pub projection: Option<Projection<'a>>,
    /// Distance of evaluation times; 0 if there is one.
    pub step_ms: i64,
    /// Width of a range selector; 0 for an instant selector.
    pub range_ms: i64,
    /// Type in which samples are read: only series that have it are returned.
    pub column_type: ColumnType,
    /// The only series to be returned; `None`: all.
    pub shard: Option<Shard>,
    /// Roll-up archives that the reader uses in place of samples. A source in object storage may fetch
    /// samples that they cover when these are read.
    pub rollups: &'a [RollupSpan],
}

impl<'a> SelectHints<'a> {
    /// Hints of a reader that needs only the newest sample of each series in the range.
    #[must_use]
    pub fn newest() -> SelectHints<'static> {
        SelectHints { samples: SampleNeed::Newest, ..SelectHints::default() }
    }

    /// Returns the series of `batches` that have the type and are in the shard. A selection of floats without
    /// a shard is returned as it is.
    #[must_use]
    pub fn filter(&self, batches: Box<dyn SeriesBatches>) -> Box<dyn SeriesBatches> {
        let SelectHints { column_type, shard, .. } = *self;
        if column_type == ColumnType::Float && shard.is_none() {
            return batches;
        }
        Box::new(FilteredBatches { column_type, shard, batches, batch: Vec::new() })
    }

    /// Needs of a reader that uses presence only.
    #[must_use]
    pub fn presence(&self) -> Option<PresenceHints<'a>> {
        let projection = self.grouping.unwrap_or(Projection { names: &[], include: true });
        self.presence_only.then_some(PresenceHints { samples: self.samples, projection })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_in_one_shard() {
        let mut sizes = [0; 7];
        for id in 0..7000 {
            let labels = Labels::from_pairs([("__name__", "m"), ("id", id.to_string().as_str())]);
            let shards = (0..7).filter(|idx| Shard::new(*idx, 7).expect("a shard").selects(&labels));
            let shards: Vec<u32> = shards.collect();
            assert_eq!(shards.len(), 1, "{labels}");
            sizes[shards[0] as usize] += 1;
        }
        assert!(sizes.iter().all(|size| (850..1150).contains(size)), "{sizes:?}");
        assert_eq!(Shard::new(7, 7), None);
    }

    /// Machines of other versions must agree.
    #[test]
    fn shards_are_stable() {
        let labels = Labels::from_pairs([("__name__", "up"), ("job", "node")]);
        let shard = (0..1000).find(|idx| Shard::new(*idx, 1000).expect("a shard").selects(&labels));
        assert_eq!(shard, Some(534));
    }
}
