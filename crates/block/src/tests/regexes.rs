//! Regex matchers select the same series when their result is cached, whatever was selected in between.

use chronolith_model::MatchOp;

use super::*;

#[test]
fn a_cached_regex_selects_the_same_series() {
    let series = some_series(600, 2);
    let (env, dir) = fake_block(&series);
    let block = Block::open(&env, &dir).expect("opens");
    let regexes = [".*7", "0.*", "[0-9]+5", "(1|2)..", ".*x", "", ".+", "..*"];
    for round in 0..3 {
        for regex in regexes {
            for op in [MatchOp::Regex, MatchOp::NotRegex, MatchOp::Equal, MatchOp::NotEqual] {
                for name in ["i", "even", "none"] {
                    let matchers =
                        [Matcher::equal("__name__", "m"), Matcher::new(name, op, regex).expect("compiles")];
                    let want: Bits = series
                        .iter()
                        .filter(|(labels, _)| matchers.iter().all(|m| m.matches_labels(labels)))
                        .map(|(labels, samples)| (labels.clone(), samples.clone()))
                        .collect();
                    let found = read_selected(&env, &block, &matchers, TimeRange::ALL).expect("reads");
                    assert!(found == want, "{name} {op:?} {regex:?}, round {round}");
                }
            }
        }
    }
    assert!(block.regex_cache_bytes() > 0, "regexes over 600 values are cached");
}
