//! Names with tags: `name;key=value;...` and `name{key="value",...}`.
//!
//! Invariants: the canonical form sorts tags by key; the metric name is the tag `name`, without leading
//! `~`.
//! Not here: queries by tag (`storage::tag_query`).

use std::collections::BTreeMap;

/// Reason for a name without readable tags.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaggedNameError {
    /// Nothing before the first tag, or only `~`.
    #[error("cannot parse path {0}, no metric found")]
    NoMetric(String),
    /// A segment is not `key=value`.
    #[error("cannot parse path {path}, invalid segment {segment}")]
    Segment {
        /// The whole name.
        path: String,
        /// The segment.
        segment: String,
    },
    /// A key or value is empty or has a character that is not allowed.
    #[error("tag \"{key}\" with value \"{value}\" is not allowed")]
    Tag {
        /// Key of the tag.
        key: String,
        /// Value of the tag.
        value: String,
    },
}

/// A parsed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedName {
    /// Tags, `name` among them.
    pub tags: BTreeMap<String, String>,
}

impl TaggedName {
    /// Reads a name in either form.
    /// # Errors
    /// [`TaggedNameError`] if the metric is missing or a tag is malformed.
    pub fn parse(path: &str) -> Result<Self, TaggedNameError> {
        if path.ends_with("\"}")
            && let Some((metric, rest)) = path.split_once('{')
        {
            return parse_braces(path, metric, rest.strip_suffix('}').unwrap_or(rest));
        }
        let mut segments = path.split(';');
        let metric = segments.next().unwrap_or("");
        if metric.is_empty() {
            return Err(TaggedNameError::NoMetric(path.to_owned()));
        }
        let mut tags = BTreeMap::new();
        for segment in segments {
            let invalid = || TaggedNameError::Segment { path: path.to_owned(), segment: segment.to_owned() };
            let (key, value) = segment.split_once('=').ok_or_else(invalid)?;
            insert(&mut tags, key, value)?;
        }
        finish(path, metric, tags)
    }

    /// The canonical form: name, then `;key=value` in the order of that text.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut parts: Vec<String> = self
            .tags
            .iter()
            .filter(|(key, _)| *key != "name")
            .map(|(key, value)| format!(";{key}={value}"))
            .collect();
        parts.sort();
        self.tags.get("name").cloned().unwrap_or_default() + &parts.concat()
    }
}

fn parse_braces(path: &str, metric: &str, mut rest: &str) -> Result<TaggedName, TaggedNameError> {
    if metric.is_empty() {
        return Err(TaggedNameError::NoMetric(path.to_owned()));
    }
    let mut tags = BTreeMap::new();
    while !rest.is_empty() {
        let invalid = || TaggedNameError::Segment { path: path.to_owned(), segment: rest.to_owned() };
        let (key, after) = rest.split_once("=\"").ok_or_else(invalid)?;
        let end = closing_quote(after).ok_or_else(invalid)?;
        let value = after.get(..end).unwrap_or("").replace("\\\"", "\"").replace("\\\\", "\\");
        insert(&mut tags, key, &value)?;
        let after = after.get(end + 1..).unwrap_or("");
        let after = after.strip_prefix(':').unwrap_or(after);
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.is_empty() => "",
            None => return Err(invalid()),
        };
    }
    finish(path, metric, tags)
}

/// Offset of the first quote that no backslash precedes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next()?;
            }
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn insert(tags: &mut BTreeMap<String, String>, key: &str, value: &str) -> Result<(), TaggedNameError> {
    let is_allowed = !key.is_empty()
        && !value.is_empty()
        && !key.contains([';', '!', '^', '='])
        && !value.contains(';')
        && !value.starts_with('~');
    if !is_allowed {
        return Err(TaggedNameError::Tag { key: key.to_owned(), value: value.to_owned() });
    }
    tags.insert(key.to_owned(), value.to_owned());
    Ok(())
}

fn finish(
    path: &str,
    metric: &str,
    mut tags: BTreeMap<String, String>,
) -> Result<TaggedName, TaggedNameError> {
    let name = metric.trim_start_matches('~');
    if name.is_empty() {
        return Err(TaggedNameError::NoMetric(path.to_owned()));
    }
    tags.insert("name".to_owned(), name.to_owned());
    Ok(TaggedName { tags })
}

#[cfg(test)]
mod tests;
