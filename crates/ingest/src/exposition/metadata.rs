//! Comments: `# TYPE`, `# HELP` and `# UNIT` become metadata of their metric family, others are skipped.
//!
//! Invariant: the last `# TYPE` determines the type at hand, as in Prometheus's parsers. Lines of one family
//! that follow each other become one entry.

use chronolith_model::{MetadataEntry, MetricKind};

use super::fault::{Fault, What};
use super::grammar::{Dialect, metric_name_end, quote_end};
use super::labels::{unescape, unescape_help};
use super::room::MetadataBytes;

/// Content of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comment<'a> {
    /// Type of a family.
    Type(&'a [u8], MetricKind),
    /// Help text of a family, not unescaped.
    Help(&'a [u8], &'a [u8]),
    /// Unit of a family.
    Unit(&'a [u8], &'a [u8]),
    /// `# EOF` of OpenMetrics.
    Eof,
    /// Comment without a meaning.
    Other,
}

/// Reads a comment: `line` starts with `#` and has no newline. Offsets of faults are offsets of the line.
pub(super) fn comment<D: Dialect>(line: &[u8]) -> Result<Comment<'_>, Fault> {
    let (keyword, name_start) = if D::IS_OPEN_METRICS {
        match open_metrics_keyword(line) {
            Some(Keyword::Eof) if line.len() > b"# EOF".len() => {
                return Err(Fault { at: b"# EOF".len(), what: What::DataAfterEof });
            }
            Some(keyword) => (keyword, b"# TYPE ".len()),
            None => return Err(Fault { at: 0, what: What::Start }),
        }
    } else {
        match text_keyword(line) {
            Some(found) => found,
            None => return Ok(Comment::Other),
        }
    };
    if keyword == Keyword::Eof {
        return Ok(Comment::Eof);
    }
    let name_end = family_end(line, name_start)?;
    let is_quoted = line.get(name_start) == Some(&b'"');
    let quote = usize::from(is_quoted);
    let name = line.get(name_start + quote..name_end - quote).unwrap_or(&[]);
    let text = text_of::<D>(line, name_end)?;
    let at = line.len() - text.len();
    match keyword {
        Keyword::Type => match kind::<D>(text) {
            Some(kind) => Ok(Comment::Type(name, kind)),
            None => Err(Fault { at, what: What::MetricType }),
        },
        Keyword::Help if std::str::from_utf8(text).is_err() => Err(Fault { at, what: What::HelpUtf8 }),
        Keyword::Help => Ok(Comment::Help(name, text)),
        _ => {
            let prefix = name.strip_suffix(text).and_then(|prefix| prefix.strip_suffix(b"_"));
            if prefix.is_none() && !text.is_empty() {
                return Err(Fault { at, what: What::Unit });
            }
            Ok(Comment::Unit(name, text))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keyword {
    Type,
    Help,
    Unit,
    Eof,
}

fn open_metrics_keyword(line: &[u8]) -> Option<Keyword> {
    let rest = line.strip_prefix(b"# ")?;
    match rest.get(..5) {
        Some(b"TYPE ") => Some(Keyword::Type),
        Some(b"HELP ") => Some(Keyword::Help),
        Some(b"UNIT ") => Some(Keyword::Unit),
        _ if rest.starts_with(b"EOF") => Some(Keyword::Eof),
        _ => None,
    }
}

/// Returns the keyword of text format 0.0.4 and the start of the family; any number of blanks is between.
fn text_keyword(line: &[u8]) -> Option<(Keyword, usize)> {
    let blanks = |at: usize| line.iter().skip(at).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let start = 1 + Some(blanks(1)).filter(|count| *count > 0)?;
    let end = start + 4;
    let keyword = match line.get(start..end)? {
        b"TYPE" => Keyword::Type,
        b"HELP" => Keyword::Help,
        _ => return None,
    };
    Some((keyword, end + Some(blanks(end)).filter(|count| *count > 0)?))
}

/// Returns the end of the family name at `start`, its quotes included.
fn family_end(line: &[u8], start: usize) -> Result<usize, Fault> {
    if line.get(start) == Some(&b'"') {
        return Ok(quote_end(line, start, What::MetadataName)? + 1);
    }
    match metric_name_end(line, start) {
        end if end > start => Ok(end),
        _ => Err(Fault { at: start, what: What::MetadataName }),
    }
}

/// Returns the text after the family: one byte separates them.
fn text_of<D: Dialect>(line: &[u8], name_end: usize) -> Result<&[u8], Fault> {
    let rest = line.get(name_end..).unwrap_or(&[]);
    if D::IS_OPEN_METRICS {
        return rest.strip_prefix(b" ").ok_or(Fault { at: name_end, what: What::MetadataText });
    }
    let is_blank = rest.iter().all(|byte| matches!(byte, b' ' | b'\t'));
    Ok(if is_blank { &[] } else { rest.get(1..).unwrap_or(&[]) })
}

/// Returns the type of a name, as Prometheus's parser of the format knows it.
fn kind<D: Dialect>(text: &[u8]) -> Option<MetricKind> {
    match text {
        b"counter" => Some(MetricKind::Counter),
        b"gauge" => Some(MetricKind::Gauge),
        b"histogram" => Some(MetricKind::Histogram),
        b"summary" => Some(MetricKind::Summary),
        b"untyped" if !D::IS_OPEN_METRICS => Some(MetricKind::Unknown),
        b"unknown" if D::IS_OPEN_METRICS => Some(MetricKind::Unknown),
        b"gaugehistogram" if D::IS_OPEN_METRICS => Some(MetricKind::GaugeHistogram),
        b"info" if D::IS_OPEN_METRICS => Some(MetricKind::Info),
        b"stateset" if D::IS_OPEN_METRICS => Some(MetricKind::StateSet),
        _ => None,
    }
}

/// Metric family at hand.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// Type of the last `# TYPE`.
    pub(super) kind: MetricKind,
    /// Bytes of the family name of the last comment, as written.
    pub(super) name_bytes: usize,
    /// Entry that further lines may complete.
    entry: Option<MetadataEntry>,
    moved: MetadataBytes,
}

impl Family {
    /// Takes a comment in; entries that are complete go to `out`.
    pub(super) fn add<D: Dialect>(&mut self, comment: Comment<'_>, out: &mut Vec<MetadataEntry>) {
        let (name, text) = match comment {
            Comment::Type(name, _) => (name, None),
            Comment::Help(name, text) | Comment::Unit(name, text) => (name, Some(text)),
            Comment::Eof | Comment::Other => return,
        };
        self.name_bytes = name.len();
        // Names are ASCII or were checked with their quotes, help texts were checked, units end names.
        let Ok(name) = std::str::from_utf8(name) else { return };
        let text = text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or("");
        let name = unescape(name);
        if self.entry.as_ref().is_some_and(|entry| *entry.metric != *name) {
            self.flush(out);
        }
        let entry = self.entry.get_or_insert_with(|| MetadataEntry {
            metric: name.into_owned(),
            kind: MetricKind::Unknown,
            help: String::new(),
            unit: String::new(),
        });
        match comment {
            Comment::Type(_, kind) => {
                self.kind = kind;
                entry.kind = kind;
            }
            Comment::Unit(..) => entry.unit = text.to_owned(),
            _ if D::IS_OPEN_METRICS => entry.help = unescape(text).into_owned(),
            _ => entry.help = unescape_help(text).into_owned(),
        }
    }

    /// Moves the entry at hand to `out`.
    pub(super) fn flush(&mut self, out: &mut Vec<MetadataEntry>) {
        if let Some(entry) = self.entry.take() {
            self.moved.add(&entry, out);
            out.push(entry);
        }
    }

    /// Returns true if the entries in `out` take as much memory as they may.
    pub(super) fn has_byte_limit(&self, out: &[MetadataEntry]) -> bool {
        self.moved.has_limit(out)
    }
}
