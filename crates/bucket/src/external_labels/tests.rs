//! External labels against a model: labels are added to each series, then everything is selected and sorted.

use std::collections::BTreeMap;

use chronolith_base::{Env, Rng};
use chronolith_model::query::{Layered, SampleSource, Source};
use chronolith_model::{Columns, MatchOp, Queryable, Selector, SeriesRead, TimeRange};

use super::*;

const NAMES: [&str; 6] = ["a", "bb", "cluster", "d", "replica", "z"];
const VALUES: [&str; 3] = ["1", "2", "eu"];

/// Samples with equal times and values.
#[derive(Clone, Default)]
struct Samples(Vec<i64>);

impl SampleSource for Samples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let in_range = self.0.iter().filter(|time| range.contains(**time));
        in_range.for_each(|time| out.push(*time, *time as f64));
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
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

impl Source for Series {
    fn open(&self, read: Read, _: &ReadContext) -> Result<Opened, QueryError> {
        let selected = self.selected(&read.request.selector());
        let limit = read.request.limit;
        Ok(match read.wanted {
            Wanted::LabelNames => {
                let names = selected.iter().flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned()));
                Opened::listed(sorted(names.collect(), limit))
            }
            Wanted::LabelValues { name } => {
                let values = selected.iter().filter_map(|labels| labels.get(&name).map(str::to_owned));
                Opened::listed(sorted(values.collect(), limit))
            }
            wanted => {
                assert_eq!(wanted, Wanted::Series);
                let read = |labels| SeriesRead { labels, samples: Box::new(Samples::default()) };
                Opened::Series(Box::new(VecBatches::new(selected.into_iter().map(read).collect())))
            }
        })
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

/// Compares the answers of the block of `series` with the model.
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
    expected.dedup();
    let source = Series(series);
    let block = Layered { layer: labels, source: &source };
    let found = names_of(&mut *block.select(&selector, &ctx).unwrap());
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

/// Before, a label of the series won, so a query saw other series than by Thanos's store gateway.
#[test]
fn an_external_label_wins_over_one_of_the_series() {
    let labels = external(&[("cluster", "eu"), ("replica", "1")]);
    let check = |own: &[(&str, &str)], want: &[(&str, &str)]| {
        let own = Labels::from_pairs(own.iter().copied());
        assert_eq!(labels.extend(&own), Labels::from_pairs(want.iter().copied()), "{own}");
    };
    let both = [("cluster", "eu"), ("replica", "1")];
    check(&[], &both);
    check(&[("cluster", "us")], &both);
    check(&[("cluster", "eu")], &both);
    check(&[("cluster", "us"), ("replica", "2")], &both);
    check(&[("a", "1"), ("cluster", "us")], &[("a", "1"), both[0], both[1]]);
    check(&[("d", "1"), ("replica", "")], &[both[0], ("d", "1"), both[1]]);
    check(&[("cluster", "us"), ("z", "1")], &[both[0], both[1], ("z", "1")]);
    let matchers = |name: &str, value: &str| [Matcher::equal(name, value), Matcher::equal("a", "1")];
    assert!(!labels.split(&matchers("cluster", "us")).is_selected, "the own value is none of the series");
    let split = labels.split(&matchers("cluster", "eu"));
    assert!(split.is_selected && split.of_series == [Matcher::equal("a", "1")]);
}

/// As in Thanos, series that differ only in a label that is replaced are one series.
#[test]
fn series_that_are_equal_with_the_labels_are_merged() {
    let labels = external(&[("replica", "1")]);
    let series = |own: &str, times: &[i64]| SeriesRead {
        labels: Labels::from_pairs([("a", "1"), ("replica", own)]),
        samples: Box::new(Samples(times.to_vec())),
    };
    let read = vec![series("x", &[1, 3, 5]), series("y", &[2, 3, 9]), series("z", &[4])];
    let mut batches = labels.add_to(Box::new(VecBatches::new(read)));
    let mut all = Vec::new();
    while batches.next_batch(&mut all).unwrap() {}
    let [only] = all.as_slice() else { panic!("{} series", all.len()) };
    assert_eq!(only.labels, Labels::from_pairs([("a", "1"), ("replica", "1")]));
    let mut columns = Columns::default();
    only.samples.read(TimeRange { start: 2, end: 9 }, &mut columns).unwrap();
    assert_eq!(columns.times, [2, 3, 4, 5]);
    assert_eq!(only.samples.sample_count_hint(), 7);
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

#[test]
#[should_panic(expected = "a series has samples of one source at least")]
fn a_series_without_a_source_is_a_bug() {
    merge::merge_equal_series(Vec::new());
}
