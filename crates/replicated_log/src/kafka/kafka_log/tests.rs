//! Tests of the log over a client without brokers.

use std::time::Duration;

use chronolith_base::ManualClock;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::*;
use crate::kafka::client::Description;
use crate::kafka::fake_client::{FakeBrokers, FakeClient, failure, unavailable};
use crate::kafka::settings::NewTopic;
use crate::position::Position;

const P0: PartitionId = PartitionId(0);
const LIMITS: ReadLimits = ReadLimits { bytes_max: 1 << 20, wait: Duration::from_millis(300) };
const ID: TopicId = TopicId([1; 16]);

struct TestEnv {
    runtime: Runtime,
    env: Env,
    clock: Arc<ManualClock>,
    brokers: Arc<Mutex<FakeBrokers>>,
    settings: KafkaSettings,
}

impl TestEnv {
    fn new() -> TestEnv {
        let (env, clock, _) = Env::fake(0, 1);
        let settings = KafkaSettings::new("kafka://b:1/log".parse().expect("an address"));
        let brokers = Arc::new(Mutex::new(FakeBrokers::with_topic()));
        TestEnv { runtime: Runtime::new().expect("a runtime"), env, clock, brokers, settings }
    }

    fn open(&self) -> Result<KafkaLog<FakeClient>, LogError> {
        let client = FakeClient { brokers: self.brokers.clone(), clock: self.env.clock.clone() };
        let deadline = Deadline::after(&self.env.clock, self.settings.open_timeout);
        let runtime = self.runtime.handle();
        KafkaLog::find_topic(&self.env, runtime, self.settings.clone(), client, Arc::default(), &deadline)
    }

    fn replace_topic(&self) {
        let replacement = Description { id: TopicId([2; 16]), partition_count: 1, has_leaders: true };
        self.brokers.lock().topic = Some(replacement);
    }
}

fn append(log: &KafkaLog<FakeClient>) -> Result<Position, LogError> {
    log.append(P0, Bytes::from_static(b"sample")).and_then(Ticket::wait)
}

fn offsets(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.offset).collect()
}

fn is_replaced<T>(result: &Result<T, LogError>) -> bool {
    matches!(result, Err(LogError::TopicReplaced { .. }))
}

#[test]
fn a_missing_topic_is_created_where_the_settings_say_so() {
    let mut test_env = TestEnv::new();
    test_env.brokers.lock().topic = None;
    let missing = test_env.open().map(drop).expect_err("there is no topic");
    assert!(matches!(missing, LogError::TopicMissing { .. }), "{missing}");
    test_env.settings.new_topic = Some(NewTopic { partition_count: 3, replication_factor: 1 });
    let log = test_env.open().expect("opens");
    assert_eq!((log.identity(), log.partition_count()), (TopicId([9; 16]), Ok(3)));
    let partition = PartitionId(3);
    assert_eq!(log.bounds(partition), Err(LogError::NoPartition { partition, partition_count: 3 }));
}

#[test]
fn appends_get_positions_and_give_their_bytes_back() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    let ticket = log.append(P0, Bytes::from_static(b"sample")).expect("is queued");
    assert_eq!(log.stats().in_flight_bytes, 6);
    assert_eq!(ticket.wait(), Ok(Position { topic: ID, partition: P0, offset: 0 }));
    assert_eq!((log.stats().in_flight_bytes, log.stats().appended_records), (0, 1));
    let too_large = log.append(P0, Bytes::from(vec![0; 10_001])).map(drop);
    assert_eq!(too_large, Err(LogError::TooLarge { record_bytes: 10_001, record_bytes_max: 10_000 }));
    assert_eq!(log.stats().refused_records, 1);
    drop(log);
    assert!(test_env.brokers.lock().is_closed);
}

/// The answer of a broker has no limit, and the error had one byte less than the record.
#[test]
fn a_limit_that_was_lowered_is_in_the_error() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    for (batch_limit, record_bytes_max) in [(Some("1200"), 1000), (None, 2999)] {
        let refused = LogError::TooLarge { record_bytes: 3000, record_bytes_max: 2999 };
        test_env.brokers.lock().outcomes.push_back(Err(refused));
        test_env.brokers.lock().batch_limit = batch_limit.map(str::to_owned);
        assert_eq!(append(&log), Err(LogError::TooLarge { record_bytes: 3000, record_bytes_max }));
    }
}

/// The offset of a repeat that a broker recognised is one after it. Where brokers then answered no question,
/// the ticket ended with an error that means that the record is not in the log.
#[test]
fn an_acknowledged_record_is_never_reported_as_not_written() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    test_env.brokers.lock().outcomes.push_back(Ok(None));
    assert_eq!(append(&log).map(|at| at.offset), Ok(1));
    test_env.brokers.lock().outcomes.push_back(Ok(None));
    test_env.brokers.lock().offsets_failures.push_back(failure(Cause::Other));
    let unknown = append(&log).expect_err("has no offset");
    assert!(unknown.may_be_written(), "{unknown}");
    assert_eq!(log.stats().possibly_written_records, 1);
}

#[test]
fn acknowledgements_of_another_topic_are_refused() {
    for is_by_offset in [true, false] {
        let test_env = TestEnv::new();
        let log = test_env.open().expect("opens");
        append(&log).expect("is acknowledged");
        test_env.replace_topic();
        // The last look is not old enough, unless an offset went back.
        assert_eq!(append(&log).map(|at| at.offset), Ok(1));
        if is_by_offset {
            test_env.brokers.lock().backward_count = 1;
        } else {
            test_env.clock.advance(Duration::from_secs(1));
        }
        let refused = append(&log);
        assert!(is_replaced(&refused), "{is_by_offset}: {refused:?}");
        assert!(is_replaced(&log.bounds(P0)) && is_replaced(&log.read(P0, 0, LIMITS)));
        assert!(is_replaced(&log.partition_count()));
    }
}

#[test]
fn bounds_are_asked_again_while_leaders_change() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    test_env.brokers.lock().offsets_failures.extend([failure(Cause::Leader), failure(Cause::Leader)]);
    assert_eq!(log.bounds(P0), Ok(Bounds { start: 0, end: 0 }));
    assert_eq!(test_env.brokers.lock().offsets_count, 3);
    // For ever: the timeout of a call ends it.
    test_env.brokers.lock().offsets_failures.extend(std::iter::repeat_n(failure(Cause::Leader), 1000));
    assert_eq!(log.bounds(P0), Err(unavailable()));
    assert!(test_env.brokers.lock().offsets_failures.len() > 700);
}

#[test]
fn errors_of_a_topic_look_at_its_identity() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    test_env.brokers.lock().offsets_failures.push_back(failure(Cause::Topic));
    assert_eq!(log.bounds(P0), Err(unavailable()));
    test_env.brokers.lock().topic = None;
    test_env.brokers.lock().offsets_failures.push_back(failure(Cause::Topic));
    assert!(matches!(log.bounds(P0), Err(LogError::TopicMissing { .. })));
    test_env.replace_topic();
    test_env.brokers.lock().offsets_failures.push_back(failure(Cause::Topic));
    assert!(is_replaced(&log.bounds(P0)));
}

/// An end that goes back is of another topic, or of a broker that lost records.
#[test]
fn an_end_that_goes_back_asks_for_the_identity() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    test_env.brokers.lock().bounds.end = 5;
    assert_eq!(log.bounds(P0).map(|bounds| bounds.end), Ok(5));
    test_env.brokers.lock().bounds.end = 4;
    assert_eq!(log.bounds(P0).map(|bounds| bounds.end), Ok(4));
    test_env.replace_topic();
    assert!(is_replaced(&log.bounds(P0)));
}

#[test]
fn reads_are_cut_by_bytes_and_go_on_over_missing_offsets() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    for (offset, bytes) in [(0, 10), (1, 10), (2, 30), (7, 10), (8, 0)] {
        test_env.brokers.lock().add(offset, bytes);
    }
    let read = |from, bytes_max| log.read(P0, from, ReadLimits { bytes_max, ..LIMITS }).expect("reads");
    assert_eq!(offsets(&read(0, 20)), [0, 1]);
    assert_eq!(log.stats().read_buffer_bytes, 40);
    assert_eq!(offsets(&read(2, 20)), [2]);
    assert_eq!(offsets(&read(3, 20)), [7, 8]);
    assert_eq!((log.stats().read_buffer_bytes, log.stats().read_records), (0, 5));
    assert_eq!(test_env.brokers.lock().seeks, [0], "a reader that goes on is not moved");
    assert_eq!(offsets(&read(1, 10)), [1]);
    assert_eq!(log.stats().read_buffer_bytes, 40);
    log.readers.close();
    assert_eq!(log.stats().read_buffer_bytes, 0);
}

#[test]
fn empty_reads_are_compared_with_the_bounds() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    test_env.brokers.lock().add(0, 1);
    let read = |from| log.read(P0, from, LIMITS);
    assert_eq!(read(1), Ok(Vec::new()), "at the end");
    let bounds = Bounds { start: 0, end: 1 };
    assert_eq!(read(2), Err(LogError::OffsetOutOfRange { partition: P0, offset: 2, bounds }));
    test_env.brokers.lock().is_mute = true;
    assert_eq!(read(0), Ok(Vec::new()), "the records may be on their way");
    let starved = read(0).expect_err("has failed");
    assert!(matches!(&starved, LogError::Unavailable { why } if why.contains("READ")), "{starved}");
    test_env.brokers.lock().is_mute = false;
    assert_eq!(read(0).map(|records| records.len()), Ok(1));
    assert_eq!(log.stats().failed_reads, 2);
}

#[test]
fn failed_reads_name_offsets_that_are_gone() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    test_env.brokers.lock().bounds = Bounds { start: 3, end: 9 };
    let read = |from, cause| {
        test_env.brokers.lock().poll_failures.push_back(failure(cause));
        log.read(P0, from, LIMITS).expect_err("has failed")
    };
    let gone = LogError::OffsetOutOfRange { partition: P0, offset: 1, bounds: Bounds { start: 3, end: 9 } };
    assert_eq!(read(1, Cause::Offset), gone);
    assert_eq!(read(4, Cause::Offset), unavailable());
    assert_eq!(read(4, Cause::Other), unavailable());
    test_env.replace_topic();
    assert!(is_replaced(&Err::<(), _>(read(4, Cause::Topic))));
}

/// The leader's log may end before records that were read.
#[test]
fn records_that_go_back_are_refused() {
    let test_env = TestEnv::new();
    let log = test_env.open().expect("opens");
    for offset in [4, 3] {
        test_env.brokers.lock().add(offset, 1);
    }
    let error = log.read(P0, 0, LIMITS).expect_err("goes back");
    assert!(matches!(&error, LogError::Unavailable { why } if why.contains("from offset 5 to 3")), "{error}");
}
