//! Syntax tree. Positions are offsets in bytes into the text of the template.

use std::collections::BTreeMap;

use super::number::Number;

/// Bodies of templates by name: the parsed template and its definitions.
pub(in crate::template) type Trees = BTreeMap<String, Vec<Node>>;

/// One element of a body.
#[derive(Debug)]
pub(in crate::template) enum Node {
    Text(String),
    /// Prints the value of the pipeline, unless the pipeline has variables.
    Action(Pipeline),
    If(Conditional),
    /// As `If`, with dot set to the value.
    With(Conditional),
    Range(Loop),
    Template {
        position: usize,
        name: String,
        argument: Option<Pipeline>,
    },
    Break,
    Continue,
}

/// Branches of `if` or `with` in order. The variables of a branch are visible in those after it.
#[derive(Debug)]
pub(in crate::template) struct Conditional {
    pub(in crate::template) branches: Vec<Branch>,
    pub(in crate::template) otherwise: Vec<Node>,
}

/// One condition and its body.
#[derive(Debug)]
pub(in crate::template) struct Branch {
    pub(in crate::template) condition: Pipeline,
    pub(in crate::template) body: Vec<Node>,
}

#[derive(Debug)]
pub(in crate::template) struct Loop {
    pub(in crate::template) over: Pipeline,
    pub(in crate::template) body: Vec<Node>,
    pub(in crate::template) otherwise: Vec<Node>,
}

/// Commands that pass their value on, and the variables that get the last value.
#[derive(Debug)]
pub(in crate::template) struct Pipeline {
    pub(in crate::template) position: usize,
    pub(in crate::template) variables: Vec<String>,
    /// False if the variables are declared.
    pub(in crate::template) is_assignment: bool,
    /// Commands in order, one at least.
    pub(in crate::template) commands: Vec<Command>,
}

/// A function or method with arguments, or an operand alone.
#[derive(Debug)]
pub(in crate::template) struct Command {
    pub(in crate::template) position: usize,
    pub(in crate::template) first: Operand,
    pub(in crate::template) arguments: Vec<Operand>,
}

/// A word of a command.
#[derive(Debug)]
pub(in crate::template) enum Operand {
    Pipeline(Pipeline),
    /// Fields of dot: `.a.b`.
    Field {
        position: usize,
        names: Vec<String>,
    },
    /// Fields of any other operand: `(f x).a.b`.
    Chain {
        position: usize,
        base: Box<Operand>,
        names: Vec<String>,
    },
    Function {
        position: usize,
        name: String,
    },
    /// `$x.a.b`; the first name has the dollar sign.
    Variable {
        position: usize,
        name: String,
        fields: Vec<String>,
    },
    Dot(usize),
    Nil(usize),
    Bool {
        position: usize,
        value: bool,
    },
    Number {
        position: usize,
        value: Number,
    },
    Text {
        position: usize,
        literal: String,
        value: Vec<u8>,
    },
}

impl Operand {
    /// Returns true if a command may begin with the operand after a pipe.
    pub(in crate::template) fn is_executable(&self) -> bool {
        !matches!(
            self,
            Operand::Bool { .. }
                | Operand::Dot(_)
                | Operand::Nil(_)
                | Operand::Number { .. }
                | Operand::Text { .. }
        )
    }

    pub(in crate::template) fn position(&self) -> usize {
        match self {
            Operand::Pipeline(pipeline) => pipeline.position,
            Operand::Field { position, .. }
            | Operand::Chain { position, .. }
            | Operand::Function { position, .. }
            | Operand::Variable { position, .. }
            | Operand::Dot(position)
            | Operand::Nil(position)
            | Operand::Bool { position, .. }
            | Operand::Number { position, .. }
            | Operand::Text { position, .. } => *position,
        }
    }
}
