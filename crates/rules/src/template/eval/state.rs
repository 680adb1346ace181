//! State of an evaluation: its place for errors, variables, depth and the use of limits.

use super::super::error::{TemplateError, TemplateErrorKind};
use super::super::format;
use super::super::functions::Environment;
use super::super::limits::Exceeded;
use super::super::syntax::{Context, Trees};
use super::super::text::{quote, to_text};
use super::super::value::{ElementType, Value};

pub(super) type Result<T> = std::result::Result<T, TemplateError>;

/// A value and whether its static type is `interface {}`, which errors and missing fields depend on.
#[derive(Debug, Clone)]
pub(super) struct Reflected {
    pub(super) value: Value,
    pub(super) is_interface: bool,
}

impl Reflected {
    pub(super) fn plain(value: Value) -> Reflected {
        Reflected { value, is_interface: false }
    }

    pub(super) fn of_element(element: ElementType, value: Value) -> Reflected {
        Reflected { value, is_interface: element == ElementType::Any }
    }
}

/// A variable of a template, with its dollar sign.
pub(super) struct Variable<'t> {
    pub(super) name: &'t str,
    pub(super) value: Reflected,
}

/// Source of the trees, for the positions of errors.
#[derive(Clone, Copy)]
pub(in crate::template) struct Source<'t> {
    pub(in crate::template) name: &'t str,
    pub(in crate::template) text: &'t str,
    pub(in crate::template) trees: &'t Trees,
}

pub(super) struct State<'t, 'e> {
    pub(super) source: Source<'t>,
    /// Name of the template whose body is evaluated.
    pub(super) template: &'t str,
    /// Variables in order of their scopes, the innermost last.
    pub(super) variables: Vec<Variable<'t>>,
    /// Part of the template that is evaluated.
    pub(super) at: Option<Context<'t>>,
    depth: usize,
    pub(super) environment: Environment<'e>,
}

impl<'t, 'e> State<'t, 'e> {
    pub(super) fn new(source: Source<'t>, dot: Reflected, environment: Environment<'e>) -> State<'t, 'e> {
        let variables = vec![Variable { name: "$", value: dot }];
        State { source, template: source.name, variables, at: None, depth: 0, environment }
    }

    pub(super) fn fail<T>(&self, message: impl AsRef<str>) -> Result<T> {
        Err(self.error(TemplateErrorKind::Expansion, message.as_ref()))
    }

    pub(super) fn exceeded(&self, exceeded: Exceeded) -> TemplateError {
        self.error(TemplateErrorKind::Limit(exceeded.kind), &exceeded.to_string())
    }

    pub(super) fn error(&self, kind: TemplateErrorKind, message: &str) -> TemplateError {
        let name = self.source.name;
        let template = self.template;
        let message = match self.at {
            None => format!("template: {template}: {message}"),
            Some(context) => {
                let before = self.source.text.get(..context.position()).unwrap_or("");
                let line = 1 + before.matches('\n').count();
                let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1);
                let executing = quote(template.as_bytes());
                format!("template: {name}:{line}:{column}: executing {executing} at <{context}>: {message}")
            }
        };
        TemplateError::expanding(kind, name, message)
    }

    pub(super) fn step(&mut self) -> Result<()> {
        self.environment.meter.add_steps(1).map_err(|exceeded| self.exceeded(exceeded))
    }

    /// Counts a level; [`leave`](Self::leave) ends it.
    pub(super) fn enter(&mut self) -> Result<()> {
        self.environment.meter.check_depth(self.depth + 1).map_err(|exceeded| self.exceeded(exceeded))?;
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn variable(&self, name: &str) -> Result<Reflected> {
        match self.variables.iter().rev().find(|variable| variable.name == name) {
            Some(variable) => Ok(variable.value.clone()),
            None => self.fail(format!("undefined variable: {name}")),
        }
    }

    pub(super) fn assign(&mut self, name: &str, value: Reflected) -> Result<()> {
        match self.variables.iter_mut().rev().find(|variable| variable.name == name) {
            Some(variable) => variable.value = value,
            None => return self.fail(format!("undefined variable: {name}")),
        }
        Ok(())
    }

    /// Returns a value as `%v` prints it, for errors.
    pub(super) fn shown(&self, value: &Value) -> String {
        match format::print(std::slice::from_ref(value), self.environment.meter.output_bytes_max()) {
            Ok(text) => to_text(&text),
            Err(format::TooLong) => "...".to_owned(),
        }
    }
}
