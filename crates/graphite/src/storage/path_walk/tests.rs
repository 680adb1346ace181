//! The walk against a match of every path, and the number of reads that it needs.

use std::collections::BTreeSet;

use super::super::glob;
use super::*;

struct Paths {
    sorted: Vec<String>,
    search_count: usize,
}

impl Paths {
    fn new(paths: impl IntoIterator<Item = String>) -> Paths {
        let sorted: BTreeSet<String> = paths.into_iter().collect();
        Paths { sorted: sorted.into_iter().collect(), search_count: 0 }
    }
}

impl SortedPaths for Paths {
    fn seek(&mut self, start: &str) -> Result<Option<&str>, EvalError> {
        self.search_count += 1;
        let first = self.sorted.partition_point(|path| path.as_str() < start);
        Ok(self.sorted.get(first).map(String::as_str))
    }
}

fn found(paths: &mut Paths, pattern: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut visit = |path: &str, is_leaf| {
        found.push((path.to_owned(), is_leaf));
        Ok(())
    };
    walk(paths, pattern, &mut visit).expect("within the limits");
    found
}

/// Every node of every path is compared with the pattern.
fn expected(paths: &Paths, pattern: &str) -> BTreeSet<(String, bool)> {
    let mut patterns = glob::elements(pattern);
    // Any path below.
    if patterns.last() == Some(&"**") {
        patterns.push("*");
    }
    let mut nodes = BTreeSet::new();
    for path in &paths.sorted {
        let elements: Vec<&str> = path.split('.').collect();
        for count in 1..=elements.len() {
            if all_match(&patterns, &elements[..count]) {
                nodes.insert((elements[..count].join("."), count == elements.len()));
            }
        }
    }
    nodes
}

/// Matches as graphite-web's finder walks directories: `**` is the directory itself and all below.
fn all_match(patterns: &[&str], elements: &[&str]) -> bool {
    match (patterns, elements) {
        (["**", rest @ ..], _) => (0..=elements.len()).any(|skipped| all_match(rest, &elements[skipped..])),
        ([pattern, rest @ ..], [element, after @ ..]) => {
            glob::matches(pattern, element) && all_match(rest, after)
        }
        ([], []) => true,
        _ => false,
    }
}

/// `**` was one element, where it is any number of them in graphite-web. Answers follow the rule of the
/// finder of graphite-web 1.1.10; they were not compared with a running one.
#[test]
fn two_asterisks_match_any_depth() {
    let all = ["n.rps", "n.c.rps", "n.a.b.rps", "n.a.b.err", "icinga.h1.svc.ping.rta", "x"];
    let mut paths = Paths::new(all.map(str::to_owned));
    let mut check = |pattern: &str, want: &[&str]| {
        let mut got: Vec<String> = found(&mut paths, pattern)
            .into_iter()
            .map(|(path, is_leaf)| if is_leaf { path } else { path + ".*" })
            .collect();
        got.sort_unstable();
        assert_eq!(got, want, "{pattern}");
        let leaves: BTreeSet<&str> = want.iter().copied().filter(|path| !path.ends_with(".*")).collect();
        let matcher = glob::PathPattern::new(pattern);
        let matched: BTreeSet<&str> = all.into_iter().filter(|path| matcher.matches(path)).collect();
        assert_eq!(matched, leaves, "{pattern}");
    };
    check("n.**.rps", &["n.a.b.rps", "n.c.rps", "n.rps"]);
    check("icinga.**.rta", &["icinga.h1.svc.ping.rta"]);
    check("**.rps", &["n.a.b.rps", "n.c.rps", "n.rps"]);
    check("n.**.b.rps", &["n.a.b.rps"]);
    check("n.**.b.*", &["n.a.b.err", "n.a.b.rps"]);
    check("n.a.**", &["n.a.b.*", "n.a.b.err", "n.a.b.rps"]);
    check("n.**.**.rps", &["n.a.b.rps", "n.c.rps", "n.rps"]);
    check("**.b.**.rps", &["n.a.b.rps"]);
    check("*.**.{rps,rta}", &["icinga.h1.svc.ping.rta", "n.a.b.rps", "n.c.rps", "n.rps"]);
    check("n.**.x", &[]);
    check("n**.rps", &["n.rps"]);
    check("**.svc", &["icinga.h1.svc.*"]);
    check("x.**", &[]);
    check("i**.h1.**.ping.rta", &["icinga.h1.svc.ping.rta"]);
}

#[test]
fn the_walk_finds_what_matches() {
    let rng = chronolith_base::Rng::from_seed(5);
    let nodes = ["a", "a-b", "a0", "b", "b\u{e9}", "ab", "c!", "d1", "d2", "[x]", "a b", "z", "~", "A"];
    let random = |len: u64| nodes[rng.below(len) as usize];
    let globs = ["**", "*", "a*", "{a,b,a-b}", "d[0-9]", "?", "[!a]*", "a{,0,-b}", "*b", "{d1,[x]}", "b?"];
    for round in 0..200 {
        let path = |_| (0..=rng.below(4)).map(|_| random(nodes.len() as u64)).collect::<Vec<_>>().join(".");
        let mut paths = Paths::new((0..1 + rng.below(120)).map(path));
        for _ in 0..20 {
            let element = |_| match rng.below(2) {
                0 => globs[rng.below(globs.len() as u64) as usize],
                _ => random(nodes.len() as u64),
            };
            let pattern = (0..=rng.below(4)).map(element).collect::<Vec<_>>().join(".");
            let got = found(&mut paths, &pattern);
            let distinct: BTreeSet<(String, bool)> = got.iter().cloned().collect();
            assert_eq!(distinct.len(), got.len(), "round {round}, {pattern}: a node is visited once");
            assert_eq!(
                distinct,
                expected(&paths, &pattern),
                "round {round}, {pattern} in {:?}",
                paths.sorted
            );
        }
    }
}

/// A branch that does not match is skipped, whatever its size is.
#[test]
fn the_cost_is_that_of_the_matching_nodes() {
    let path = |idx: u64| {
        format!("a.h{:03}.{}.d{:02}", idx / 1000, ["b", "c", "e", "f"][idx as usize % 4], idx % 1000 / 4)
    };
    let mut paths = Paths::new((0..100_000).map(path));
    let got = found(&mut paths, "a.*.{b,c}.d[0-9]1");
    assert_eq!(got.len(), 100 * 2 * 10);
    // Two searches, of leaf and branch, for each node on the way, and none for children that do not match.
    let node_count = got.len() + 100 * 2 + 100;
    assert!(paths.search_count <= 2 * node_count + 10, "{} searches", paths.search_count);
    paths.search_count = 0;
    assert_eq!(found(&mut paths, "a.h007.b.d01"), [("a.h007.b.d01".to_owned(), true)]);
    assert!(paths.search_count <= 5, "{} searches", paths.search_count);
    assert!(walk(&mut paths, &"a.".repeat(600), &mut |_, _| Ok(())).is_err());
}
