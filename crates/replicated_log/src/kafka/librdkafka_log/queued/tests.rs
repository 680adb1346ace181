//! Tests of outcomes.

use std::time::Duration;

use super::*;
use crate::in_flight::InFlight;

const P0: PartitionId = PartitionId(0);

#[test]
fn offsets_that_go_back_are_counted_per_partition() {
    let ends = AckedEnds::default();
    for (partition, offset, backward_count) in
        [(0, 5, 0), (1, 0, 0), (0, 6, 0), (0, 0, 1), (0, 1, 1), (1, 0, 2)]
    {
        ends.note(PartitionId(partition), offset);
        assert_eq!(ends.backward_count(), backward_count, "{partition} {offset}");
    }
}

#[test]
fn bytes_are_given_back_with_the_outcome() {
    let in_flight = InFlight::new(100);
    let within = Duration::ZERO;
    let queue = |outcome: &Arc<Outcome>| Queued {
        topic: TopicId([1; 16]),
        failed: FailedAppend { partition: P0, ack_timeout: within, record_bytes: 60, record_bytes_max: 100 },
        acked_ends: Arc::default(),
        outcome: outcome.clone(),
        permit: in_flight.take(P0, 60, within).expect("there is room"),
    };
    let outcome = Arc::new(Outcome::default());
    queue(&outcome).acknowledge(7);
    let position = Position { topic: TopicId([1; 16]), partition: P0, offset: 7 };
    assert_eq!((outcome.wait(within), in_flight.used_bytes()), (Some(Ok(position)), 0));
    let outcome = Arc::new(Outcome::default());
    queue(&outcome).acknowledge(-1001);
    assert!(matches!(outcome.wait(within), Some(Ok(Position { offset: OFFSET_UNKNOWN, .. }))));
    let outcome = Arc::new(Outcome::default());
    queue(&outcome).fail(LogError::Closed);
    assert_eq!((outcome.wait(within), in_flight.used_bytes()), (Some(Err(LogError::Closed)), 0));
}
