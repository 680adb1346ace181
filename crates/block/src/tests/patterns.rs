//! Patterns asked for again give what they gave, whatever was asked between.

use chronolith_model::MatchOp;

use super::*;

#[test]
fn patterns_give_the_same_series_the_first_time_and_again() {
    let series = some_series(600, 2);
    let (env, dir) = fake_block(&series);
    let block = Block::open(&env, &dir).expect("opens");
    let patterns = [".*7", "0.*", "[0-9]+5", "(1|2)..", ".*x", "", ".+", "..*"];
    for round in 0..3 {
        for pattern in patterns {
            for op in [MatchOp::Regex, MatchOp::NotRegex, MatchOp::Equal, MatchOp::NotEqual] {
                for name in ["i", "even", "none"] {
                    let matchers =
                        [Matcher::equal("__name__", "m"), Matcher::new(name, op, pattern).expect("compiles")];
                    let want: Bits = series
                        .iter()
                        .filter(|(labels, _)| matchers.iter().all(|m| m.matches_labels(labels)))
                        .map(|(labels, samples)| (labels.clone(), samples.clone()))
                        .collect();
                    let found = read_selected(&env, &block, &matchers, TimeRange::ALL).expect("reads");
                    assert!(found == want, "{name} {op:?} {pattern:?}, round {round}");
                }
            }
        }
    }
    assert!(block.search_bytes() > 0, "patterns over 600 values are remembered");
}
