//! Templates: `$name` in path expressions is replaced before anything is fetched.
//!
//! Invariants: values of the request override those of the call; only path expressions change, never texts; a
//! path that is nothing but `$name` becomes the number that its value looks like.
//! Not here: parsing.

use std::collections::BTreeMap;

use crate::error::EvalError;
use crate::syntax::{FunctionCall, Literal, Node, Template};
use crate::value::Value;

/// Values by name, in order of replacement.
type Replacements = Vec<(String, Literal)>;

/// Bytes of a path after replacement.
const PATH_BYTES_MAX: usize = 64 << 10;

/// Returns the tree with all templates filled in.
/// # Errors
/// [`EvalError::Parameter`] if a path becomes too long.
pub(super) fn filled(node: Node, overrides: &BTreeMap<String, String>) -> Result<Node, EvalError> {
    replace(node, &Vec::new(), overrides)
}

fn replace(
    node: Node,
    values: &Replacements,
    overrides: &BTreeMap<String, String>,
) -> Result<Node, EvalError> {
    Ok(match node {
        Node::Literal(literal) => Node::Literal(literal),
        Node::Path(path) => replace_path(path, values)?,
        Node::Call(call) => {
            let FunctionCall { name, args, named, raw } = *call;
            let args =
                args.into_iter().map(|arg| replace(arg, values, overrides)).collect::<Result<_, _>>()?;
            let named = named
                .into_iter()
                .map(|(name, value)| replace(value, values, overrides).map(|value| (name, value)));
            Node::Call(Box::new(FunctionCall { name, args, named: named.collect::<Result<_, _>>()?, raw }))
        }
        Node::Template(template) => {
            let values = values_of(&template, overrides);
            replace(template.body, &values, overrides)?
        }
    })
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
