//! Templates of labels and annotations: Go's `text/template` with Prometheus's functions and variables.
//!
//! Invariants: no template panics, and none uses more than its [`Limits`]; outputs are equal to Prometheus's
//! byte for byte, and so are the errors that clients see. The differences are in
//! `crates/rules/docs/templates.md`.
//! Not here: queries, which callers answer by [`Functions`].

mod alert;
mod error;
mod eval;
mod format;
mod functions;
mod histogram;
mod limits;
mod syntax;
mod text;
mod value;

#[cfg(test)]
mod tests;

pub use alert::{Functions, Sample, SampleValue, TemplateData};
pub use error::{TemplateError, TemplateErrorKind};
pub use limits::{LimitKind, Limits};

use functions::Environment;
use limits::{Exceeded, Meter};
use syntax::{SyntaxError, Trees};

/// Variables that Prometheus declares before each template. They move the columns of the first line.
const DECLARATIONS: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}\
                            {{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// A parsed template, which may be expanded any number of times.
#[derive(Debug)]
pub struct Template {
    name: String,
    /// Source with [`DECLARATIONS`] before it; positions of the trees lead into it.
    text: String,
    trees: Trees,
}

/// Parses a template. `name` is in the texts of errors: `__alert_` and the name of the alert in Prometheus.
///
/// # Errors
/// [`TemplateError`] with the text that Prometheus has for it.
pub fn parse(name: &str, text: &str) -> Result<Template, TemplateError> {
    let text = format!("{DECLARATIONS}{text}");
    match syntax::parse(name, &text) {
        Ok(trees) => Ok(Template { name: name.to_owned(), text, trees }),
        Err(SyntaxError::Invalid { line, message }) => {
            let message = format!("template: {name}:{line}: {message}");
            Err(TemplateError::parsing(TemplateErrorKind::Syntax, name, message))
        }
        Err(SyntaxError::TooDeep { line }) => {
            let exceeded = Exceeded { kind: LimitKind::Depth, limit: syntax::DEPTH_MAX as u64 };
            let message = format!("template: {name}:{line}: {exceeded}");
            Err(TemplateError::parsing(TemplateErrorKind::Limit(LimitKind::Depth), name, message))
        }
    }
}

impl Template {
    /// Returns the text of the template for `data`. A byte of the result that is not UTF-8 is a replacement
    /// character.
    ///
    /// # Errors
    /// [`TemplateError`] with the text that Prometheus has for it, or of a limit.
    pub fn expand(
        &self,
        data: &TemplateData<'_>,
        functions: &mut dyn Functions,
        limits: &Limits,
    ) -> Result<String, TemplateError> {
        let source = eval::Source { name: &self.name, text: &self.text, trees: &self.trees };
        let out = eval::run(source, data, Environment::new(data, functions, Meter::new(*limits)))?;
        Ok(text::to_text(&out))
    }
}
