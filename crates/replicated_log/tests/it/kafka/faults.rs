//! A broker that is killed, and one that hangs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chronolith_replicated_log::kafka::KafkaLog;
use chronolith_replicated_log::{LogError, PartitionId, ReadLimits, ReplicatedLog, Ticket};

use super::broker::Broker;
use super::{open, patient, settings};
use crate::conformance::read_range;
use crate::ledger::{Counts, Entry, Ledger};

/// Tickets of an appender that are not waited for yet.
const WAITING_MAX: usize = 50;
const PARTITIONS: u32 = 2;

/// Appends until `is_over`, and some more afterwards.
fn append_until(log: &KafkaLog, partition: PartitionId, is_over: &AtomicBool) -> Ledger {
    let mut ledger = Ledger::default();
    let mut waiting: Vec<(Bytes, Ticket)> = Vec::new();
    let mut after_count = 0;
    for number in 0.. {
        let is_last = after_count == 200;
        let value = Bytes::from(format!("{partition} {number} {}", "z".repeat(number % 3000)));
        let queued = log.append(partition, value.clone());
        let has_failed = queued.is_err();
        if waiting.len() == WAITING_MAX || is_last || has_failed {
            for (value, ticket) in waiting.drain(..) {
                ledger.0.push(Entry { value, outcome: ticket.wait() });
            }
        }
        match queued {
            Ok(ticket) => waiting.push((value, ticket)),
            Err(error) => ledger.0.push(Entry { value, outcome: Err(error) }),
        }
        if is_last {
            break;
        }
        after_count += usize::from(is_over.load(Ordering::Relaxed));
    }
    for (value, ticket) in waiting {
        ledger.0.push(Entry { value, outcome: ticket.wait() });
    }
    ledger
}

/// Two appenders while the broker is killed in the middle of batches and started again: nothing acknowledged
/// is lost, nothing is there twice, and appends go on by themselves.
#[test]
fn nothing_acknowledged_is_lost_when_the_broker_is_killed() {
    let Some(mut broker) = Broker::shared() else { return };
    let settings = patient(settings(broker.listener("plain"), "killed"));
    let log = open(&settings).expect("opens");
    let is_over = AtomicBool::new(false);
    let ledgers: Vec<Ledger> = std::thread::scope(|scope| {
        let append = |p| {
            let (log, is_over) = (&log, &is_over);
            scope.spawn(move || append_until(log, PartitionId(p), is_over))
        };
        let appenders: Vec<_> = (0..PARTITIONS).map(append).collect();
        for _ in 0..3 {
            wait_for_appends(&log, 2000);
            broker.kill();
            broker.start_again();
        }
        wait_for_appends(&log, 2000);
        is_over.store(true, Ordering::Relaxed);
        appenders.into_iter().map(|appender| appender.join().expect("no panic")).collect()
    });
    let mut sum = Counts::default();
    for (p, ledger) in (0..PARTITIONS).zip(&ledgers) {
        let partition = PartitionId(p);
        let end = log.bounds(partition).expect("bounds").end;
        let counts = ledger.verify(partition, &read_range(&log, partition, 0, end));
        sum.acknowledged += counts.acknowledged;
        sum.possibly_written += counts.possibly_written;
        sum.refused += counts.refused;
        assert!(ledger.0.last().is_some_and(|entry| entry.outcome.is_ok()), "appends do not go on");
    }
    println!("{sum:?}");
    assert!(sum.acknowledged >= 8000, "{sum:?}");
}

/// Waits until `count` more records were acknowledged.
fn wait_for_appends(log: &KafkaLog, count: u64) {
    let wanted = log.stats().appended_records + count;
    for _ in 0..600 {
        if log.stats().appended_records >= wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("appends do not go on: {:?}", log.stats());
}

/// The ledger of what a gateway may promise: after the timeout the record may be there, and later it is
/// there once.
#[test]
fn a_broker_that_hangs_means_possibly_written_within_the_timeout() {
    let Some(mut broker) = Broker::shared() else { return };
    let mut settings = settings(broker.listener("plain"), "hangs");
    settings.ack_timeout = Duration::from_secs(2);
    let log = open(&settings).expect("opens");
    let partition = PartitionId(0);
    let mut ledger = Ledger::default();
    let append = |value: &'static str| {
        let value = Bytes::from_static(value.as_bytes());
        Entry { outcome: log.append(partition, value.clone()).and_then(Ticket::wait), value }
    };
    ledger.0.push(append("before"));
    broker.pause();
    let hanging = append("hanging");
    assert!(matches!(&hanging.outcome, Err(LogError::PossiblyWritten { .. })), "{:?}", hanging.outcome);
    ledger.0.push(hanging);
    let limits = ReadLimits { bytes_max: 1 << 20, wait: Duration::from_millis(300) };
    let read = log.read(partition, 1, limits);
    assert!(
        matches!(read, Err(LogError::Unavailable { .. })),
        "a reader that gets nothing must fail: {read:?}"
    );
    assert!(log.bounds(partition).is_err_and(|error| error.is_retriable()));
    broker.resume();
    let mut after = append("after");
    while after.outcome.is_err() {
        assert!(ledger.0.len() < 10, "appends do not go on: {:?}", after.outcome);
        ledger.0.push(after);
        after = append("after");
    }
    ledger.0.push(after);
    let end = log.bounds(partition).expect("bounds").end;
    let counts = ledger.verify(partition, &read_range(&log, partition, 0, end));
    assert_eq!(counts.acknowledged, 2, "{counts:?}");
}
