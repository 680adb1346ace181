//! Binary operators between a vector and a scalar, and hash joins of two vectors.
//! Invariants: vectors are joined step by step; a match in one step implies none in another.
//! Not here: the operators on two numbers (`arith`), matching of labels (`binary::matching`), `and or unless`
//! (`binary::set`).

mod conflict;
pub mod matching;
pub mod set;

use chronolith_base::hash::HashTable;
use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;

use crate::arith::ElementOp;
use crate::cardinality::Cardinality;
use crate::column::{ABSENT, Element, StepScalar, StepSeries, is_absent};
use crate::error::Error;
use crate::execution::Execution;
use crate::histogram::element::{self, Outcome};
use crate::label_sets::{Entry, LabelSets};
use crate::note::Note;
use crate::operator::{Blocking, BoxOperator, SeriesOperator, collect, merge_equal_labels};
use crate::position::Origin;
use matching::{Matching, Nameless, ResultLabels, Signatures};

/// Side of a binary operator that the scalar is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarSide {
    /// `2 - x`
    Left,
    /// `x - 2`
    Right,
}

/// A vector and a scalar.
pub struct VectorScalar<'q> {
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
    scalar: StepScalar,
    side: ScalarSide,
    op: ElementOp,
    origin: Origin,
    notes: StepNotes,
}

/// Notes about elements: the last one of each step, as Prometheus emits them.
#[derive(Debug, Default)]
struct StepNotes(Vec<Option<Note>>);

impl StepNotes {
    fn set(&mut self, step: usize, step_count: usize, note: Note) {
        if self.0.is_empty() {
            self.0.resize(step_count, None);
        }
        self.0[step] = Some(note);
    }

    fn emit(&mut self, execution: &Execution<'_>, origin: Origin) {
        let mut emitted: Vec<Note> = Vec::new();
        for note in self.0.drain(..).flatten() {
            if !emitted.contains(&note) {
                execution.annotations.add(note.clone(), origin);
                emitted.push(note);
            }
        }
    }
}

impl<'q> VectorScalar<'q> {
    /// `side` is the side of the scalar.
    #[must_use]
    pub fn new(
        execution: &'q Execution<'q>,
        inner: BoxOperator<'q>,
        scalar: StepScalar,
        side: ScalarSide,
        op: ElementOp,
        origin: Origin,
    ) -> VectorScalar<'q> {
        VectorScalar { execution, inner, scalar, side, op, origin, notes: StepNotes::default() }
    }

    /// Computes a series of which some steps may be histograms, or whose floats are to be dropped.
    fn apply_elements(&mut self, series: &mut StepSeries) -> bool {
        let step_count = series.values.len();
        let mut any = false;
        for step in 0..step_count {
            let Some(element) = series.element(step) else { continue };
            let scalar = Element::Float(self.scalar.at(step));
            let outcome = match self.side {
                ScalarSide::Left => element::apply(self.op, scalar, element),
                ScalarSide::Right => element::apply(self.op, element, scalar),
            };
            match outcome {
                Outcome::Float(value) => series.set_float(step, value),
                Outcome::Histogram(histogram, _) => series.set_histogram(step, histogram),
                Outcome::Nothing => series.set_float(step, ABSENT),
                Outcome::Refused(note) => {
                    self.notes.set(step, step_count, note);
                    series.set_float(step, ABSENT);
                }
            }
            any |= !is_absent(series.values[step]);
        }
        any
    }
}

impl SeriesOperator for VectorScalar<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        while self.inner.next(out)? {
            let mut any = false;
            if out.has_histograms() || matches!(self.op, ElementOp::Trim(_)) {
                any = self.apply_elements(out);
            } else {
                for (step, value) in out.values.iter_mut().enumerate() {
                    if is_absent(*value) {
                        continue;
                    }
                    let scalar = self.scalar.at(step);
                    let result = match self.side {
                        ScalarSide::Left => self.op.apply(scalar, *value),
                        ScalarSide::Right => self.op.apply(*value, scalar),
                    };
                    any |= result.is_some();
                    *value = result.unwrap_or(ABSENT);
                }
            }
            if any {
                if self.op.drops_name() {
                    self.execution.drop_name(out);
                }
                return Ok(true);
            }
        }
        self.notes.emit(self.execution, self.origin);
        Ok(false)
    }
}

/// Joins two vectors on the same grid by an arithmetic operator or a comparison.
pub fn vector_vector<'q>(
    execution: &'q Execution<'q>,
    mut left: BoxOperator<'q>,
    mut right: BoxOperator<'q>,
    matching: &'q Matching,
    op: ElementOp,
    origin: Origin,
) -> BoxOperator<'q> {
    Blocking::boxed(execution, move |memory| {
        let left = collect(&mut *left, memory)?;
        let right = collect(&mut *right, memory)?;
        let (many, one) = if matching.is_one_to_many() { (right, left) } else { (left, right) };
        let results = Join::new(execution, matching, op, origin, one).run(&many)?;
        for series in &results {
            memory.grow(series.sample_count(), series.heap_bytes())?;
        }
        merge_equal_labels(results)
    })
}

/// The join of the "many" side (left unless `group_right`) with the "one" side.
struct Join<'j> {
    execution: &'j Execution<'j>,
    matching: &'j Matching,
    op: ElementOp,
    origin: Origin,
    /// Series of the "one" side by number of their signature.
    groups: Vec<Vec<StepSeries>>,
    /// Indices of the "one" side's series in `groups`, in input order.
    one_order: Vec<(usize, usize)>,
    signatures: Signatures<'j>,
    /// Signatures of both sides.
    sets: LabelSets,
    result_labels: ResultLabels<'j>,
    step_count: usize,
}

/// Series of the "many" side and the numbers of their signatures.
struct Many<'m> {
    series: &'m [StepSeries],
    signatures: Vec<usize>,
}

impl<'m> Many<'m> {
    fn iter(&self) -> impl Iterator<Item = (&'m StepSeries, usize)> {
        self.series.iter().zip(self.signatures.iter().copied())
    }
}

/// Matches so far, and scratch memory.
struct Matched {
    step_count: usize,
    /// Steps in which a signature has been matched, signature by signature.
    steps: Vec<bool>,
    /// Many-to-one joins: index of each result by the hash of its signature and labels.
    results: HashTable<usize>,
    result_keys: Vec<(usize, Labels)>,
    /// Steps that each of them has.
    result_steps: Vec<bool>,
    notes: StepNotes,
    key: LabelsKey,
}

impl Matched {
    fn new(signature_count: usize, step_count: usize) -> Matched {
        Matched {
            step_count,
            steps: vec![false; signature_count * step_count],
            results: HashTable::new(),
            result_keys: Vec::new(),
            result_steps: Vec::new(),
            notes: StepNotes::default(),
            key: LabelsKey::default(),
        }
    }

    /// Steps of a signature.
    fn steps_of(&self, signature: usize) -> &[bool] {
        let start = signature * self.step_count;
        &self.steps[start..start + self.step_count]
    }

    /// The number of a result.
    fn result(&mut self, signature: usize, labels: &Labels) -> usize {
        let hash_of =
            |signature: usize, labels: &Labels| labels.hash64() ^ (signature as u64).rotate_left(32);
        let hash = hash_of(signature, labels);
        let keys = &self.result_keys;
        let known = self.results.find(hash, |&at| keys[at].0 == signature && keys[at].1 == *labels);
        if let Some(&number) = known {
            return number;
        }
        let number = self.result_keys.len();
        self.result_keys.push((signature, labels.clone()));
        self.result_steps.resize(self.result_steps.len() + self.step_count, false);
        let keys = &self.result_keys;
        self.results.insert_unique(hash, number, |&at| hash_of(keys[at].0, &keys[at].1));
        number
    }

    /// Marks a step of a signature, and of a result; returns true if it was marked before.
    fn mark(&mut self, signature: usize, result: Option<usize>, step: usize) -> bool {
        let taken = std::mem::replace(&mut self.steps[signature * self.step_count + step], true);
        match result {
            None => taken,
            Some(result) => std::mem::replace(&mut self.result_steps[result * self.step_count + step], true),
        }
    }
}

/// Two elements match the same element of the other side.
struct Conflict;

impl<'j> Join<'j> {
    fn new(
        execution: &'j Execution<'j>,
        matching: &'j Matching,
        op: ElementOp,
        origin: Origin,
        one: Vec<StepSeries>,
    ) -> Join<'j> {
        let signatures = Signatures::new(matching);
        let nameless = if matches!(op, ElementOp::Bool(_)) && !execution.delays_names() {
            Nameless::Yes
        } else {
            Nameless::No
        };
        let result_labels = ResultLabels::new(op, matching, nameless);
        let mut sets = LabelSets::default();
        let mut groups: Vec<Vec<StepSeries>> = Vec::new();
        let mut one_order = Vec::with_capacity(one.len());
        let step_count = one.first().map_or(0, |series| series.values.len());
        for series in one {
            let signature = sets.number(|key| signatures.key_of(&series.labels, key));
            if let Entry::New(_) = signature {
                groups.push(Vec::new());
            }
            let group = &mut groups[signature.number()];
            one_order.push((signature.number(), group.len()));
            group.push(series);
        }
        Join {
            execution,
            matching,
            op,
            origin,
            groups,
            one_order,
            signatures,
            sets,
            result_labels,
            step_count,
        }
    }

    /// Values that replace missing elements of the "one" and of the "many" side.
    fn fills(&self) -> (Option<f64>, Option<f64>) {
        let Matching { fill_left, fill_right, .. } = *self.matching;
        if self.matching.is_one_to_many() { (fill_left, fill_right) } else { (fill_right, fill_left) }
    }

    fn run(mut self, many: &[StepSeries]) -> Result<Vec<StepSeries>, Error> {
        self.step_count = many.first().map_or(self.step_count, |series| series.values.len());
        let sets = &mut self.sets;
        let signatures = &self.signatures;
        let mut number = |labels: &Labels| sets.number(|key| signatures.key_of(labels, key)).number();
        let signatures = many.iter().map(|series| number(&series.labels)).collect();
        let many = Many { series: many, signatures };
        if self.duplicates_meet(many.series) {
            return Err(self.conflict(&many));
        }
        match self.pairs(&many)? {
            Ok(results) => Ok(results),
            Err(Conflict) => Err(self.conflict(&many)),
        }
    }

    /// Returns true if two series of the "one" side have values in a step in which the other side has any.
    fn duplicates_meet(&self, many: &[StepSeries]) -> bool {
        let fills = self.fills() != (None, None);
        self.groups.iter().filter(|group| group.len() > 1).any(|group| {
            (0..self.step_count).any(|step| {
                group.iter().filter(|series| !is_absent(series.values[step])).count() > 1
                    && (fills || many.iter().any(|series| !is_absent(series.values[step])))
            })
        })
    }

    fn pairs(&self, many: &Many<'_>) -> Result<Result<Vec<StepSeries>, Conflict>, Error> {
        let mut matched = Matched::new(self.sets.count(), self.step_count);
        let results = self.matched_pairs(many, &mut matched)?;
        matched.notes.emit(self.execution, self.origin);
        Ok(results)
    }

    fn matched_pairs(
        &self,
        many: &Many<'_>,
        matched: &mut Matched,
    ) -> Result<Result<Vec<StepSeries>, Conflict>, Error> {
        let mut results: Vec<StepSeries> = Vec::with_capacity(many.series.len());
        let (one_fill, many_fill) = self.fills();
        for (left, signature) in many.iter() {
            self.execution.ctx.check()?;
            let group = self.groups.get(signature).map_or(&[][..], Vec::as_slice);
            for right in group {
                let pairs = |step: usize| left.element(step).zip(right.element(step));
                match self.pair(left, &right.labels, pairs, signature, matched) {
                    Ok(series) => results.extend(series),
                    Err(conflict) => return Ok(Err(conflict)),
                }
            }
            if let Some(fill) = one_fill {
                let is_unmatched = |step: usize| group.iter().all(|right| is_absent(right.values[step]));
                let filled = |step: usize| is_unmatched(step).then_some(Element::Float(fill));
                let pairs = |step: usize| left.element(step).zip(filled(step));
                match self.pair(left, self.sets.labels(signature), pairs, signature, matched) {
                    Ok(series) => results.extend(series),
                    Err(conflict) => return Ok(Err(conflict)),
                }
            }
        }
        let Some(fill) = many_fill else { return Ok(Ok(results)) };
        for &(signature, at) in &self.one_order {
            let taken = matched.steps_of(signature).to_vec();
            let free = |step: usize| !taken.get(step).copied().unwrap_or(false);
            let left = StepSeries { labels: self.sets.labels(signature).clone(), ..StepSeries::default() };
            let right = &self.groups[signature][at];
            let filled = |step: usize| free(step).then_some(Element::Float(fill));
            let pairs = |step: usize| filled(step).zip(right.element(step));
            match self.pair(&left, &right.labels, pairs, signature, matched) {
                Ok(series) => results.extend(series),
                Err(conflict) => return Ok(Err(conflict)),
            }
        }
        Ok(Ok(results))
    }

    /// Computes all steps of a pair of series; `None` if no step has a result. `pairs` gives the values of a
    /// step, the "many" side first.
    fn pair<'e>(
        &self,
        many: &StepSeries,
        one_labels: &Labels,
        pairs: impl Fn(usize) -> Option<(Element<'e>, Element<'e>)>,
        signature: usize,
        matched: &mut Matched,
    ) -> Result<Option<StepSeries>, Conflict> {
        let labels = self.result_labels.of(&many.labels, one_labels, &mut matched.key);
        let one_to_one = self.matching.card == Cardinality::OneToOne;
        let result = (!one_to_one).then(|| matched.result(signature, &labels));
        let mut series = StepSeries::floats(labels, vec![ABSENT; self.step_count]);
        let mut any = false;
        for step in 0..self.step_count {
            let Some((of_many, of_one)) = pairs(step) else { continue };
            let outcome = self.meet(of_many, of_one);
            // Elements that an operator refuses have not matched.
            if let Outcome::Refused(note) = outcome {
                matched.notes.set(step, self.step_count, note);
                continue;
            }
            if matched.mark(signature, result, step) {
                return Err(Conflict);
            }
            match outcome {
                Outcome::Float(value) => series.set_float(step, value),
                Outcome::Histogram(histogram, note) => {
                    if let Some(note) = note {
                        matched.notes.set(step, self.step_count, note);
                    }
                    series.set_histogram(step, histogram);
                }
                Outcome::Nothing | Outcome::Refused(_) => continue,
            }
            any = true;
        }
        // A filter restores a name that was marked for removal, as in Prometheus.
        series.drop_name = matches!(self.op, ElementOp::Bool(_)) && self.execution.delays_names();
        Ok(any.then_some(series))
    }

    /// Result of two elements.
    fn meet(&self, of_many: Element<'_>, of_one: Element<'_>) -> Outcome {
        let (left, right) =
            if self.matching.is_one_to_many() { (of_one, of_many) } else { (of_many, of_one) };
        match (left, right) {
            (Element::Float(left), Element::Float(right)) if !matches!(self.op, ElementOp::Trim(_)) => {
                self.op.apply(left, right).map_or(Outcome::Nothing, Outcome::Float)
            }
            _ => element::apply(self.op, left, right),
        }
    }
}
