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

const GOOD: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
const NAMELESS: &[(&str, &str)] = &[("job", "a")];

#[test]
fn series_with_invalid_labels_are_rejected_each_time_and_the_others_are_cached() {
    let keys = CheckedKeys::new(7);
    let batch = batch_of(&[GOOD, NAMELESS, &[("__name__", "x")]]);
    let limits = TenantLimits::default();
    let mut scratch = KeyScratch::default();
    for _ in 0..2 {
        let outcome = keys.check(&batch, &limits, &mut scratch);
        assert_eq!((outcome.accepted_count, outcome.rejected_count()), (4, 2));
        assert_eq!(outcome.rejected[Reject::NoMetricName as usize], 2);
        let (kind, series, time) = outcome.first_reject.expect("a reject");
        assert_eq!((kind, &*series, time), (Reject::NoMetricName, r#"{job="a"}"#, 1));
        assert_eq!(scratch.invalid(), [1]);
        assert_eq!(keys.len(), 2);
    }
}

#[test]
fn keys_are_checked_again_under_other_limits() {
    let keys = CheckedKeys::new(7);
    let batch = batch_of(&[GOOD]);
    let mut scratch = KeyScratch::default();
    assert_eq!(keys.check(&batch, &TenantLimits::default(), &mut scratch).rejected_count(), 0);
    let strict = TenantLimits { label_count_max: 1, ..TenantLimits::default() };
    let outcome = keys.check(&batch, &strict, &mut scratch);
    assert_eq!(outcome.rejected[Reject::TooManyLabels as usize], 2);
    let message = "series has 2 labels, and label-count-limit allows 1";
    assert_eq!(outcome.message(Reject::TooManyLabels), message);
}

#[test]
fn a_full_generation_becomes_the_older_one_and_keys_in_use_stay() {
    let keys = CheckedKeys { keys_max: 100, ..CheckedKeys::new(7) };
    let limits = TenantLimits::default();
    let mut scratch = KeyScratch::default();
    for idx in 0..1000u32 {
        let name = format!("metric_{idx}");
        let batch = batch_of(&[GOOD, &[("__name__", &name)]]);
        assert_eq!(keys.check(&batch, &limits, &mut scratch).rejected_count(), 0);
        assert!(keys.len() <= 200, "{}", keys.len());
    }
    let known = batch_of(&[GOOD]);
    keys.check(&known, &limits, &mut scratch);
    assert!(scratch.unknown.is_empty(), "a key that each request has is never forgotten");
}
