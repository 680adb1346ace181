//! Runs of continuous queries in the schedule.

use std::time::Duration;

use super::RuleEngine;

const SECOND_NS: i64 = 1_000_000_000;

#[test]
fn continuous_queries_run_one_at_a_time_a_second_after_the_run_before() {
    let engine = RuleEngine::default();
    let now_ns = 1_700_000_000 * SECOND_NS;
    assert!(engine.take_queries(now_ns));
    assert!(!engine.take_queries(now_ns + 10 * SECOND_NS), "one runs");
    engine.finish_queries(now_ns + 20 * SECOND_NS);
    assert!(!engine.take_queries(now_ns + 21 * SECOND_NS - 1));
    assert!(engine.take_queries(now_ns + 21 * SECOND_NS));
    assert_eq!(engine.running_count(), 0, "it is no round");
    engine.finish_queries(now_ns + 21 * SECOND_NS);
    assert!(engine.take_queries(now_ns - 3600 * SECOND_NS), "the clock was set back");
}

/// The thread of continuous queries was joined: a stop waited for a query of two minutes, and was cut short.
#[test]
fn a_stop_waits_for_the_run_of_continuous_queries_that_it_interrupts() {
    let engine = RuleEngine::default();
    assert!(engine.take_queries(SECOND_NS));
    assert!(!engine.stop(Duration::ZERO));
    assert!(engine.is_stopping());
    engine.finish_queries(2 * SECOND_NS);
    assert!(engine.stop(Duration::ZERO));
}
