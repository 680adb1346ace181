//! `select_presence` against `select`, and label lists: answers that need no series or samples.

use chronolith_base::Rng;
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Labels, Matcher, Selector, TimeRange};

use crate::harness::{NOW_MS, TestEnv, batch, check_presence, delete, tenant};

/// Names whose order differs from the order of creation, so that groups are not ordered by id.
fn series_labels(idx: u64) -> Labels {
    let (name, job) = (format!("m{}", idx * 7 % 5), format!("job-{}", idx * 5 % 4));
    let instance = format!("host-{}", idx * 31 % 97);
    let mut pairs = vec![("__name__", &*name), ("instance", &*instance)];
    if !idx.is_multiple_of(6) {
        pairs.push(("job", &*job));
    }
    Labels::from_pairs(pairs)
}

/// Regression: `count` built and sorted the labels of every series, though it uses none. Groups, their order,
/// and their series with a sample that is not stale equal a plain select, for every time range.
#[test]
fn presence_matches_a_plain_select() {
    for seed in 0..12 {
        let test_env = TestEnv::new(seed);
        let rng = Rng::from_seed(seed);
        let (head, _) = test_env.open();
        for round in 0..30 {
            let mut series = Vec::new();
            for idx in (0..90).filter(|_| rng.below(3) > 0) {
                let late_ms = if rng.below(5) == 0 { rng.below(60_000) as i64 } else { 0 };
                let value = if rng.below(6) == 0 { STALE_NAN } else { rng.below(9) as f64 };
                let time_ms = NOW_MS - 150_000 + round * 5000 + rng.below(900) as i64 - late_ms;
                series.push((series_labels(idx), vec![(time_ms, value)]));
            }
            // Rejected samples do not matter here.
            let _ = test_env.write(&head, &tenant("a"), &batch(&series));
            let end = NOW_MS - 150_000 + round * 5000 + rng.below(20_000) as i64 - 10_000;
            let range = TimeRange::new(end - rng.below(60_000) as i64, end);
            let matchers = [Matcher::equal("job", "job-1")];
            check_presence(&test_env, &head, "a", &Selector { matchers: &matchers, range });
            check_presence(&test_env, &head, "a", &Selector { matchers: &[], range });
            if rng.below(10) == 0 {
                delete(&head, "a", &[vec![Matcher::equal("job", "job-2")]], range);
            }
        }
        drop(head);
        let (head, _) = test_env.open();
        check_presence(&test_env, &head, "a", &Selector { matchers: &[], range: TimeRange::ALL });
    }
}

/// Regression: label names and values for a part of the time range of the head read every series. The lists
/// cover all series, as in Prometheus, unless the range has no samples; deleted series are still excluded.
#[test]
fn label_lists_without_matchers_read_no_series() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    let old = Labels::from_pairs([("__name__", "old"), ("a", "1")]);
    let new = Labels::from_pairs([("__name__", "new"), ("b", "1")]);
    let series = [(old, vec![(NOW_MS - 5000, 1.0)]), (new, vec![(NOW_MS, 1.0)])];
    test_env.write(&head, &tenant("t"), &batch(&series)).expect("written");
    let lists = |start_ms: i64, end_ms: i64| {
        let ctx = test_env.context();
        let selector = Selector { matchers: &[], range: TimeRange::new(start_ms, end_ms) };
        let names = head.reader().label_names(&tenant("t"), &selector, 0, &ctx).expect("listed");
        (names, head.reader().label_values(&tenant("t"), "__name__", &selector, 0, &ctx).expect("listed"))
    };
    let both = (
        vec!["__name__".to_owned(), "a".to_owned(), "b".to_owned()],
        vec!["new".to_owned(), "old".to_owned()],
    );
    assert_eq!(lists(NOW_MS - 1000, NOW_MS + 1000), both);
    assert_eq!(lists(NOW_MS - 9000, NOW_MS - 4000), both);
    assert_eq!(lists(NOW_MS + 1, NOW_MS + 1000), (vec![], vec![]), "the head has nothing there");
    delete(&head, "t", &[vec![Matcher::equal("__name__", "old")]], TimeRange::ALL);
    let rest = (vec!["__name__".to_owned(), "b".to_owned()], vec!["new".to_owned()]);
    assert_eq!(lists(NOW_MS - 9000, NOW_MS + 1000), rest);
}
