//! Globs of paths and of their elements: `*`, `?`, `[a-z]`, `[!x]`, `{a,b}`, and `**` for any number of
//! elements.
//!
//! Invariants: no other element of a pattern matches a dot; matching is linear in pattern times text; braces
//! expand to at most [`ALTERNATIVES_MAX`] patterns, the rest is dropped.
//! Not here: the tree of paths.

/// Patterns that the braces of one element expand to.
pub const ALTERNATIVES_MAX: usize = 4096;

/// Splits a pattern at the dots that are not within braces.
#[must_use]
pub fn elements(pattern: &str) -> Vec<&str> {
    pattern.split('.').collect()
}

/// Expands all `{a,b}` of an element; unbalanced braces stay.
#[must_use]
pub fn alternatives(element: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![element.to_owned()];
    while let Some(pattern) = open.pop() {
        if done.len() + open.len() >= ALTERNATIVES_MAX {
            break;
        }
        let Some((start, end)) = innermost_braces(&pattern) else {
            done.push(pattern);
            continue;
        };
        let (before, rest) = pattern.split_at(start);
        let inner = rest.get(1..end - start).unwrap_or("");
        let after = rest.get(end - start + 1..).unwrap_or("");
        open.extend(inner.split(',').map(|choice| format!("{before}{choice}{after}")));
    }
    done.sort_unstable();
    done.dedup();
    done
}

/// First pair of braces without braces between them.
fn innermost_braces(pattern: &str) -> Option<(usize, usize)> {
    let end = pattern.find('{').and_then(|first| pattern.get(first..)?.find('}').map(|at| first + at))?;
    let start = pattern.get(..end)?.rfind('{')?;
    Some((start, end))
}

/// Returns true if `text` matches the element, braces included.
#[must_use]
pub fn matches(element: &str, text: &str) -> bool {
    Element::new(element).matches(text)
}

/// A path with globs, whose elements are parsed once for all paths that are compared with it.
#[derive(Debug, Clone)]
pub struct PathPattern {
    elements: Vec<Part>,
}

/// Part of a pattern between dots.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// One element of a path.
    Element(Element),
    /// `**`: any number of elements, also none.
    AnyDepth,
}

/// Element that stands for any number of elements.
const ANY_DEPTH: &str = "**";

/// Splits a pattern; `**` at its end is any path below, so that one more element follows it.
pub(super) fn parts(pattern: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for element in elements(pattern) {
        match (element == ANY_DEPTH, parts.last()) {
            (true, Some(Part::AnyDepth)) => {}
            (true, _) => parts.push(Part::AnyDepth),
            (false, _) => parts.push(Part::Element(Element::new(element))),
        }
    }
    if matches!(parts.last(), Some(Part::AnyDepth)) {
        parts.push(Part::Element(Element::new("*")));
    }
    parts
}

/// Returns true if the names are as many as the parts, and all match.
///
/// Cost: parts times names, by one point of return: the last `**`.
pub(super) fn matches_parts(parts: &[Part], names: &[&str]) -> bool {
    let mut part = 0;
    let mut name = 0;
    let mut return_to: Option<(usize, usize)> = None;
    while let Some(text) = names.get(name) {
        match parts.get(part) {
            Some(Part::AnyDepth) => {
                part += 1;
                return_to = Some((part, name));
                continue;
            }
            Some(Part::Element(element)) if element.matches(text) => {
                part += 1;
                name += 1;
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = return_to else { return false };
        return_to = Some((after, from + 1));
        (part, name) = (after, from + 1);
    }
    parts.get(part..).unwrap_or(&[]).iter().all(|part| matches!(part, Part::AnyDepth))
}

impl PathPattern {
    /// Parses the elements of a pattern.
    #[must_use]
    pub fn new(pattern: &str) -> PathPattern {
        PathPattern { elements: parts(pattern) }
    }

    /// Returns true if the path has as many elements, and all match.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        if self.has_any_depth() {
            return matches_parts(&self.elements, &elements(path));
        }
        let mut names = path.split('.');
        let is_match = |part: &Part| match part {
            Part::Element(element) => names.next().is_some_and(|name| element.matches(name)),
            Part::AnyDepth => false,
        };
        self.elements.iter().all(is_match) && names.next().is_none()
    }

    /// Returns true if paths of any depth may match.
    #[must_use]
    pub fn has_any_depth(&self) -> bool {
        self.elements.iter().any(|part| matches!(part, Part::AnyDepth))
    }
}

/// An element whose braces are expanded.
#[derive(Debug, Clone)]
pub struct Element {
    alternatives: Vec<String>,
    patterns: Vec<Vec<char>>,
}

impl Element {
    /// Expands the braces of an element, and its classes if these are all of its globs and stand for few
    /// texts.
    #[must_use]
    pub fn new(element: &str) -> Element {
        let alternatives = alternatives(element);
        let alternatives = without_classes(&alternatives).unwrap_or(alternatives);
        let patterns = alternatives.iter().map(|pattern| pattern.chars().collect()).collect();
        Element { alternatives, patterns }
    }

    /// Returns the texts that match, ascending, if there are no globs left.
    #[must_use]
    pub fn literals(&self) -> Option<&[String]> {
        let is_literal = |pattern: &String| !pattern.contains(['*', '?', '[']);
        self.alternatives.iter().all(is_literal).then_some(&self.alternatives)
    }

    /// Returns the text that all matches start with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        let literal_len = |pattern: &str| pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
        let Some((first, others)) = self.alternatives.split_first() else { return "" };
        let mut len = literal_len(first);
        for other in others {
            let other = other.get(..literal_len(other)).unwrap_or("");
            let common = first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
            len = len.min(common);
        }
        while !first.is_char_boundary(len) {
            len -= 1;
        }
        first.get(..len).unwrap_or("")
    }

    /// Returns true if `text` matches the element.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        self.patterns.iter().any(|pattern| matches_one(pattern, &text))
    }
}

/// Texts of an element whose classes are expanded, at most.
const TEXTS_MAX: usize = 64;

/// Returns all texts that the patterns match, ascending; `None` if they have other globs than classes, a
/// class is negated, or there are too many.
fn without_classes(patterns: &[String]) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for pattern in patterns {
        let pattern: Vec<char> = pattern.chars().collect();
        let mut texts = vec![String::new()];
        let mut rest = pattern.as_slice();
        while let Some(first) = rest.first() {
            let class = (*first == '[').then(|| class_len(rest)).flatten();
            let choices = match (first, class) {
                ('*' | '?', _) => return None,
                (_, Some(len)) => class_chars(rest.get(1..len - 1)?)?,
                (first, None) => vec![*first],
            };
            if texts.len().saturating_mul(choices.len()) > TEXTS_MAX {
                return None;
            }
            texts = texts.iter().flat_map(|text| choices.iter().map(move |c| format!("{text}{c}"))).collect();
            rest = rest.get(class.unwrap_or(1)..)?;
        }
        all.append(&mut texts);
        if all.len() > TEXTS_MAX {
            return None;
        }
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// Returns the characters of a class; `None` if it is negated or has too many.
fn class_chars(class: &[char]) -> Option<Vec<char>> {
    if class.first() == Some(&'!') {
        return None;
    }
    let mut chars = Vec::new();
    let mut rest = class;
    while let [first, after @ ..] = rest {
        let last = match after {
            ['-', last, ..] => *last,
            _ => *first,
        };
        rest = after.get(if after.first() == Some(&'-') && after.len() > 1 { 2 } else { 0 }..)?;
        chars.extend((*first..=last).take(TEXTS_MAX + 1));
        if chars.len() > TEXTS_MAX {
            return None;
        }
    }
    // A text with these characters would be read as a glob again.
    (!chars.iter().any(|c| matches!(c, '*' | '?' | '['))).then_some(chars)
}

/// Returns true if the whole text matches: greedily, with one point of return, the last `*`.
fn matches_one(pattern: &[char], text: &[char]) -> bool {
    let mut p = 0;
    let mut t = 0;
    let mut star: Option<(usize, usize)> = None;
    while let Some(&c) = text.get(t) {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        if let Some(len) = single_len(pattern.get(p..).unwrap_or(&[]), c) {
            p += len;
            t += 1;
            continue;
        }
        let Some((star_p, star_t)) = star else { return false };
        star = Some((star_p, star_t + 1));
        p = star_p + 1;
        t = star_t + 1;
    }
    pattern.get(p..).unwrap_or(&[]).iter().all(|c| *c == '*')
}

/// Length of the part of the pattern that matches the one character `c`.
fn single_len(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => match class_len(pattern) {
            Some(len) => class_contains(pattern.get(1..len - 1)?, c).then_some(len),
            None => (c == '[').then_some(1),
        },
        first => (*first == c).then_some(1),
    }
}

/// Length of `[...]`; a `]` right after the opening belongs to the class.
fn class_len(pattern: &[char]) -> Option<usize> {
    let skip = if pattern.get(1) == Some(&'!') { 3 } else { 2 };
    pattern.iter().skip(skip).position(|c| *c == ']').map(|at| at + skip + 1)
}

fn class_contains(class: &[char], c: char) -> bool {
    let (is_negated, mut rest) = match class {
        ['!', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_found = false;
    while let [first, after @ ..] = rest {
        match after {
            ['-', last, tail @ ..] => {
                is_found |= (*first..=*last).contains(&c);
                rest = tail;
            }
            _ => {
                is_found |= *first == c;
                rest = after;
            }
        }
    }
    is_found != is_negated
}
