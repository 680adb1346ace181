//! The conformance suite: what holds for every replicated log.
//!
//! Invariant: cases begin at the end of what earlier ones appended, so that one log serves all of them.
//! Not here: faults (`ledger`), and what one implementation alone has.

use std::time::Duration;

use bytes::Bytes;
use chronolith_replicated_log::{LogError, PartitionId, Position, ReadLimits, Record, ReplicatedLog};

/// Partitions of a log under test.
pub(crate) const PARTITION_COUNT: u32 = 8;
/// Largest record of a log under test.
pub(crate) const RECORD_BYTES_MAX: usize = 900_000;

/// A wait that no test outlasts unless something is wrong.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);
/// Reads that may fail in a row.
const FAILURES_MAX: u32 = 200;

type Case = (&'static str, fn(&Suite<'_>));

const CASES: [Case; 11] = [
    ("records of a partition keep their order", order),
    ("tickets of a partition resolve in order", tickets),
    ("a read may begin at every offset", every_offset),
    ("bounds grow with appends", bounds),
    ("reads outside of the bounds are refused", out_of_range),
    ("large and empty records come back, larger ones are refused with sizes", sizes),
    ("partitions are independent", partitions),
    ("appenders at the same time keep their own order", concurrent),
    ("a read waits for a record", waiting),
    ("partitions that do not exist are refused", no_partition),
    ("a log that is opened again continues", reopen),
];

/// A log under test.
pub(crate) struct Suite<'a> {
    /// Opens the log, after the earlier client was closed.
    pub(crate) open: &'a dyn Fn() -> Box<dyn ReplicatedLog>,
}

impl Suite<'_> {
    /// Runs all cases.
    pub(crate) fn run(&self) {
        for (name, case) in CASES {
            println!("case: {name}");
            case(self);
        }
    }
}

/// Appends values and waits for all of them.
pub(crate) fn append_all(log: &dyn ReplicatedLog, partition: PartitionId, values: &[Bytes]) -> Vec<Position> {
    let tickets: Vec<_> =
        values.iter().map(|value| log.append(partition, value.clone()).expect("is queued")).collect();
    tickets.into_iter().map(|ticket| ticket.wait().expect("is acknowledged")).collect()
}

/// Reads the records of `[from, end)`, over failed reads.
pub(crate) fn read_range(
    log: &dyn ReplicatedLog,
    partition: PartitionId,
    from: u64,
    end: u64,
) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut next = from;
    let mut failures = 0;
    while next < end {
        match log.read(partition, next, ReadLimits { bytes_max: 1 << 20, wait: LONG }) {
            Ok(found) => {
                assert!(!found.is_empty(), "no record at {next} of {partition}, which ends at {end}");
                for record in &found {
                    assert!(record.offset >= next, "offset {} after {next}", record.offset);
                    next = record.offset + 1;
                }
                records.extend(found);
                failures = 0;
            }
            Err(error) => {
                assert!(error.is_retriable() && failures < FAILURES_MAX, "{error}");
                failures += 1;
            }
        }
    }
    records
}

fn values(name: &str, count: usize) -> Vec<Bytes> {
    (0..count).map(|i| Bytes::from(format!("{name} {i} {}", "x".repeat(i * 37 % 2000)))).collect()
}

fn values_of(records: &[Record]) -> Vec<Bytes> {
    records.iter().map(|record| record.value.clone()).collect()
}

fn end(log: &dyn ReplicatedLog, partition: PartitionId) -> u64 {
    log.bounds(partition).expect("bounds").end
}

fn order(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(0);
    let appended = values("order", 300);
    let from = end(&*log, partition);
    let positions = append_all(&*log, partition, &appended);
    assert!(positions.windows(2).all(|pair| pair[0].offset < pair[1].offset), "{positions:?}");
    assert_eq!(positions[0].offset, from);
    let identity = log.identity();
    assert!(positions.iter().all(|at| at.topic == identity && at.partition == partition));
    let records = read_range(&*log, partition, from, end(&*log, partition));
    assert_eq!(values_of(&records), appended);
    let offsets: Vec<u64> = records.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, positions.iter().map(|at| at.offset).collect::<Vec<_>>());
    assert!(records.windows(2).all(|pair| pair[0].timestamp_ms <= pair[1].timestamp_ms), "times go back");
}

fn tickets(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(1);
    let mut tickets: Vec<_> = values("tickets", 100)
        .into_iter()
        .map(|value| log.append(partition, value).expect("is queued"))
        .collect();
    let last = tickets.pop().expect("a ticket").wait().expect("is acknowledged");
    assert!(tickets.iter_mut().all(|ticket| ticket.is_resolved()), "a later ticket resolved first");
    // A ticket that is dropped cancels nothing.
    drop(tickets);
    assert_eq!(last.offset + 1, end(&*log, partition));
}

fn every_offset(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(2);
    let appended = values("every", 60);
    let positions = append_all(&*log, partition, &appended);
    for (at, value) in positions.iter().zip(&appended) {
        let found = log.read(partition, at.offset, ReadLimits { bytes_max: 1, wait: LONG }).expect("reads");
        assert_eq!((found.len(), found[0].offset, &found[0].value), (1, at.offset, value));
        let rest = read_range(&*log, partition, at.offset, end(&*log, partition));
        assert_eq!(rest.len(), appended.len() - (at.offset - positions[0].offset) as usize);
    }
    // Backwards, too.
    for at in positions.iter().rev() {
        let found =
            log.read(partition, at.offset, ReadLimits { bytes_max: 4000, wait: LONG }).expect("reads");
        assert_eq!(found[0].offset, at.offset);
        let bytes: usize = found.iter().map(|record| record.value.len()).sum();
        assert!(bytes <= 4000 || found.len() == 1, "{bytes} bytes");
    }
}

fn bounds(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(3);
    let before = log.bounds(partition).expect("bounds");
    assert!(before.start <= before.end);
    append_all(&*log, partition, &values("bounds", 7));
    let after = log.bounds(partition).expect("bounds");
    assert_eq!((after.start, after.end), (before.start, before.end + 7));
    assert_eq!(log.partition_count(), Ok(PARTITION_COUNT));
}

fn out_of_range(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(3);
    append_all(&*log, partition, &values("range", 1));
    let bounds = log.bounds(partition).expect("bounds");
    let limits = ReadLimits { bytes_max: 1 << 20, wait: SHORT };
    assert_eq!(log.read(partition, bounds.end, limits), Ok(Vec::new()));
    let offset = bounds.end + 1;
    assert_eq!(
        log.read(partition, offset, limits),
        Err(LogError::OffsetOutOfRange { partition, offset, bounds })
    );
    // The log is usable afterwards.
    assert_eq!(log.read(partition, bounds.end - 1, limits).expect("reads").len(), 1);
}

fn sizes(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(4);
    let large = Bytes::from(vec![b'l'; RECORD_BYTES_MAX]);
    let appended = [large.clone(), Bytes::new(), large.slice(..300_000), large.slice(..1)];
    let positions = append_all(&*log, partition, &appended);
    let records = read_range(&*log, partition, positions[0].offset, end(&*log, partition));
    assert_eq!(values_of(&records), appended);
    let refused =
        log.append(partition, Bytes::from(vec![0; RECORD_BYTES_MAX + 1])).and_then(|ticket| ticket.wait());
    let want = LogError::TooLarge { record_bytes: RECORD_BYTES_MAX + 1, record_bytes_max: RECORD_BYTES_MAX };
    assert_eq!(refused.expect_err("too large"), want);
    assert_eq!(end(&*log, partition), positions[3].offset + 1);
}

fn partitions(suite: &Suite<'_>) {
    let log = (suite.open)();
    let ends: Vec<u64> = (0..PARTITION_COUNT).map(|p| end(&*log, PartitionId(p))).collect();
    let appended = values("partitions", 400);
    let tickets: Vec<_> = appended
        .iter()
        .zip((0..PARTITION_COUNT).cycle())
        .map(|(value, p)| log.append(PartitionId(p), value.clone()).expect("is queued"))
        .collect();
    for ticket in tickets {
        ticket.wait().expect("is acknowledged");
    }
    for p in 0..PARTITION_COUNT {
        let partition = PartitionId(p);
        let own: Vec<Bytes> =
            appended.iter().skip(p as usize).step_by(PARTITION_COUNT as usize).cloned().collect();
        let records = read_range(&*log, partition, ends[p as usize], end(&*log, partition));
        assert_eq!(values_of(&records), own, "partition {p}");
    }
}

fn concurrent(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(5);
    let from = end(&*log, partition);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let log = &*log;
            scope.spawn(move || append_all(log, partition, &values(name, 150)));
        }
    });
    let records = values_of(&read_range(&*log, partition, from, end(&*log, partition)));
    assert_eq!(records.len(), 4 * 150);
    for name in ["a", "b", "c", "d"] {
        let own: Vec<Bytes> =
            records.iter().filter(|value| value.starts_with(name.as_bytes())).cloned().collect();
        assert_eq!(own, values(name, 150), "records of {name}");
    }
}

fn waiting(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(6);
    let from = end(&*log, partition);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // In simulated time a wait may be over before the other thread appends.
            loop {
                let limits = ReadLimits { bytes_max: 1 << 20, wait: LONG };
                match log.read(partition, from, limits) {
                    Ok(found) if found.is_empty() => {}
                    Ok(found) => return found,
                    Err(error) => assert!(error.is_retriable(), "{error}"),
                }
            }
        });
        append_all(&*log, partition, &values("waiting", 1));
        assert_eq!(values_of(&reader.join().expect("no panic")), values("waiting", 1));
    });
}

fn no_partition(suite: &Suite<'_>) {
    let log = (suite.open)();
    let partition = PartitionId(PARTITION_COUNT);
    let want = LogError::NoPartition { partition, partition_count: PARTITION_COUNT };
    let appended = log.append(partition, Bytes::from_static(b"x")).map(drop);
    assert_eq!(appended, Err(want.clone()));
    assert_eq!(log.read(partition, 0, ReadLimits { bytes_max: 1, wait: SHORT }), Err(want.clone()));
    assert_eq!(log.bounds(partition), Err(want));
}

fn reopen(suite: &Suite<'_>) {
    let partition = PartitionId(7);
    let log = (suite.open)();
    let identity = log.identity();
    let before = append_all(&*log, partition, &values("before", 5));
    let stats = log.stats();
    assert_eq!((stats.appended_records, stats.refused_records, stats.in_flight_bytes), (5, 0, 0));
    drop(log);
    let log = (suite.open)();
    assert_eq!(log.identity(), identity);
    let after = append_all(&*log, partition, &values("after", 5));
    assert_eq!(after[0].offset, before[4].offset + 1);
    let records = read_range(&*log, partition, before[0].offset, end(&*log, partition));
    assert_eq!(values_of(&records), [values("before", 5), values("after", 5)].concat());
    assert_eq!(log.stats().read_records, 10);
}
