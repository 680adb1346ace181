//! `histogram_quantile`, `histogram_quantiles` and `histogram_fraction` over classic buckets (label `le`) and
//! native histograms.
//! Invariants: a histogram that is present in both forms in a step has no result.
//! Not here: the arithmetic of native histograms (`histogram::measure`).

use chronolith_base::hash::HashMap;
use chronolith_exec::annotation::Tally;
use chronolith_exec::column::{ABSENT, StepScalar, StepSeries, is_absent};
use chronolith_exec::error::Error;
use chronolith_exec::execution::{Execution, OperatorMemory};
use chronolith_exec::grid::Grid;
use chronolith_exec::histogram::measure::{self, NanEffect};
use chronolith_exec::metric_name::without_name;
use chronolith_exec::note::{Note, Severity};
use chronolith_exec::operator::SeriesOperator;
use chronolith_exec::position::Origin;
use chronolith_model::Labels;
use chronolith_model::histogram::Bucket as NativeBucket;
use chronolith_model::histogram::go_float;
use chronolith_model::quote::write_quoted;

use crate::engine::annotation::named;

/// Label that holds the upper bound of a bucket.
const BUCKET_LABEL: &str = "le";
/// Counts that differ by no more than this ratio are equal: rates of equal counters differ so.
const COUNT_TOLERANCE: f64 = 1e-12;

/// Function of the buckets.
pub(crate) enum BucketFn {
    /// The value below which this share of observations lies.
    Quantile(StepScalar),
    /// Several quantiles, distinguished by a label.
    Quantiles(String, Vec<StepScalar>),
    /// Share of observations between two values.
    Fraction(StepScalar, StepScalar),
}

/// A bucket of one step: all observations up to `bound`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    pub(crate) bound: f64,
    pub(crate) count: f64,
}

/// Buckets of a histogram: upper bound and counts, one a step.
struct Histogram {
    name: String,
    labels: Labels,
    buckets: Vec<(f64, Vec<f64>)>,
}

/// Histograms of the vector.
#[derive(Default)]
struct Found {
    classic: Vec<Histogram>,
    /// Series with native histograms, without their floats.
    native: Vec<StepSeries>,
}

/// One of the histogram functions.
pub(crate) struct BucketCall<'q> {
    pub(crate) execution: &'q Execution<'q>,
    pub(crate) function: BucketFn,
    /// Origin of notes: the vector.
    pub(crate) origin: Origin,
    pub(crate) grid: Grid,
}

impl BucketCall<'_> {
    /// The results for all series of `inner`.
    pub(crate) fn compute(
        &self,
        inner: &mut dyn SeriesOperator,
        memory: &mut OperatorMemory<'_>,
    ) -> Result<Vec<StepSeries>, Error> {
        let found = self.gather(inner, memory)?;
        let mut scratch = Vec::new();
        let mut results = Vec::new();
        let parts = match &self.function {
            BucketFn::Quantile(quantile) => vec![(None, quantile)],
            BucketFn::Quantiles(_, quantiles) => quantiles.iter().map(|q| (Some(q), q)).collect(),
            BucketFn::Fraction(lower, _) => vec![(None, lower)],
        };
        let told = |labels: &Labels, told_apart: Option<&StepScalar>| match (told_apart, &self.function) {
            (Some(quantile), BucketFn::Quantiles(label, _)) => {
                let mut builder = labels.to_builder();
                builder.set(label, &open_metrics(quantile.at(0)));
                builder.finish()
            }
            _ => labels.clone(),
        };
        let drop_name = self.execution.delays_names();
        let result = |labels, values| StepSeries { drop_name, ..StepSeries::floats(labels, values) };
        for (told_apart, param) in parts {
            for series in &found.native {
                self.execution.ctx.check()?;
                let Some(values) = self.native_column(series, param, &mut scratch) else { continue };
                let labels = if drop_name { series.labels.clone() } else { without_name(&series.labels) };
                results.push(result(told(&labels, told_apart), values));
            }
            for histogram in &found.classic {
                self.execution.ctx.check()?;
                let Some(values) = self.column(histogram, param) else { continue };
                results.push(result(told(&histogram.labels, told_apart), values));
            }
        }
        Ok(results)
    }

    /// The result for each step of a native histogram; `None` if there is none at all.
    fn native_column(
        &self,
        series: &StepSeries,
        param: &StepScalar,
        scratch: &mut Vec<NativeBucket>,
    ) -> Option<Vec<f64>> {
        let name = if self.execution.delays_names() { series.labels.metric_name().unwrap_or("") } else { "" };
        let mut effects = [None; 2];
        let mut lacks_nan = false;
        let values: Vec<f64> = (0..series.values.len())
            .map(|step| {
                let Some(histogram) = series.histogram(step) else { return ABSENT };
                if let BucketFn::Fraction(_, upper) = &self.function {
                    let (share, nan) = measure::fraction(param.at(step), upper.at(step), histogram, scratch);
                    lacks_nan |= nan;
                    return share;
                }
                let (value, effect) = measure::quantile(param.at(step), histogram, scratch);
                match effect {
                    Some(NanEffect::IsNan) => {
                        effects[0] = Some("input to histogram_quantile has NaN observations, result is NaN")
                    }
                    Some(NanEffect::Skews) => {
                        effects[1] =
                            Some("input to histogram_quantile has NaN observations, result is skewed higher")
                    }
                    None => {}
                }
                value
            })
            .collect();
        let lacking = lacks_nan.then_some(
            "input to histogram_fraction has NaN observations, which are excluded from all fractions",
        );
        for text in effects.into_iter().flatten().chain(lacking) {
            self.note(Severity::Info, text, name);
        }
        values.iter().any(|&v| !is_absent(v)).then_some(values)
    }

    /// All buckets, by histogram, in order of first appearance, and all native histograms.
    fn gather(
        &self,
        inner: &mut dyn SeriesOperator,
        memory: &mut OperatorMemory<'_>,
    ) -> Result<Found, Error> {
        let mut index: HashMap<Labels, usize> = HashMap::default();
        let mut found = Found::default();
        let histograms = &mut found.classic;
        let mut series = StepSeries::default();
        while inner.next(&mut series)? {
            if series.has_histograms() {
                memory.grow(series.sample_count(), series.heap_bytes())?;
                found.native.push(natives_of(&series));
                series.drop_histograms();
                if series.is_void() {
                    continue;
                }
            }
            let text = series.labels.get(BUCKET_LABEL).unwrap_or("");
            let name =
                if self.execution.delays_names() { series.labels.metric_name().unwrap_or("") } else { "" };
            let Some(bound) = parse_bound(text) else {
                self.note(Severity::Warning, &bad_bound(text), name);
                continue;
            };
            memory.grow(series.values.len() as u64, series.heap_bytes())?;
            let key = series.labels.filtered(|label| label != BUCKET_LABEL);
            let at = *index.entry(key).or_insert(histograms.len());
            if at == histograms.len() {
                let labels = series.labels.filtered(|label| label != BUCKET_LABEL);
                let labels = if self.execution.delays_names() { labels } else { without_name(&labels) };
                histograms.push(Histogram { name: name.to_owned(), labels, buckets: Vec::new() });
            }
            histograms[at].buckets.push((bound, std::mem::take(&mut series.values)));
        }
        for histogram in &mut *histograms {
            histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        for native in &mut found.native {
            if let Some(&at) = index.get(&native.labels) {
                self.drop_conflicts(native, &mut histograms[at]);
            }
        }
        Ok(found)
    }

    /// Takes a histogram that comes in both forms away, in the steps in which it does.
    fn drop_conflicts(&self, native: &mut StepSeries, classic: &mut Histogram) {
        let mut any = false;
        for step in 0..native.values.len() {
            let has_buckets = classic.buckets.iter().any(|(_, counts)| !is_absent(counts[step]));
            if native.histogram(step).is_some() && has_buckets {
                any = true;
                native.values[step] = ABSENT;
                classic.buckets.iter_mut().for_each(|(_, counts)| counts[step] = ABSENT);
            }
        }
        if any {
            let name =
                if self.execution.delays_names() { native.labels.metric_name().unwrap_or("") } else { "" };
            self.note(Severity::Warning, "vector contains a mix of classic and native histograms", name);
        }
    }

    /// The result for each step; `None` if there is none at all.
    fn column(&self, histogram: &Histogram, param: &StepScalar) -> Option<Vec<f64>> {
        let step_count = histogram.buckets.first().map_or(0, |(_, counts)| counts.len());
        let mut values = Vec::with_capacity(step_count);
        let mut buckets = Vec::new();
        let mut repair: Option<Tally> = None;
        for step in 0..step_count {
            buckets.clear();
            let present = histogram.buckets.iter().filter(|(_, counts)| !is_absent(counts[step]));
            buckets.extend(present.map(|&(bound, ref counts)| Bucket { bound, count: counts[step] }));
            if buckets.is_empty() {
                values.push(ABSENT);
                continue;
            }
            values.push(match &self.function {
                BucketFn::Fraction(_, upper) => fraction(param.at(step), upper.at(step), &mut buckets),
                _ => {
                    let (value, raised) = quantile(param.at(step), &mut buckets);
                    let raised = raised.map(|raised| raised.at(self.grid.time(step)));
                    repair =
                        repair.map_or(raised, |before| Some(raised.map_or(before, |r| before.joined(r))));
                    value
                }
            });
        }
        if let Some(repair) = repair {
            self.inform_of_repair(&histogram.name, repair);
        }
        values.iter().any(|&v| !is_absent(v)).then_some(values)
    }

    fn inform_of_repair(&self, name: &str, repair: Tally) {
        const TEXT: &str = "input to histogram_quantile needed to be fixed for monotonicity (see \
             https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
        let note = Note::Language(Severity::Info, named(TEXT, name).into());
        self.execution.annotations.count(note, self.origin, repair);
    }

    fn note(&self, severity: Severity, text: &str, name: &str) {
        self.execution.annotations.add(Note::Language(severity, named(text, name).into()), self.origin);
    }
}

/// A series with its histograms alone.
fn natives_of(series: &StepSeries) -> StepSeries {
    let mut native = StepSeries::floats(series.labels.clone(), vec![ABSENT; series.values.len()]);
    for step in 0..series.values.len() {
        if let Some(histogram) = series.histogram(step) {
            native.set_histogram(step, histogram.clone());
        }
    }
    native
}

fn bad_bound(text: &str) -> String {
    let mut message = String::from("bucket label \"le\" is missing or has a malformed value of ");
    // Writing to a String cannot fail.
    let _ = write_quoted(&mut message, text);
    message
}

/// A number as OpenMetrics writes it: never without a point.
fn open_metrics(value: f64) -> String {
    let mut text = go_float(value);
    if value.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text
}

/// A bound as Go's ParseFloat reads it, for the spellings that occur. NaN bounds no bucket.
fn parse_bound(text: &str) -> Option<f64> {
    let plain = text.strip_prefix('+').unwrap_or(text);
    if plain.starts_with('+') {
        return None;
    }
    plain.parse().ok().filter(|bound: &f64| !bound.is_nan())
}

/// Buckets whose counts were lower than the count of a smaller bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Raised {
    bound_min: f64,
    bound_max: f64,
    raise_max: f64,
}

impl Raised {
    fn at(self, time_ms: i64) -> Tally {
        let Raised { bound_min, bound_max, raise_max } = self;
        Tally {
            count: 1,
            value_min: bound_min,
            value_max: bound_max,
            change_max: raise_max,
            first_ms: time_ms,
            last_ms: time_ms,
        }
    }
}

/// The quantile by linear interpolation within its bucket.
pub(crate) fn quantile(quantile: f64, buckets: &mut Vec<Bucket>) -> (f64, Option<Raised>) {
    if quantile.is_nan() {
        return (f64::NAN, None);
    }
    if quantile < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if quantile > 1.0 {
        return (f64::INFINITY, None);
    }
    if buckets.last().is_none_or(|last| last.bound != f64::INFINITY) {
        return (f64::NAN, None);
    }
    join_equal_bounds(buckets);
    let repair = make_monotonic(buckets);
    let last = buckets.len() - 1;
    let total = buckets[last].count;
    if last == 0 || total == 0.0 {
        return (f64::NAN, None);
    }
    let rank = quantile * total;
    // A rank or a count that is NaN counts as not reached.
    let reached = |bucket: &Bucket| bucket.count >= rank;
    let at = buckets[..last].partition_point(|bucket| !reached(bucket));
    if at == last {
        return (buckets[last - 1].bound, repair);
    }
    let Bucket { bound: end, count } = buckets[at];
    if at == 0 {
        // The sum makes 0 of -0: the bucket begins at 0.
        let value = if end <= 0.0 { end } else { 0.0 + end * (rank / count) };
        return (value, repair);
    }
    let before = buckets[at - 1];
    let share = (rank - before.count) / (count - before.count);
    (before.bound + (end - before.bound) * share, repair)
}

/// The share of observations in `(lower, upper]` by linear interpolation.
pub(crate) fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if buckets.last().is_none_or(|last| last.bound != f64::INFINITY) {
        return f64::NAN;
    }
    join_equal_bounds(buckets);
    let total = buckets.last().map_or(0.0, |last| last.count);
    if total == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (rank_of(upper, buckets, total) - rank_of(lower, buckets, total)) / total
}

/// Number of observations that are at most `value`.
fn rank_of(value: f64, buckets: &[Bucket], total: f64) -> f64 {
    let mut start = f64::NEG_INFINITY;
    let mut rank = 0.0;
    for (at, bucket) in buckets.iter().enumerate() {
        // Observations of a first bucket with a positive bound are taken to be positive.
        if at == 0 && bucket.bound > 0.0 {
            start = 0.0;
        }
        if start >= value {
            break;
        }
        if bucket.bound > value {
            // Nothing is known of where observations lie in a bucket without a lower end.
            let share = if start.is_infinite() { 1.0 } else { (value - start) / (bucket.bound - start) };
            rank += (bucket.count - rank) * share;
            break;
        }
        rank = bucket.count;
        start = bucket.bound;
    }
    rank.min(total)
}

fn join_equal_bounds(buckets: &mut Vec<Bucket>) {
    buckets.dedup_by(|next, kept| {
        let equal = next.bound == kept.bound;
        if equal {
            kept.count += next.count;
        }
        equal
    });
}

/// Raises counts that are lower than the count of a smaller bucket; differences of rounding are evened out
/// silently.
fn make_monotonic(buckets: &mut [Bucket]) -> Option<Raised> {
    let mut raised: Option<Raised> = None;
    let mut before = buckets[0].count;
    for bucket in &mut buckets[1..] {
        if bucket.count == before {
            continue;
        }
        // A ratio to zero is undefined. Counts may be negative: a query can compute anything.
        let size = bucket.count.abs() + before.abs();
        let zero = bucket.count == 0.0 || before == 0.0 || size < f64::MIN_POSITIVE;
        let distance = (bucket.count - before).abs();
        if !zero && distance / size.min(f64::MAX) < COUNT_TOLERANCE {
            bucket.count = before;
        } else if bucket.count < before {
            let raise = before - bucket.count;
            let bound = bucket.bound;
            let (bound_min, raise_max) = raised.map_or((bound, 0.0), |r| (r.bound_min, r.raise_max));
            let raise_max = if raise > raise_max { raise } else { raise_max };
            raised = Some(Raised { bound_min, bound_max: bound, raise_max });
            bucket.count = before;
        } else {
            before = bucket.count;
        }
    }
    raised
}
