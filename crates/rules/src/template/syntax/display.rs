//! Parts of a tree as errors show them: Go's normal form of the source.

use std::fmt;

use super::super::text::quote;
use super::tree::{Command, Operand, Pipeline};

/// Part of a tree that an error is about.
#[derive(Debug, Clone, Copy)]
pub(in crate::template) enum Context<'t> {
    Pipeline(&'t Pipeline),
    Command(&'t Command),
    Operand(&'t Operand),
    /// A call of a template.
    Template {
        position: usize,
        name: &'t str,
        argument: Option<&'t Pipeline>,
    },
}

impl Context<'_> {
    pub(in crate::template) fn position(&self) -> usize {
        match self {
            Context::Pipeline(pipeline) => pipeline.position,
            Context::Command(command) => command.position,
            Context::Operand(operand) => operand.position(),
            Context::Template { position, .. } => *position,
        }
    }
}

impl fmt::Display for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Context::Pipeline(pipeline) => pipeline.fmt(f),
            Context::Command(command) => command.fmt(f),
            Context::Operand(operand) => operand.fmt(f),
            Context::Template { name, argument, .. } => {
                write!(f, "{{{{template {}", quote(name.as_bytes()))?;
                if let Some(argument) = argument {
                    write!(f, " {argument}")?;
                }
                f.write_str("}}")
            }
        }
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let operator = if self.is_assignment { "=" } else { ":=" };
            write!(f, "{} {operator} ", self.variables.join(", "))?;
        }
        for (idx, command) in self.commands.iter().enumerate() {
            if idx > 0 {
                f.write_str(" | ")?;
            }
            command.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in_parens(f, &self.first)?;
        for argument in &self.arguments {
            f.write_str(" ")?;
            write_in_parens(f, argument)?;
        }
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Pipeline(pipeline) => pipeline.fmt(f),
            Operand::Field { names, .. } => write_fields(f, names),
            Operand::Chain { base, names, .. } => {
                write_in_parens(f, base)?;
                write_fields(f, names)
            }
            Operand::Function { name, .. } => f.write_str(name),
            Operand::Variable { name, fields, .. } => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            Operand::Dot(_) => f.write_str("."),
            Operand::Nil(_) => f.write_str("nil"),
            Operand::Bool { value, .. } => value.fmt(f),
            Operand::Number { value, .. } => f.write_str(&value.literal),
            Operand::Text { literal, .. } => f.write_str(literal),
        }
    }
}

fn write_in_parens(f: &mut fmt::Formatter<'_>, operand: &Operand) -> fmt::Result {
    match operand {
        Operand::Pipeline(pipeline) => write!(f, "({pipeline})"),
        operand => write!(f, "{operand}"),
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, names: &[String]) -> fmt::Result {
    names.iter().try_for_each(|name| write!(f, ".{name}"))
}
