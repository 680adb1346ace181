//! The queue of one Alertmanager.

use std::collections::VecDeque;
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::Labels;

use super::super::queue::{BATCH_ALERTS_MAX, QUEUE_ALERTS_MAX};
use super::super::{Alert, AlertEnd, Batch, Failure, Next, QueueCounts, SendQueue};

fn alert(name: &str, starts_at_ms: i64, end: AlertEnd) -> Arc<Alert> {
    Arc::new(Alert {
        labels: Labels::from_pairs([("alertname", name)]),
        annotations: Labels::empty(),
        starts_at_ms,
        end,
        generator_url: String::new(),
    })
}

fn firing(name: &str, until_ms: i64) -> Arc<Alert> {
    alert(name, 0, AlertEnd::ValidUntilMs(until_ms))
}

fn numbered(count: usize) -> Vec<Arc<Alert>> {
    (0..count).map(|number| firing(&number.to_string(), 1)).collect()
}

#[track_caller]
fn batch(queue: &mut SendQueue, now_ms: i64) -> Batch {
    match queue.next(now_ms) {
        Next::Send(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn names(batch: &Batch) -> Vec<String> {
    batch.alerts().iter().map(|alert| alert.labels.get("alertname").expect("a name").to_owned()).collect()
}

#[test]
fn batches_have_256_alerts_in_the_order_of_their_arrival() {
    let mut queue = SendQueue::new(QUEUE_ALERTS_MAX);
    assert!(matches!(queue.next(0), Next::Idle));
    assert_eq!(queue.push(&numbered(600), 0), 0);
    let mut sizes = Vec::new();
    while let Next::Send(batch) = queue.next(0) {
        if sizes.is_empty() {
            assert_eq!(names(&batch)[..3], ["0", "1", "2"]);
        }
        sizes.push(batch.alert_count());
        queue.sent(batch);
    }
    assert_eq!(sizes, [BATCH_ALERTS_MAX, BATCH_ALERTS_MAX, 88]);
    assert_eq!(queue.counts(), QueueCounts { sent: 600, errors: 0, dropped: 0 });
}

#[test]
fn the_oldest_alerts_are_dropped_for_newer_ones() {
    let mut queue = SendQueue::new(3);
    assert_eq!(queue.push(&numbered(5), 0), 2);
    assert_eq!(names(&batch(&mut queue, 0)), ["2", "3", "4"]);
    assert_eq!(queue.counts().dropped, 2);
}

/// An Alertmanager that was down for five minutes got nothing of that time.
#[test]
fn a_failed_batch_is_sent_again_before_newer_alerts() {
    let mut queue = SendQueue::new(10);
    queue.push(&[firing("a", 1), firing("b", 1)], 0);
    let failed = batch(&mut queue, 0);
    queue.push(&[firing("c", 1)], 0);
    queue.failed(failed, Failure::Transient, 100);
    assert!(matches!(queue.next(100), Next::WaitMs(500)));
    let again = batch(&mut queue, 600);
    assert_eq!(names(&again), ["a", "b", "c"]);
    queue.sent(again);
    assert_eq!(queue.counts(), QueueCounts { sent: 3, errors: 2, dropped: 0 });
}

#[test]
fn pauses_between_retries_are_bounded_and_end_with_a_success() {
    let mut queue = SendQueue::new(10);
    queue.push(&[firing("a", 1)], 0);
    let mut now_ms = 0;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let failed = batch(&mut queue, now_ms);
        queue.failed(failed, Failure::Transient, now_ms);
        let Next::WaitMs(pause_ms) = queue.next(now_ms) else { panic!("no pause") };
        pauses.push(pause_ms);
        now_ms += pause_ms;
    }
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
    let sent = batch(&mut queue, now_ms);
    queue.sent(sent);
    queue.push(&[firing("b", 1)], now_ms);
    let failed = batch(&mut queue, now_ms);
    queue.failed(failed, Failure::Transient, now_ms);
    assert!(matches!(queue.next(now_ms), Next::WaitMs(500)), "pauses begin anew");
}

#[test]
fn refused_alerts_and_alerts_of_a_quarter_of_an_hour_are_given_up() {
    let mut queue = SendQueue::new(10);
    queue.push(&[firing("a", 1)], 0);
    let refused = batch(&mut queue, 0);
    queue.failed(refused, Failure::Refused, 0);
    assert!(matches!(queue.next(0), Next::Idle), "there is no pause after a refusal");
    assert_eq!(queue.counts(), QueueCounts { sent: 0, errors: 1, dropped: 1 });
    queue.push(&[firing("old", 1)], 0);
    queue.push(&[firing("young", 1)], 1000);
    let failed = batch(&mut queue, 1000);
    queue.failed(failed, Failure::Transient, 900_500);
    assert_eq!(queue.counts().dropped, 2);
    assert_eq!(names(&batch(&mut queue, 1_000_000)), ["young"]);
}

/// Alerts are sent again each minute; copies of them would fill the queue of one that is down, and their
/// `endsAt` has gone by when it comes back.
#[test]
fn a_newer_notification_replaces_the_waiting_one() {
    let mut queue = SendQueue::new(10);
    queue.push(&[firing("a", 240), firing("b", 240)], 0);
    queue.push(&[firing("a", 300)], 60);
    queue.push(&[alert("a", 0, AlertEnd::ResolvedAtMs(100))], 100);
    queue.push(&[alert("a", 200, AlertEnd::ValidUntilMs(500))], 200);
    assert_eq!(queue.len(), 4, "the end of an alert and its next start stay apart");
    let sent = batch(&mut queue, 200);
    let ends: Vec<i64> = sent.alerts().iter().map(|alert| alert.end.ms()).collect();
    assert_eq!(ends, [300, 240, 100, 500]);
    // A failed batch does not come back in front of what has replaced its alerts meanwhile.
    queue.push(&[firing("a", 360)], 300);
    queue.failed(sent, Failure::Transient, 300);
    let ends: Vec<i64> = batch(&mut queue, 10_000).alerts().iter().map(|alert| alert.end.ms()).collect();
    assert_eq!(ends, [240, 100, 500, 360]);
    assert_eq!(queue.counts().dropped, 0);
}

#[test]
fn a_stop_sends_each_batch_once_and_without_a_pause() {
    let mut queue = SendQueue::new(1000);
    queue.push(&numbered(300), 0);
    let failed = batch(&mut queue, 0);
    queue.failed(failed, Failure::Transient, 0);
    assert!(matches!(queue.next(0), Next::WaitMs(_)));
    queue.drain();
    let failed = batch(&mut queue, 0);
    queue.failed(failed, Failure::Transient, 0);
    assert_eq!(queue.counts().dropped, 256);
    let sent = batch(&mut queue, 0);
    queue.sent(sent);
    assert!(matches!(queue.next(0), Next::Idle));
    queue.push(&numbered(2), 0);
    assert_eq!(queue.clear(), 2);
    assert_eq!(queue.counts(), QueueCounts { sent: 44, errors: 512, dropped: 258 });
}

/// Compares random runs with a plain list of alerts.
#[test]
fn every_alert_is_sent_waiting_or_dropped_in_order() {
    for seed in 0..200 {
        let rng = Rng::from_seed(seed);
        let mut queue = SendQueue::new(20);
        let mut model: VecDeque<String> = VecDeque::new();
        let mut pushed = 0u64;
        let mut now_ms = 0;
        for _ in 0..200 {
            now_ms += 10_000;
            if rng.below(2) == 0 {
                let count = rng.below(8);
                let fresh: Vec<String> = (pushed..pushed + count).map(|number| number.to_string()).collect();
                pushed += count;
                queue.push(&fresh.iter().map(|name| firing(name, 1)).collect::<Vec<_>>(), now_ms);
                model.extend(fresh);
            } else if let Next::Send(batch) = queue.next(now_ms) {
                assert_eq!(names(&batch), Vec::from(model.clone()), "seed {seed}");
                match rng.below(3) {
                    0 => queue.failed(batch, Failure::Transient, now_ms),
                    1 => {
                        queue.failed(batch, Failure::Refused, now_ms);
                        model.clear();
                    }
                    _ => {
                        queue.sent(batch);
                        model.clear();
                    }
                }
            }
            while model.len() > 20 {
                model.pop_front();
            }
            assert_eq!(queue.len(), model.len(), "seed {seed}");
            let counts = queue.counts();
            assert_eq!(counts.sent + counts.dropped + model.len() as u64, pushed, "seed {seed}");
        }
    }
}
