//! Warnings and infos that travel beside a result. Holds: each message once, in order of first
//! appearance, at the place that upstream would give it (`order`).
//! Not here: who shows them.

pub(crate) mod note;
pub(crate) mod order;
pub(crate) mod steps;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use chronolith_model::histogram::go_float;

use super::call::calendar::rfc3339;
use crate::ast::{Expr, Span};
use note::Note;
use order::{Order, Origin};
use steps::StepSet;

/// Texts kept per kind; what comes after is counted only by being left out.
const ANNOTATIONS_MAX: usize = 100;

/// Collects annotations of one query.
pub(crate) struct Annotations<'q> {
    text: &'q str,
    expr: &'q Expr,
    /// Made when one message has two places, which is rare.
    order: OnceLock<Order>,
    lists: Mutex<Lists>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Lists {
    warnings: Vec<Annotation>,
    infos: Vec<Annotation>,
    repairs: Vec<(String, Origin, Repair)>,
    /// Metrics whose counters start before the sample before them ends, and in how many windows.
    overlaps: Vec<(String, Origin, u64)>,
}

/// What is to be said later.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SetAside(Lists);

impl SetAside {
    /// Whether there is nothing to say.
    pub(crate) fn is_empty(&self) -> bool {
        let Lists { warnings, infos, repairs, overlaps } = &self.0;
        warnings.is_empty() && infos.is_empty() && repairs.is_empty() && overlaps.is_empty()
    }

    /// The same about other places of the query.
    pub(crate) fn moved(&self, place: impl Fn(Span) -> Span) -> SetAside {
        let mut moved = self.clone();
        let Lists { warnings, infos, repairs, overlaps } = &mut moved.0;
        let place = |origin: &mut Origin| {
            *origin = Origin { span: place(origin.span), speaker: place(origin.speaker) };
        };
        warnings.iter_mut().chain(infos).for_each(|annotation| place(&mut annotation.origin));
        repairs.iter_mut().for_each(|(_, origin, _)| place(origin));
        overlaps.iter_mut().for_each(|(_, origin, _)| place(origin));
        moved
    }
}

/// What is to be said, and where in the query.
#[derive(Debug, Clone, PartialEq)]
struct Annotation {
    message: String,
    origin: Origin,
    /// The steps it is about, if they are known.
    steps: Option<StepSet>,
}

/// Annotations as texts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Texts {
    /// Likely mistakes.
    pub(crate) warnings: Vec<String>,
    /// Possible mistakes.
    pub(crate) infos: Vec<String>,
    /// The steps of each info; `None` if those of any annotation are unknown.
    pub(crate) info_steps: Option<Vec<StepSet>>,
}

/// Counts of classic buckets that had to be raised before a quantile could be found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Repair {
    /// Least bound of a raised bucket.
    pub(crate) bound_min: f64,
    /// Greatest bound of a raised bucket.
    pub(crate) bound_max: f64,
    /// The most by which one was raised.
    pub(crate) raise_max: f64,
    /// Histograms and steps with such buckets.
    pub(crate) count: u64,
    /// First step.
    pub(crate) first_ms: i64,
    /// Last step.
    pub(crate) last_ms: i64,
}

impl Repair {
    /// Both.
    pub(crate) fn joined(self, other: Repair) -> Repair {
        Repair {
            bound_min: self.bound_min.min(other.bound_min),
            bound_max: self.bound_max.max(other.bound_max),
            raise_max: self.raise_max.max(other.raise_max),
            count: self.count + other.count,
            first_ms: self.first_ms.min(other.first_ms),
            last_ms: self.last_ms.max(other.last_ms),
        }
    }

    fn describe(&self) -> String {
        format!(
            "from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            go_float(self.bound_min),
            go_float(self.bound_max),
            two_digits(self.raise_max),
            self.count,
            rfc3339(self.first_ms),
            rfc3339(self.last_ms)
        )
    }
}

impl<'q> Annotations<'q> {
    /// `text` is the query, for lines and columns; empty if unknown (then all is line 1).
    pub(crate) fn new(text: &'q str, expr: &'q Expr) -> Annotations<'q> {
        Annotations { text, expr, order: OnceLock::new(), lists: Mutex::new(Lists::default()) }
    }

    /// Adds a warning.
    pub(crate) fn warn(&self, message: &str, origin: Origin) {
        self.add(&mut self.lock().warnings, Annotation { message: message.to_owned(), origin, steps: None });
    }

    /// Adds an info.
    pub(crate) fn inform(&self, message: &str, origin: Origin) {
        self.add(&mut self.lock().infos, Annotation { message: message.to_owned(), origin, steps: None });
    }

    /// Adds an info about these steps of the query.
    pub(crate) fn inform_at(&self, message: &str, origin: Origin, steps: Option<StepSet>) {
        self.add(&mut self.lock().infos, Annotation { message: message.to_owned(), origin, steps });
    }

    /// Adds what is to be said about native histograms.
    pub(crate) fn note(&self, note: Note<'_>, origin: Origin) {
        if let Note::StartOverlap(name, count) = note {
            let overlaps = &mut self.lock().overlaps;
            if let Some((_, at, before)) = overlaps.iter_mut().find(|(other, ..)| other == name) {
                *at = self.earlier(*at, origin);
                *before = before.saturating_add(count);
            } else if overlaps.len() < ANNOTATIONS_MAX {
                overlaps.push((name.to_owned(), origin, count));
            }
            return;
        }
        let text = note.text();
        if note.is_warning() { self.warn(&text, origin) } else { self.inform(&text, origin) }
    }

    /// Adds an info about repaired buckets; those with the same message become one, at the first of their places.
    pub(crate) fn inform_of_repair(&self, message: &str, origin: Origin, repair: Repair) {
        let repairs = &mut self.lock().repairs;
        if let Some((_, at, before)) = repairs.iter_mut().find(|(text, ..)| text == message) {
            *at = self.earlier(*at, origin);
            *before = before.joined(repair);
        } else if repairs.len() < ANNOTATIONS_MAX {
            repairs.push((message.to_owned(), origin, repair));
        }
    }

    /// Takes what has been said so far away, so that what is said from now on can be told from it.
    pub(crate) fn set_aside(&self) -> SetAside {
        SetAside(std::mem::take(&mut *self.lock()))
    }

    /// Gives back what was set aside, and takes what has been said since.
    pub(crate) fn restore(&self, before: SetAside) -> SetAside {
        SetAside(std::mem::replace(&mut *self.lock(), before.0))
    }

    /// Says what was set aside.
    pub(crate) fn append(&self, later: SetAside) {
        for (message, origin, repair) in later.0.repairs {
            self.inform_of_repair(&message, origin, repair);
        }
        for (name, origin, count) in later.0.overlaps {
            self.note(Note::StartOverlap(&name, count), origin);
        }
        later.0.warnings.into_iter().for_each(|a| self.add(&mut self.lock().warnings, a));
        later.0.infos.into_iter().for_each(|a| self.add(&mut self.lock().infos, a));
    }

    /// Takes all warnings and all infos out.
    pub(crate) fn take(&self) -> Texts {
        // A statement of its own: the lock is not to be held in the loop.
        let repairs = std::mem::take(&mut self.lock().repairs);
        let overlaps = std::mem::take(&mut self.lock().overlaps);
        for (name, origin, count) in overlaps {
            self.warn(&Note::StartOverlap(&name, count).text(), origin);
        }
        for (message, origin, repair) in repairs {
            self.inform(&format!("{message}, {}", repair.describe()), origin);
        }
        let mut lists = self.lock();
        let texts = |kind: &str, list: &mut Vec<Annotation>| {
            let text =
                |a: Annotation| format!("PromQL {kind}: {} ({})", a.message, self.position(a.origin.span));
            std::mem::take(list).into_iter().map(text).collect()
        };
        let is_cut = lists.infos.len() >= ANNOTATIONS_MAX;
        let steps = || lists.infos.iter().map(|info| info.steps.clone()).collect();
        let info_steps = if lists.warnings.is_empty() && !is_cut { steps() } else { None };
        let warnings = texts("warning", &mut lists.warnings);
        Texts { warnings, infos: texts("info", &mut lists.infos), info_steps }
    }

    fn add(&self, list: &mut Vec<Annotation>, annotation: Annotation) {
        if let Some(before) = list.iter_mut().find(|before| before.message == annotation.message) {
            before.origin = self.later(before.origin, annotation.origin);
            before.steps = before.steps.take().zip(annotation.steps).and_then(|(a, b)| a.union(&b));
        } else if list.len() < ANNOTATIONS_MAX {
            list.push(annotation);
        }
    }

    /// Which of two places is said later; if both are one speaker's, the second.
    fn later(&self, before: Origin, origin: Origin) -> Origin {
        if self.speaks_before(origin, before) { before } else { origin }
    }

    /// Which of two places is said earlier; if both are one speaker's, the first.
    fn earlier(&self, before: Origin, origin: Origin) -> Origin {
        if self.speaks_before(origin, before) { origin } else { before }
    }

    /// Whether `a`'s speaker is evaluated before that of `b`.
    fn speaks_before(&self, a: Origin, b: Origin) -> bool {
        if a.speaker == b.speaker {
            return false;
        }
        let order = self.order.get_or_init(|| Order::new(self.expr));
        order.rank(a.speaker) < order.rank(b.speaker)
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn position(&self, span: Span) -> String {
        let start = span.start as usize;
        let before = self.text.as_bytes().get(..start).unwrap_or(&[]);
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        format!("{line}:{}", start - line_start + 1)
    }
}

/// The message about a quantile outside 0..1.
pub(crate) fn bad_quantile(quantile: f64) -> String {
    format!("quantile value should be between 0 and 1, got {}", go_float(quantile))
}

/// As [`go_float`], but rounded to two digits.
fn two_digits(value: f64) -> String {
    if !value.is_finite() {
        return go_float(value);
    }
    let text = format!("{value:.1e}").replace(".0e", "e");
    let rounded = text.parse().unwrap_or(value);
    general(rounded, &text, 2)
}

/// `text` is the value with an exponent, with exponents from `exponent_min` on it is printed so.
fn general(value: f64, text: &str, exponent_min: i32) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    if (-4..exponent_min).contains(&exponent.parse::<i32>().unwrap_or(0)) {
        return format!("{value}");
    }
    let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |d| ("-", d));
    format!("{mantissa}e{sign}{digits:0>2}")
}
