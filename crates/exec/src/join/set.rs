//! Set operators: `and`, `or`, `unless` keep elements by the signatures that the other side has in the same
//! step.
//! Invariants: only the presence of signatures is kept of the side that decides.

use chronolith_model::Labels;

use super::matching::{Matching, Signatures};
use crate::column::{ABSENT, StepSeries, is_absent};
use crate::error::Error;
use crate::execution::{Execution, OperatorMemory};
use crate::label_sets::{Entry, LabelSets};
use crate::operator::{BoxOperator, SeriesOperator};

/// Steps in which signatures are present.
#[derive(Default)]
struct Presence {
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
        memory: &mut OperatorMemory<'_>,
    ) -> Result<(), Error> {
        let values = &series.values;
        let entry = self.sets.number(|key| signatures.key_of(&series.labels, key));
        if let Entry::New(number) = entry {
            memory.grow(0, (values.len() + self.sets.labels(number).heap_bytes()) as u64)?;
            self.steps.push(vec![false; values.len()]);
        }
        for (step, &value) in self.steps[entry.number()].iter_mut().zip(values) {
            *step |= !is_absent(value);
        }
        Ok(())
    }
}

/// Elements that a set operator keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Elements whose signature the other side has: `and`.
    Matched,
    /// Elements whose signature the other side lacks: `unless`.
    Unmatched,
}

/// `kept and other`, `kept unless other`.
pub struct SetFilter<'q> {
    kept: BoxOperator<'q>,
    /// Taken when the first series is pulled.
    other: Option<BoxOperator<'q>>,
    signatures: Signatures<'q>,
    keep: Keep,
    presence: Presence,
    memory: OperatorMemory<'q>,
}

impl<'q> SetFilter<'q> {
    /// Both on the same grid.
    pub fn new(
        kept: BoxOperator<'q>,
        other: BoxOperator<'q>,
        matching: &'q Matching,
        keep: Keep,
        execution: &'q Execution<'q>,
    ) -> SetFilter<'q> {
        let other = Some(other);
        let signatures = Signatures::new(matching);
        let memory = execution.operator_memory();
        SetFilter { kept, other, signatures, keep, presence: Presence::default(), memory }
    }
}

impl SetFilter<'_> {
    fn note_all(&mut self, other: &mut BoxOperator<'_>) -> Result<(), Error> {
        let mut series = StepSeries::default();
        while other.next(&mut series)? {
            self.presence.note(&series, &self.signatures, &mut self.memory)?;
        }
        Ok(())
    }
}

impl SeriesOperator for SetFilter<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if let Some(mut other) = self.other.take()
            && let Err(error) = self.note_all(&mut other)
        {
            // Errors of the left side are reported before errors of the right side.
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
pub struct SetUnion<'q> {
    /// `None` once it is at its end.
    first: Option<BoxOperator<'q>>,
    second: BoxOperator<'q>,
    signatures: Signatures<'q>,
    presence: Presence,
    memory: OperatorMemory<'q>,
}

impl<'q> SetUnion<'q> {
    /// Both on the same grid.
    pub fn new(
        first: BoxOperator<'q>,
        second: BoxOperator<'q>,
        matching: &'q Matching,
        memory: OperatorMemory<'q>,
    ) -> SetUnion<'q> {
        let first = Some(first);
        let signatures = Signatures::new(matching);
        SetUnion { first, second, signatures, presence: Presence::default(), memory }
    }
}

impl SeriesOperator for SetUnion<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if let Some(first) = &mut self.first {
            if first.next(out)? {
                self.presence.note(out, &self.signatures, &mut self.memory)?;
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
