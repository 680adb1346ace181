//! Tests of outcomes.

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
    let queue = |outcome: &Arc<Outcome<Option<u64>>>| Queued {
        append: FailedAppend { partition: P0, ack_timeout: within, record_bytes: 60, record_bytes_max: 100 },
        acked_ends: Arc::default(),
        outcome: outcome.clone(),
        permit: in_flight.take(P0, 60, within).expect("there is room"),
    };
    let outcome = Arc::new(Outcome::default());
    queue(&outcome).acknowledge(7);
    assert_eq!((outcome.wait(within), in_flight.used_bytes()), (Some(Ok(Some(7))), 0));
    let outcome = Arc::new(Outcome::default());
    queue(&outcome).acknowledge(-1001);
    assert_eq!(outcome.wait(within), Some(Ok(None)));
    let outcome = Arc::new(Outcome::default());
    queue(&outcome).fail(LogError::Closed);
    assert_eq!((outcome.wait(within), in_flight.used_bytes()), (Some(Err(LogError::Closed)), 0));
}
