//! Rewrite rules: a path becomes another name with labels, or is dropped, before it is stored.
//!
//! The file has the form of storage-schemas.conf. A section has `pattern`, searched in the name of the path
//! without its tags, and either `action = drop`, or `name` (a template) and `labels` (lines of `tag:
//! template`) or one of both:
//!
//! ```ini
//! [web]
//! pattern = ^servers\.(?P<dc>[^.]+)\.(web\d+)\.(.+)$
//! name = \3
//! labels =
//!   dc: ${dc}
//!   host: \2
//! ```
//!
//! Invariants: the first section whose pattern is found applies, and no other; tags of the path stay, unless
//! a label has the same name; a label that expands to nothing removes the tag. Rules run once per path and
//! [`Rewriter`], not per point. Not here: labels of the result (`key`).

mod template;

use std::borrow::Cow;
use std::sync::Arc;

use chronolith_base::hash::{FixedState, HashMap};
use chronolith_model::METRIC_NAME;

use super::error::{ConfigError, Note};
use super::ini::{self, Entry, Section};
use super::key::{ParsedPath, PathTag};
use super::limits::LINE_BYTES_MAX;
use super::pattern::Pattern;
use super::refused::RefusedReason;

use template::Template;

/// Labels of a rule at most.
const LABEL_COUNT_MAX: usize = 32;
/// Paths that a rewriter remembers at most.
const CACHED_COUNT_MAX: usize = 1 << 18;
/// Bytes of the paths and results that a rewriter remembers at most.
const CACHED_BYTES_MAX: usize = 64 << 20;
/// Keys that have an effect.
const KEYS: [&str; 4] = ["pattern", "name", "labels", "action"];

/// Effect of the rules on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewriteOutcome {
    /// No rule applies.
    Same,
    /// The canonical path that the point is stored under.
    Path(String),
    /// The point is not stored: a rule drops it, or the result is no path.
    Refused(RefusedReason),
}

/// The rules of a file, in order.
#[derive(Debug, Default)]
pub struct RewriteRules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    section: String,
    pattern: Pattern,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Drop,
    Rename { name: Option<Template>, labels: Vec<Label> },
}

#[derive(Debug)]
struct Label {
    name: String,
    value: Template,
}

impl RewriteRules {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`] for syntax, patterns, templates with groups that the pattern does not have, label
    /// names that tags cannot have, and sections without an effect.
    pub fn parse(text: &str) -> Result<(RewriteRules, Vec<Note>), ConfigError> {
        let mut found = RewriteRules::default();
        let mut notes = Vec::new();
        for section in ini::parse(text)? {
            found.rules.push(rule_of(&section)?);
            for entry in section.entries.iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
                let what = format!("key {} is ignored", entry.key);
                notes.push(Note::in_section(entry.line, &section.name, &what));
            }
        }
        Ok((found, notes))
    }

    /// Returns the effect on a path, and the section that has it. Cost: one search per rule.
    #[must_use]
    pub fn apply(&self, path: &str) -> (RewriteOutcome, Option<&str>) {
        let parsed = ParsedPath::new(path);
        for rule in &self.rules {
            let Some(captures) = rule.pattern.captures(&parsed.name) else { continue };
            let outcome = match &rule.action {
                Action::Drop => RewriteOutcome::Refused(RefusedReason::DroppedByRule),
                Action::Rename { name, labels } => {
                    let name = name.as_ref().map(|template| template.expand(&captures));
                    let values = labels.iter().map(|label| label.value.expand(&captures)).collect();
                    renamed(&parsed, name.as_deref(), labels, values)
                }
            };
            return (outcome, Some(&rule.section));
        }
        (RewriteOutcome::Same, None)
    }

    /// Searches that were given up because a pattern took too many steps.
    #[must_use]
    pub fn exceeded_count(&self) -> u64 {
        self.rules.iter().map(|rule| rule.pattern.exceeded_count()).sum()
    }
}

/// Returns the path of a name and the labels in place of the tags that have their names.
fn renamed(
    parsed: &ParsedPath<'_>,
    name: Option<&str>,
    labels: &[Label],
    values: Vec<String>,
) -> RewriteOutcome {
    let name = name.unwrap_or(&parsed.name);
    let is_replaced = |tag: &&PathTag<'_>| labels.iter().any(|label| label.name == tag.name);
    let kept = parsed.tags.iter().filter(|tag| !is_replaced(tag));
    let mut tags: Vec<PathTag<'_>> =
        kept.map(|tag| PathTag { name: tag.name, value: Cow::Borrowed(&*tag.value) }).collect();
    for (label, value) in labels.iter().zip(values) {
        // Values of tags do not start with a tilde.
        let value = value.trim_start_matches('~');
        if !value.is_empty() {
            tags.push(PathTag { name: &label.name, value: Cow::Owned(value.to_owned()) });
        }
    }
    match ParsedPath::of_parts(name, tags) {
        Some(path) => match path.to_text() {
            text if text.len() > LINE_BYTES_MAX => RewriteOutcome::Refused(RefusedReason::LineTooLong),
            text => RewriteOutcome::Path(text),
        },
        None => RewriteOutcome::Refused(RefusedReason::EmptyPath),
    }
}

fn rule_of(section: &Section) -> Result<Rule, ConfigError> {
    let fail = |line: usize, what: &str| ConfigError::in_section(line, &section.name, what);
    let Some(pattern) = section.entry("pattern").filter(|pattern| !pattern.value.is_empty()) else {
        return Err(fail(section.line, "expected a pattern"));
    };
    let compiled = Pattern::new(&pattern.value).map_err(|what| fail(pattern.line, &what))?;
    let name = match section.entry("name") {
        None => None,
        Some(entry) => Some(Template::new(&entry.value, &compiled).map_err(|what| fail(entry.line, &what))?),
    };
    let labels = match section.entry("labels") {
        None => Vec::new(),
        Some(entry) => labels_of(entry, &compiled).map_err(|what| fail(entry.line, &what))?,
    };
    let renames = name.is_some() || !labels.is_empty();
    let action = match section.entry("action") {
        None if renames => Action::Rename { name, labels },
        None => return Err(fail(section.line, "expected name, labels or action = drop")),
        Some(entry) if entry.value != "drop" => {
            return Err(fail(entry.line, &format!("action: expected drop, found {:?}", entry.value)));
        }
        Some(entry) if renames => {
            return Err(fail(entry.line, "a section that drops has no name and labels"));
        }
        Some(_) => Action::Drop,
    };
    Ok(Rule { section: section.name.clone(), pattern: compiled, action })
}

/// Reads lines of `tag: template`.
fn labels_of(entry: &Entry, pattern: &Pattern) -> Result<Vec<Label>, String> {
    let mut labels: Vec<Label> = Vec::new();
    for line in entry.value.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((name, template)) = line.split_once([':', '=']) else {
            return Err(format!("labels: expected tag: template, found {line:?}"));
        };
        let name = name.trim();
        let is_reserved = name == "name" || name == METRIC_NAME;
        if name.is_empty() || is_reserved || name.contains([';', '!', '^']) {
            return Err(format!("labels: {name:?} cannot be the name of a tag"));
        }
        if labels.iter().any(|label| label.name == name) {
            return Err(format!("labels: {name:?} occurs twice"));
        }
        if labels.len() >= LABEL_COUNT_MAX {
            return Err(format!("labels: more than {LABEL_COUNT_MAX}"));
        }
        labels.push(Label { name: name.to_owned(), value: Template::new(template.trim(), pattern)? });
    }
    Ok(labels)
}

/// Rules with a cache of their results, for one listener or worker.
pub struct Rewriter {
    rules: Arc<RewriteRules>,
    cache: HashMap<Box<[u8]>, RewriteOutcome>,
    cached_bytes: usize,
}

/// Borrowed form of [`RewriteOutcome`].
pub(super) enum Rewritten<'a> {
    Same,
    Path(&'a [u8]),
    Refused(RefusedReason),
}

impl Rewriter {
    /// A rewriter with an empty cache. `seed` is random: clients choose the paths.
    #[must_use]
    pub fn new(rules: Arc<RewriteRules>, seed: u64) -> Rewriter {
        let cache = HashMap::with_hasher(FixedState::with_seed(seed));
        Rewriter { rules, cache, cached_bytes: 0 }
    }

    /// Uses other rules from the next path on.
    pub fn set_rules(&mut self, rules: Arc<RewriteRules>) {
        self.rules = rules;
        self.forget();
    }

    /// Bytes of the cache: paths and results, without the table.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.cached_bytes
    }

    fn forget(&mut self) {
        self.cache.clear();
        self.cached_bytes = 0;
    }

    /// Returns the effect on a path that was checked.
    pub(super) fn rewrite(&mut self, path: &[u8]) -> Rewritten<'_> {
        if !self.cache.contains_key(path) {
            self.insert(path);
        }
        match self.cache.get(path) {
            Some(RewriteOutcome::Path(path)) => Rewritten::Path(path.as_bytes()),
            Some(RewriteOutcome::Refused(reason)) => Rewritten::Refused(*reason),
            Some(RewriteOutcome::Same) | None => Rewritten::Same,
        }
    }

    #[cold]
    fn insert(&mut self, path: &[u8]) {
        let (outcome, _) = match std::str::from_utf8(path) {
            Ok(text) => self.rules.apply(text),
            Err(_) => (RewriteOutcome::Refused(RefusedReason::InvalidUtf8), None),
        };
        let result_bytes = if let RewriteOutcome::Path(path) = &outcome { path.len() } else { 0 };
        if self.cache.len() >= CACHED_COUNT_MAX || self.cached_bytes >= CACHED_BYTES_MAX {
            self.forget();
        }
        self.cached_bytes += path.len() + result_bytes;
        self.cache.insert(path.into(), outcome);
    }
}

#[cfg(test)]
mod tests;
