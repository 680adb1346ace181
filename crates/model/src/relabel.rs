//! Relabelling: rules that change, keep or drop a label set, as in `relabel_configs` of Prometheus 3.16.
//!
//! Invariants: a rule is accepted exactly if Prometheus accepts it with UTF-8 names; rules apply in order,
//! each to the result of the one before.
//! Not here: the YAML of rules (the reader of each file).

mod letter_case;
#[cfg(test)]
mod tests;

use md5::{Digest as _, Md5};

use crate::quote::write_quoted;
use crate::regex::{GoRegex, RegexError};
use crate::{Labels, LabelsBuilder};

/// Separator of source labels.
const DEFAULT_SEPARATOR: &str = ";";
/// Regex that matches every text.
const DEFAULT_REGEX: &str = "(.*)";
/// Replacement by the whole text.
const DEFAULT_REPLACEMENT: &str = "$1";

/// Fields of a rule as they are written; `None` and 0 for absent ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelabelFields {
    /// Labels whose values are joined to the text that the rule examines.
    pub source_labels: Option<Vec<String>>,
    /// Text between these values.
    pub separator: Option<String>,
    /// Regex of the whole text, or of a label name for actions on names.
    pub regex: Option<String>,
    /// Divisor of `hashmod`.
    pub modulus: u64,
    /// Label that is set, or compared.
    pub target_label: String,
    /// Template of the new value, or of the new name for `labelmap`.
    pub replacement: Option<String>,
    /// Name of the action, in any case of letters.
    pub action: Option<String>,
}

/// Fault of a rule. Texts are Prometheus's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelabelError {
    /// The fields do not fit each other or the action.
    #[error("{0}")]
    Fields(String),
    /// The regex cannot be used.
    #[error("{0}")]
    Regex(RegexError),
}

/// A checked rule.
#[derive(Debug)]
pub struct RelabelRule {
    fields: RelabelFields,
    action: Action,
    regex: GoRegex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Replace,
    Keep,
    Drop,
    KeepEqual,
    DropEqual,
    HashMod,
    LabelMap,
    LabelDrop,
    LabelKeep,
    Lowercase,
    Uppercase,
}

impl Action {
    const ALL: [Action; 11] = [
        Action::Replace,
        Action::Keep,
        Action::Drop,
        Action::KeepEqual,
        Action::DropEqual,
        Action::HashMod,
        Action::LabelMap,
        Action::LabelDrop,
        Action::LabelKeep,
        Action::Lowercase,
        Action::Uppercase,
    ];

    fn name(self) -> &'static str {
        match self {
            Action::Replace => "replace",
            Action::Keep => "keep",
            Action::Drop => "drop",
            Action::KeepEqual => "keepequal",
            Action::DropEqual => "dropequal",
            Action::HashMod => "hashmod",
            Action::LabelMap => "labelmap",
            Action::LabelDrop => "labeldrop",
            Action::LabelKeep => "labelkeep",
            Action::Lowercase => "lowercase",
            Action::Uppercase => "uppercase",
        }
    }

    fn named(name: &str) -> Option<Action> {
        let lower = name.to_lowercase();
        Action::ALL.into_iter().find(|action| action.name() == lower)
    }
}

impl PartialEq for RelabelRule {
    fn eq(&self, other: &RelabelRule) -> bool {
        self.fields == other.fields
    }
}

impl RelabelRule {
    /// Checks the fields and compiles the regex.
    ///
    /// # Errors
    /// [`RelabelError`].
    pub fn new(fields: RelabelFields) -> Result<RelabelRule, RelabelError> {
        let action = match &fields.action {
            None => Action::Replace,
            Some(name) => Action::named(name)
                .ok_or_else(|| RelabelError::Fields(format!("unknown relabel action {}", quoted(name))))?,
        };
        if fields.source_labels.iter().flatten().any(String::is_empty) {
            return Err(RelabelError::Fields("\"\" is not a valid label name".to_owned()));
        }
        let regex =
            GoRegex::new(fields.regex.as_deref().unwrap_or(DEFAULT_REGEX)).map_err(RelabelError::Regex)?;
        let rule = RelabelRule { fields, action, regex };
        rule.check().map_err(RelabelError::Fields)?;
        Ok(rule)
    }

    fn check(&self) -> Result<(), String> {
        let RelabelFields { source_labels, separator, regex, modulus, target_label, .. } = &self.fields;
        let action = self.action;
        let name = action.name();
        let has_separator = separator.as_deref().unwrap_or(DEFAULT_SEPARATOR) != DEFAULT_SEPARATOR;
        let has_replacement = self.replacement() != DEFAULT_REPLACEMENT;
        let compares = matches!(action, Action::KeepEqual | Action::DropEqual);
        let changes_case = matches!(action, Action::Lowercase | Action::Uppercase);
        let needs_target = compares || changes_case || matches!(action, Action::Replace | Action::HashMod);
        if action == Action::HashMod && *modulus == 0 {
            return Err("relabel configuration for hashmod requires non-zero modulus".to_owned());
        }
        if needs_target && target_label.is_empty() {
            return Err(format!("relabel configuration for {name} action requires 'target_label' value"));
        }
        if (compares || changes_case) && has_replacement {
            return Err(format!("'replacement' can not be set for {name} action"));
        }
        if action == Action::LabelMap && self.replacement().is_empty() {
            return Err(format!("\"\" is invalid 'replacement' for {name} action"));
        }
        if compares && (regex.is_some() || *modulus != 0 || has_separator) {
            return Err(format!(
                "{name} action requires only 'source_labels' and `target_label`, and no other fields"
            ));
        }
        let drops_names = matches!(action, Action::LabelDrop | Action::LabelKeep);
        let has_others = source_labels.is_some() || !target_label.is_empty() || *modulus != 0;
        if drops_names && (has_others || has_separator || has_replacement) {
            return Err(format!("{name} action requires only 'regex', and no other fields"));
        }
        Ok(())
    }

    fn replacement(&self) -> &str {
        self.fields.replacement.as_deref().unwrap_or(DEFAULT_REPLACEMENT)
    }

    /// The values of the source labels, joined.
    fn source(&self, labels: &LabelsBuilder) -> String {
        let separator = self.fields.separator.as_deref().unwrap_or(DEFAULT_SEPARATOR);
        let names = self.fields.source_labels.as_deref().unwrap_or_default();
        let values: Vec<&str> = names.iter().map(|name| labels.get(name).unwrap_or("")).collect();
        values.join(separator)
    }

    /// Applies the rule. Returns false if it drops the label set.
    fn apply(&self, labels: &mut LabelsBuilder) -> bool {
        let target = self.fields.target_label.as_str();
        let source = self.source(labels);
        match self.action {
            Action::Drop => return !self.regex.is_match(&source),
            Action::Keep => return self.regex.is_match(&source),
            Action::DropEqual => return labels.get(target).unwrap_or("") != source,
            Action::KeepEqual => return labels.get(target).unwrap_or("") == source,
            Action::Replace => self.replace(&source, labels),
            Action::Lowercase => labels.set(target, &letter_case::lower(&source)),
            Action::Uppercase => labels.set(target, &letter_case::upper(&source)),
            Action::HashMod => labels.set(target, &(hash(&source) % self.fields.modulus).to_string()),
            Action::LabelMap => self.map_names(labels),
            Action::LabelDrop => self.remove_names(true, labels),
            Action::LabelKeep => self.remove_names(false, labels),
        }
        true
    }

    fn replace(&self, source: &str, labels: &mut LabelsBuilder) {
        let Some(target) = self.regex.captures_expand(source, &self.fields.target_label) else { return };
        if target.is_empty() {
            return;
        }
        let value = self.regex.captures_expand(source, self.replacement()).unwrap_or_default();
        labels.set(&target, &value);
    }

    fn map_names(&self, labels: &mut LabelsBuilder) {
        let mapped: Vec<(String, String)> = labels
            .iter()
            .filter_map(|(name, value)| {
                Some((self.regex.captures_expand(name, self.replacement())?, value.to_owned()))
            })
            .collect();
        for (name, value) in mapped {
            labels.set(&name, &value);
        }
    }

    /// Removes the labels whose names match, or those whose names do not.
    fn remove_names(&self, matching: bool, labels: &mut LabelsBuilder) {
        let removed: Vec<String> = labels
            .iter()
            .filter(|(name, _)| self.regex.is_match(name) == matching)
            .map(|(name, _)| name.to_owned())
            .collect();
        removed.iter().for_each(|name| labels.remove(name));
    }
}

/// Applies rules in order. Returns false if one of them drops the label set.
pub fn relabel(rules: &[RelabelRule], labels: &mut LabelsBuilder) -> bool {
    rules.iter().all(|rule| rule.apply(labels))
}

/// Returns the label set after all rules; `None` if one of them drops it. Without rules, it is the same set.
#[must_use]
pub fn relabelled(rules: &[RelabelRule], labels: &Labels) -> Option<Labels> {
    if rules.is_empty() {
        return Some(labels.clone());
    }
    let mut builder = labels.to_builder();
    relabel(rules, &mut builder).then(|| builder.finish())
}

/// The second half of the MD5 sum, as Prometheus's `hashmod` takes it.
fn hash(text: &str) -> u64 {
    let sum = Md5::digest(text.as_bytes());
    sum.iter().skip(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    // A string takes everything.
    write_quoted(&mut out, text).unwrap_or_default();
    out
}
