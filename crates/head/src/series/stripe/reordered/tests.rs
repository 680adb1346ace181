//! Outcomes by window and policy, and what of a series is in chunks.

use std::path::Path;

use chronolith_base::Env;
use chronolith_model::reorder::Update;
use chronolith_model::{DuplicatePolicy, ReorderRule, TimeRange};

use super::*;
use crate::series::sealed::SealedStore;
use crate::series::stripe::HistogramBudget;
use crate::series::stripe::ooo_log::OooSample;
use AppendOutcome::{Duplicate, DuplicateTimestamp, InOrder, OutOfOrder, Replaced};

const TENANT: u32 = 0;
const ID: u32 = 1;

static NO_BUDGET: HistogramBudget = HistogramBudget::new(u64::MAX);

/// Appends samples by a rule of 5 slots of 10 ms; checks outcome and rounded time of each, and in the end the
/// times in chunks and those in the buffer.
fn check(update: Update, samples: &[(i64, f64, AppendOutcome, i64)], chunks: (i64, i64), buffered: &[i64]) {
    let (env, _, _) = Env::fake(0, 1);
    let store = SealedStore::new(&env, Path::new("/d"), 1 << 20, 1, Vec::new());
    let mut cx = AppendContext::new(&store, &*env.disk, &NO_BUDGET, 10_000, DuplicatePolicy::LastWins);
    let mut stripe = Stripe::new();
    stripe.create(ID, TENANT);
    let rule = ReorderRule::new(10, 5, update).expect("valid");
    for &(time_ms, value, outcome, time) in samples {
        let done = append_by_rule(&mut stripe, &mut cx, TENANT, ID, &rule, Sample { time_ms, value });
        let done = done.expect("a valid time");
        assert_eq!((done.outcome, done.time), (outcome, time), "{time_ms}={value} of {samples:?}");
    }
    let times =
        |stripe: &Stripe| stripe.reorder_buffers.samples(ID).map(|one| one.time()).collect::<Vec<_>>();
    assert_eq!(times(&stripe), buffered, "{samples:?}");
    assert_eq!(stripe.open_chunk(ID).map(|open| (open.min_time(), open.max_time())), Some(chunks));
    assert_eq!(stripe.newest_time(ID), buffered.last().copied());
    let all_count = cx.windows.take_count();
    flush(&mut stripe, &mut cx, ID);
    assert_eq!(times(&stripe), [] as [i64; 0]);
    assert_eq!(cx.windows.take_count(), 0, "{all_count} samples are counted once");
    assert!(!stripe.has_reorder_buffers(), "an empty buffer is freed");
    let left: Vec<OooSample> = stripe.ooo_samples(ID);
    assert!(left.iter().all(|one| one.time() <= chunks.1), "{left:?}");
}

#[test]
fn samples_leave_the_buffer_in_order() {
    let rows = [
        (11, 1.0, InOrder, 20),
        (50, 2.0, InOrder, 50),
        (29, 3.0, OutOfOrder, 30),
        (30, 4.0, Replaced, 30),
        (61, 5.0, InOrder, 70),
        (80, 6.0, InOrder, 80),
    ];
    check(Update::Allow, &rows, (20, 30), &[50, 70, 80]);
}

#[test]
fn a_sample_before_the_window_is_stored_out_of_order() {
    let rows = [
        (10, 1.0, InOrder, 10),
        (60, 2.0, InOrder, 60),
        (110, 3.0, InOrder, 110),
        (55, 4.0, Replaced, 60),
        (60, 4.0, Duplicate, 60),
        (35, 5.0, OutOfOrder, 40),
    ];
    check(Update::Allow, &rows, (10, 60), &[110]);
}

#[test]
fn a_rule_may_refuse_a_second_value() {
    let rows = [
        (10, 1.0, InOrder, 10),
        (5, 2.0, DuplicateTimestamp, 10),
        (30, 3.0, InOrder, 30),
        (30, 3.0, DuplicateTimestamp, 30),
        (70, 4.0, InOrder, 70),
    ];
    check(Update::Disallow, &rows, (10, 10), &[30, 70]);
}

#[test]
fn the_last_interval_of_time_is_refused() {
    let (env, _, _) = Env::fake(0, 1);
    let store = SealedStore::new(&env, Path::new("/d"), 1 << 20, 1, Vec::new());
    let mut cx = AppendContext::new(&store, &*env.disk, &NO_BUDGET, 10_000, DuplicatePolicy::LastWins);
    let mut stripe = Stripe::new();
    stripe.create(ID, TENANT);
    let rule = ReorderRule::new(10, 5, Update::Allow).expect("valid");
    let mut append = |tenant, time_ms| {
        let sample = Sample { time_ms, value: 1.0 };
        append_by_rule(&mut stripe, &mut cx, tenant, ID, &rule, sample).map(|done| done.outcome)
    };
    assert_eq!(append(TENANT, TIME_MAX_MS - 9), None);
    assert_eq!(append(TENANT, TIME_MAX_MS - 10), Some(InOrder));
    assert_eq!(append(TENANT + 1, 5), Some(AppendOutcome::SeriesGone));
}

/// Only a window with buffered samples empties the buffer, and another rule does.
#[test]
fn a_buffer_is_emptied_for_its_window_and_for_another_rule() {
    let (env, _, _) = Env::fake(0, 1);
    let store = SealedStore::new(&env, Path::new("/d"), 1 << 20, 1, Vec::new());
    let mut cx = AppendContext::new(&store, &*env.disk, &NO_BUDGET, 1000, DuplicatePolicy::LastWins);
    let mut stripe = Stripe::new();
    stripe.create(ID, TENANT);
    let rule = |len| ReorderRule::new(10, len, Update::Allow).expect("valid");
    let sample = |time_ms| Sample { time_ms, value: 1.0 };
    append_by_rule(&mut stripe, &mut cx, TENANT, ID, &rule(5), sample(1500));
    assert!(!stripe.seal_window(&mut cx, ID, TimeRange::new(0, 1000)));
    assert!(stripe.has_buffered(ID));
    assert!(stripe.seal_window(&mut cx, ID, TimeRange::new(1000, 2000)));
    assert!(!stripe.has_buffered(ID));
    append_by_rule(&mut stripe, &mut cx, TENANT, ID, &rule(5), sample(2500));
    append_by_rule(&mut stripe, &mut cx, TENANT, ID, &rule(3), sample(2520));
    assert_eq!(stripe.open_chunk(ID).map(|open| open.max_time()), Some(2500));
    assert_eq!(stripe.reorder_buffers.samples(ID).map(|one| one.time()).collect::<Vec<_>>(), [2520]);
}
