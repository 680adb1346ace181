//! Paths: wire key to labels, canonical path of a key and of labels.
//!
//! Invariants: paths that differ in the order of their tags, in repeated, leading or trailing dots, or in the
//! form of the tags (`m;a=b`, `m{a="b"}`) have the same labels and the same canonical path. A path whose tags
//! are not valid is a name as a whole, as in carbon: its points are not lost.
//! Not here: limits of a path (`points`), limits of labels (`head`).

use std::borrow::Cow;

use chronolith_model::{Labels, LabelsBuilder, METRIC_NAME, Reject, SeriesKey};

/// Tag that carbon reserves for the name of the metric.
const NAME_TAG: &str = "name";
/// Characters that tag names do not have, other than those that split a path.
const TAG_CHARS_REFUSED: [char; 2] = ['!', '^'];

/// A path split into its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedPath<'a> {
    /// Without repeated, leading and trailing dots; empty only for a path of dots.
    pub(super) name: Cow<'a, str>,
    /// In the order of the canonical path, each name once.
    pub(super) tags: Vec<PathTag<'a>>,
}

/// A tag of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathTag<'a> {
    pub(super) name: &'a str,
    pub(super) value: Cow<'a, str>,
}

/// Pushes the labels of a key: the name of the path as `__name__`, its tags under their names.
///
/// # Errors
/// [`Reject::InvalidUtf8`] for bytes that are not UTF-8, [`Reject::NoMetricName`] for a path of dots.
pub fn parse_key(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    let path = std::str::from_utf8(key.raw).map_err(|_| Reject::InvalidUtf8)?;
    let parsed = ParsedPath::new(path);
    if parsed.name.is_empty() {
        return Err(Reject::NoMetricName);
    }
    out.push(METRIC_NAME, &parsed.name);
    for tag in &parsed.tags {
        out.push(tag.name, &tag.value);
    }
    Ok(())
}

/// Returns the path as Graphite names the series: the name, then `;tag=value` in order. Patterns of the
/// configuration files match this text.
#[must_use]
pub fn canonical_path(path: &str) -> String {
    ParsedPath::new(path).to_text()
}

/// Returns the canonical path of a series by its labels; without a name it starts with the first tag.
#[must_use]
pub fn path_of_labels(labels: &Labels) -> String {
    let name = labels.metric_name().unwrap_or("");
    let tags = labels.iter().filter(|(tag, _)| *tag != METRIC_NAME);
    let mut parts: Vec<String> = tags.map(|(tag, value)| format!(";{tag}={value}")).collect();
    parts.sort_unstable();
    let mut path = name.to_owned();
    parts.iter().for_each(|part| path.push_str(part));
    path
}

impl<'a> ParsedPath<'a> {
    pub(super) fn new(path: &'a str) -> ParsedPath<'a> {
        let bare = if path.contains(';') { path } else { path.trim_matches('.') };
        let tagged = if has_brace_form(bare) { brace_tags(bare) } else { semicolon_tags(path) };
        tagged.unwrap_or_else(|| ParsedPath { name: collapse_dots(path), tags: Vec::new() })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = self.name.clone().into_owned();
        for tag in &self.tags {
            text.push(';');
            text.push_str(tag.name);
            text.push('=');
            text.push_str(&tag.value);
        }
        text
    }

    /// A path of a name and tags in the order of the path; `None` if the name is empty.
    pub(super) fn of_parts(name: &'a str, mut tags: Vec<PathTag<'a>>) -> Option<ParsedPath<'a>> {
        // carbon removes `~`, which tag values may not start with, and whisper the dots.
        let name = collapse_dots(name.trim_start_matches(['~', '.']));
        if name.is_empty() {
            return None;
        }
        // The name of the metric and its label win over tags, and the last of equal tags over the others.
        tags.retain(|tag| tag.name != NAME_TAG && tag.name != METRIC_NAME);
        tags.reverse();
        tags.sort_by(|a, b| a.name.cmp(b.name));
        tags.dedup_by(|after, kept| after.name == kept.name);
        tags.sort_by(|a, b| canonical_order(a).cmp(canonical_order(b)));
        Some(ParsedPath { name, tags })
    }
}

/// Bytes by which tags are sorted: `name=value`, so that `a-=1` precedes `a=1`.
fn canonical_order<'t>(tag: &'t PathTag<'_>) -> impl Iterator<Item = &'t u8> {
    tag.name.as_bytes().iter().chain(b"=").chain(tag.value.as_bytes())
}

/// Splits `m;a=b;c=d`; `None` if a tag is not valid.
fn semicolon_tags(path: &str) -> Option<ParsedPath<'_>> {
    let mut segments = path.split(';');
    let name = segments.next()?;
    let mut tags = Vec::new();
    for segment in segments {
        let (tag, value) = segment.split_once('=')?;
        tags.push(valid_tag(tag, Cow::Borrowed(value))?);
    }
    let parsed = ParsedPath::of_parts(name, tags)?;
    // The canonical path is read again: by labels, and from other inputs.
    let has_other_tags = path.contains('{') && path.contains("\"}") && has_brace_form(&parsed.to_text());
    (!has_other_tags).then_some(parsed)
}

/// Returns true if a path is read as `m{a="b"}`.
fn has_brace_form(path: &str) -> bool {
    path.ends_with("\"}") && path.contains('{')
}

/// Splits `m{a="b",c="d"}`; `None` if it has another form or a tag is not valid.
fn brace_tags(path: &str) -> Option<ParsedPath<'_>> {
    let (name, rest) = path.strip_suffix('}')?.split_once('{')?;
    if name.contains(';') {
        return None;
    }
    let mut tags = Vec::new();
    let mut rest = rest;
    loop {
        let (tag, quoted) = rest.split_once("=\"")?;
        let end = closing_quote(quoted)?;
        tags.push(valid_tag(tag, unescape(quoted.get(..end)?))?);
        match quoted.get(end + 1..)? {
            "" => return ParsedPath::of_parts(name, tags),
            after => rest = after.strip_prefix(',')?,
        }
    }
}

/// Returns the offset of the first quote that no backslash escapes; a backslash escapes nothing else.
fn closing_quote(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' => {
                bytes.next().filter(|(_, escaped)| matches!(escaped, b'"' | b'\\'))?;
            }
            _ => {}
        }
    }
    None
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        out.push(if char == '\\' { chars.next().unwrap_or(char) } else { char });
    }
    Cow::Owned(out)
}

fn valid_tag<'a>(name: &'a str, value: Cow<'a, str>) -> Option<PathTag<'a>> {
    let has_valid_name = !name.is_empty() && !name.contains(['=', ';']) && !name.contains(TAG_CHARS_REFUSED);
    let has_valid_value = !value.is_empty() && !value.starts_with('~') && !value.contains(';');
    (has_valid_name && has_valid_value).then_some(PathTag { name, value })
}

/// Removes dots at both ends and all but one of neighbouring dots.
fn collapse_dots(name: &str) -> Cow<'_, str> {
    let trimmed = name.trim_matches('.');
    if !trimmed.contains("..") {
        return Cow::Borrowed(trimmed);
    }
    let nodes: Vec<&str> = trimmed.split('.').filter(|node| !node.is_empty()).collect();
    Cow::Owned(nodes.join("."))
}

#[cfg(test)]
mod tests;
