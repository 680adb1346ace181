//! Templates of rewrite rules: text with the groups of a match, `\1`, `\g<name>` or `${name}`.
//!
//! Invariant: every group of a template exists in its pattern. Not here: rules (`rewrite`).

use fancy_regex::Captures;

use crate::carbon::pattern::Pattern;

/// Bytes of a template at most.
const TEMPLATE_BYTES_MAX: usize = 1024;
/// Groups of a template at most.
const GROUP_COUNT_MAX: usize = 32;

/// Text with groups of a match in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// Number of the group.
    Group(usize),
}

impl Template {
    /// Reads a template for the groups of `pattern`; the error is a sentence for the operator.
    pub(super) fn new(text: &str, pattern: &Pattern) -> Result<Template, String> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("template is longer than {TEMPLATE_BYTES_MAX} bytes"));
        }
        if text.contains(';') || text.contains(char::is_control) {
            return Err(format!("template {text:?} has a semicolon or a control character"));
        }
        let mut template = Template { parts: Vec::new() };
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '$']) {
            template.push_text(rest.get(..at).unwrap_or(""));
            rest = template.reference(rest.get(at..).unwrap_or(""), pattern)?;
        }
        template.push_text(rest);
        if template.parts.len() > 2 * GROUP_COUNT_MAX {
            return Err(format!("template {text:?} has more than {GROUP_COUNT_MAX} groups"));
        }
        Ok(template)
    }

    fn push_text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    /// Reads the reference or escape at the start of `text`; returns what follows it.
    fn reference<'t>(&mut self, text: &'t str, pattern: &Pattern) -> Result<&'t str, String> {
        let named = text.strip_prefix("${").map(|rest| (rest, '}'));
        let named = named.or_else(|| text.strip_prefix("\\g<").map(|rest| (rest, '>')));
        if let Some((rest, end)) = named {
            let (name, after) =
                rest.split_once(end).ok_or_else(|| format!("expected {end} after {text:?}"))?;
            self.push_group(name, pattern)?;
            return Ok(after);
        }
        let Some(rest) = text.strip_prefix('\\') else {
            self.push_text("$");
            return Ok(text.get(1..).unwrap_or(""));
        };
        let digit_count = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        if digit_count > 0 {
            let (digits, after) = rest.split_at(digit_count);
            self.push_group(digits, pattern)?;
            return Ok(after);
        }
        match rest.strip_prefix('\\') {
            Some(after) => {
                self.push_text("\\");
                Ok(after)
            }
            None => Err(format!("expected a group like \\1 or ${{name}}, found {text:?}")),
        }
    }

    fn push_group(&mut self, name: &str, pattern: &Pattern) -> Result<(), String> {
        let numbered = name.parse().ok().filter(|idx| *idx < pattern.group_count());
        let idx = numbered.or_else(|| pattern.group_idx(name));
        self.parts.push(Part::Group(idx.ok_or_else(|| format!("the pattern has no group {name:?}"))?));
        Ok(())
    }

    /// Returns the text for a match; groups that took no part are empty.
    pub(super) fn expand(&self, captures: &Captures<'_, str>) -> String {
        let mut out = String::new();
        for part in &self.parts {
            out.push_str(match part {
                Part::Text(text) => text,
                Part::Group(idx) => captures.get(*idx).map_or("", |group| group.as_str()),
            });
        }
        out
    }
}
