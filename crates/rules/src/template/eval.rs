//! Evaluation of a syntax tree: bodies, control structures and variables.
//!
//! Invariants: the stack is bounded by the limit of depth, the time by the limit of steps; an error names the
//! part of the template that was evaluated last, as Go's does.

mod command;
mod field;
mod method;
mod state;

pub(super) use state::Source;

use super::alert::TemplateData;
use super::format;
use super::functions::{Environment, printable};
use super::syntax::{Branch, Context, Loop, Node, Pipeline};
use super::text::quote;
use super::value::{IntType, Value};
use command::Evaluator;
use state::{Reflected, Result, State, Variable};

/// Continuation after a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// Evaluates the tree of `source` with its own name; `dot` is the data of an alert.
pub(super) fn run(
    source: Source<'_>,
    data: &TemplateData<'_>,
    environment: Environment<'_>,
) -> Result<Vec<u8>> {
    let dot = Reflected::plain(data.to_value());
    let state = State::new(source, dot.clone(), environment);
    let mut machine = Machine { evaluator: Evaluator { state }, out: Vec::new() };
    if let Some(body) = source.trees.get(source.name) {
        machine.body(&dot, body)?;
    }
    Ok(machine.out)
}

/// Writes the output of bodies.
struct Machine<'t, 'e> {
    evaluator: Evaluator<'t, 'e>,
    out: Vec<u8>,
}

impl<'t, 'e> Machine<'t, 'e> {
    /// Runs `evaluate` one level deeper.
    fn nested<T>(&mut self, evaluate: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.state().enter()?;
        let result = evaluate(self);
        self.state().leave();
        result
    }

    fn state(&mut self) -> &mut State<'t, 'e> {
        &mut self.evaluator.state
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let len = self.out.len().saturating_add(bytes.len());
        let state = self.state();
        state.environment.meter.check_text(len).map_err(|exceeded| state.exceeded(exceeded))?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn body(&mut self, dot: &Reflected, nodes: &'t [Node]) -> Result<Flow> {
        for node in nodes {
            let flow = self.node(dot, node)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Reflected, node: &'t Node) -> Result<Flow> {
        self.state().step()?;
        match node {
            Node::Text(text) => self.write(text.as_bytes())?,
            Node::Action(pipeline) => {
                let value = self.evaluator.pipeline(dot, pipeline)?;
                if pipeline.variables.is_empty() {
                    self.print(&value.value)?;
                }
            }
            Node::If(conditional) => {
                return self.nested(|machine| {
                    machine.conditional(dot, &conditional.branches, &conditional.otherwise, false)
                });
            }
            Node::With(conditional) => {
                return self.nested(|machine| {
                    machine.conditional(dot, &conditional.branches, &conditional.otherwise, true)
                });
            }
            Node::Range(range) => return self.nested(|machine| machine.range(dot, range)),
            Node::Template { position, name, argument } => {
                let argument = argument.as_ref();
                self.state().at = Some(Context::Template { position: *position, name, argument });
                self.nested(|machine| machine.template(dot, name, argument))?;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn print(&mut self, value: &Value) -> Result<()> {
        let bytes_max = self.state().environment.meter.output_bytes_max();
        let value = printable(value);
        match format::print(&[value], bytes_max) {
            Ok(text) => self.write(&text),
            Err(format::TooLong) => {
                let state = self.state();
                Err(state.exceeded(state.environment.meter.too_long()))
            }
        }
    }

    /// `if`, or `with`, which sets dot.
    fn conditional(
        &mut self,
        dot: &Reflected,
        branches: &'t [Branch],
        otherwise: &'t [Node],
        sets_dot: bool,
    ) -> Result<Flow> {
        let outer_variables = self.state().variables.len();
        for branch in branches {
            let value = self.evaluator.pipeline(dot, &branch.condition)?;
            if value.value.is_true() {
                let dot = if sets_dot { &value } else { dot };
                let flow = self.body(dot, &branch.body)?;
                self.state().variables.truncate(outer_variables);
                return Ok(flow);
            }
        }
        let flow = self.body(dot, otherwise)?;
        self.state().variables.truncate(outer_variables);
        Ok(flow)
    }

    fn range(&mut self, dot: &Reflected, range: &'t Loop) -> Result<Flow> {
        let outer_variables = self.state().variables.len();
        let over = self.evaluator.pipeline(dot, &range.over)?;
        let is_empty = match over.value.target() {
            Value::Nil => true,
            Value::Int(int_type, count) => self.range_over_integers(range, *int_type, *count)?,
            Value::Uint(_, count) => {
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                self.range_over_integers(range, IntType::Int, count)?
            }
            Value::List(list) => {
                for (idx, element) in list.elements.iter().enumerate() {
                    let key = Value::int(i64::try_from(idx).unwrap_or(i64::MAX));
                    if self.iteration(range, &key, &Reflected::plain(element.clone()))? == Flow::Break {
                        break;
                    }
                }
                list.elements.is_empty()
            }
            Value::Map(map) => {
                for (key, element) in &map.entries {
                    let element = Reflected::of_element(map.element, element.clone());
                    if self.iteration(range, &Value::text(key), &element)? == Flow::Break {
                        break;
                    }
                }
                map.entries.is_empty()
            }
            value => {
                let state = self.state();
                return state.fail(format!("range can't iterate over {}", state.shown(value)));
            }
        };
        let flow = if is_empty { self.body(dot, &range.otherwise)? } else { Flow::Next };
        self.state().variables.truncate(outer_variables);
        Ok(flow)
    }

    /// Returns true if there is no iteration.
    fn range_over_integers(&mut self, range: &'t Loop, int_type: IntType, count: i64) -> Result<bool> {
        if range.over.variables.len() > 1 {
            let shown = self.state().shown(&Value::Int(int_type, count));
            return self.state().fail(format!("can't use {shown} to iterate over more than one variable"));
        }
        for number in 0..count {
            let element = Reflected::plain(Value::Int(int_type, number));
            if self.iteration(range, &Value::Nil, &element)? == Flow::Break {
                break;
            }
        }
        Ok(count <= 0)
    }

    fn iteration(&mut self, range: &'t Loop, key: &Value, element: &Reflected) -> Result<Flow> {
        self.state().step()?;
        let inner_variables = self.state().variables.len();
        let key = Reflected::plain(key.clone());
        match range.over.variables.as_slice() {
            [] => {}
            [first, second] if range.over.is_assignment => {
                self.state().assign(first, key)?;
                self.state().assign(second, element.clone())?;
            }
            [first, ..] if range.over.is_assignment => self.state().assign(first, element.clone())?,
            // The declared variables are the innermost ones.
            [_, second, ..] => {
                if let Some(first) = self.state().variables.iter_mut().rev().nth(1) {
                    first.value = key;
                }
                self.state().assign(second, element.clone())?;
            }
            [first] => self.state().assign(first, element.clone())?,
        }
        let flow = self.body(element, &range.body)?;
        self.state().variables.truncate(inner_variables);
        Ok(flow)
    }

    fn template(&mut self, dot: &Reflected, name: &'t str, argument: Option<&'t Pipeline>) -> Result<()> {
        let trees = self.state().source.trees;
        let Some(body) = trees.get(name) else {
            return self.state().fail(format!("template {} not defined", quote(name.as_bytes())));
        };
        let argument = match argument {
            Some(argument) => self.evaluator.pipeline(dot, argument)?,
            None => Reflected::plain(Value::Nil),
        };
        let variables = vec![Variable { name: "$", value: argument.clone() }];
        let outer_variables = std::mem::replace(&mut self.state().variables, variables);
        let outer_template = std::mem::replace(&mut self.state().template, name);
        self.body(&argument, body)?;
        self.state().variables = outer_variables;
        self.state().template = outer_template;
        Ok(())
    }
}
