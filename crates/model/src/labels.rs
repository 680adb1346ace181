//! Label sets: sorted by name, unique names, no empty values, UTF-8.
//!
//! Invariants: [`Labels`] is immutable, one allocation, cheap to clone; two equal sets have equal bytes.
//! Not here: interning (head), limits of a tenant (checked by [`LabelsBuilder::finish`]'s caller).

mod key;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use chronolith_base::hash;

use crate::quote::write_quoted;

/// Name of the label that holds the metric name.
pub const METRIC_NAME: &str = "__name__";
pub use key::LabelsKey;

/// A label set: names and values back to back, each prefixed by its length in bytes below 0x80 (six bits per
/// byte, lowest first, bit 6 set if more follow), so that the whole is one valid `str`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<str>);

impl Labels {
    /// No labels.
    #[must_use]
    pub fn empty() -> Labels {
        Labels(Arc::from(""))
    }

    /// Creates a set from pairs in any order. Empty values are dropped; of duplicate names the last value
    /// stays.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut builder = LabelsBuilder::new();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        builder.finish()
    }

    /// Pairs in order of name.
    #[must_use]
    pub fn iter(&self) -> LabelsIter<'_> {
        LabelsIter { rest: &self.0 }
    }

    /// Value of `name`; `None` if absent (which matchers treat as empty).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// Value of `__name__`.
    #[must_use]
    pub fn metric_name(&self) -> Option<&str> {
        self.get(METRIC_NAME)
    }

    /// Number of labels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns true if there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In-memory hash, equal for equal sets; not stable between versions.
    #[must_use]
    pub fn hash64(&self) -> u64 {
        hash::hash_bytes(self.0.as_bytes())
    }

    /// Bytes on the heap, for budgets.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.0.len() + 16
    }

    /// A builder that starts with these labels.
    #[must_use]
    pub fn to_builder(&self) -> LabelsBuilder {
        let mut builder = LabelsBuilder::new();
        for (name, value) in self.iter() {
            builder.push(name, value);
        }
        builder
    }

    /// Returns the labels for which `keep` returns true.
    #[must_use]
    pub fn filtered(&self, mut keep: impl FnMut(&str) -> bool) -> Labels {
        let mut text = String::with_capacity(self.0.len());
        for (name, value) in self.iter().filter(|(name, _)| keep(name)) {
            put_str(&mut text, name);
            put_str(&mut text, value);
        }
        Labels(Arc::from(text))
    }

    /// Returns all labels but `__name__`.
    #[must_use]
    pub fn without_name(&self) -> Labels {
        self.filtered(|name| name != METRIC_NAME)
    }
}

impl Ord for Labels {
    /// By name, then value, pair after pair; a set that is a prefix of another comes first (Prometheus's
    /// order).
    // PERF: the common prefix is skipped as bytes, and only the first differing texts are compared: half the
    // time of comparing pair by pair when selections are sorted and merged.
    fn cmp(&self, other: &Labels) -> Ordering {
        let (a, b) = (self.0.as_bytes(), other.0.as_bytes());
        let same = common_len(a, b);
        if same == a.len() || same == b.len() {
            return a.len().cmp(&b.len());
        }
        // Both have the same lengths, and so the same text borders, before the text with the first
        // difference.
        let mut at = 0;
        while let Some((start, end)) = text_span(a, at) {
            if end > same {
                let theirs = text_span(b, at).and_then(|(start, end)| b.get(start..end));
                return a.get(start..end).cmp(&theirs);
            }
            at = end;
        }
        a.cmp(b)
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Labels) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Labels {
    /// `name{a="b"}` with Go's quoting, as Prometheus prints series.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = self.metric_name().unwrap_or("");
        let legacy = is_legacy_metric_name(metric);
        if legacy {
            f.write_str(metric)?;
        }
        let rest = self.iter().filter(|(n, _)| *n != METRIC_NAME);
        let mut first = true;
        let quoted_name = !legacy && !metric.is_empty();
        if rest.clone().next().is_none() && !quoted_name {
            return if metric.is_empty() { f.write_str("{}") } else { Ok(()) };
        }
        f.write_str("{")?;
        if quoted_name {
            write_quoted(f, metric)?;
            first = false;
        }
        for (name, value) in rest {
            if !first {
                f.write_str(", ")?;
            }
            first = false;
            if is_legacy_label_name(name) {
                f.write_str(name)?;
            } else {
                write_quoted(f, name)?;
            }
            f.write_str("=")?;
            write_quoted(f, value)?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns true for `[a-zA-Z_:][a-zA-Z0-9_:]*`: a metric name that needs no quotes.
#[must_use]
pub fn is_legacy_metric_name(name: &str) -> bool {
    legacy(name, |b| b == b':')
}

/// Returns true for `[a-zA-Z_][a-zA-Z0-9_]*`: a label name that needs no quotes.
#[must_use]
pub fn is_legacy_label_name(name: &str) -> bool {
    legacy(name, |_| false)
}

fn legacy(name: &str, also: impl Fn(u8) -> bool) -> bool {
    let ok = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || also(b);
    !name.is_empty() && name.bytes().all(ok) && !name.as_bytes()[0].is_ascii_digit()
}

fn put_str(out: &mut String, text: &str) {
    let mut len = text.len();
    while len >= 64 {
        out.push(char::from(64 | (len & 63) as u8));
        len >>= 6;
    }
    out.push(char::from(len as u8));
    out.push_str(text);
}

/// Returns the length of the common prefix.
fn common_len(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    let rest = a.iter().zip(b).skip(words).take_while(|(a, b)| a == b).count();
    words + rest
}

/// Returns start and end of the text whose length prefix is at `at`; `None` at the end.
fn text_span(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let (mut len, mut shift, mut at) = (0usize, 0u32, at);
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        len |= usize::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 {
            return Some((at, at + len));
        }
    }
}

/// Iterates pairs in order of name.
#[derive(Clone)]
pub struct LabelsIter<'a> {
    rest: &'a str,
}

impl<'a> LabelsIter<'a> {
    fn take_str(&mut self) -> Option<&'a str> {
        let (mut len, mut shift, mut at) = (0usize, 0u32, 0usize);
        loop {
            let byte = *self.rest.as_bytes().get(at)?;
            at += 1;
            len |= usize::from(byte & 63) << shift;
            shift += 6;
            if byte & 64 == 0 {
                break;
            }
        }
        let text = self.rest.get(at..at + len)?;
        self.rest = self.rest.get(at + len..)?;
        Some(text)
    }
}

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        let name = self.take_str()?;
        Some((name, self.take_str()?))
    }
}

/// Builder of [`Labels`]. Reusable: `clear` keeps its memory.
#[derive(Debug, Clone, Default)]
pub struct LabelsBuilder {
    text: String,
    /// Name start, value start, value end within `text`.
    pairs: Vec<(u32, u32, u32)>,
    /// Encoded labels of `finish`, kept for its memory.
    encoded: String,
}

impl LabelsBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> LabelsBuilder {
        LabelsBuilder::default()
    }

    /// Removes all pairs.
    pub fn clear(&mut self) {
        self.text.clear();
        self.pairs.clear();
    }

    /// Adds a pair without a search for the name. `finish` drops pairs with empty values.
    ///
    /// # Panics
    /// Beyond 4 GiB of text.
    pub fn push(&mut self, name: &str, value: &str) {
        let at = |n: usize| u32::try_from(n).expect("label text below 4 GiB");
        let start = at(self.text.len());
        self.text.push_str(name);
        let middle = at(self.text.len());
        self.text.push_str(value);
        self.pairs.push((start, middle, at(self.text.len())));
    }

    /// Sets `name` to `value`, replacing an earlier value; an empty value removes it.
    pub fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        if !value.is_empty() {
            self.push(name, value);
        }
    }

    /// Removes `name`.
    pub fn remove(&mut self, name: &str) {
        let text = &self.text;
        self.pairs.retain(|&(a, b, _)| text.get(a as usize..b as usize) != Some(name));
    }

    /// Removes pairs with empty values.
    pub fn remove_empty(&mut self) {
        self.pairs.retain(|&(_, value, end)| value < end);
    }

    /// Value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// Pairs in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs
            .iter()
            .map(|&(a, b, c)| (&self.text[a as usize..b as usize], &self.text[b as usize..c as usize]))
    }

    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns true if there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Sorts by name: afterwards `iter` returns pairs in order of name.
    pub fn sort(&mut self) {
        let text = &self.text;
        let name = |p: &(u32, u32, u32)| &text[p.0 as usize..p.1 as usize];
        if !self.pairs.is_sorted_by(|a, b| name(a) <= name(b)) {
            self.pairs.sort_by(|a, b| name(a).cmp(name(b)));
        }
    }

    /// Returns the first duplicate name; call after [`LabelsBuilder::sort`].
    #[must_use]
    pub fn repeated_name(&self) -> Option<&str> {
        let name = |p: &(u32, u32, u32)| &self.text[p.0 as usize..p.1 as usize];
        self.pairs.windows(2).find(|w| name(&w[0]) == name(&w[1])).map(|w| name(&w[0]))
    }

    /// Sorts and creates the set; empty values are dropped, of duplicate names the last stays.
    #[must_use]
    pub fn finish(&mut self) -> Labels {
        self.sort();
        let mut out = std::mem::take(&mut self.encoded);
        out.clear();
        out.reserve(self.text.len() + 2 * self.pairs.len() + 4);
        for (i, &(a, b, c)) in self.pairs.iter().enumerate() {
            let name = &self.text[a as usize..b as usize];
            let next = self.pairs.get(i + 1).map(|p| &self.text[p.0 as usize..p.1 as usize]);
            if b == c || next == Some(name) {
                continue;
            }
            put_str(&mut out, name);
            put_str(&mut out, &self.text[b as usize..c as usize]);
        }
        let labels = Labels(Arc::from(out.as_str()));
        self.encoded = out;
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_of_pairs_in_any_order_are_equal() {
        let long = "v".repeat(5000);
        let a = Labels::from_pairs([("z", "1"), ("__name__", "up"), ("b", &long), ("empty", "")]);
        let b = Labels::from_pairs([("b", &*long), ("__name__", "up"), ("z", "1")]);
        assert_eq!(a, b);
        assert_eq!(a.hash64(), b.hash64());
        assert_eq!(a.get("b"), Some(&*long));
        assert_eq!(a.iter().map(|(n, _)| n).collect::<Vec<_>>(), ["__name__", "b", "z"]);
        assert_eq!(a.without_name().len(), 2);
    }

    #[test]
    fn sets_are_ordered_by_their_pairs() {
        let long = ["v".repeat(63), "v".repeat(64), "v".repeat(65), "v".repeat(5000), "w".repeat(64)];
        let mut sets = vec![Labels::empty()];
        for name in ["a", "aa", "b", "\u{e9}"] {
            for value in ["1", "12", "2", "\u{e9}"].into_iter().chain(long.iter().map(String::as_str)) {
                sets.push(Labels::from_pairs([(name, value)]));
                for more in ["c", "z"] {
                    sets.push(Labels::from_pairs([(name, value), (more, "1")]));
                    sets.push(Labels::from_pairs([("__name__", "up"), (name, value), (more, "12")]));
                }
            }
        }
        for a in &sets {
            for b in &sets {
                assert_eq!(a.cmp(b), a.iter().cmp(b.iter()), "{a} and {b}");
            }
        }
    }

    #[test]
    fn display_equals_that_of_prometheus() {
        let show = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied()).to_string();
        assert_eq!(show(&[]), "{}");
        assert_eq!(show(&[("__name__", "up")]), "up");
        assert_eq!(show(&[("__name__", "up"), ("a", "b\"\n")]), r#"up{a="b\"\n"}"#);
        assert_eq!(show(&[("__name__", "my.metric"), ("x.y", "1")]), r#"{"my.metric", "x.y"="1"}"#);
    }

    #[test]
    fn shorter_prefix_sorts_first() {
        let a = Labels::from_pairs([("a", "1")]);
        let ab = Labels::from_pairs([("a", "1"), ("b", "1")]);
        let b = Labels::from_pairs([("a", "2")]);
        assert!(Labels::empty() < a && a < ab && ab < b);
    }
}
