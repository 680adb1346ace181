//! The simulated log: conformance, and the ledger under faults for many seeds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{ManualClock, Rng};
use chronolith_replicated_log::sim::{SimFaults, SimLog, SimOptions, SimTopic};
use chronolith_replicated_log::{PartitionId, ReplicatedLog, Ticket};

use crate::conformance::{PARTITION_COUNT, RECORD_BYTES_MAX, Suite, read_range};
use crate::ledger::{Counts, Entry, Ledger};

const START_MS: i64 = 1_795_132_800_000;
const SEED_COUNT: u64 = 200;
const PARTITIONS: u32 = 3;

fn topic(seed: u64, faults: SimFaults) -> SimTopic {
    let mut options = SimOptions::new(PARTITION_COUNT, seed);
    options.record_bytes_max = RECORD_BYTES_MAX;
    options.faults = faults;
    SimTopic::new(Arc::new(ManualClock::new(START_MS)), options)
}

#[test]
fn conformance_without_and_with_delays() {
    for delay_us_max in [0, 50_000] {
        let topic = topic(1, SimFaults { delay_us_max, ..SimFaults::default() });
        Suite { open: &|| Box::new(topic.connect().expect("is reachable")) }.run();
    }
}

/// Appends that wait for their tickets, in order.
struct Sender {
    ledger: Ledger,
    waiting: Vec<(Bytes, Ticket)>,
}

impl Sender {
    fn append(&mut self, log: &SimLog, partition: PartitionId, value: Bytes) {
        match log.append(partition, value.clone()) {
            Ok(ticket) => self.waiting.push((value, ticket)),
            Err(error) => {
                self.wait();
                self.ledger.0.push(Entry { value, outcome: Err(error) });
            }
        }
    }

    fn wait(&mut self) {
        for (value, ticket) in self.waiting.drain(..) {
            self.ledger.0.push(Entry { value, outcome: ticket.wait() });
        }
    }
}

fn run(seed: u64) -> (Counts, Vec<u64>) {
    let topic = topic(seed, SimFaults::some());
    let rng = Rng::from_seed(seed ^ 0xfau64);
    let mut log = topic.connect().expect("is reachable");
    let mut senders: Vec<Sender> =
        (0..PARTITIONS).map(|_| Sender { ledger: Ledger::default(), waiting: Vec::new() }).collect();
    for number in 0..300u64 {
        let p = rng.below(u64::from(PARTITIONS)) as u32;
        let sender = &mut senders[p as usize];
        sender.append(&log, PartitionId(p), Bytes::from(format!("{number}")));
        match rng.below(40) {
            0..10 => sender.wait(),
            10 => topic.set_reachable(false),
            11..14 => topic.set_reachable(true),
            14 => {
                topic.set_reachable(true);
                senders.iter_mut().for_each(Sender::wait);
                log = topic.connect().expect("is reachable");
            }
            _ => {}
        }
    }
    topic.set_reachable(true);
    senders.iter_mut().for_each(Sender::wait);
    topic.finish_arrivals();
    let mut sum = Counts::default();
    let mut ends = Vec::new();
    for (p, sender) in (0..PARTITIONS).zip(&senders) {
        let partition = PartitionId(p);
        let end = log.bounds(partition).expect("is reachable").end;
        let records = read_range(&log, partition, 0, end);
        assert_eq!(records, topic.records(partition), "seed {seed}: a read differs from the log");
        let counts = sender.ledger.verify(partition, &records);
        sum.acknowledged += counts.acknowledged;
        sum.possibly_written += counts.possibly_written;
        sum.refused += counts.refused;
        ends.push(end);
    }
    (sum, ends)
}

#[test]
fn acknowledged_records_are_there_once_whatever_fails() {
    let mut sum = Counts::default();
    for seed in 0..SEED_COUNT {
        let (counts, _) = run(seed);
        sum.acknowledged += counts.acknowledged;
        sum.possibly_written += counts.possibly_written;
        sum.refused += counts.refused;
    }
    println!("{sum:?}");
    assert!(sum.acknowledged > 10_000 && sum.possibly_written > 500 && sum.refused > 500, "{sum:?}");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

/// A wait is in simulated time: this test would take ten seconds otherwise.
#[test]
fn a_timeout_means_possibly_written() {
    let topic = topic(1, SimFaults { lost_acks: 1000, ..SimFaults::default() });
    let log = topic.connect().expect("is reachable");
    let error =
        log.append(PartitionId(0), Bytes::from_static(b"x")).and_then(Ticket::wait).expect_err("no ack");
    assert!(error.may_be_written() && error.is_retriable(), "{error}");
    assert!(error.to_string().contains(&format!("{:?}", Duration::from_secs(10))), "{error}");
    assert_eq!(log.bounds(PartitionId(0)).expect("is reachable").end, 1);
    assert_eq!(log.stats().possibly_written_records, 1);
}
