//! External labels against a model: labels are added to each series, then everything is selected and sorted.

use std::collections::BTreeMap;

use chronolith_base::{Env, Rng};
use chronolith_model::query::SampleSource;
use chronolith_model::{Columns, MatchOp, TimeRange};

use super::*;

const NAMES: [&str; 6] = ["a", "bb", "cluster", "d", "replica", "z"];
const VALUES: [&str; 3] = ["1", "2", "eu"];

struct NoSamples;

impl SampleSource for NoSamples {
    fn read(&self, _: TimeRange, _: &mut Columns) -> Result<(), QueryError> {
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        0
    }
}

/// A block that has only labels.
struct Series(Vec<Labels>);

impl Series {
    fn selected(&self, selector: &Selector<'_>) -> Vec<Labels> {
        let is_selected = |labels: &&Labels| selector.matchers.iter().all(|m| m.matches_labels(labels));
        self.0.iter().filter(is_selected).cloned().collect()
    }
}

impl Queryable for Series {
    fn select(&self, selector: &Selector<'_>, _: &ReadContext) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let read = |labels| SeriesRead { labels, samples: Box::new(NoSamples) };
        Ok(Box::new(VecBatches::new(self.selected(selector).into_iter().map(read).collect())))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        _: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let selected = self.selected(selector);
        let names = selected.iter().flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned()));
        Ok(sorted(names.collect(), limit))
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        _: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let selected = self.selected(selector);
        Ok(sorted(selected.iter().filter_map(|labels| labels.get(name).map(str::to_owned)).collect(), limit))
    }
}

fn pick<'a>(rng: &Rng, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

fn random_labels(rng: &Rng, names: &[&str]) -> Labels {
    let mut builder = LabelsBuilder::new();
    for name in names {
        if rng.below(2) == 0 {
            builder.push(name, pick(rng, &VALUES));
        }
    }
    builder.finish()
}

fn external(pairs: &[(&str, &str)]) -> ExternalLabels {
    let map: BTreeMap<String, String> =
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    ExternalLabels::new(&map).unwrap()
}

fn names_of(batches: &mut dyn SeriesBatches) -> Result<Vec<Labels>, QueryError> {
    let mut series = Vec::new();
    while batches.next_batch(&mut series)? {}
    Ok(series.into_iter().map(|series| series.labels).collect())
}

/// What the block of `series` answers, compared with the model.
fn check(rng: &Rng, series: Vec<Labels>, labels: &ExternalLabels) {
    let (env, _, _) = Env::fake(0, 1);
    let ctx = ReadContext::unlimited(env.clock);
    let ops = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];
    let matchers: Vec<Matcher> = (0..rng.below(3))
        .map(|_| {
            let value = pick(rng, &["", "1", "eu", "1|2", ".+"]);
            Matcher::new(pick(rng, &NAMES), ops[rng.below(4) as usize], value).unwrap()
        })
        .collect();
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let mut expected: Vec<Labels> = series.iter().map(|labels_of| labels.extend(labels_of)).collect();
    expected.retain(|labels| matchers.iter().all(|matcher| matcher.matches_labels(labels)));
    expected.sort();
    let source = Series(series);
    let block = ExtendedBlock { labels, block: "block", source: &source };
    let found = names_of(&mut *block.select(&selector, &ctx).unwrap());
    if expected.windows(2).any(|pair| pair[0] == pair[1]) {
        assert!(matches!(found, Err(QueryError::Corrupt { .. })));
        return;
    }
    assert_eq!(found.unwrap(), expected, "{matchers:?}");
    let expected = Series(expected);
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    assert_eq!(
        block.label_names(&selector, 0, &ctx).unwrap(),
        expected.label_names(&all, 0, &ctx).unwrap(),
        "{matchers:?}"
    );
    for name in NAMES {
        assert_eq!(
            block.label_values(name, &selector, 0, &ctx).unwrap(),
            expected.label_values(name, &all, 0, &ctx).unwrap(),
            "{name} {matchers:?}"
        );
    }
}

#[test]
fn answers_are_those_of_series_with_the_labels() {
    let rng = Rng::from_seed(5);
    let labels = external(&[("cluster", "eu"), ("replica", "1")]);
    for _ in 0..2000 {
        // In half of the blocks no series has one of the names itself.
        let names: &[&str] = if rng.below(2) == 0 { &["a", "bb", "d", "z"] } else { &NAMES };
        let mut series: Vec<Labels> = (0..rng.below(12)).map(|_| random_labels(&rng, names)).collect();
        series.retain(|labels| !labels.is_empty());
        series.sort();
        series.dedup();
        check(&rng, series, &labels);
    }
}

#[test]
fn a_label_can_change_the_order_of_series() {
    let labels = external(&[("cluster", "eu")]);
    let series = vec![Labels::from_pairs([("b", "1")]), Labels::from_pairs([("b", "1"), ("c", "1")])];
    let extended: Vec<Labels> = series.iter().map(|labels_of| labels.extend(labels_of)).collect();
    assert!(series[0] < series[1] && extended[0] > extended[1]);
    check(&Rng::from_seed(1), series, &labels);
}

#[test]
fn reserved_and_empty_labels_are_none() {
    let map = BTreeMap::from([
        ("__compactor_shard_id__".to_owned(), "1_of_4".to_owned()),
        ("cluster".to_owned(), String::new()),
    ]);
    assert_eq!(ExternalLabels::new(&map), None);
}
