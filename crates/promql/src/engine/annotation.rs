//! Warnings and infos that travel beside a result. Holds: each text once, in order of first appearance.
//! Not here: who shows them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ast::Span;

/// Texts kept per kind; what comes after is counted only by being left out.
const ANNOTATIONS_MAX: usize = 100;

/// Collects annotations of one query.
pub(crate) struct Annotations<'q> {
    text: &'q str,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    warnings: Vec<String>,
    infos: Vec<String>,
}

impl<'q> Annotations<'q> {
    /// `text` is the query, for lines and columns; empty if unknown (then all is line 1).
    pub(crate) fn new(text: &'q str) -> Annotations<'q> {
        Annotations { text, lists: Mutex::new(Lists::default()) }
    }

    /// Adds a warning about the part of the query at `span`.
    pub(crate) fn warn(&self, message: &str, span: Span) {
        let text = format!("PromQL warning: {message} ({})", self.position(span));
        add(&mut self.lock().warnings, text);
    }

    /// Adds an info about the part of the query at `span`.
    pub(crate) fn inform(&self, message: &str, span: Span) {
        let text = format!("PromQL info: {message} ({})", self.position(span));
        add(&mut self.lock().infos, text);
    }

    /// Takes all warnings and all infos out.
    pub(crate) fn take(&self) -> (Vec<String>, Vec<String>) {
        let mut lists = self.lock();
        (std::mem::take(&mut lists.warnings), std::mem::take(&mut lists.infos))
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

fn add(list: &mut Vec<String>, text: String) {
    if list.len() < ANNOTATIONS_MAX && !list.contains(&text) {
        list.push(text);
    }
}

/// The message about a quantile outside 0..1.
pub(crate) fn bad_quantile(quantile: f64) -> String {
    format!("quantile value should be between 0 and 1, got {}", go_general(quantile))
}

/// `value` as Go's `%g` prints it, for the magnitudes that occur in messages.
pub(crate) fn go_general(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = value.abs();
    if value != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |d| ("-", d));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value}")
}
