//! storage-schemas.conf: rules from path to archives and, for Metrictank's keys, to a reorder buffer.
//!
//! Invariants: sections are tried in the order of the file; the first whose pattern is found in the canonical
//! path is the rule. Sections that carbon skips with a log line are skipped with a note.
//! Not here: the default for paths without a rule, which the store has.

use super::error::{ConfigError, Note};
use super::ini::{self, Entry, Section};
use super::pattern::Pattern;
use super::retention::{Archive, check_archives, parse_retentions};

/// Points of a reorder buffer at most: 1 MiB per series.
const REORDER_POINTS_MAX: u32 = 1 << 16;
/// Keys that have an effect.
const KEYS: [&str; 4] = ["pattern", "retentions", "reorderbuffer", "reorderbufferallowupdate"];

/// Ring of the newest points of a series, in which out-of-order points are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReorderBuffer {
    /// Points of the first archive, at least 1.
    pub point_count: u32,
    /// Set if a point in the ring may be replaced by another value.
    pub allows_update: bool,
}

/// One rule.
#[derive(Debug)]
pub struct Schema {
    name: String,
    pattern: Pattern,
    archives: Vec<Archive>,
    reorder: Option<ReorderBuffer>,
}

impl Schema {
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

    /// Archives, at least one, the finest first.
    #[must_use]
    pub fn archives(&self) -> &[Archive] {
        &self.archives
    }

    /// Reorder buffer of the series, if the rule asks for one.
    #[must_use]
    pub fn reorder_buffer(&self) -> Option<ReorderBuffer> {
        self.reorder
    }
}

/// The rules of a file, in order.
#[derive(Debug, Default)]
pub struct Schemas {
    rules: Vec<Schema>,
}

impl Schemas {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`] for all that carbon does not start with: syntax, patterns, retentions, and wrong
    /// values of Metrictank's keys.
    pub fn parse(text: &str) -> Result<(Schemas, Vec<Note>), ConfigError> {
        let mut schemas = Schemas::default();
        let mut notes = Vec::new();
        for section in ini::parse(text)? {
            schemas.rules.extend(schema_of(&section, &mut notes)?);
        }
        Ok((schemas, notes))
    }

    /// Returns the first rule whose pattern is found in a canonical path ([`super::canonical_path`]).
    #[must_use]
    pub fn match_path(&self, path: &str) -> Option<&Schema> {
        self.rules.iter().find(|rule| rule.pattern.is_match(path))
    }

    /// All rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Schema] {
        &self.rules
    }

    /// Searches that were given up because a pattern took too many steps.
    #[must_use]
    pub fn exceeded_count(&self) -> u64 {
        self.rules.iter().map(|rule| rule.pattern.exceeded_count()).sum()
    }
}

/// Reads a section; `None` if carbon skips it.
fn schema_of(section: &Section, notes: &mut Vec<Note>) -> Result<Option<Schema>, ConfigError> {
    let Some(retentions) = section.entry("retentions") else {
        notes.push(Note::in_section(section.line, &section.name, "has no retentions and is skipped"));
        return Ok(None);
    };
    let fail = |entry: &Entry, what: &str| ConfigError::in_section(entry.line, &section.name, what);
    let found = parse_retentions(&retentions.value).map_err(|what| fail(retentions, &what))?;
    let Some(pattern) = section.entry("pattern").filter(|pattern| !pattern.value.is_empty()) else {
        notes.push(Note::in_section(section.line, &section.name, "has no pattern and is skipped"));
        return Ok(None);
    };
    let compiled = Pattern::new(&pattern.value).map_err(|what| fail(pattern, &what))?;
    let reorder = reorder_buffer(section)?;
    if found.has_chunk_fields {
        let what = "chunk spans of Metrictank are ignored";
        notes.push(Note::in_section(retentions.line, &section.name, what));
    }
    for entry in section.entries.iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
        let what = match entry.key.as_str() {
            "priority" => "priority is ignored: the order of the sections decides".to_owned(),
            key => format!("key {key} is ignored"),
        };
        notes.push(Note::in_section(entry.line, &section.name, &what));
    }
    if let Err(what) = check_archives(&found.archives) {
        notes.push(Note::in_section(retentions.line, &section.name, &format!("is skipped: {what}")));
        return Ok(None);
    }
    Ok(Some(Schema { name: section.name.clone(), pattern: compiled, archives: found.archives, reorder }))
}

fn reorder_buffer(section: &Section) -> Result<Option<ReorderBuffer>, ConfigError> {
    let fail = |entry: &Entry, what: String| ConfigError::in_section(entry.line, &section.name, &what);
    let allows_update = match section.entry("reorderbufferallowupdate") {
        None => false,
        Some(entry) => match entry.value.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => true,
            "false" | "f" | "0" => false,
            found => {
                let what = format!("reorderBufferAllowUpdate: expected true or false, found {found:?}");
                return Err(fail(entry, what));
            }
        },
    };
    let Some(entry) = section.entry("reorderbuffer") else { return Ok(None) };
    let count: Option<u32> = entry.value.parse().ok().filter(|count| *count <= REORDER_POINTS_MAX);
    match count {
        None => Err(fail(
            entry,
            format!(
                "reorderBuffer: expected a number of points up to {REORDER_POINTS_MAX}, found {:?}",
                entry.value
            ),
        )),
        Some(0) => Ok(None),
        Some(point_count) => Ok(Some(ReorderBuffer { point_count, allows_update })),
    }
}

#[cfg(test)]
mod tests;
