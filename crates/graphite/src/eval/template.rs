//! Templates: `$name` in path expressions is replaced before anything is fetched.
//!
//! Invariants: values of the request override values of the call; only path expressions change, never texts;
//! a path that is nothing but `$name` becomes the number that its value looks like.
//! Not here: parsing.

use std::collections::BTreeMap;

use crate::error::EvalError;
use crate::scope::Budget;
use crate::syntax::{FunctionCall, Literal, Node, Template};
use crate::value::Value;

/// Values by name, in order of replacement.
type Replacements = Vec<(String, Literal)>;

/// Bytes of a path after replacement.
const PATH_BYTES_MAX: usize = 64 << 10;

/// Returns the tree with all templates filled in.
/// # Errors
/// [`EvalError::Parameter`] if a path becomes too long; [`EvalError::Storage`] without memory for the paths.
pub(super) fn filled(
    node: Node,
    overrides: &BTreeMap<String, String>,
    budget: &Budget<'_>,
) -> Result<Node, EvalError> {
    Filling { overrides, budget }.replace(node, &Vec::new())
}

/// Replacement within one tree.
struct Filling<'a> {
    overrides: &'a BTreeMap<String, String>,
    budget: &'a Budget<'a>,
}

impl Filling<'_> {
    fn replace(&self, node: Node, values: &Replacements) -> Result<Node, EvalError> {
        Ok(match node {
            Node::Literal(literal) => Node::Literal(literal),
            Node::Path(path) => self.replace_path(path, values)?,
            Node::Call(call) => {
                let FunctionCall { name, args, named, raw } = *call;
                let args = args.into_iter().map(|arg| self.replace(arg, values)).collect::<Result<_, _>>()?;
                let named = named
                    .into_iter()
                    .map(|(name, value)| self.replace(value, values).map(|value| (name, value)));
                let named = named.collect::<Result<_, _>>()?;
                Node::Call(Box::new(FunctionCall { name, args, named, raw }))
            }
            Node::Template(template) => {
                let values = values_of(&template, self.overrides);
                self.replace(template.body, &values)?
            }
        })
    }

    fn replace_path(&self, path: String, values: &Replacements) -> Result<Node, EvalError> {
        let bytes_before = path.len();
        let node = replace_path(path, values)?;
        let bytes = match &node {
            Node::Path(path) => path.len(),
            Node::Literal(Literal::Text(text)) => text.len(),
            _ => 0,
        };
        self.budget.keep_bytes(bytes.saturating_sub(bytes_before) as u64)?;
        Ok(node)
    }
}

fn values_of(template: &Template, overrides: &BTreeMap<String, String>) -> Replacements {
    let mut values: Replacements = template.named.clone();
    values.extend(
        (1..).zip(&template.positional).map(|(idx, value): (usize, _)| (idx.to_string(), value.clone())),
    );
    for (name, value) in overrides {
        let value = Literal::Text(value.clone());
        match values.iter_mut().find(|(known, _)| known == name) {
            Some((_, slot)) => *slot = value,
            None => values.push((name.clone(), value)),
        }
    }
    values
}

fn replace_path(mut path: String, values: &Replacements) -> Result<Node, EvalError> {
    for (name, value) in values {
        let variable = format!("${name}");
        if path == variable {
            return Ok(Node::Literal(constant(value)));
        }
        if path.contains(&variable) {
            path = path.replace(&variable, &Value::from(value).text());
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(EvalError::Parameter(format!(
                "path exceeds {PATH_BYTES_MAX} bytes after replacement"
            )));
        }
    }
    Ok(Node::Path(path))
}

/// A text of digits and dots is a number.
fn constant(value: &Literal) -> Literal {
    let Literal::Text(text) = value else { return value.clone() };
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.parse() {
        Ok(number) if is_number => Literal::Float(number),
        _ => value.clone(),
    }
}
