//! storage-aggregation.conf: rules from path to the methods of roll-ups and xFilesFactor.
//!
//! Invariants: sections are tried in the order of the file; a path without a rule has carbon's defaults.
//! Queries use the first method of Metrictank's lists unless they ask for another.
//! Not here: roll-ups.

use std::fmt;

use super::error::{ConfigError, Note};
use super::ini::{self, Entry, Section};
use super::pattern::Pattern;

/// Part of the points of an interval that must be there, if a rule has no xFilesFactor.
pub const X_FILES_FACTOR_DEFAULT: f64 = 0.5;

/// Keys that have an effect.
const KEYS: [&str; 3] = ["pattern", "xfilesfactor", "aggregationmethod"];

/// Method that makes one point of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregationMethod {
    /// Sum by count of the points that are there.
    Average,
    /// Sum of the points.
    Sum,
    /// Smallest point.
    Min,
    /// Largest point.
    Max,
    /// Newest point.
    Last,
    /// Oldest point.
    First,
    /// Number of points.
    Count,
    /// Sum by the number of points that the interval could have.
    AverageZero,
    /// Point of the largest magnitude.
    AbsMax,
    /// Point of the smallest magnitude.
    AbsMin,
}

/// Methods by their names in files. The first name of a method is its own.
const METHODS: [(&str, AggregationMethod); 11] = [
    ("average", AggregationMethod::Average),
    ("avg", AggregationMethod::Average),
    ("sum", AggregationMethod::Sum),
    ("min", AggregationMethod::Min),
    ("max", AggregationMethod::Max),
    ("last", AggregationMethod::Last),
    ("first", AggregationMethod::First),
    ("count", AggregationMethod::Count),
    ("avg_zero", AggregationMethod::AverageZero),
    ("absmax", AggregationMethod::AbsMax),
    ("absmin", AggregationMethod::AbsMin),
];

impl AggregationMethod {
    /// Returns the name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for AggregationMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One rule.
#[derive(Debug)]
pub struct AggregationRule {
    name: String,
    pattern: Pattern,
    methods: Vec<AggregationMethod>,
    x_files_factor: f64,
}

impl AggregationRule {
    /// Name of the section.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Pattern as in the file.
    #[must_use]
    pub fn pattern(&self) -> &str {
        self.pattern.source()
    }

    /// Methods, at least one and each once, the default of queries first.
    #[must_use]
    pub fn methods(&self) -> &[AggregationMethod] {
        &self.methods
    }

    /// Part of the points that must be there, from 0 to 1.
    #[must_use]
    pub fn x_files_factor(&self) -> f64 {
        self.x_files_factor
    }
}

/// The rules of a file, in order.
#[derive(Debug, Default)]
pub struct AggregationRules {
    rules: Vec<AggregationRule>,
}

impl AggregationRules {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`] for all that carbon does not start with: syntax, patterns, methods, factors outside of
    /// 0 to 1.
    pub fn parse(text: &str) -> Result<(AggregationRules, Vec<Note>), ConfigError> {
        let mut found = AggregationRules::default();
        let mut notes = Vec::new();
        for section in ini::parse(text)? {
            found.rules.extend(rule_of(&section, &mut notes)?);
        }
        Ok((found, notes))
    }

    /// Returns the first rule whose pattern is found in a canonical path ([`super::canonical_path`]).
    #[must_use]
    pub fn match_path(&self, path: &str) -> Option<&AggregationRule> {
        self.rules.iter().find(|rule| rule.pattern.is_match(path))
    }

    /// All rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[AggregationRule] {
        &self.rules
    }

    /// Searches that were given up because a pattern took too many steps.
    #[must_use]
    pub fn exceeded_count(&self) -> u64 {
        self.rules.iter().map(|rule| rule.pattern.exceeded_count()).sum()
    }
}

/// Reads a section; `None` if carbon skips it.
fn rule_of(section: &Section, notes: &mut Vec<Note>) -> Result<Option<AggregationRule>, ConfigError> {
    let fail = |entry: &Entry, what: &str| ConfigError::in_section(entry.line, &section.name, what);
    let methods = match section.entry("aggregationmethod") {
        Some(entry) => methods_of(&entry.value).map_err(|what| fail(entry, &what))?,
        None => vec![AggregationMethod::Average],
    };
    let x_files_factor = match section.entry("xfilesfactor") {
        None => X_FILES_FACTOR_DEFAULT,
        Some(entry) => match super::float::parse(entry.value.as_bytes()) {
            Some(factor) if (0.0..=1.0).contains(&factor) => factor,
            Some(factor) => {
                return Err(fail(entry, &format!("xFilesFactor: expected 0 to 1, found {factor}")));
            }
            None => {
                let what = format!("is skipped: xFilesFactor {:?} is not a number", entry.value);
                notes.push(Note::in_section(entry.line, &section.name, &what));
                return Ok(None);
            }
        },
    };
    let Some(pattern) = section.entry("pattern").filter(|pattern| !pattern.value.is_empty()) else {
        notes.push(Note::in_section(section.line, &section.name, "has no pattern and is skipped"));
        return Ok(None);
    };
    let compiled = Pattern::new(&pattern.value).map_err(|what| fail(pattern, &what))?;
    for entry in section.entries.iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
        notes.push(Note::in_section(entry.line, &section.name, &format!("key {} is ignored", entry.key)));
    }
    Ok(Some(AggregationRule { name: section.name.clone(), pattern: compiled, methods, x_files_factor }))
}

/// Reads a list separated by commas; the error is a sentence for the operator.
fn methods_of(text: &str) -> Result<Vec<AggregationMethod>, String> {
    let mut methods = Vec::new();
    for name in text.split(',').map(str::trim) {
        let Some((_, method)) = METHODS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = METHODS.iter().map(|(known, _)| *known).collect();
            return Err(format!("aggregationMethod: expected one of {}, found {name:?}", known.join(", ")));
        };
        if !methods.contains(method) {
            methods.push(*method);
        }
    }
    Ok(methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> String {
        let (found, notes) = match AggregationRules::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return format!("error: {error}"),
        };
        let mut out = Vec::new();
        for rule in found.rules() {
            let methods: Vec<&str> = rule.methods().iter().map(|method| method.name()).collect();
            out.push(format!(
                "{} {} -> {} {}",
                rule.name(),
                rule.pattern(),
                methods.join(","),
                rule.x_files_factor()
            ));
        }
        out.extend(notes.iter().map(|note| format!("note {}: {}", note.line, note.what)));
        out.join("\n")
    }

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        assert_eq!(render(text), want.join("\n"), "{text}");
    }

    #[test]
    fn files_are_rules_in_order() {
        check(
            "[min]\npattern = \\.min$\nxFilesFactor = 0.1\naggregationMethod = min\n\
             [count]\npattern = \\.count$\nxfilesfactor = 0\naggregationmethod = sum\n[d]\npattern = .*",
            &["min \\.min$ -> min 0.1", "count \\.count$ -> sum 0", "d .* -> average 0.5"],
        );
        check(
            "[a]\npattern = .*\naggregationMethod = avg,min,max , sum,last,first,count,absmax,absmin,avg_zero,average",
            &["a .* -> average,min,max,sum,last,first,count,absmax,absmin,avg_zero 0.5"],
        );
    }

    #[test]
    fn sections_that_carbon_skips_are_notes() {
        check(
            "[a]\nxFilesFactor = 0.5\n[b]\npattern = b\nxFilesFactor = half\n[c]\npattern = c\nretentions = 1:1",
            &[
                "c c -> average 0.5",
                "note 1: section [a]: has no pattern and is skipped",
                "note 5: section [b]: is skipped: xFilesFactor \"half\" is not a number",
                "note 8: section [c]: key retentions is ignored",
            ],
        );
    }

    #[test]
    fn errors_name_line_section_and_expectation() {
        let known = "average, avg, sum, min, max, last, first, count, avg_zero, absmax, absmin";
        for found in ["median", "", "Sum"] {
            check(
                &format!("[a]\npattern = a\naggregationMethod = {found}"),
                &[&format!(
                    "error: line 3: section [a]: aggregationMethod: expected one of {known}, found {found:?}"
                )],
            );
        }
        for found in ["1.5", "-0.1", "inf"] {
            check(
                &format!("[a]\npattern = a\nxFilesFactor = {found}"),
                &[&format!("error: line 3: section [a]: xFilesFactor: expected 0 to 1, found {found}")],
            );
        }
    }

    #[test]
    fn the_first_pattern_that_is_found_decides() {
        let text =
            "[c]\npattern = \\.count$\naggregationMethod = sum\n[all]\npattern = .*\naggregationMethod = max";
        let (rules, _) = AggregationRules::parse(text).expect("a valid file");
        assert_eq!(rules.match_path("a.count").map(AggregationRule::name), Some("c"));
        assert_eq!(rules.match_path("a.count.b").map(AggregationRule::name), Some("all"));
        assert!(AggregationRules::default().match_path("a").is_none());
        assert_eq!(rules.exceeded_count(), 0);
    }
}
