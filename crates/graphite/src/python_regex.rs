//! Python's regexes over `fancy-regex`: search, and substitution with Python's templates.
//!
//! Invariants: pattern and backtracking are bounded; a pattern that Python accepts and the engine writes
//! otherwise is translated (`[[]`, `\Z`, literal braces).
//! Not here: anchoring of tag expressions.

use fancy_regex::{Captures, Regex, RegexBuilder};

use crate::error::EvalError;

/// Bytes of a pattern.
pub(crate) const PATTERN_BYTES_MAX: usize = 4096;
/// Steps back of one match.
pub(crate) const BACKTRACK_MAX: usize = 200_000;
/// Bytes of the result of a substitution.
pub(crate) const SUBSTITUTED_BYTES_MAX: usize = 64 << 10;

/// Bytes of a compiled pattern, at most.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Bytes of the automaton that is built while a pattern is searched, at most.
const AUTOMATON_BYTES_MAX: usize = 512 << 10;
/// Bytes of memory of a pattern, at most.
pub const REGEX_BYTES_MAX: u64 = (COMPILED_BYTES_MAX + AUTOMATON_BYTES_MAX) as u64;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct PythonRegex {
    regex: Regex,
}

impl PythonRegex {
    /// Compiles a pattern of Python's `re`.
    /// # Errors
    /// [`EvalError::Parameter`] if it does not compile or is too long.
    pub(crate) fn new(pattern: &str) -> Result<Self, EvalError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(EvalError::Parameter(format!(
                "regex has {} bytes, limit {PATTERN_BYTES_MAX}",
                pattern.len()
            )));
        }
        let regex = RegexBuilder::new(&translate(pattern))
            .backtrack_limit(BACKTRACK_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(AUTOMATON_BYTES_MAX)
            .build();
        let regex =
            regex.map_err(|error| EvalError::Parameter(format!("invalid regex '{pattern}': {error}")))?;
        Ok(PythonRegex { regex })
    }

    /// Returns true if the pattern is found anywhere in `text`.
    /// # Errors
    /// [`EvalError::Parameter`] if matching takes more than [`BACKTRACK_MAX`] steps back.
    pub(crate) fn is_match(&self, text: &str) -> Result<bool, EvalError> {
        self.regex.is_match(text).map_err(|error| gave_up(&error))
    }

    /// Replaces all matches, `re.sub`: `\1`, `\g<name>` and escapes of the template are expanded.
    /// # Errors
    /// [`EvalError::Parameter`] for a template that Python refuses, or a match that gives up.
    pub(crate) fn substitute(&self, template: &str, text: &str) -> Result<String, EvalError> {
        let template = parse_template(template)?;
        let mut out = String::new();
        let mut copied = 0;
        let mut search = 0;
        while search <= text.len() {
            let found = self.regex.captures_from_pos(text, search).map_err(|error| gave_up(&error))?;
            let Some(captures) = found else { break };
            let Some(whole) = captures.get(0) else { break };
            out.push_str(text.get(copied..whole.start()).unwrap_or(""));
            expand(&template, &captures, &mut out)?;
            copied = whole.end();
            search = if whole.end() > whole.start() { whole.end() } else { next_char(text, whole.end()) };
            if out.len() > SUBSTITUTED_BYTES_MAX {
                return Err(EvalError::Parameter(format!(
                    "substituted name exceeds {SUBSTITUTED_BYTES_MAX} bytes"
                )));
            }
        }
        out.push_str(text.get(copied..).unwrap_or(""));
        Ok(out)
    }
}

fn gave_up(error: &fancy_regex::Error) -> EvalError {
    EvalError::Parameter(format!("regex failed: {error}"))
}

/// Start of the character after `at`; past the end if there is none.
fn next_char(text: &str, at: usize) -> usize {
    at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
}

/// Part of a template.
enum Part {
    Text(String),
    Group(usize),
    Named(String),
}

fn parse_template(template: &str) -> Result<Vec<Part>, EvalError> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        let invalid = || EvalError::Parameter(format!("bad escape in replacement '{template}'"));
        let group = match chars.next().ok_or_else(invalid)? {
            'g' => {
                let reference: String = chars.by_ref().skip(1).take_while(|c| *c != '>').collect();
                Some(reference.parse().map_or(Part::Named(reference), Part::Group))
            }
            digit @ '1'..='9' => {
                let mut number = digit.to_string();
                number.extend(chars.next_if(char::is_ascii_digit));
                Some(Part::Group(number.parse().map_err(|_| invalid())?))
            }
            escaped => {
                let mut verbatim = None;
                text.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'a' => '\x07',
                    'b' => '\x08',
                    'f' => '\x0c',
                    'v' => '\x0b',
                    '0' => '\0',
                    '\\' => '\\',
                    letter if letter.is_ascii_alphabetic() => return Err(invalid()),
                    other => {
                        verbatim = Some(other);
                        '\\'
                    }
                });
                text.extend(verbatim);
                None
            }
        };
        if let Some(group) = group {
            parts.push(Part::Text(std::mem::take(&mut text)));
            parts.push(group);
        }
    }
    parts.push(Part::Text(text));
    Ok(parts)
}

fn expand(template: &[Part], captures: &Captures<'_, str>, out: &mut String) -> Result<(), EvalError> {
    for part in template {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Group(idx) if *idx >= captures.len() => {
                return Err(EvalError::Parameter(format!("invalid group reference {idx} in replacement")));
            }
            Part::Group(idx) => out.push_str(captures.get(*idx).map_or("", |group| group.as_str())),
            Part::Named(name) => out.push_str(captures.name(name).map_or("", |group| group.as_str())),
        }
    }
    Ok(())
}

/// Rewrites what Python reads differently: a `[` within a class, `\Z`, braces that are no repetition.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut class_start: Option<usize> = None;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or("");
        let mut taken = c.len_utf8();
        match (c, class_start) {
            ('\\', None) if after.starts_with('Z') => {
                out.push_str("\\z");
                taken += 1;
            }
            ('\\', _) => {
                let next = after.chars().next();
                out.push('\\');
                out.extend(next);
                taken += next.map_or(0, char::len_utf8);
            }
            ('[', None) => {
                out.push('[');
                class_start = Some(out.len());
                if let Some(negated) = after.strip_prefix('^') {
                    out.push('^');
                    taken += after.len() - negated.len();
                    class_start = Some(out.len());
                }
            }
            (']', Some(start)) if out.len() > start => {
                out.push(']');
                class_start = None;
            }
            ('[' | ']' | '&' | '~', Some(_)) => {
                out.push('\\');
                out.push(c);
            }
            ('{', None) if !is_repetition(after) => out.push_str("\\{"),
            ('{', None) if after.starts_with(',') => out.push_str("{0"),
            ('}', None) if !ends_repetition(&out) => out.push_str("\\}"),
            _ => out.push(c),
        }
        rest = rest.get(taken..).unwrap_or("");
    }
    out
}

/// Returns true if the text after `{` is `m}`, `m,}`, `,n}` or `m,n}`.
fn is_repetition(after: &str) -> bool {
    let Some((inner, _)) = after.split_once('}') else { return false };
    inner.bytes().any(|b| b.is_ascii_digit())
        && inner.bytes().all(|b| b.is_ascii_digit() || b == b',')
        && inner.matches(',').count() <= 1
}

fn ends_repetition(out: &str) -> bool {
    let body = out.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',');
    body.ends_with('{') && !body.ends_with("\\{")
}

#[cfg(test)]
mod tests;
