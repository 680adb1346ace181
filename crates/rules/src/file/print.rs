//! YAML of groups, indented as by go-yaml 3, with which Mimir's API answers.
//!
//! Invariant: every text reads back as it was, by YAML 1.1 and 1.2: a text that one of them could take for
//! something else is quoted.

use std::fmt::Write as _;

use chronolith_model::duration::show_duration_ms;

use super::source::{GroupSource, RuleSource};

/// Blanks of one level.
const INDENT: usize = 4;

/// Plain texts that are bools or null in YAML 1.1, in lower case.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// Returns a rule file with these groups.
#[must_use]
pub fn file_yaml<'a>(groups: impl IntoIterator<Item = &'a GroupSource>) -> String {
    let mut yaml = Yaml::default();
    yaml.list("groups", 0, groups, Yaml::group);
    yaml.out
}

/// Returns a group.
#[must_use]
pub fn group_yaml(group: &GroupSource) -> String {
    let mut yaml = Yaml::default();
    yaml.group(group, 0);
    yaml.out
}

/// Returns a mapping of names to groups.
#[must_use]
pub fn namespaces_yaml<'a, G>(namespaces: impl IntoIterator<Item = (&'a str, G)>) -> String
where
    G: IntoIterator<Item = &'a GroupSource>,
{
    let mut yaml = Yaml::default();
    for (name, groups) in namespaces {
        yaml.list(name, 0, groups, Yaml::group);
    }
    if yaml.out.is_empty() {
        yaml.out.push_str("{}\n");
    }
    yaml.out
}

/// A document while it is written. A column is the number of blanks before a key.
#[derive(Default)]
struct Yaml {
    out: String,
    /// The next key follows `- `, on the same line.
    is_after_dash: bool,
}

/// Column of the values below a key in `column`.
fn below(column: usize) -> usize {
    (column / INDENT + 1) * INDENT
}

impl Yaml {
    fn group(&mut self, group: &GroupSource, column: usize) {
        self.text("name", &group.name, column);
        if group.interval_ms != 0 {
            self.duration("interval", group.interval_ms, column);
        }
        if let Some(offset_ms) = group.query_offset_ms {
            self.duration("query_offset", offset_ms, column);
        }
        if group.limit != 0 {
            self.key("limit", column);
            // Writing to a String cannot fail.
            let _ = writeln!(self.out, " {}", group.limit);
        }
        self.list("rules", column, &group.rules, Yaml::rule);
        self.map("labels", &group.labels, column);
    }

    fn rule(&mut self, rule: &RuleSource, column: usize) {
        for (key, text) in [("record", &rule.record), ("alert", &rule.alert)] {
            if !text.is_empty() {
                self.text(key, text, column);
            }
        }
        self.text("expr", &rule.expr, column);
        for (key, duration_ms) in [("for", rule.hold_ms), ("keep_firing_for", rule.keep_firing_ms)] {
            if duration_ms != 0 {
                self.duration(key, duration_ms, column);
            }
        }
        self.map("labels", &rule.labels, column);
        self.map("annotations", &rule.annotations, column);
    }

    /// Adds a key with a list of mappings.
    fn list<'a, T: 'a>(
        &mut self,
        key: &str,
        column: usize,
        items: impl IntoIterator<Item = &'a T>,
        put: fn(&mut Yaml, &T, usize),
    ) {
        self.key(key, column);
        let start = self.out.len();
        self.out.push('\n');
        let dash_column = below(column);
        let mut is_empty = true;
        for item in items {
            is_empty = false;
            self.blanks(dash_column);
            self.out.push_str("- ");
            self.is_after_dash = true;
            put(self, item, dash_column + 2);
        }
        if is_empty {
            self.out.truncate(start);
            self.out.push_str(" []\n");
        }
    }

    /// Adds a key with a mapping of texts, or nothing if there are none.
    fn map(&mut self, key: &str, pairs: &[(String, String)], column: usize) {
        if pairs.is_empty() {
            return;
        }
        self.key(key, column);
        self.out.push('\n');
        for (name, value) in pairs {
            self.text(name, value, below(column));
        }
    }

    fn duration(&mut self, key: &str, duration_ms: i64, column: usize) {
        self.key(key, column);
        let _ = writeln!(self.out, " {}", show_duration_ms(duration_ms));
    }

    fn text(&mut self, key: &str, text: &str, column: usize) {
        self.key(key, column);
        self.out.push(' ');
        if is_block(text) {
            self.block(text, below(column));
        } else {
            put_flow(&mut self.out, text);
            self.out.push('\n');
        }
    }

    fn key(&mut self, key: &str, column: usize) {
        if !std::mem::take(&mut self.is_after_dash) {
            self.blanks(column);
        }
        put_flow(&mut self.out, key);
        self.out.push(':');
    }

    /// Adds a text of several lines, as they are.
    fn block(&mut self, text: &str, column: usize) {
        let end = if text.ends_with('\n') { "|\n" } else { "|-\n" };
        self.out.push_str(end);
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            if !line.is_empty() {
                self.blanks(column);
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
    }

    fn blanks(&mut self, count: usize) {
        self.out.extend(std::iter::repeat_n(' ', count));
    }
}

/// Returns true if a text is written as a block: it has several lines, and none that a reader would change.
fn is_block(text: &str) -> bool {
    let lines = text.strip_suffix('\n').unwrap_or(text);
    let is_kept = |line: &str| !line.ends_with([' ', '\t']) && line.chars().all(is_printed);
    text.contains('\n')
        && !lines.is_empty()
        && !lines.starts_with([' ', '\t', '\n'])
        && !lines.ends_with('\n')
        && lines.split('\n').all(is_kept)
}

/// Returns true if a character stands for itself in quotes and blocks.
fn is_printed(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Appends a text of one line: plain, in single quotes, or in double quotes with escapes.
fn put_flow(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else if !text.is_empty() && text.chars().all(is_printed) {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    } else {
        put_double_quoted(out, text);
    }
}

/// Returns true if every reader takes a text without quotes for the same text.
fn is_plain(text: &str) -> bool {
    let is_word = |text: &str| WORDS.contains(&text.to_ascii_lowercase().as_str());
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(is_printed)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !is_word(text)
}

fn put_double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_printed(c) => out.push(c),
            c => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests;
