//! The cache never changes the result, and stays within its bound.

use chronolith_model::{Labels, Reject};

use super::*;

fn batch_of(series: &[&[(&str, &str)]]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for labels in series {
        batch.push_labels(&Labels::from_pairs(labels.iter().copied()), &[(1, 1.0), (2, 2.0)]);
    }
    batch
}

fn terms(limits: &TenantLimits) -> CheckTerms<'_> {
    CheckTerms { limits, full: None, now_ns: 0 }
}

const GOOD: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
const NAMELESS: &[(&str, &str)] = &[("job", "a")];

#[test]
fn series_with_invalid_labels_are_rejected_each_time_and_the_others_are_cached() {
    let keys = CheckedKeys::new(7, 0);
    let batch = batch_of(&[GOOD, NAMELESS, &[("__name__", "x")]]);
    let limits = TenantLimits::default();
    let mut scratch = KeyScratch::default();
    for _ in 0..2 {
        let outcome = keys.check(&batch, terms(&limits), &mut scratch);
        assert_eq!((outcome.accepted_count, outcome.rejected_count()), (4, 2));
        assert_eq!(outcome.rejected[Reject::NoMetricName as usize], 2);
        let (kind, series, time) = outcome.first_reject.expect("a reject");
        assert_eq!((kind, &*series, time), (Reject::NoMetricName, r#"{job="a"}"#, 1));
        assert_eq!(scratch.refused(), [1]);
        assert_eq!(keys.len(), 2);
    }
}

#[test]
fn keys_are_checked_again_under_other_limits() {
    let keys = CheckedKeys::new(7, 0);
    let batch = batch_of(&[GOOD]);
    let mut scratch = KeyScratch::default();
    assert_eq!(keys.check(&batch, terms(&TenantLimits::default()), &mut scratch).rejected_count(), 0);
    let strict = TenantLimits { label_count_max: 1, ..TenantLimits::default() };
    let outcome = keys.check(&batch, terms(&strict), &mut scratch);
    assert_eq!(outcome.rejected[Reject::TooManyLabels as usize], 2);
    let message = "series has 2 labels, and label-count-limit allows 1";
    assert_eq!(outcome.message(Reject::TooManyLabels), message);
}

#[test]
fn a_full_generation_becomes_the_older_one_and_keys_in_use_stay() {
    let keys = CheckedKeys { keys_max: 100, ..CheckedKeys::new(7, 0) };
    let limits = TenantLimits::default();
    let mut scratch = KeyScratch::default();
    for idx in 0..1000u32 {
        let name = format!("metric_{idx}");
        let batch = batch_of(&[GOOD, &[("__name__", &name)]]);
        assert_eq!(keys.check(&batch, terms(&limits), &mut scratch).rejected_count(), 0);
        assert!(keys.len() <= 200, "{}", keys.len());
    }
    let known = batch_of(&[GOOD]);
    keys.check(&known, terms(&limits), &mut scratch);
    assert!(scratch.unknown.is_empty(), "a key that each request has is never forgotten");
}

/// Covers a gateway that has just started, or whose cache is too small: it refused series that the tenant
/// had for days.
#[test]
fn new_series_of_a_full_tenant_are_refused_once_the_cache_knows_all_others() {
    let keys = CheckedKeys { keys_max: 3, ..CheckedKeys::new(7, 0) };
    let limits = TenantLimits::default();
    let full = Some(FullTenant { used: 12, limit: 10 });
    let mut scratch = KeyScratch::default();
    let mut check = |names: &[&str], now_ns: u64| {
        let labels: Vec<[(&str, &str); 1]> = names.iter().map(|name| [("__name__", *name)]).collect();
        let series: Vec<&[(&str, &str)]> = labels.iter().map(|one| &one[..]).collect();
        let outcome =
            keys.check(&batch_of(&series), CheckTerms { limits: &limits, full, now_ns }, &mut scratch);
        (outcome, scratch.refused().to_vec())
    };
    assert_eq!(check(&["a"], KNOWN_TIME_NS - 1).0.rejected_count(), 0, "the cache began just now");
    let (outcome, refused) = check(&["b", "a", "c"], KNOWN_TIME_NS);
    assert_eq!((outcome.accepted_count, refused), (2, vec![0, 2]));
    assert_eq!(outcome.rejected[Reject::SeriesLimit as usize], 4);
    let message = "the tenant has 12 series, and series-limit allows 10";
    assert_eq!(outcome.message(Reject::SeriesLimit), message);
    assert_eq!(check(&["b"], KNOWN_TIME_NS).1, [0], "a refused series stays new");
    // Two generations are full: keys of the first one are forgotten, so that no series is known to be new.
    let limits_of_others = TenantLimits::default();
    let others = CheckTerms { limits: &limits_of_others, full: None, now_ns: KNOWN_TIME_NS };
    for name in ["d", "e", "f", "g", "h", "i"] {
        keys.check(&batch_of(&[&[("__name__", name)]]), others, &mut KeyScratch::default());
    }
    assert_eq!(check(&["b"], KNOWN_TIME_NS).1, [0; 0]);
    assert_eq!(check(&["j"], 2 * KNOWN_TIME_NS).1, [0]);
}
