//! `and`, `or`, `unless`: which elements stay depends on which signatures the other side has in that step.
//! Holds: of the side that only decides, nothing but the presence of signatures is kept.

use chronolith_model::Labels;

use super::matching::Signatures;
use crate::ast::VectorMatching;
use crate::engine::EvalError;
use crate::engine::keys::{Entry, LabelSets};
use crate::engine::run::{Hold, Run};
use crate::engine::series::{ABSENT, BoxOperator, SeriesOperator, StepSeries, is_absent};

/// Which steps signatures are present in.
#[derive(Default)]
pub(crate) struct Presence {
    sets: LabelSets,
    /// By number of the signature.
    steps: Vec<Vec<bool>>,
}

impl Presence {
    /// The steps in which the other side has the signature of a series.
    fn of(&mut self, labels: &Labels, signatures: &Signatures<'_>) -> Option<&[bool]> {
        let number = self.sets.find(|key| signatures.key_of(labels, key))?;
        self.steps.get(number).map(Vec::as_slice)
    }

    fn note(
        &mut self,
        series: &StepSeries,
        signatures: &Signatures<'_>,
        hold: &mut Hold<'_>,
    ) -> Result<(), EvalError> {
        let values = &series.values;
        let entry = self.sets.number(|key| signatures.key_of(&series.labels, key));
        if let Entry::New(number) = entry {
            hold.grow(0, (values.len() + self.sets.labels(number).heap_bytes()) as u64)?;
            self.steps.push(vec![false; values.len()]);
        }
        for (step, &value) in self.steps[entry.number()].iter_mut().zip(values) {
            *step |= !is_absent(value);
        }
        Ok(())
    }
}

/// Which elements of the kept side stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Those whose signature the other side has: `and`.
    Matched,
    /// Those whose signature the other side lacks: `unless`.
    Unmatched,
}

/// `kept and other`, `kept unless other`.
pub(crate) struct SetFilter<'q> {
    pub(crate) kept: BoxOperator<'q>,
    /// Taken when the first series is asked for.
    pub(crate) other: Option<BoxOperator<'q>>,
    pub(crate) signatures: Signatures<'q>,
    pub(crate) keep: Keep,
    pub(crate) presence: Presence,
    pub(crate) hold: Hold<'q>,
}

impl<'q> SetFilter<'q> {
    /// Both on the same grid.
    pub(crate) fn new(
        kept: BoxOperator<'q>,
        other: BoxOperator<'q>,
        matching: &'q VectorMatching,
        keep: Keep,
        run: &'q Run<'q>,
    ) -> SetFilter<'q> {
        let (other, signatures) = (Some(other), Signatures::new(matching));
        SetFilter { kept, other, signatures, keep, presence: Presence::default(), hold: run.hold() }
    }
}

impl SetFilter<'_> {
    fn note_all(&mut self, other: &mut BoxOperator<'_>) -> Result<(), EvalError> {
        let mut series = StepSeries::default();
        while other.next(&mut series)? {
            self.presence.note(&series, &self.signatures, &mut self.hold)?;
        }
        Ok(())
    }
}

impl SeriesOperator for SetFilter<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if let Some(mut other) = self.other.take()
            && let Err(error) = self.note_all(&mut other)
        {
            // What is wrong with the left side is said before what is wrong with the right one.
            while self.kept.next(out)? {}
            return Err(error);
        }
        while self.kept.next(out)? {
            let steps = self.presence.of(&out.labels, &self.signatures);
            filter(&mut out.values, steps, self.keep);
            if !out.is_void() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// `first or second`: all of the first, and of the second what the first has no signature for. Series of both
/// sides may have equal labels (in different steps), so the result is to be merged.
pub(crate) struct SetUnion<'q> {
    /// `None` once it is at its end.
    first: Option<BoxOperator<'q>>,
    second: BoxOperator<'q>,
    signatures: Signatures<'q>,
    presence: Presence,
    hold: Hold<'q>,
}

impl<'q> SetUnion<'q> {
    /// Both on the same grid.
    pub(crate) fn new(
        first: BoxOperator<'q>,
        second: BoxOperator<'q>,
        matching: &'q VectorMatching,
        hold: Hold<'q>,
    ) -> SetUnion<'q> {
        let (first, signatures) = (Some(first), Signatures::new(matching));
        SetUnion { first, second, signatures, presence: Presence::default(), hold }
    }
}

impl SeriesOperator for SetUnion<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if let Some(first) = &mut self.first {
            if first.next(out)? {
                self.presence.note(out, &self.signatures, &mut self.hold)?;
                return Ok(true);
            }
            self.first = None;
        }
        while self.second.next(out)? {
            let steps = self.presence.of(&out.labels, &self.signatures);
            filter(&mut out.values, steps, Keep::Unmatched);
            if !out.is_void() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Drops values by whether their step is among `steps` (`None`: no step is).
fn filter(values: &mut [f64], steps: Option<&[bool]>, keep: Keep) {
    for (step, value) in values.iter_mut().enumerate() {
        let present = steps.is_some_and(|steps| steps[step]);
        if present != (keep == Keep::Matched) {
            *value = ABSENT;
        }
    }
}
