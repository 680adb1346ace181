//! Binary operators where at least one operand is a native histogram.
//! Invariants: the kinds that an operator accepts, and the notes about others, are Prometheus's.

use std::sync::Arc;

use chronolith_model::histogram::TrimSide;
use chronolith_model::{FloatHistogram, ResetHint};

use crate::arith::{BinaryOp, ElementOp};
use crate::column::Element;
use crate::note::{ElementKind, Note, Operation};

/// Result of two elements.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A number.
    Float(f64),
    /// A histogram, and a note about it.
    Histogram(Arc<FloatHistogram>, Option<Note>),
    /// Nothing: a comparison does not hold.
    Nothing,
    /// Nothing, as if the elements had not matched.
    Refused(Note),
}

/// Applies an operator to two elements.
pub fn apply(op: ElementOp, left: Element<'_>, right: Element<'_>) -> Outcome {
    let (a, b) = match (left, right) {
        (Element::Float(a), Element::Float(b)) => {
            if let ElementOp::Trim(op) = op {
                return Outcome::Refused(Note::Kinds(ElementKind::Float, op, ElementKind::Float));
            }
            return op.apply(a, b).map_or(Outcome::Nothing, Outcome::Float);
        }
        (Element::Float(factor), Element::Histogram(histogram)) => return scaled(op, factor, histogram),
        (Element::Histogram(histogram), Element::Float(number)) => {
            return with_number(op, histogram, number);
        }
        (Element::Histogram(a), Element::Histogram(b)) => (a, b),
    };
    let refused =
        || Outcome::Refused(Note::Kinds(ElementKind::Histogram, op.symbol(), ElementKind::Histogram));
    match op {
        ElementOp::Compute(BinaryOp::Add) => {
            let mut sum = FloatHistogram::clone(a);
            let merged = sum.add(b);
            merged_outcome(sum, merged, BinaryOp::Add, Operation::Addition)
        }
        ElementOp::Compute(BinaryOp::Sub) => {
            let mut difference = FloatHistogram::clone(a);
            let merged = difference.subtract(b);
            difference.reset_hint = ResetHint::Gauge;
            merged_outcome(difference, merged, BinaryOp::Sub, Operation::Subtraction)
        }
        ElementOp::FilterLeft(BinaryOp::Equal) if a.is_identical(b) => Outcome::Histogram(a.clone(), None),
        ElementOp::FilterLeft(BinaryOp::NotEqual) if !a.is_identical(b) => {
            Outcome::Histogram(a.clone(), None)
        }
        ElementOp::FilterLeft(BinaryOp::Equal | BinaryOp::NotEqual) => Outcome::Nothing,
        ElementOp::Bool(BinaryOp::Equal) => Outcome::Float(f64::from(u8::from(a.is_identical(b)))),
        ElementOp::Bool(BinaryOp::NotEqual) => Outcome::Float(f64::from(u8::from(!a.is_identical(b)))),
        _ => refused(),
    }
}

fn scaled(op: ElementOp, factor: f64, histogram: &FloatHistogram) -> Outcome {
    if op != ElementOp::Compute(BinaryOp::Mul) {
        return Outcome::Refused(Note::Kinds(ElementKind::Float, op.symbol(), ElementKind::Histogram));
    }
    changed(histogram, |copy| {
        copy.multiply(factor);
        copy.compact(0);
    })
}

fn with_number(op: ElementOp, histogram: &FloatHistogram, number: f64) -> Outcome {
    match op {
        ElementOp::Compute(BinaryOp::Mul) => changed(histogram, |copy| {
            copy.multiply(number);
            copy.compact(0);
        }),
        ElementOp::Compute(BinaryOp::Div) => changed(histogram, |copy| {
            copy.divide(number);
            copy.compact(0);
        }),
        ElementOp::Trim(BinaryOp::TrimUpper) => changed(histogram, |copy| copy.trim(number, TrimSide::Above)),
        ElementOp::Trim(BinaryOp::TrimLower) => changed(histogram, |copy| copy.trim(number, TrimSide::Below)),
        _ => Outcome::Refused(Note::Kinds(ElementKind::Histogram, op.symbol(), ElementKind::Float)),
    }
}

fn changed(histogram: &FloatHistogram, change: impl Fn(&mut FloatHistogram)) -> Outcome {
    let mut copy = histogram.clone();
    change(&mut copy);
    Outcome::Histogram(Arc::new(copy), None)
}

fn merged_outcome(
    mut result: FloatHistogram,
    merged: Result<chronolith_model::histogram::Merged, chronolith_model::histogram::Incompatible>,
    op: BinaryOp,
    operation: Operation,
) -> Outcome {
    match merged {
        Err(_) => Outcome::Refused(Note::BucketLayout(op)),
        // Prometheus has no result either where hints contradict each other.
        Ok(merged) if merged.hints_collide => Outcome::Refused(Note::Collision(operation)),
        Ok(merged) => {
            result.compact(0);
            let note = merged.bounds_reconciled.then_some(Note::Reconciled(operation));
            Outcome::Histogram(Arc::new(result), note)
        }
    }
}
