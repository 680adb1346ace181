//! `select_refs` compared with a scan of all series, and its reads of the index.

use std::cell::RefCell;
use std::collections::BTreeMap;

use chronolith_base::Rng;

use super::*;
use crate::Labels;

/// An index in memory that records its calls. Refs are positions times two, so that there are gaps.
#[derive(Default)]
struct TestIndex {
    series: Vec<Labels>,
    postings: BTreeMap<(String, String), Vec<u32>>,
    asked: RefCell<Vec<String>>,
}

impl TestIndex {
    fn new(series: Vec<Labels>) -> TestIndex {
        let mut index = TestIndex { series, ..TestIndex::default() };
        for (at, labels) in index.series.iter().enumerate() {
            for (name, value) in labels.iter() {
                let key = (name.to_owned(), value.to_owned());
                index.postings.entry(key).or_default().push(at as u32 * 2);
            }
        }
        index
    }

    fn brute_force(&self, matchers: &[Matcher]) -> Vec<u32> {
        let fits = |labels: &Labels| matchers.iter().all(|m| m.matches_labels(labels));
        let at =
            self.series.iter().enumerate().filter(|(_, labels)| fits(labels)).map(|(at, _)| at as u32 * 2);
        at.collect()
    }

    fn note(&self, text: String) {
        self.asked.borrow_mut().push(text);
    }
}

impl LabelIndex for TestIndex {
    fn all(&self, out: &mut Vec<u32>) -> Result<(), QueryError> {
        self.note("all".to_owned());
        out.extend((0..self.series.len() as u32).map(|at| at * 2));
        Ok(())
    }

    fn postings(&self, name: &str, value: &str, out: &mut Vec<u32>) -> Result<(), QueryError> {
        assert!(!value.is_empty(), "there are no postings of the empty value");
        self.note(format!("{name}={value}"));
        out.extend(self.postings.get(&(name.to_owned(), value.to_owned())).into_iter().flatten());
        Ok(())
    }

    fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        self.note(format!("{name}:{prefix}"));
        let fits = |key: &&(String, String)| key.0 == name && key.1.starts_with(prefix);
        // Descending: refs are not ordered by values.
        for (_, value) in self.postings.keys().rev().filter(fits) {
            if !visit(value) {
                break;
            }
        }
        Ok(())
    }
}

fn matcher(text: &str) -> Matcher {
    let ops =
        [("=~", MatchOp::Regex), ("!~", MatchOp::NotRegex), ("!=", MatchOp::NotEqual), ("=", MatchOp::Equal)];
    let (name, op, value) = ops
        .iter()
        .find_map(|(sign, op)| text.split_once(sign).map(|(name, value)| (name, *op, value)))
        .unwrap();
    Matcher::new(name, op, value).unwrap()
}

fn small_index() -> TestIndex {
    let series = (0..60).map(|i: u32| {
        let (job, host, zone) = (format!("job{}", i % 3), format!("host{i}"), format!("z{}", i % 2));
        let zone = if i.is_multiple_of(5) { "" } else { &*zone };
        Labels::from_pairs([("__name__", "up"), ("job", &*job), ("host", &*host), ("zone", zone)])
    });
    TestIndex::new(series.collect())
}

#[track_caller]
fn check_asked(matchers: &[&str], want: &[&str]) {
    let index = small_index();
    let matchers = matchers.iter().map(|text| matcher(text)).collect::<Vec<_>>();
    assert_eq!(select_refs(&index, &matchers).unwrap(), index.brute_force(&matchers));
    assert_eq!(*index.asked.borrow(), want);
}

#[test]
fn only_what_decides_is_read() {
    check_asked(&["job=job1", "__name__=up"], &["job=job1", "__name__=up"]);
    check_asked(&["job=none", "__name__=up"], &["job=none"]);
    check_asked(&["zone!=z1", "host=~host5|host7"], &["host=host5", "host=host7", "zone=z1"]);
    check_asked(&["host=~host5.", "job=none"], &["job=none"]);
    check_asked(
        &["host=~host5[0-3].*"],
        &["host:host5", "host=host53", "host=host52", "host=host51", "host=host50"],
    );
    check_asked(&["host=~host5[12]"], &["host=host51", "host=host52"]);
    check_asked(&["zone="], &["all", "zone:", "zone=z1", "zone=z0"]);
    check_asked(&["zone=~.*", "job=~.*", "job=job1"], &["job=job1"]);
    check_asked(&["zone!~.*", "job=~.+"], &[]);
    check_asked(&["zone!~z1|z2"], &["all", "zone=z1", "zone=z2"]);
    check_asked(&["zone=~z1|"], &["all", "zone:", "zone=z0"]);
    check_asked(&["zone!~z1|", "job=job0"], &["job=job0", "zone:", "zone=z0"]);
    check_asked(&[], &["all"]);
}

#[test]
fn seek_finds_the_first_that_is_not_less() {
    let refs = (0..100).map(|i| i * 3).collect::<Vec<u32>>();
    for from in 0..=100 {
        for target in 0..310 {
            let want = (from..100).find(|&i| refs[i] >= target).unwrap_or(100);
            assert_eq!(seek(&refs, from, target), want);
        }
    }
}

#[test]
fn random_matchers_over_random_series_agree_with_a_look_at_every_series() {
    let rng = Rng::from_seed(3);
    let names = ["a", "b", "c"];
    let values = ["", "", "x", "y", "xx", "xy", "foo", "foobar", "bar\n"];
    let patterns = [
        "",
        "x",
        "x|y",
        "x.*",
        ".*y",
        ".*",
        ".+",
        "(x|)",
        "[^x]*",
        "x?",
        "foo(bar)?",
        "fo+.*",
        "(?i)X",
        "none",
        "none.*",
        "bar.",
        "x|nope|foo",
        "|",
        ".*o.*",
        "()",
    ];
    let pick = |list: &[&'static str]| list[rng.below(list.len() as u64) as usize];
    for _ in 0..300 {
        let series = (0..rng.below(80)).map(|_| Labels::from_pairs(names.map(|name| (name, pick(&values)))));
        let index = TestIndex::new(series.collect());
        for _ in 0..40 {
            let ops = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];
            let matchers = (0..rng.below(5))
                .map(|_| {
                    let op = ops[rng.below(4) as usize];
                    let is_regex = matches!(op, MatchOp::Regex | MatchOp::NotRegex);
                    let value = if is_regex { pick(&patterns) } else { pick(&values) };
                    Matcher::new(pick(&["a", "b", "c", "absent"]), op, value).unwrap()
                })
                .collect::<Vec<_>>();
            assert_eq!(select_refs(&index, &matchers).unwrap(), index.brute_force(&matchers), "{matchers:?}");
        }
    }
}
