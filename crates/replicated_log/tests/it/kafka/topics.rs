//! Topics: missing, made again, with more partitions, with limits, with records that retention removed.

use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_replicated_log::kafka::KafkaLog;
use chronolith_replicated_log::{Bounds, LogError, PartitionId, ReadLimits, ReplicatedLog, Ticket};

use super::admin::Admin;
use super::broker::Broker;
use super::{open, patient, settings};
use crate::conformance::{PARTITION_COUNT, append_all, read_range};

const P0: PartitionId = PartitionId(0);
const LIMITS: ReadLimits = ReadLimits { bytes_max: 1 << 20, wait: Duration::from_millis(300) };
/// Looks for a change that brokers make one after the other.
const LOOKS_MAX: u32 = 200;

/// Repeats `look` until it returns something.
#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} does not happen");
}

fn values(count: usize) -> Vec<Bytes> {
    (0..count).map(|number| Bytes::from(format!("{number}"))).collect()
}

#[test]
fn a_missing_topic_is_named_with_the_command() {
    let Some(broker) = Broker::shared() else { return };
    let mut settings = settings(broker.listener("plain"), "missing");
    settings.new_topic = None;
    let error = open(&settings).map(drop).expect_err("there is no topic");
    assert!(matches!(error, LogError::TopicMissing { .. }), "{error:?}");
    let command =
        format!("kafka-topics.sh --bootstrap-server {} --create --topic missing", broker.listener("plain"));
    assert!(error.to_string().contains(&command), "{error}");
}

#[test]
fn a_topic_is_created_once_with_its_settings() {
    let Some(broker) = Broker::shared() else { return };
    let settings = settings(broker.listener("plain"), "created");
    // Two processes that begin at the same time.
    let identities = std::thread::scope(|scope| {
        let opened = [(); 2].map(|()| scope.spawn(|| open(&settings).expect("opens").identity()));
        opened.map(|thread| thread.join().expect("no panic"))
    });
    assert_eq!(identities[0], identities[1]);
    let log = open(&settings).expect("opens");
    assert_eq!((log.identity(), log.partition_count()), (identities[0], Ok(PARTITION_COUNT)));
    let at = append_all(&log, P0, &values(1))[0].offset;
    let stored = read_range(&log, P0, at, at + 1);
    // By the broker's clock, which is this machine's.
    let now_ms = chronolith_base::Env::real().clock.now_ms();
    assert!((now_ms - 60_000..now_ms + 60_000).contains(&stored[0].timestamp_ms), "{stored:?}");
}

/// Offsets of a topic that was made again mean other records: nothing may be read or acknowledged as before.
#[test]
fn a_topic_that_was_made_again_is_refused() {
    let Some(broker) = Broker::shared() else { return };
    let admin = Admin::new(&broker);
    let mut settings = settings(broker.listener("plain"), "again");
    settings.ack_timeout = Duration::from_secs(4);
    let log = open(&settings).expect("opens");
    append_all(&log, P0, &values(5));
    admin.delete("again");
    let gone = wait_for("the end of the topic", || log.bounds(P0).err());
    assert!(matches!(gone, LogError::TopicMissing { .. } | LogError::Unavailable { .. }), "{gone:?}");
    let read = wait_for("the failure of a read", || log.read(P0, 5, LIMITS).err());
    assert!(matches!(read, LogError::TopicMissing { .. } | LogError::Unavailable { .. }), "{read:?}");
    wait_for("the topic of the same name", || admin.create("again", PARTITION_COUNT, &[]).ok());
    let append = || log.append(P0, Bytes::from_static(b"x")).and_then(Ticket::wait);
    let appended = wait_for("the refusal of an append", || {
        append().err().filter(|e| !matches!(e, LogError::Unavailable { .. }))
    });
    let is_replaced = |error: &LogError| matches!(error, LogError::TopicReplaced { .. });
    assert!(is_replaced(&appended) || appended.is_retriable(), "{appended:?}");
    let replaced = wait_for("the refusal", || append().err().filter(is_replaced));
    assert!(replaced.to_string().contains(&log.identity().to_string()), "{replaced}");
    assert!(log.read(P0, 0, LIMITS).is_err_and(|error| is_replaced(&error)));
    assert!(log.bounds(P0).is_err_and(|error| is_replaced(&error)));
    assert!(log.partition_count().is_err_and(|error| is_replaced(&error)));
    assert_ne!(open(&settings).expect("opens").identity(), log.identity());
}

#[test]
fn records_that_retention_removed_are_out_of_range() {
    let Some(broker) = Broker::shared() else { return };
    let admin = Admin::new(&broker);
    let log = open(&settings(broker.listener("plain"), "retention")).expect("opens");
    append_all(&log, P0, &values(10));
    admin.delete_records("retention", 7);
    let bounds = Bounds { start: 7, end: 10 };
    assert_eq!(log.bounds(P0), Ok(bounds));
    let error = log.read(P0, 3, LIMITS).expect_err("is gone");
    assert_eq!(error, LogError::OffsetOutOfRange { partition: P0, offset: 3, bounds });
    assert_eq!(read_range(&log, P0, 7, 10).len(), 3);
}

#[test]
fn partitions_that_were_added_are_found() {
    let Some(broker) = Broker::shared() else { return };
    let admin = Admin::new(&broker);
    admin.create("grows", 1, &[]).expect("is created");
    let mut settings = settings(broker.listener("plain"), "grows");
    settings.new_topic = None;
    // Brokers learn of a topic after its creation was answered.
    let log = wait_for("the topic", || open(&settings).ok());
    assert_eq!(log.partition_count(), Ok(1));
    admin.grow("grows", 3);
    // Metadata is at most ten seconds old.
    wait_for("the growth", || {
        std::thread::sleep(Duration::from_millis(50));
        (log.partition_count() == Ok(3)).then_some(())
    });
    assert_eq!(append_all(&log, PartitionId(2), &values(1))[0].offset, 0);
}

#[test]
fn records_beyond_the_topics_limit_are_refused_with_both_sizes() {
    let Some(broker) = Broker::shared() else { return };
    let admin = Admin::new(&broker);
    admin.create("small", 1, &[("max.message.bytes", "5000")]).expect("is created");
    let mut settings = settings(broker.listener("plain"), "small");
    settings.new_topic = None;
    // Brokers learn of a topic after its creation was answered.
    let log = wait_for("the topic", || open(&settings).ok());
    let append = |len| log.append(P0, Bytes::from(vec![7; len])).and_then(Ticket::wait);
    let error = append(4801).expect_err("too large");
    assert_eq!(error, LogError::TooLarge { record_bytes: 4801, record_bytes_max: 4800 });
    assert!(append(4800).is_ok());
    // A limit that was lowered since: the broker's answer.
    admin.set("small", "max.message.bytes", "1000");
    // Bytes that no codec makes smaller.
    let noise = || {
        let mut bytes = vec![0; 3000];
        chronolith_base::Rng::from_seed(1).fill(&mut bytes);
        Bytes::from(bytes)
    };
    let error = wait_for("the lower limit", || log.append(P0, noise()).and_then(Ticket::wait).err());
    assert_eq!(error, LogError::TooLarge { record_bytes: 3000, record_bytes_max: 800 });
    assert!(append(100).is_ok(), "the producer goes on");
}

/// A server that ends shuts its runtime down before the last owner of the log is dropped.
#[test]
fn a_log_that_is_dropped_after_its_runtime_neither_panics_nor_waits() {
    let Some(broker) = Broker::shared() else { return };
    let settings = patient(settings(broker.listener("plain"), "late-drop"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let log = KafkaLog::open(&Env::real(), runtime.handle(), settings).expect("opens");
    let in_flight = log.append(PartitionId(0), Bytes::from_static(b"sample")).expect("is queued");
    runtime.shutdown_background();
    drop(log);
    drop(in_flight);
}
