//! Warnings and infos of a query, collected while it runs.
//! Invariants: each note once, in order of first appearance, with the origin whose emitter is evaluated last.
//! Not here: texts, lines and columns, which are the language's.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::note::{Note, Severity};
use crate::position::{Origin, Position};
use crate::step_set::StepSet;

/// Notes kept per severity; further ones are left out.
pub const ANNOTATIONS_MAX: usize = 100;

/// Rank of an emitter in the language's order of evaluation; greater ones are evaluated later.
pub type EvaluationOrder<'q> = Box<dyn Fn(Position) -> usize + Send + Sync + 'q>;

/// Collects the annotations of one query.
pub struct Annotations<'q> {
    order: EvaluationOrder<'q>,
    set: Mutex<AnnotationSet>,
}

/// A note with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// The note.
    pub note: Note,
    /// Node that emitted the note, and its position.
    pub origin: Origin,
    /// The steps that it is about, if they are known.
    pub steps: Option<StepSet>,
    /// Counts of the note's occurrences, if they are counted.
    pub tally: Option<Tally>,
}

/// Occurrences of one note: their number, and the extent of the values and steps concerned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tally {
    /// Occurrences.
    pub count: u64,
    /// Least value concerned.
    pub value_min: f64,
    /// Greatest value concerned.
    pub value_max: f64,
    /// Greatest change of a value.
    pub change_max: f64,
    /// First step.
    pub first_ms: i64,
    /// Last step.
    pub last_ms: i64,
}

impl Tally {
    /// Occurrences without an extent.
    #[must_use]
    pub fn of_count(count: u64) -> Tally {
        Tally { count, value_min: 0.0, value_max: 0.0, change_max: 0.0, first_ms: 0, last_ms: 0 }
    }

    /// The sum of two.
    #[must_use]
    pub fn joined(self, other: Tally) -> Tally {
        Tally {
            count: self.count.saturating_add(other.count),
            value_min: self.value_min.min(other.value_min),
            value_max: self.value_max.max(other.value_max),
            change_max: self.change_max.max(other.change_max),
            first_ms: self.first_ms.min(other.first_ms),
            last_ms: self.last_ms.max(other.last_ms),
        }
    }
}

/// Annotations that were collected.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnnotationSet {
    /// Likely mistakes.
    pub warnings: Vec<Annotation>,
    /// Possible mistakes.
    pub infos: Vec<Annotation>,
    /// Notes whose occurrences are counted until the query ends.
    tallied: Vec<(Note, Origin, Tally)>,
}

impl AnnotationSet {
    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty() && self.infos.is_empty() && self.tallied.is_empty()
    }

    /// The same annotations at other positions.
    #[must_use]
    pub fn moved(&self, position_of: impl Fn(Position) -> Position) -> AnnotationSet {
        let mut moved = self.clone();
        let move_origin = |origin: &mut Origin| {
            let Origin { position, emitter } = *origin;
            *origin = Origin { position: position_of(position), emitter: position_of(emitter) };
        };
        let listed = moved.warnings.iter_mut().chain(&mut moved.infos);
        listed.for_each(|annotation| move_origin(&mut annotation.origin));
        moved.tallied.iter_mut().for_each(|(_, origin, _)| move_origin(origin));
        moved
    }

    fn list(&mut self, severity: Severity) -> &mut Vec<Annotation> {
        match severity {
            Severity::Warning => &mut self.warnings,
            Severity::Info => &mut self.infos,
        }
    }
}

impl<'q> Annotations<'q> {
    /// An empty collection.
    #[must_use]
    pub fn new(order: EvaluationOrder<'q>) -> Annotations<'q> {
        Annotations { order, set: Mutex::default() }
    }

    /// Adds a note.
    pub fn add(&self, note: Note, origin: Origin) {
        self.add_at(note, origin, None);
    }

    /// Adds a note about these steps of the query.
    pub fn add_at(&self, note: Note, origin: Origin, steps: Option<StepSet>) {
        self.insert(&mut self.lock(), Annotation { note, origin, steps, tally: None });
    }

    /// Counts occurrences of a note, which stays at the first of its origins.
    pub fn count(&self, note: Note, origin: Origin, tally: Tally) {
        let tallied = &mut self.lock().tallied;
        if let Some((_, at, before)) = tallied.iter_mut().find(|(other, ..)| *other == note) {
            if self.is_emitted_before(origin, *at) {
                *at = origin;
            }
            *before = before.joined(tally);
            return;
        }
        let of_severity = tallied.iter().filter(|(other, ..)| other.severity() == note.severity());
        if of_severity.count() < ANNOTATIONS_MAX {
            tallied.push((note, origin, tally));
        }
    }

    /// Starts a new, empty set of annotations and returns the current one; [`Annotations::restore`] swaps
    /// them back.
    #[must_use]
    pub fn start_new(&self) -> AnnotationSet {
        std::mem::take(&mut *self.lock())
    }

    /// Makes `before` the current set and returns the set that was collected since the last swap.
    pub fn restore(&self, before: AnnotationSet) -> AnnotationSet {
        std::mem::replace(&mut *self.lock(), before)
    }

    /// Adds all annotations of a set.
    pub fn append(&self, set: AnnotationSet) {
        for (note, origin, tally) in set.tallied {
            self.count(note, origin, tally);
        }
        let mut current = self.lock();
        let listed = set.warnings.into_iter().chain(set.infos);
        listed.for_each(|annotation| self.insert(&mut current, annotation));
    }

    /// Takes all annotations, those with counts last.
    #[must_use]
    pub fn finish(&self) -> AnnotationSet {
        let mut set = self.start_new();
        for (note, origin, tally) in std::mem::take(&mut set.tallied) {
            self.insert(&mut set, Annotation { note, origin, steps: None, tally: Some(tally) });
        }
        set
    }

    fn insert(&self, set: &mut AnnotationSet, annotation: Annotation) {
        let list = set.list(annotation.note.severity());
        if let Some(before) = list.iter_mut().find(|before| before.note == annotation.note) {
            if !self.is_emitted_before(annotation.origin, before.origin) {
                before.origin = annotation.origin;
            }
            before.steps = before.steps.take().zip(annotation.steps).and_then(|(a, b)| a.union(&b));
        } else if list.len() < ANNOTATIONS_MAX {
            list.push(annotation);
        }
    }

    /// Returns true if the emitter of `a` is evaluated before the emitter of `b`.
    fn is_emitted_before(&self, a: Origin, b: Origin) -> bool {
        a.emitter != b.emitter && (self.order)(a.emitter) < (self.order)(b.emitter)
    }

    fn lock(&self) -> MutexGuard<'_, AnnotationSet> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
