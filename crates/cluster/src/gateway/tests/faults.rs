//! Faults of the log: whatever a gateway acknowledges is in the log, and what it does not is repeated.

use super::*;

const SEEDS: u64 = 40;
const REQUESTS: i64 = 25;

/// Outcomes of requests that were repeated until they were acknowledged.
#[derive(Default)]
struct Counts {
    possibly_written: u64,
    not_written: u64,
    /// Samples that the log has more than once.
    repeated: u64,
}

fn run(seed: u64, counts: &mut Counts) {
    let faults = SimFaults { lost_acks: 150, late_arrivals: 100, refused: 60, ..SimFaults::some() };
    // A request of one record, of which an error may tell that it is not written, or of three.
    let partition_count = if seed.is_multiple_of(2) { 1 } else { 3 };
    let cluster = Cluster::with(SimOptions { faults, ..SimOptions::new(partition_count, seed) });
    let gateway = cluster.gateway();
    let team = tenant("t");
    let mut acknowledged = 0;
    for request in 0..REQUESTS {
        let time_ms = NOW_MS + request;
        for attempt in 0.. {
            assert!(attempt < 50, "seed {seed}: a request is acknowledged in the end");
            let request_id = format!("{request}-{attempt}");
            let write = GatewayWrite { request_id: &request_id, ..write_of(&team) };
            let appended = gateway.append(write, &batch_of(12, time_ms));
            match appended.and_then(PendingRecords::wait) {
                Ok(done) => {
                    assert_eq!(done.outcome.accepted_count, 12);
                    assert!(done.offsets.to_header().is_some());
                    acknowledged += 1;
                    break;
                }
                Err(error) => check_error(&cluster, seed, &request_id, &error, counts),
            }
        }
    }
    assert_eq!(acknowledged, REQUESTS);
    let mut found = all_samples(&cluster.records());
    let count = found.len() as u64;
    found.dedup();
    counts.repeated += count - found.len() as u64;
    let mut want: Vec<_> = (0..REQUESTS).flat_map(|request| samples_of(12, NOW_MS + request)).collect();
    want.sort();
    assert_eq!(found, want, "seed {seed}: each sample is in the log, and no other value of it");
}

/// Checks that the sender may repeat the request, and that an error which rules records out left none.
fn check_error(cluster: &Cluster, seed: u64, request_id: &str, error: &GatewayError, counts: &mut Counts) {
    assert_eq!(error.fault(), GatewayFault::Retry, "seed {seed}: {error}");
    if error.may_be_written() {
        assert!(error.to_string().contains("may be written"), "{error}");
        counts.possibly_written += 1;
        return;
    }
    counts.not_written += 1;
    let records = cluster.records();
    let is_written = records.iter().any(|record| record.origin.request_id == request_id);
    assert!(!is_written, "seed {seed}: {error}");
}

#[test]
fn what_is_acknowledged_is_in_the_log_whatever_acknowledgements_are_lost_or_late() {
    let mut counts = Counts::default();
    (0..SEEDS).for_each(|seed| run(seed, &mut counts));
    assert!(counts.possibly_written > 100, "{}", counts.possibly_written);
    assert!(counts.not_written > 10, "{}", counts.not_written);
    assert!(counts.repeated > 100, "repeats of records whose acknowledgement was lost: {}", counts.repeated);
}

#[test]
fn a_log_that_cannot_be_reached_acknowledges_nothing_and_recovers() {
    let cluster = Cluster::new(2);
    let gateway = cluster.gateway();
    cluster.topic.set_reachable(false);
    let appended = gateway.append(write_of(&tenant("t")), &batch_of(3, NOW_MS));
    let error = appended.and_then(PendingRecords::wait).expect_err("not acknowledged");
    assert_eq!(error.fault(), GatewayFault::Retry);
    cluster.topic.set_reachable(true);
    let appended = gateway.append(write_of(&tenant("t")), &batch_of(3, NOW_MS));
    appended.and_then(PendingRecords::wait).expect("acknowledged");
}

#[test]
fn a_topic_that_was_made_again_is_another_log() {
    let cluster = Cluster::new(2);
    let gateway = cluster.gateway();
    cluster.topic.replace();
    let appended = gateway.append(write_of(&tenant("t")), &batch_of(3, NOW_MS));
    let error = appended.and_then(PendingRecords::wait).expect_err("not acknowledged");
    assert!(matches!(&error, GatewayError::Log { error: LogError::TopicReplaced { .. }, .. }), "{error}");
    assert!(gateway.refresh().is_err());
    assert!(gateway.unready_reason().is_some());
}
