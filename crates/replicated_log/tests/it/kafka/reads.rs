//! Reads next to other calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock as _, SystemClock};
use chronolith_replicated_log::{PartitionId, ReadLimits, ReplicatedLog, Ticket};

use super::broker::Broker;
use super::{open, patient, settings};

const READ: PartitionId = PartitionId(0);
const OTHER: PartitionId = PartitionId(1);
const CALLS: u32 = 20;
const READS_MAX: u32 = 100;
/// A tenth of the time that the calls take where each one waits for a fetch, half a second.
const WITHIN: Duration = Duration::from_secs(2);

/// A broker answers the requests of a connection in their order, and keeps a fetch at the end of a partition
/// for half a second: ends of partitions, and so strong queries, and appends of a process that reads as well
/// waited for it.
#[test]
fn questions_and_appends_do_not_wait_for_a_read_at_the_end() {
    let Some(broker) = Broker::shared() else { return };
    let log = open(&patient(settings(broker.listener("plain"), "reads"))).expect("opens");
    let append = |partition| log.append(partition, Bytes::from_static(b"x")).and_then(Ticket::wait);
    let next = append(READ).expect("is acknowledged").offset + 1;
    append(OTHER).expect("is acknowledged");
    let limits = ReadLimits { bytes_max: 1 << 20, wait: Duration::from_millis(700) };
    // The reader has a connection, and its next fetch is on its way.
    assert_eq!(log.read(READ, next, limits), Ok(Vec::new()));
    let is_over = AtomicBool::new(false);
    let clock = SystemClock::new();
    let (asked, appended) = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A bound, so that a failure of the other thread ends the test.
            for _ in 0..READS_MAX {
                assert_eq!(log.read(READ, next, limits), Ok(Vec::new()));
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let time = |call: &dyn Fn()| {
            let start_ns = clock.mono_ns();
            (0..CALLS).for_each(|_| call());
            Duration::from_nanos(clock.mono_ns() - start_ns)
        };
        let asked = time(&|| assert_eq!(log.bounds(READ).map(|bounds| bounds.end), Ok(next)));
        let appended = time(&|| assert!(append(OTHER).is_ok()));
        is_over.store(true, Ordering::Relaxed);
        (asked, appended)
    });
    println!("{CALLS} questions took {asked:?}, {CALLS} appends {appended:?}");
    assert!(asked < WITHIN && appended < WITHIN, "{asked:?} {appended:?}");
}
