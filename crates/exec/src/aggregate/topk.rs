//! topk, bottomk, limitk and limit_ratio: aggregations that select series instead of folding them.
//! Invariants: per group and step at most k values are kept in a heap, and the labels of series that some
//! step selected, if only temporarily. Ties are broken as by Prometheus's binary heap.

use std::sync::Arc;

use chronolith_model::{FloatHistogram, Labels};

use crate::column::{ABSENT, Element, StepScalar, StepSeries, is_absent};
use crate::error::{ArgumentError, Error};
use crate::execution::{Execution, OperatorMemory};
use crate::grouping::Grouping;
use crate::label_sets::{Entry, LabelSets};
use crate::note::Note;
use crate::operator::{Blocking, BoxOperator, SeriesOperator};
use crate::position::Origin;

/// Aggregations that select series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TopKOp {
    /// The k greatest values.
    Topk,
    /// The k least values.
    Bottomk,
    /// k values.
    Limitk,
    /// A ratio of the series, by their hash.
    LimitRatio,
}

impl TopKOp {
    /// Name of the aggregation in notes and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TopKOp::Topk => "topk",
            TopKOp::Bottomk => "bottomk",
            TopKOp::Limitk => "limitk",
            TopKOp::LimitRatio => "limit_ratio",
        }
    }
}

/// A selected value and its series.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    /// 0 for a histogram.
    value: f64,
    series_idx: usize,
    /// Index in [`TopK::histograms`], if it is one.
    histogram_idx: Option<usize>,
}

/// Outcome of offering the values of a series.
#[derive(Debug, Clone, Copy, Default)]
struct Offered {
    /// Steps that added one of the values.
    taken_count: usize,
    /// Steps that added a value without dropping another one.
    grown_count: usize,
    /// Bytes by which the heaps grew.
    grown_bytes: u64,
}

/// Selection of one group: one heap per step.
struct Choice {
    steps: Vec<Vec<Chosen>>,
}

impl Choice {
    /// Bytes that the heaps grow by if each takes the value of `series`.
    fn growth_bytes_max(&self, series: &StepSeries) -> u64 {
        let grows = |(list, value): (&Vec<Chosen>, &f64)| list.len() == list.capacity() && !is_absent(*value);
        let lists = self.steps.iter().zip(&series.values).filter(|pair| grows(*pair));
        let chosen_count: usize = lists.map(|(list, _)| list.capacity().max(HEAP_CAPACITY_MIN)).sum();
        (chosen_count * size_of::<Chosen>()) as u64
    }
}

/// First capacity of a vector of a few words.
const HEAP_CAPACITY_MIN: usize = 4;

/// An aggregation that selects series.
struct TopK<'q> {
    execution: &'q Execution<'q>,
    op: TopKOp,
    grouping: Grouping<'q>,
    param: StepScalar,
    step_count: usize,
    /// Origin of notes.
    origin: Origin,
    /// Histograms that were selected, if only temporarily.
    histograms: Vec<Arc<FloatHistogram>>,
}

/// Selects series of `inner`; `param` is k, or the ratio.
pub fn top_k<'q>(
    execution: &'q Execution<'q>,
    mut inner: BoxOperator<'q>,
    op: TopKOp,
    grouping: Grouping<'q>,
    param: StepScalar,
    step_count: usize,
    origin: Origin,
) -> BoxOperator<'q> {
    Blocking::boxed(execution, move |memory| {
        if let Err(error) = check_param(op, &param) {
            // Errors of the vector are reported before errors of the parameter.
            while inner.next(&mut StepSeries::default())? {}
            return Err(error);
        }
        let top_k = TopK { execution, op, grouping, param, step_count, origin, histograms: Vec::new() };
        top_k.select(&mut *inner, memory)
    })
}

impl TopK<'_> {
    fn select(
        mut self,
        inner: &mut dyn SeriesOperator,
        memory: &mut OperatorMemory<'_>,
    ) -> Result<Vec<StepSeries>, Error> {
        let mut sets = LabelSets::default();
        let mut groups: Vec<Choice> = Vec::new();
        let mut chosen: Vec<(Labels, bool)> = Vec::new();
        let mut series = StepSeries::default();
        while inner.next(&mut series)? {
            self.execution.ctx.check()?;
            let entry = sets.number(|key| self.grouping.key_of(&series.labels, key));
            if let Entry::New(_) = entry {
                let bytes = self.step_count * size_of::<Vec<Chosen>>();
                memory.grow(0, bytes as u64)?;
                groups.push(Choice { steps: vec![Vec::new(); self.step_count] });
            }
            let choice = &mut groups[entry.number()];
            // Reserved before the heaps grow: with many steps the growth by one series is large.
            let growth_bytes_max = choice.growth_bytes_max(&series);
            memory.grow(0, growth_bytes_max)?;
            let offered = self.offer(&series, chosen.len(), choice);
            memory.shrink(0, growth_bytes_max.saturating_sub(offered.grown_bytes));
            if offered.taken_count > 0 {
                memory.grow(offered.grown_count as u64, series.labels.heap_bytes() as u64)?;
                chosen.push((series.labels.clone(), series.drop_name));
            }
        }
        let column_bytes = (self.step_count * size_of::<f64>() + size_of::<StepSeries>()) as u64;
        memory.grow(0, column_bytes.saturating_mul(chosen.len() as u64))?;
        Ok(self.assemble(groups, chosen))
    }

    /// Offers each value of a series to the heap of its step.
    fn offer(&mut self, series: &StepSeries, series_idx: usize, choice: &mut Choice) -> Offered {
        let mut offered = Offered::default();
        for step in 0..series.values.len() {
            let Some(element) = series.element(step) else { continue };
            let list = &mut choice.steps[step];
            let param = self.param.at(step);
            let mut new = Chosen { value: 0.0, series_idx, histogram_idx: None };
            match element {
                Element::Float(value) => new.value = value,
                Element::Histogram(_) if matches!(self.op, TopKOp::Topk | TopKOp::Bottomk) => {
                    // Steps that select nothing emit nothing.
                    if param >= 1.0 {
                        self.execution.annotations.add(Note::IgnoredInGroup(self.op.name()), self.origin);
                    }
                    continue;
                }
                Element::Histogram(histogram) => {
                    new.histogram_idx = Some(self.histograms.len());
                    self.histograms.push(histogram.clone());
                }
            }
            let count = list.len();
            let capacity = list.capacity();
            let taken = match self.op {
                TopKOp::Topk => offer_heap(list, new, param, |a, b| a.is_nan() || a < b),
                TopKOp::Bottomk => offer_heap(list, new, param, |a, b| a.is_nan() || a > b),
                TopKOp::Limitk => (count as f64) < param.floor() && push_heap(list, new),
                _ => in_ratio(param, &series.labels) && push_heap(list, new),
            };
            offered.taken_count += usize::from(taken);
            offered.grown_count += list.len() - count;
            offered.grown_bytes += ((list.capacity() - capacity) * size_of::<Chosen>()) as u64;
        }
        offered
    }

    /// Builds the series of all heaps. With one step they are in order of rank, group by group.
    fn assemble(&self, groups: Vec<Choice>, series: Vec<(Labels, bool)>) -> Vec<StepSeries> {
        let mut all = vec![StepSeries::default(); series.len()];
        let mut order = Vec::new();
        for choice in groups {
            for (step, mut list) in choice.steps.into_iter().enumerate() {
                if self.step_count == 1 {
                    sort_by_rank(&mut list, self.op);
                }
                for chosen in list {
                    let target = &mut all[chosen.series_idx];
                    if target.values.is_empty() {
                        target.values.resize(self.step_count, ABSENT);
                        order.push(chosen.series_idx);
                    }
                    match chosen.histogram_idx {
                        None => target.set_float(step, chosen.value),
                        Some(idx) => target.set_histogram(step, self.histograms[idx].clone()),
                    }
                }
            }
        }
        let mut make = |idx: usize| {
            let (labels, drop_name) = series[idx].clone();
            StepSeries { labels, drop_name, ..std::mem::take(&mut all[idx]) }
        };
        order.into_iter().map(&mut make).collect()
    }
}

fn check_param(op: TopKOp, param: &StepScalar) -> Result<(), Error> {
    let fail = |argument, value| Err(Error::Argument(argument, value));
    if op == TopKOp::LimitRatio {
        let nan = param.values().iter().any(|v| v.is_nan());
        return if nan { fail(ArgumentError::NanRatio, f64::NAN) } else { Ok(()) };
    }
    if param.values().iter().all(|&k| k < 1.0) {
        return Ok(());
    }
    if param.values().iter().any(|v| v.is_nan()) {
        return fail(ArgumentError::NanCount, f64::NAN);
    }
    for &k in param.values() {
        if k <= i64::MIN as f64 {
            return fail(ArgumentError::CountUnderflow, k);
        }
        if k >= i64::MAX as f64 {
            return fail(ArgumentError::CountOverflow, k);
        }
    }
    Ok(())
}

/// Adds without comparing to the least value; keeps the order of a heap.
fn push_heap(heap: &mut Vec<Chosen>, new: Chosen) -> bool {
    heap.push(new);
    sift_up(heap, |a, b| a.is_nan() || a < b);
    true
}

/// Keeps the k values that are not `less` than the others, the least of them at index 0; returns true if the
/// new one is kept.
fn offer_heap(heap: &mut Vec<Chosen>, new: Chosen, k: f64, less: impl Fn(f64, f64) -> bool + Copy) -> bool {
    if k < 1.0 {
        return false;
    }
    if (heap.len() as f64) < k.floor() {
        heap.push(new);
        sift_up(heap, less);
        return true;
    }
    let least = heap[0].value;
    let beaten = if least.is_nan() { !new.value.is_nan() } else { less(least, new.value) };
    if beaten {
        heap[0] = new;
        sift_down(heap, less);
    }
    beaten
}

fn sift_up(heap: &mut [Chosen], less: impl Fn(f64, f64) -> bool) {
    let mut at = heap.len() - 1;
    while at > 0 {
        let parent = (at - 1) / 2;
        if !less(heap[at].value, heap[parent].value) {
            break;
        }
        heap.swap(at, parent);
        at = parent;
    }
}

fn sift_down(heap: &mut [Chosen], less: impl Fn(f64, f64) -> bool) {
    let mut at = 0;
    loop {
        let mut child = 2 * at + 1;
        if child >= heap.len() {
            return;
        }
        if child + 1 < heap.len() && less(heap[child + 1].value, heap[child].value) {
            child += 1;
        }
        if !less(heap[child].value, heap[at].value) {
            return;
        }
        heap.swap(at, child);
        at = child;
    }
}

/// Sorts the best first; NaN last either way. `limitk` and `limit_ratio` have no rank.
fn sort_by_rank(list: &mut [Chosen], op: TopKOp) {
    let rank = |a: &Chosen, b: &Chosen| {
        let by_value = match op {
            TopKOp::Topk => b.value.partial_cmp(&a.value),
            _ => a.value.partial_cmp(&b.value),
        };
        by_value.unwrap_or_else(|| a.value.is_nan().cmp(&b.value.is_nan()))
    };
    match op {
        TopKOp::Topk | TopKOp::Bottomk => {
            list.sort_by(|a, b| rank(a, b).then(a.series_idx.cmp(&b.series_idx)))
        }
        _ => {}
    }
}

/// Returns true if a series is in the given ratio of all series; a negative ratio takes the complement.
fn in_ratio(ratio: f64, labels: &Labels) -> bool {
    let ratio = ratio.clamp(-1.0, 1.0);
    let position = sampling_hash(labels) as f64 / u64::MAX as f64;
    if ratio >= 0.0 { position < ratio } else { position >= 1.0 + ratio }
}

/// Hash by which Prometheus samples series: xxHash64 over names and values with their lengths before them,
/// one byte, or 255 and three bytes.
fn sampling_hash(labels: &Labels) -> u64 {
    let mut bytes = Vec::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        match u8::try_from(text.len()) {
            Ok(length) if length < u8::MAX => bytes.push(length),
            _ => {
                bytes.push(u8::MAX);
                bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    xxhash_rust::xxh64::xxh64(&bytes, 0)
}
