//! Search terms: which names they match, and how well, as Prometheus's search API scores them.
//!
//! Invariants: a score is above 0 and at most 1, and 1 only for names that begin with a term or equal it; a
//! name of several matching terms has the best of their scores. Scoring a name allocates nothing once the
//! buffers have grown.
//! Not here: parameters (`request`), the best names (`ranking`).

use memchr::memmem::Finder;

/// Characters of a name up to which every start of a subsequence is tried; of a longer name the first alone.
const ALL_STARTS_CHARS_MAX: usize = 1024;
/// Characters of names and terms that Jaro-Winkler compares, from their starts.
const JARO_WINKLER_CHARS_MAX: usize = 256;
/// Factor of a subsequence that is not at the start of its name, so that only one at the start has a score of
/// 1.
const SUBSEQUENCE_SCALE: f64 = 0.999;
/// Part of the score, for `jarowinkler`, that a term loses at the end of a name.
const INSIDE_RANGE: f64 = 0.9;
/// Part of the distance to 1 by which each character of a common prefix raises a Jaro similarity.
const PREFIX_SCALE: f64 = 0.1;
/// Characters of a common prefix that count.
const PREFIX_CHARS_MAX: usize = 4;

/// Algorithm for names that do not begin with a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FuzzyAlgorithm {
    /// The characters of the term occur in order: long runs raise the score, gaps lower it.
    Subsequence,
    /// The term occurs in the name, or its Jaro-Winkler similarity reaches a threshold above 0.
    JaroWinkler,
}

/// Settings of the comparison of names with terms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Matching {
    pub(super) algorithm: FuzzyAlgorithm,
    /// Least score, 0 to 1.
    pub(super) threshold: f64,
    pub(super) is_case_sensitive: bool,
}

/// The terms of a search, of which a name has to match one. Without terms all names match.
pub(super) struct Terms {
    terms: Vec<Term>,
    matching: Matching,
    folded: String,
    chars: Vec<char>,
    used: Vec<bool>,
    matched: Vec<char>,
}

struct Term {
    text: String,
    chars: Vec<char>,
    /// Searches names for the text; a plain `contains` prepares its search again for every name.
    finder: Finder<'static>,
}

impl Terms {
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>, matching: Matching) -> Terms {
        let term = |text: &str| {
            let text = if matching.is_case_sensitive { text.to_owned() } else { text.to_lowercase() };
            Term { chars: text.chars().collect(), finder: Finder::new(&text).into_owned(), text }
        };
        Terms {
            terms: texts.filter(|text| !text.is_empty()).map(term).collect(),
            matching,
            folded: String::new(),
            chars: Vec::new(),
            used: Vec::new(),
            matched: Vec::new(),
        }
    }

    /// Texts with which names of score 1 begin; empty if they cannot be looked up as prefixes.
    pub(super) fn prefixes(&self) -> Vec<String> {
        if !self.matching.is_case_sensitive {
            return Vec::new();
        }
        self.terms.iter().map(|term| term.text.clone()).collect()
    }

    /// Returns true if no name but those that begin with a term matches.
    pub(super) fn is_of_prefixes(&self) -> bool {
        self.matching.algorithm == FuzzyAlgorithm::Subsequence && self.matching.threshold >= 1.0
    }

    /// Returns the score of a name; `None` if it does not match.
    pub(super) fn score(&mut self, name: &str) -> Option<f64> {
        if self.terms.is_empty() {
            return Some(1.0);
        }
        let Terms { terms, matching, folded, chars, used, matched } = self;
        let name = if matching.is_case_sensitive { name } else { lower_case(name, folded) };
        chars.clear();
        let mut best = None;
        for term in terms {
            let is_fuzzy = matching.algorithm == FuzzyAlgorithm::JaroWinkler;
            let inside = if is_fuzzy { term.finder.find(name.as_bytes()) } else { None };
            let score = match (matching.algorithm, inside) {
                _ if name.starts_with(term.text.as_str()) => 1.0,
                (FuzzyAlgorithm::Subsequence, _) => of_subsequence(term, name, chars),
                (FuzzyAlgorithm::JaroWinkler, Some(at)) => inside_score(term, name, at),
                (FuzzyAlgorithm::JaroWinkler, None) if matching.threshold > 0.0 => {
                    fill_chars(name, chars);
                    jaro_winkler(&term.chars, chars, used, matched)
                }
                (FuzzyAlgorithm::JaroWinkler, None) => 0.0,
            };
            // A term inside of a name matches whatever the threshold.
            let is_match = score > 0.0 && (score >= matching.threshold || inside.is_some());
            if is_match && best.is_none_or(|best| score > best) {
                best = Some(score);
            }
        }
        best
    }
}

/// Returns `text` in lower case, in `out` unless it is so already.
fn lower_case<'a>(text: &'a str, out: &'a mut String) -> &'a str {
    // Without a branch, so that many bytes are looked at together.
    let is_changed = |byte: u8| u8::from(byte.is_ascii_uppercase()) | (byte >> 7);
    if text.bytes().fold(0, |found, byte| found | is_changed(byte)) == 0 {
        return text;
    }
    out.clear();
    if text.is_ascii() {
        out.push_str(text);
        out.make_ascii_lowercase();
    } else {
        out.extend(text.chars().flat_map(char::to_lowercase));
    }
    out
}

/// Splits `text` into characters unless `chars` has them.
fn fill_chars(text: &str, chars: &mut Vec<char>) {
    if chars.is_empty() {
        chars.extend(text.chars());
    }
}

/// Score of a term at byte `at` of a name, but not at its start: the sooner, the better.
fn inside_score(term: &Term, name: &str, at: usize) -> f64 {
    let skipped = name.get(..at).map_or(0, |text| text.chars().count());
    let most = name.chars().count().saturating_sub(term.chars.len());
    if most == 0 { 1.0 } else { 1.0 - INSIDE_RANGE * skipped as f64 / most as f64 }
}

fn of_subsequence(term: &Term, name: &str, chars: &mut Vec<char>) -> f64 {
    match (term.text.is_ascii(), name.is_ascii()) {
        (true, true) => subsequence(term.text.as_bytes(), name.as_bytes()),
        (false, true) => 0.0,
        (_, false) => {
            fill_chars(name, chars);
            subsequence(&term.chars, chars)
        }
    }
}

/// Returns the best score of `pattern` as a subsequence of `text`; 0 if it is none.
fn subsequence<T: Copy + PartialEq>(pattern: &[T], text: &[T]) -> f64 {
    let (Some(&first), Some(last_start)) = (pattern.first(), text.len().checked_sub(pattern.len())) else {
        return 0.0;
    };
    let mut best = 0.0_f64;
    for (start, _) in text[..=last_start].iter().enumerate().filter(|(_, item)| **item == first) {
        // A pattern that is no subsequence from this start is none from a later one.
        let Some(score) = subsequence_from(start, pattern, text) else { break };
        best = best.max(score);
        if text.len() > ALL_STARTS_CHARS_MAX {
            break;
        }
    }
    best / (pattern.len() * pattern.len()) as f64 * SUBSEQUENCE_SCALE
}

/// Sum of the squared lengths of runs, less the part of the text that is in gaps; the gap at the end counts
/// half. Greedy: each item of the pattern takes the next equal one of the text.
fn subsequence_from<T: Copy + PartialEq>(start: usize, pattern: &[T], text: &[T]) -> Option<f64> {
    // Clients compare scores, so the order of operations is the same as in Prometheus.
    let per_item = 1.0 / text.len() as f64;
    let mut score = 0.0;
    let mut at = 0;
    let mut next = start;
    let mut rest = pattern;
    while !rest.is_empty() {
        score -= (next - at) as f64 * per_item;
        let run = rest.iter().zip(&text[next..]).take_while(|(a, b)| a == b).count();
        score += (run * run) as f64;
        rest = &rest[run..];
        at = next + run;
        if let Some(&wanted) = rest.first() {
            next = at + text[at..].iter().position(|item| *item == wanted)?;
        }
    }
    Some(score - (text.len() - at) as f64 * per_item * 0.5)
}

/// Jaro-Winkler similarity of the starts of two texts.
fn jaro_winkler(a: &[char], b: &[char], used: &mut Vec<bool>, matched: &mut Vec<char>) -> f64 {
    let a = &a[..a.len().min(JARO_WINKLER_CHARS_MAX)];
    let b = &b[..b.len().min(JARO_WINKLER_CHARS_MAX)];
    // The shorter one chooses its equals in the longer one.
    let (a, b) = if a.len() > b.len() { (b, a) } else { (a, b) };
    let jaro = jaro(a, b, used, matched);
    let common = a.iter().zip(b).take(PREFIX_CHARS_MAX).take_while(|(a, b)| a == b).count();
    jaro + common as f64 * PREFIX_SCALE * (1.0 - jaro)
}

/// Jaro similarity: equal characters within half of the longer text, and how many of them are out of order.
fn jaro(a: &[char], b: &[char], used: &mut Vec<bool>, matched: &mut Vec<char>) -> f64 {
    let reach = (a.len().max(b.len()) / 2).saturating_sub(1);
    used.clear();
    used.resize(b.len(), false);
    matched.clear();
    for (idx, wanted) in a.iter().enumerate() {
        let end = b.len().min(idx + reach + 1);
        let mut near = idx.saturating_sub(reach)..end;
        if let Some(found) = near.find(|&at| !used[at] && b[at] == *wanted) {
            used[found] = true;
            matched.push(*wanted);
        }
    }
    if matched.is_empty() {
        return 0.0;
    }
    let of_b = b.iter().zip(used.iter()).filter(|(_, used)| **used);
    let moved = of_b.zip(matched.iter()).filter(|((b, _), a)| b != a).count();
    let count = matched.len() as f64;
    let per_a = 1.0 / a.len() as f64;
    let per_b = 1.0 / b.len() as f64;
    (count * per_a + count * per_b + (count - moved as f64 * 0.5) / count) / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBSEQUENCE: Matching =
        Matching { algorithm: FuzzyAlgorithm::Subsequence, threshold: 0.0, is_case_sensitive: true };
    const JARO_WINKLER: Matching = Matching { algorithm: FuzzyAlgorithm::JaroWinkler, ..SUBSEQUENCE };

    #[track_caller]
    fn check(matching: Matching, terms: &[&str], name: &str, want: Option<f64>) {
        let found = Terms::new(terms.iter().copied(), matching).score(name);
        let is_near = match (found, want) {
            (Some(found), Some(want)) => (found - want).abs() < 1e-9,
            (found, want) => found == want,
        };
        assert!(is_near, "{terms:?} in {name:?}: {found:?}, not {want:?}");
    }

    #[test]
    fn subsequences_are_scored_by_runs_and_gaps() {
        check(SUBSEQUENCE, &[], "up", Some(1.0));
        check(SUBSEQUENCE, &[""], "up", Some(1.0));
        check(SUBSEQUENCE, &["up"], "up", Some(1.0));
        check(SUBSEQUENCE, &["http"], "http_requests", Some(1.0));
        check(SUBSEQUENCE, &["req"], "http", None);
        check(SUBSEQUENCE, &["longer"], "long", None);
        // One run of 3 after a gap of 5, with 5 to its end: 9 - 5/13 - 5/26 of 9.
        check(SUBSEQUENCE, &["req"], "http_requests", Some(0.999 * (9.0 - 5.0 / 13.0 - 5.0 / 26.0) / 9.0));
        // Runs of 1 and 1, one character between: 1 + 1 - 1/3 of 4.
        check(SUBSEQUENCE, &["ac"], "xabc", Some(0.999 * (2.0 - 2.0 / 4.0) / 4.0));
        // The better of two starts: the second has no gap inside.
        check(SUBSEQUENCE, &["ab"], "xacab", Some(0.999 * (4.0 - 3.0 / 5.0) / 4.0));
    }

    /// Empty terms matched every name, also next to other terms.
    #[test]
    fn empty_terms_are_left_out() {
        check(SUBSEQUENCE, &["", "up"], "down", None);
        check(SUBSEQUENCE, &["", "up"], "up", Some(1.0));
        check(JARO_WINKLER, &["", "", "x"], "up", None);
        check(JARO_WINKLER, &["", ""], "up", Some(1.0));
    }

    #[test]
    fn thresholds_terms_and_case_are_respected() {
        let least = |threshold| Matching { threshold, ..SUBSEQUENCE };
        check(least(1.0), &["req"], "http_requests", None);
        check(least(1.0), &["http"], "http_requests", Some(1.0));
        check(least(0.5), &["hrs"], "http_requests", None);
        check(SUBSEQUENCE, &["nothing", "up"], "up_time", Some(1.0));
        check(SUBSEQUENCE, &["UP"], "up", None);
        let any_case = Matching { is_case_sensitive: false, ..SUBSEQUENCE };
        check(any_case, &["UP"], "Up_time", Some(1.0));
        check(any_case, &["ÄB"], "äbc", Some(1.0));
        check(SUBSEQUENCE, &["ä"], "abc", None);
        check(SUBSEQUENCE, &["bc"], "äbc", Some(0.999 * (4.0 - 1.0 / 3.0) / 4.0));
    }

    #[test]
    fn jaro_winkler_is_for_thresholds_above_zero() {
        check(JARO_WINKLER, &["requests"], "http_requests", Some(1.0 - 0.9 * 5.0 / 5.0));
        // Values of Prometheus 3.16.
        check(JARO_WINKLER, &["starts"], "pump_starts_total", Some(1.0 - 0.9 * 5.0 / 11.0));
        check(JARO_WINKLER, &["b"], "äbc", Some(1.0 - 0.9 / 2.0));
        check(JARO_WINKLER, &["é"], "caféé", Some(1.0 - 0.9 * 3.0 / 4.0));
        check(JARO_WINKLER, &["martha"], "marhta", None);
        let fuzzy = Matching { threshold: 0.8, ..JARO_WINKLER };
        check(
            fuzzy,
            &["martha"],
            "marhta",
            Some(0.944_444_444_444_444_4 + 3.0 * 0.1 * 0.055_555_555_555_555_6),
        );
        check(
            fuzzy,
            &["dixon"],
            "dicksonx",
            Some(0.766_666_666_666_666_7 + 2.0 * 0.1 * 0.233_333_333_333_333_3),
        );
        check(fuzzy, &["abc"], "xyz", None);
        check(Matching { threshold: 1.0, ..JARO_WINKLER }, &["inside"], "is inside", Some(1.0 - 0.9));
    }

    #[test]
    fn long_names_take_bounded_time() {
        let name = "a".repeat(64 << 10);
        let pattern = format!("{}b", "a".repeat(64));
        check(SUBSEQUENCE, &[&pattern], &name, None);
        let matched = Terms::new([pattern.as_str()].into_iter(), Matching { threshold: 0.1, ..JARO_WINKLER });
        assert!({ matched }.score(&name).is_some());
    }
}
