//! `match` and `reReplaceAll`.

use std::sync::Arc;

use chronolith_model::SearchRegex;

use super::super::text::{can_backquote, quote, to_text};
use super::super::value::Value;
use super::environment::{Environment, Failure, Outcome, text_of};

/// Steps of a compilation.
const COMPILE_STEPS: u64 = 500;
/// A pattern that Go refuses, or the limit of steps.
enum Fault {
    Invalid(String),
    Other(Failure),
}

fn compiled(environment: &mut Environment<'_>, pattern: &[u8]) -> Result<Arc<SearchRegex>, Fault> {
    let pattern = std::str::from_utf8(pattern).map_err(|error| {
        let invalid = to_text(pattern.get(error.valid_up_to()..).unwrap_or_default());
        Fault::Invalid(format!("error parsing regexp: invalid UTF-8: `{invalid}`"))
    })?;
    if let Some(regex) = environment.regexes.get(pattern) {
        return Ok(regex);
    }
    environment.meter.add_steps(COMPILE_STEPS).map_err(|exceeded| Fault::Other(exceeded.into()))?;
    environment.regexes.compile(pattern).map_err(|error| Fault::Invalid(error.to_string()))
}

pub(super) fn is_match(environment: &mut Environment<'_>, pattern: &[u8], text: &str) -> Outcome {
    match compiled(environment, pattern) {
        Ok(regex) => Ok(Value::Bool(regex.is_match(text))),
        Err(Fault::Invalid(error)) => Err(error.into()),
        Err(Fault::Other(failure)) => Err(failure),
    }
}

pub(super) fn replace_all(
    environment: &mut Environment<'_>,
    pattern: &Value,
    replacement: &Value,
    text: &str,
) -> Outcome {
    let pattern = text_of(pattern);
    let regex = match compiled(environment, pattern) {
        Ok(regex) => regex,
        Err(Fault::Invalid(error)) => {
            let shown =
                if can_backquote(pattern) { format!("`{}`", to_text(pattern)) } else { quote(pattern) };
            return Err(format!("regexp: Compile({shown}): {error}").into());
        }
        Err(Fault::Other(failure)) => return Err(failure),
    };
    let bytes_max = environment.meter.output_bytes_max();
    match regex.replace_all(text, &to_text(text_of(replacement)), bytes_max) {
        Some(replaced) => Ok(Value::text(replaced)),
        None => Err(environment.meter.too_long().into()),
    }
}
