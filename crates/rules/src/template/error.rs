//! Errors of templates, with Prometheus's texts.

use std::fmt;

use super::limits::LimitKind;

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateErrorKind {
    /// The text is not a template.
    Syntax,
    /// The template cannot be expanded with these data.
    Expansion,
    /// A limit is exceeded.
    Limit(LimitKind),
}

/// A template that cannot be parsed or expanded. It is displayed as Prometheus shows it in an annotation:
/// `error executing template __alert_A: template: __alert_A:1:95: executing ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    kind: TemplateErrorKind,
    /// True if the template was parsed.
    is_parsed: bool,
    name: String,
    message: String,
}

impl TemplateError {
    pub(super) fn parsing(kind: TemplateErrorKind, name: &str, message: String) -> TemplateError {
        TemplateError { kind, is_parsed: false, name: name.to_owned(), message }
    }

    pub(super) fn expanding(kind: TemplateErrorKind, name: &str, message: String) -> TemplateError {
        TemplateError { kind, is_parsed: true, name: name.to_owned(), message }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> TemplateErrorKind {
        self.kind
    }

    /// Returns the text without the name of the operation, as `promtool check rules` shows it:
    /// `template: __alert_A:1: unclosed action`.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = if self.is_parsed { "executing" } else { "parsing" };
        write!(f, "error {operation} template {}: {}", self.name, self.message)
    }
}

impl std::error::Error for TemplateError {}
