//! Series of a tenant as a repair sees them: with its corrections, which are not written yet, and without
//! the results that a round did not see at its time.
//!
//! Invariant: a series without corrections that is not hidden is read as its source has it.
//! Not here: which results are hidden (`repair`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::query::{
    ColumnType, Opened, Read, SampleNeed, SampleSource, SelectRequest, SeriesRead, Source, VecBatches, Wanted,
};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{
    Columns, FloatHistogram, Histogram, Labels, Matcher, QueryError, Queryable, ReadContext, TimeRange,
};
use chronolith_rules::repair::Correction;
use chronolith_rules::round::{RuleSample, SampleValue};

/// Corrected samples of one series by time; `None` for one that is removed.
type CorrectedSeries = BTreeMap<i64, Option<SampleValue>>;

/// Corrections of a repair, by metric name and series.
#[derive(Clone, Default)]
pub(super) struct Corrections(BTreeMap<String, BTreeMap<Labels, CorrectedSeries>>);

impl Corrections {
    pub(super) fn add(&mut self, correction: &Correction) {
        for RuleSample { labels, time_ms, value } in correction.replaced.iter().chain(&correction.added) {
            self.series(labels).insert(*time_ms, Some(value.clone()));
        }
        for removed in &correction.removed {
            self.series(&removed.labels).insert(removed.time_ms, None);
        }
    }

    fn series(&mut self, labels: &Labels) -> &mut CorrectedSeries {
        let name = labels.metric_name().unwrap_or_default().to_owned();
        self.0.entry(name).or_default().entry(labels.clone()).or_default()
    }

    fn selected(&self, request: &SelectRequest) -> BTreeMap<Labels, CorrectedSeries> {
        let (of_name, others): (Vec<&Matcher>, Vec<&Matcher>) =
            request.matchers.iter().partition(|one| &*one.name == chronolith_model::METRIC_NAME);
        let names = self.0.iter().filter(|(name, _)| of_name.iter().all(|one| one.matches(name)));
        let is_selected = |labels: &Labels| {
            others.iter().all(|one| one.matches_labels(labels))
                && request.shard.is_none_or(|shard| shard.selects(labels))
        };
        let series = names.flat_map(|(_, series)| series).filter(|(labels, _)| is_selected(labels));
        series.map(|(labels, corrected)| (labels.clone(), corrected.clone())).collect()
    }
}

/// Source below corrections.
pub(super) struct RepairView {
    pub(super) below: Arc<dyn Queryable>,
    pub(super) corrections: Arc<Corrections>,
    /// Series that are selected by all matchers of one of these have no samples from the time on.
    pub(super) hidden: Vec<Vec<Matcher>>,
    pub(super) hidden_from_ms: i64,
}

impl RepairView {
    fn series(&self, request: SelectRequest, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let mut corrected = self.corrections.selected(&request);
        if corrected.is_empty() && self.hidden.is_empty() {
            return self.below.open(Read::series(request), ctx);
        }
        let request = SelectRequest {
            samples: SampleNeed::All,
            rollups: Vec::new(),
            limit: 0,
            ..request.with_all_labels()
        };
        let mut batches = self.below.open_series(request, ctx)?;
        let mut series = Vec::new();
        while batches.next_batch(&mut series)? {}
        let mut all: Vec<SeriesRead> = Vec::with_capacity(series.len() + corrected.len());
        for SeriesRead { labels, samples } in series {
            let of_series = corrected.remove(&labels);
            let end_ms = self.end_of(&labels);
            let samples: Box<dyn SampleSource> = match of_series {
                None if end_ms == i64::MAX => samples,
                found => Box::new(CorrectedSamples {
                    below: Some(samples),
                    corrected: found.unwrap_or_default(),
                    end_ms,
                }),
            };
            all.push(SeriesRead { labels, samples });
        }
        for (labels, corrected) in corrected {
            let end_ms = self.end_of(&labels);
            all.push(SeriesRead {
                labels,
                samples: Box::new(CorrectedSamples { below: None, corrected, end_ms }),
            });
        }
        all.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(Opened::Series(Box::new(VecBatches::new(all))))
    }

    /// Time from which on the samples of a series are hidden.
    fn end_of(&self, labels: &Labels) -> i64 {
        let is_hidden =
            self.hidden.iter().any(|matchers| matchers.iter().all(|one| one.matches_labels(labels)));
        if is_hidden { self.hidden_from_ms } else { i64::MAX }
    }
}

impl Source for RepairView {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        match read.wanted {
            Wanted::Series => self.series(read.request, ctx),
            // The reader lists the series.
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
            _ => self.below.open(read, ctx),
        }
    }
}

struct CorrectedSamples {
    below: Option<Box<dyn SampleSource>>,
    corrected: CorrectedSeries,
    end_ms: i64,
}

impl SampleSource for CorrectedSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let range = TimeRange { end: range.end.min(self.end_ms), ..range };
        if range.start >= range.end {
            return Ok(());
        }
        let mut stored = Columns::default();
        if let Some(below) = &self.below {
            below.read(range, &mut stored)?;
        }
        let mut corrected = self.corrected.range(range.start..range.end).peekable();
        for (idx, &time) in stored.times.iter().enumerate() {
            while let Some((at, value)) = corrected.next_if(|(at, _)| **at < time) {
                push(out, *at, value.as_ref());
            }
            match corrected.next_if(|(at, _)| **at == time) {
                Some((at, value)) => push(out, *at, value.as_ref()),
                None => out.push_after_gap(&stored, idx),
            }
        }
        corrected.for_each(|(at, value)| push(out, *at, value.as_ref()));
        Ok(())
    }

    fn column_type(&self) -> ColumnType {
        self.below.as_ref().map_or(ColumnType::Float, |below| below.column_type())
    }

    fn sample_count_hint(&self) -> usize {
        self.below.as_ref().map_or(0, |below| below.sample_count_hint()) + self.corrected.len()
    }
}

fn push(out: &mut Columns, time_ms: i64, value: Option<&SampleValue>) {
    match value {
        Some(SampleValue::Float(value)) => out.push(time_ms, *value),
        Some(SampleValue::Stale) => out.push(time_ms, STALE_NAN),
        Some(SampleValue::Histogram(histogram)) => {
            let histogram = Histogram::Float(FloatHistogram::clone(histogram));
            out.push_histogram(time_ms, Arc::new(histogram));
        }
        None => {}
    }
}
