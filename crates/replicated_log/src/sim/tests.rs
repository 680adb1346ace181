//! Tests of each fault of a simulated log.

use super::*;
use chronolith_base::ManualClock;

const P0: PartitionId = PartitionId(0);
const NO_WAIT: ReadLimits = ReadLimits { bytes_max: 1 << 20, wait: Duration::ZERO };

fn topic(faults: SimFaults) -> SimTopic {
    let mut options = SimOptions::new(2, 7);
    options.faults = faults;
    SimTopic::new(Arc::new(ManualClock::new(0)), options)
}

fn append(log: &SimLog, value: &'static str) -> Result<Position, LogError> {
    log.append(P0, Bytes::from_static(value.as_bytes()))?.wait()
}

fn stored(topic: &SimTopic) -> Vec<Bytes> {
    topic.records(P0).into_iter().map(|record| record.value).collect()
}

#[test]
fn a_lost_request_is_not_stored_and_its_sender_cannot_know() {
    let topic = topic(SimFaults { lost_requests: 1000, ..SimFaults::default() });
    let error = append(&topic.connect().unwrap(), "a").unwrap_err();
    assert!(error.may_be_written(), "{error}");
    topic.finish_arrivals();
    assert!(stored(&topic).is_empty());
}

#[test]
fn a_record_may_arrive_after_its_sender_gave_up() {
    let faults = SimFaults { late_arrivals: 1000, delay_us_max: 1_000_000, ..SimFaults::default() };
    let topic = topic(faults);
    let error = append(&topic.connect().unwrap(), "a").unwrap_err();
    assert!(error.may_be_written(), "{error}");
    topic.finish_arrivals();
    assert_eq!(stored(&topic), ["a"]);
}

#[test]
fn a_refused_record_is_not_stored() {
    let topic = topic(SimFaults { refused: 1000, ..SimFaults::default() });
    let log = topic.connect().unwrap();
    let error = append(&log, "a").unwrap_err();
    assert!(!error.may_be_written() && error.is_retriable(), "{error}");
    topic.finish_arrivals();
    assert!(stored(&topic).is_empty());
    assert_eq!(log.stats().refused_records, 1);
}

#[test]
fn a_broker_without_idempotence_stores_repeats_twice() {
    let topic = topic(SimFaults { stored_twice: 1000, ..SimFaults::default() });
    let log = topic.connect().unwrap();
    assert_eq!(append(&log, "a").unwrap().offset, 0);
    assert_eq!(append(&log, "b").unwrap().offset, 2);
    assert_eq!(stored(&topic), ["a", "a", "b", "b"]);
}

#[test]
fn reads_fail_and_are_short() {
    let topic = topic(SimFaults { failed_reads: 300, short_reads: 500, ..SimFaults::default() });
    let log = topic.connect().unwrap();
    for value in ["a", "b", "c"] {
        append(&log, value).unwrap();
    }
    let mut lengths = [0; 4];
    for _ in 0..200 {
        match log.read(P0, 0, NO_WAIT) {
            Ok(records) => lengths[records.len()] += 1,
            Err(error) => {
                assert!(error.is_retriable(), "{error}");
                lengths[0] += 1;
            }
        }
    }
    assert!(lengths[0] > 20 && lengths[1] > 20 && lengths[3] > 20, "{lengths:?}");
    assert_eq!(log.stats().failed_reads, lengths[0]);
}

#[test]
fn records_after_a_timeout_are_sent_later_or_not_at_all() {
    let topic = topic(SimFaults::default());
    let log = topic.connect().unwrap();
    topic.set_reachable(false);
    let first = log.append(P0, Bytes::from_static(b"a")).unwrap();
    topic.set_reachable(true);
    let second = log.append(P0, Bytes::from_static(b"b")).unwrap();
    let error = second.wait().unwrap_err();
    assert!(!error.may_be_written(), "it never left its sender: {error}");
    assert!(first.wait().unwrap_err().may_be_written());
    assert_eq!(append(&log, "c").unwrap().offset, 0);
    assert_eq!(stored(&topic), ["c"]);
}

#[test]
fn a_topic_that_was_made_again_is_another_one() {
    let topic = topic(SimFaults::default());
    let log = topic.connect().unwrap();
    append(&log, "a").unwrap();
    topic.replace();
    let is_replaced = |error: &LogError| matches!(error, LogError::TopicReplaced { .. });
    assert!(append(&log, "b").is_err_and(|error| is_replaced(&error) && !error.is_retriable()));
    assert!(log.read(P0, 0, NO_WAIT).is_err_and(|error| is_replaced(&error)));
    assert!(log.bounds(P0).is_err_and(|error| is_replaced(&error)));
    assert!(log.partition_count().is_err_and(|error| is_replaced(&error)));
    assert_ne!(topic.connect().unwrap().identity(), log.identity());
}

#[test]
fn trimmed_records_are_out_of_range_and_partitions_grow() {
    let topic = topic(SimFaults::default());
    let log = topic.connect().unwrap();
    for value in ["a", "b", "c"] {
        append(&log, value).unwrap();
    }
    topic.trim(P0, 2);
    let bounds = Bounds { start: 2, end: 3 };
    assert_eq!(log.bounds(P0), Ok(bounds));
    let error = log.read(P0, 1, NO_WAIT).unwrap_err();
    assert_eq!(error, LogError::OffsetOutOfRange { partition: P0, offset: 1, bounds });
    assert_eq!(log.read(P0, 2, NO_WAIT).unwrap().len(), 1);
    topic.add_partitions(3);
    assert_eq!(log.partition_count(), Ok(5));
    assert_eq!(log.bounds(PartitionId(4)), Ok(Bounds { start: 0, end: 0 }));
}

#[test]
fn a_broker_that_is_cut_off_is_unavailable() {
    let topic = topic(SimFaults::default());
    let log = topic.connect().unwrap();
    topic.set_reachable(false);
    assert!(topic.connect().is_err());
    assert!(matches!(log.bounds(P0), Err(LogError::Unavailable { .. })));
    assert!(matches!(log.read(P0, 0, NO_WAIT), Err(LogError::Unavailable { .. })));
}

#[test]
fn bytes_in_flight_are_limited() {
    let mut options = SimOptions::new(1, 7);
    options.in_flight_bytes_max = 10;
    options.faults.delay_us_max = 1000;
    let topic = SimTopic::new(Arc::new(ManualClock::new(0)), options);
    let log = topic.connect().unwrap();
    let first = log.append(P0, Bytes::from_static(b"12345678")).unwrap();
    assert_eq!(log.stats().in_flight_bytes, 8);
    // Waits in simulated time until the first one is acknowledged.
    let mut second = log.append(P0, Bytes::from_static(b"12345678")).unwrap();
    assert!(!second.is_resolved());
    assert_eq!(first.wait().unwrap().offset, 0);
    assert_eq!(second.wait().unwrap().offset, 1);
    assert_eq!(log.stats().in_flight_bytes, 0);
    let refused = log.append(P0, Bytes::from_static(b"12345678901")).map(drop);
    assert!(matches!(refused, Err(LogError::Full { used_bytes: 0, bytes_max: 10, record_bytes: 11, .. })));
}
