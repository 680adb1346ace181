//! Grouping and matching keys: a subset of the labels of a series, in reused memory.
//!
//! Invariants: a key has the bytes of [`Labels`] with the same pairs, so that both have the same hash and
//! order.
//! Cost: one iteration over the labels and a copy; no allocation once the memory has grown.
//! Not here: hash tables of keys (`promql`).

use chronolith_base::hash;

use super::{Arc, Labels, LabelsIter, put_str};

/// A subset of labels.
#[derive(Debug, Clone, Default)]
pub struct LabelsKey {
    text: String,
}

impl LabelsKey {
    /// Sets the key to the labels of `pairs`: names ascend, each once, and no value is empty.
    pub fn set_sorted<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
        self.text.clear();
        let mut last = None;
        for (name, value) in pairs {
            debug_assert!(
                last.is_none_or(|last| last < name) && !value.is_empty(),
                "sorted, without empty values"
            );
            last = Some(name);
            put_str(&mut self.text, name);
            put_str(&mut self.text, value);
        }
    }

    /// Sets the key to the labels with these names, which must ascend.
    pub fn keep(&mut self, labels: &Labels, names: &[&str]) {
        debug_assert!(names.is_sorted(), "names ascend");
        self.text.clear();
        let text: &str = &labels.0;
        let (mut names, mut iter) = (names, labels.iter());
        while !names.is_empty() {
            let start = iter.offset_in(text);
            let Some((name, _)) = iter.next() else { return };
            if is_next(&mut names, name) {
                self.text.push_str(text.get(start..iter.offset_in(text)).unwrap_or_default());
            }
        }
    }

    /// Sets the key to all labels but those with these names, which must ascend.
    pub fn leave_out(&mut self, labels: &Labels, names: &[&str]) {
        self.text.clear();
        labels.runs_without(names, |run| self.text.push_str(run));
    }

    /// Sets the key to the labels of `labels` without the names in `left_out`, and the labels of `others`
    /// with names in `kept`. Names ascend; the labels of both must have different names.
    pub fn merge(&mut self, labels: &Labels, left_out: &[&str], others: &Labels, kept: &[&str]) {
        debug_assert!(left_out.is_sorted() && kept.is_sorted(), "names ascend");
        self.text.clear();
        let mut others = others.encoded_pairs(kept).filter(|(.., named)| *named).peekable();
        for (name, pair, _) in labels.encoded_pairs(left_out).filter(|(.., named)| !named) {
            while let Some((_, other, _)) = others.next_if(|(other, ..)| *other < name) {
                self.text.push_str(other);
            }
            self.text.push_str(pair);
        }
        others.for_each(|(_, other, _)| self.text.push_str(other));
    }

    /// Returns true if the key equals the label set.
    #[must_use]
    pub fn is(&self, labels: &Labels) -> bool {
        *self.text == *labels.0
    }

    /// As [`Labels::hash64`].
    #[must_use]
    pub fn hash64(&self) -> u64 {
        hash::hash_bytes(self.text.as_bytes())
    }

    /// Copies the key to a label set.
    #[must_use]
    pub fn to_labels(&self) -> Labels {
        Labels(Arc::from(&*self.text))
    }
}

impl Labels {
    /// Returns all labels but those with these names, which must ascend. Shares memory with `self` if it has
    /// none of them.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Labels {
        let (mut first, mut more) = ("", String::new());
        let mut run_count = 0;
        self.runs_without(names, |run| {
            match run_count {
                0 => first = run,
                1 => {
                    more.reserve(self.0.len());
                    more.push_str(first);
                    more.push_str(run);
                }
                _ => more.push_str(run),
            }
            run_count += 1;
        });
        match run_count {
            0 | 1 if first.len() == self.0.len() => self.clone(),
            0 | 1 => Labels(Arc::from(first)),
            _ => Labels(Arc::from(more)),
        }
    }

    /// Iterates names, encoded pairs, and true for names in `names`, which ascend.
    fn encoded_pairs<'a>(
        &'a self,
        mut names: &'a [&'a str],
    ) -> impl Iterator<Item = (&'a str, &'a str, bool)> {
        let text: &str = &self.0;
        let mut iter = self.iter();
        std::iter::from_fn(move || {
            let start = iter.offset_in(text);
            let (name, _) = iter.next()?;
            Some((name, text.get(start..iter.offset_in(text))?, is_next(&mut names, name)))
        })
    }

    /// Calls `take` with the bytes between the labels with these names, in order.
    fn runs_without<'a>(&'a self, mut names: &[&str], mut take: impl FnMut(&'a str)) {
        debug_assert!(names.is_sorted(), "names ascend");
        let text: &str = &self.0;
        let (mut iter, mut run_start) = (self.iter(), 0);
        while !names.is_empty() {
            let start = iter.offset_in(text);
            let Some((name, _)) = iter.next() else { break };
            if is_next(&mut names, name) {
                if start > run_start {
                    take(text.get(run_start..start).unwrap_or_default());
                }
                run_start = iter.offset_in(text);
            }
        }
        if run_start < text.len() {
            take(text.get(run_start..).unwrap_or_default());
        }
    }
}

/// Returns true if `name` is the next of the ascending `names`; drops those before it.
fn is_next(names: &mut &[&str], name: &str) -> bool {
    while let Some((first, rest)) = names.split_first() {
        if *first > name {
            return false;
        }
        if *first == name {
            return true;
        }
        *names = rest;
    }
    false
}

impl LabelsIter<'_> {
    /// Offset of the next label in the text of its set.
    fn offset_in(&self, text: &str) -> usize {
        text.len() - self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every subset of names, compared with `Labels::filtered`.
    #[test]
    fn keys_equal_filtered_sets() {
        let long = "v".repeat(200);
        let all = ["__name__", "__type__", "a", "b", "job", "zone"];
        let pairs = [("__name__", "up"), ("a", "1"), ("b", &*long), ("job", "api"), ("zone", "\u{e9}")];
        for present in 0..1 << pairs.len() {
            let chosen = pairs.iter().enumerate().filter(|(at, _)| present >> at & 1 == 1);
            let labels = Labels::from_pairs(chosen.map(|(_, pair)| *pair));
            let mut key = LabelsKey::default();
            key.set_sorted(labels.iter());
            assert!(key.is(&labels) && key.to_labels() == labels);
            for mask in 0..1 << all.len() {
                let names: Vec<&str> =
                    (0..all.len()).filter(|at| mask >> at & 1 == 1).map(|at| all[at]).collect();
                let kept = labels.filtered(|name| names.contains(&name));
                key.keep(&labels, &names);
                assert_eq!(
                    (key.to_labels(), key.hash64()),
                    (kept.clone(), kept.hash64()),
                    "{labels} by {names:?}"
                );
                assert!(key.is(&kept));
                let rest = labels.filtered(|name| !names.contains(&name));
                key.leave_out(&labels, &names);
                assert!(key.is(&rest), "{labels} without {names:?}");
                assert_eq!(labels.without(&names), rest, "{labels} without {names:?}");
                // The names of one side come from another set.
                let others = Labels::from_pairs([("__type__", "t"), ("a", "other"), ("job", &*long)]);
                let merged = rest.iter().chain(others.iter().filter(|(name, _)| names.contains(name)));
                key.merge(&labels, &names, &others, &names);
                assert_eq!(
                    key.to_labels(),
                    Labels::from_pairs(merged),
                    "{labels} with {names:?} of {others}"
                );
            }
        }
    }
}
