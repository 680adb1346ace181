//! Literal optimizations of a pattern: finite sets, globs, prefixes, suffixes, contained literals.
//!
//! Invariants: all refer to whole texts, since patterns are anchored at both ends. Assertions (`^`, `\b`)
//! only restrict matches, so prefix, suffix and contained literals may ignore them; sets and globs may not.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Strings that [`GoRegex::set_matches`](super::GoRegex::set_matches) returns.
pub const SET_MATCH_COUNT_MAX: usize = 4096;
/// Bytes of these strings.
pub const SET_MATCH_BYTES_MAX: usize = 1 << 18;
/// Contained literals that are searched before the pattern runs.
const CONTAINS_COUNT_MAX: usize = 4;
/// Bytes after the first of a literal up to which the search is byte by byte, which bounds the cost of a
/// hostile text.
const PLAIN_SEARCH_BYTES_MAX: usize = 16;

/// The parts of a concatenation, through groups and nested concatenations, without needless outer anchors.
fn parts(hir: &Hir) -> Vec<&Hir> {
    let mut out = Vec::new();
    flatten(hir, &mut out);
    let is_start = |part: &&Hir| matches!(part.kind(), HirKind::Look(Look::Start));
    let is_end = |part: &&Hir| matches!(part.kind(), HirKind::Look(Look::End));
    let start = out.iter().take_while(|part| is_start(part)).count();
    let end = out.len() - out.iter().skip(start).rev().take_while(|part| is_end(part)).count();
    out.truncate(end);
    out.drain(..start);
    out
}

fn flatten<'a>(hir: &'a Hir, out: &mut Vec<&'a Hir>) {
    match hir.kind() {
        HirKind::Capture(capture) => flatten(&capture.sub, out),
        HirKind::Concat(subs) => subs.iter().for_each(|sub| flatten(sub, out)),
        _ => out.push(hir),
    }
}

fn literal_text(hir: &Hir) -> Option<&str> {
    match hir.kind() {
        HirKind::Literal(literal) => std::str::from_utf8(&literal.0).ok(),
        _ => None,
    }
}

/// Returns all matching texts, ascending and unique, if they are few.
pub(super) fn set(hir: &Hir) -> Option<Vec<String>> {
    let mut found = cross(&parts(hir))?;
    found.sort_unstable();
    found.dedup();
    Some(found)
}

fn cross(parts: &[&Hir]) -> Option<Vec<String>> {
    let mut found = vec![String::new()];
    for part in parts {
        found = product(&found, &strings(part)?)?;
    }
    Some(found)
}

/// Cross product: every head followed by every tail.
fn product(heads: &[String], tails: &[String]) -> Option<Vec<String>> {
    let count = heads.len().checked_mul(tails.len()).filter(|&count| count <= SET_MATCH_COUNT_MAX)?;
    let mut out = Vec::with_capacity(count);
    let mut bytes = 0usize;
    for (head, tail) in heads.iter().flat_map(|head| tails.iter().map(move |tail| (head, tail))) {
        bytes += head.len() + tail.len();
        if bytes > SET_MATCH_BYTES_MAX {
            return None;
        }
        out.push([head.as_str(), tail.as_str()].concat());
    }
    Some(out)
}

fn strings(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Empty => Some(vec![String::new()]),
        HirKind::Literal(_) => Some(vec![literal_text(hir)?.to_owned()]),
        HirKind::Class(Class::Unicode(class)) => {
            let count: usize = class.ranges().iter().map(|range| range.len()).sum();
            let chars = class.ranges().iter().flat_map(|range| range.start()..=range.end());
            (count <= SET_MATCH_COUNT_MAX).then(|| chars.map(String::from).collect())
        }
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => None,
        HirKind::Repetition(repetition) => {
            let max = repetition.max?;
            let sub = strings(&repetition.sub)?;
            let mut copies = vec![String::new()];
            let mut found = Vec::new();
            for count in 0..=max {
                if count >= repetition.min {
                    found.extend_from_slice(&copies);
                }
                if found.len() > SET_MATCH_COUNT_MAX {
                    return None;
                }
                if count < max {
                    copies = product(&copies, &sub)?;
                }
            }
            Some(found)
        }
        HirKind::Capture(capture) => strings(&capture.sub),
        HirKind::Concat(subs) => cross(&subs.iter().collect::<Vec<_>>()),
        HirKind::Alternation(subs) => {
            let mut found = Vec::new();
            let mut bytes = 0usize;
            for sub in subs {
                let more = strings(sub)?;
                bytes += more.iter().map(String::len).sum::<usize>();
                found.extend(more);
                if found.len() > SET_MATCH_COUNT_MAX || bytes > SET_MATCH_BYTES_MAX {
                    return None;
                }
            }
            Some(found)
        }
    }
}

/// End of a text.
#[derive(Clone, Copy)]
enum Side {
    Start,
    End,
}

/// Common prefix of all matches.
pub(super) fn prefix(hir: &Hir) -> String {
    edge(hir, Side::Start).0
}

/// Common suffix of all matches.
pub(super) fn suffix(hir: &Hir) -> String {
    edge(hir, Side::End).0
}

/// The literal at one side of `hir`, and whether it is all of `hir`.
fn edge(hir: &Hir, side: Side) -> (String, bool) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => (String::new(), true),
        HirKind::Literal(_) => match literal_text(hir) {
            Some(text) => (text.to_owned(), true),
            None => (String::new(), false),
        },
        HirKind::Class(_) => (String::new(), false),
        HirKind::Repetition(repetition) if repetition.min > 0 => (edge(&repetition.sub, side).0, false),
        HirKind::Repetition(_) => (String::new(), false),
        HirKind::Capture(capture) => edge(&capture.sub, side),
        HirKind::Concat(subs) => match side {
            Side::Start => edge_of_all(subs.iter(), side),
            Side::End => edge_of_all(subs.iter().rev(), side),
        },
        HirKind::Alternation(subs) => (common_edge(subs, side), false),
    }
}

fn edge_of_all<'a>(subs: impl Iterator<Item = &'a Hir>, side: Side) -> (String, bool) {
    let mut text = String::new();
    for sub in subs {
        let (more, is_all) = edge(sub, side);
        match side {
            Side::Start => text.push_str(&more),
            Side::End => text.insert_str(0, &more),
        }
        if !is_all {
            return (text, false);
        }
    }
    (text, true)
}

/// The longest edge that all branches have in common.
fn common_edge(subs: &[Hir], side: Side) -> String {
    let mut common: Option<String> = None;
    for sub in subs {
        let (text, _) = edge(sub, side);
        let next = match common {
            None => text,
            Some(known) => match side {
                Side::Start => {
                    let same = known.chars().zip(text.chars()).take_while(|(a, b)| a == b);
                    same.map(|(a, _)| a).collect()
                }
                Side::End => {
                    let same = known.chars().rev().zip(text.chars().rev()).take_while(|(a, b)| a == b);
                    let bytes: usize = same.map(|(a, _)| a.len_utf8()).sum();
                    known.get(known.len() - bytes..).unwrap_or("").to_owned()
                }
            },
        };
        if next.is_empty() {
            return next;
        }
        common = Some(next);
    }
    common.unwrap_or_default()
}

/// Literals that every match contains between prefix and suffix, in this order, without overlap.
pub(super) fn contains(hir: &Hir) -> Vec<String> {
    let parts = parts(hir);
    let is_inner = |idx: &usize| *idx > 0 && *idx + 1 < parts.len();
    let literals =
        parts.iter().enumerate().filter(|(idx, _)| is_inner(idx)).filter_map(|(_, p)| literal_text(p));
    literals.take(CONTAINS_COUNT_MAX).map(str::to_owned).collect()
}

/// Returns true if `text` contains all `literals`, in order and without overlap.
pub(super) fn contains_in_order(text: &str, literals: &[String]) -> bool {
    let mut rest = text;
    literals.iter().all(|literal| match after(rest, literal) {
        Some(tail) => {
            rest = tail;
            true
        }
        None => false,
    })
}

/// As `str::starts_with`, without a call for the empty prefix.
// PERF: the C library compares by loads under a mask, and one at the address of an empty `String`, which is
// no memory, takes hundreds of cycles even if the mask is empty: 400 000 values against `.*177` took 70 ms
// for that alone.
//   cargo xtask bench queries --only chronolith --series 0 --long-series 0
pub(super) fn begins_with(text: &str, prefix: &str) -> bool {
    prefix.is_empty() || text.starts_with(prefix)
}

/// As [`begins_with`], at the end of the text.
pub(super) fn ends_with(text: &str, suffix: &str) -> bool {
    suffix.is_empty() || text.ends_with(suffix)
}

/// Returns the text after the first `literal`.
// PERF: the setup of a standard library search costs more than scanning a label value.
fn after<'t>(text: &'t str, literal: &str) -> Option<&'t str> {
    let Some((&first, others)) = literal.as_bytes().split_first() else { return Some(text) };
    if others.len() > PLAIN_SEARCH_BYTES_MAX {
        return text.split_once(literal).map(|(_, after)| after);
    }
    let mut start = 0;
    while let Some(found) = text.as_bytes().get(start..)?.iter().position(|&byte| byte == first) {
        start += found + 1;
        // A literal in UTF-8 starts and ends where characters do.
        if text.as_bytes().get(start..).is_some_and(|rest| rest.starts_with(others)) {
            return text.get(start + others.len()..);
        }
    }
    None
}

/// Glob: literals with `.*` or `.+` (newlines included) between them.
pub(super) struct Glob {
    first: String,
    /// Gaps with the literals after them.
    rest: Vec<GapThen>,
}

/// A gap of `len_min` (0 or 1) characters or more, then a literal, which may be empty at the end.
struct GapThen {
    len_min: usize,
    literal: String,
}

/// Returns the glob that is equivalent to `hir`, if any.
pub(super) fn glob(hir: &Hir) -> Option<Glob> {
    let mut glob = Glob { first: String::new(), rest: Vec::new() };
    for part in parts(hir) {
        if let Some(text) = literal_text(part) {
            glob.rest.last_mut().map_or(&mut glob.first, |gap| &mut gap.literal).push_str(text);
            continue;
        }
        let len_min = gap_len_min(part)?;
        match glob.rest.last_mut() {
            Some(gap) if gap.literal.is_empty() => {
                gap.len_min += len_min;
                // Two characters may have any number of bytes; one has one at least.
                if gap.len_min > 1 {
                    return None;
                }
            }
            _ => glob.rest.push(GapThen { len_min, literal: String::new() }),
        }
    }
    (!glob.rest.is_empty()).then_some(glob)
}

/// Least length of `.*` and `.+`; `None` for anything else.
fn gap_len_min(hir: &Hir) -> Option<usize> {
    let HirKind::Repetition(repetition) = hir.kind() else { return None };
    let HirKind::Class(Class::Unicode(class)) = repetition.sub.kind() else { return None };
    let is_any = matches!(class.ranges(), [all] if all.start() == '\0' && all.end() == char::MAX);
    match (is_any, repetition.min, repetition.max) {
        (true, 0, None) => Some(0),
        (true, 1, None) => Some(1),
        _ => None,
    }
}

impl Glob {
    pub(super) fn matches_all(&self) -> bool {
        let is_free = |gap: &GapThen| gap.len_min == 0 && gap.literal.is_empty();
        self.first.is_empty() && self.rest.iter().all(is_free)
    }

    /// Matches greedily: every inner literal at its first occurrence, which leaves the most text for those
    /// after it.
    pub(super) fn is_match(&self, text: &str) -> bool {
        let Some((last, inner)) = self.rest.split_last() else { return false };
        // Most texts that do not match have another end.
        if !begins_with(text, &self.first) || !ends_with(text, &last.literal) {
            return false;
        }
        let Some(mut rest) = text.get(self.first.len()..) else { return false };
        for gap in inner {
            let skipped = if gap.len_min == 0 { 0 } else { rest.chars().next().map_or(0, char::len_utf8) };
            if skipped < gap.len_min {
                return false;
            }
            let Some(tail) = rest.get(skipped..).and_then(|rest| after(rest, &gap.literal)) else {
                return false;
            };
            rest = tail;
        }
        // The suffix must not overlap the inner literals.
        rest.len() >= last.literal.len() + last.len_min
    }
}
