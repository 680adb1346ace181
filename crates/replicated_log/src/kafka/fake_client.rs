//! A client without brokers, for tests: one topic in memory, with faults that a test asks for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock, Env};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::client::{Cause, Client, Closing, Delivery, Description, Failure, Fetcher, Phase};
use super::deadline::Deadline;
use super::failed_append::FailedAppend;
use super::settings::{KafkaSettings, NewTopic};
use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::position::{Bounds, PartitionId, Record, TopicId};

/// Brokers with one topic.
pub(super) struct FakeBrokers {
    pub(super) topic: Option<Description>,
    /// Limit of a batch; `None` if it may not be asked for.
    pub(super) batch_limit: Option<String>,
    pub(super) records: Vec<Record>,
    pub(super) bounds: Bounds,
    /// Failures of the next questions for offsets.
    pub(super) offsets_failures: VecDeque<Failure>,
    pub(super) offsets_count: usize,
    /// Outcomes of the next appends; without one an append gets the end of the partition.
    pub(super) outcomes: VecDeque<Result<Option<u64>, LogError>>,
    pub(super) backward_count: u64,
    /// Readers get nothing.
    pub(super) is_mute: bool,
    pub(super) poll_failures: VecDeque<Failure>,
    /// Offsets that readers were moved to.
    pub(super) seeks: Vec<u64>,
    pub(super) is_closed: bool,
}

impl FakeBrokers {
    /// Brokers whose topic has one partition without records.
    pub(super) fn with_topic() -> FakeBrokers {
        FakeBrokers {
            topic: Some(Description { id: TopicId([1; 16]), partition_count: 1, has_leaders: true }),
            batch_limit: Some("10200".to_owned()),
            records: Vec::new(),
            bounds: Bounds { start: 0, end: 0 },
            offsets_failures: VecDeque::new(),
            offsets_count: 0,
            outcomes: VecDeque::new(),
            backward_count: 0,
            is_mute: false,
            poll_failures: VecDeque::new(),
            seeks: Vec::new(),
            is_closed: false,
        }
    }

    /// Stores a record of `bytes` at `offset`, the last one so far.
    pub(super) fn add(&mut self, offset: u64, bytes: usize) {
        self.records.push(Record { offset, timestamp_ms: 0, value: Bytes::from(vec![7; bytes]) });
        self.bounds.end = offset + 1;
    }
}

/// Client of the brokers of a test.
pub(super) struct FakeClient {
    pub(super) brokers: Arc<Mutex<FakeBrokers>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Error of brokers that do not answer.
pub(super) fn unavailable() -> LogError {
    LogError::Unavailable { why: "no answer".to_owned() }
}

/// Failure of a call with more to find out.
pub(super) fn failure(cause: Cause) -> Failure {
    Failure { cause, error: unavailable() }
}

impl Client for FakeClient {
    const NAME: &'static str = "fake";
    const APPEND_LOOK_AGE: Duration = Duration::from_secs(1);
    const READ_LOOK_AGE: Duration = Duration::ZERO;
    const REFETCH_WITHIN: Duration = Duration::ZERO;

    type Delivery = FakeDelivery;
    type Fetcher = FakeFetcher;

    fn connect(
        _: &Env,
        _: &Handle,
        _: &KafkaSettings,
        _: &Arc<AtomicU64>,
        _: &Deadline,
    ) -> Result<FakeClient, LogError> {
        Err(unavailable())
    }

    fn describe(&self, _: Duration, _: Phase) -> Result<Option<Description>, LogError> {
        Ok(self.brokers.lock().topic)
    }

    fn recent_description(&self, _: Duration) -> Result<Description, Failure> {
        self.brokers.lock().topic.ok_or_else(|| failure(Cause::Topic))
    }

    fn create_topic(&self, wanted: NewTopic, _: Duration) -> Result<(), LogError> {
        let partition_count = wanted.partition_count;
        self.brokers.lock().topic =
            Some(Description { id: TopicId([9; 16]), partition_count, has_leaders: true });
        Ok(())
    }

    fn batch_limit(&self, _: Duration) -> Option<String> {
        self.brokers.lock().batch_limit.clone()
    }

    fn prepare_appends(&mut self, _: usize, _: Duration) -> Result<(), LogError> {
        Ok(())
    }

    fn identity_in_use(&self, _: Duration) -> Option<TopicId> {
        self.brokers.lock().topic.map(|topic| topic.id)
    }

    fn backward_count(&self) -> u64 {
        self.brokers.lock().backward_count
    }

    fn offsets(&self, _: PartitionId, _: Duration) -> Result<Bounds, Failure> {
        let mut brokers = self.brokers.lock();
        brokers.offsets_count += 1;
        match brokers.offsets_failures.pop_front() {
            Some(failure) => Err(failure),
            None => Ok(brokers.bounds),
        }
    }

    fn enqueue(
        &self,
        value: Bytes,
        _: FailedAppend,
        permit: InFlightPermit,
    ) -> Result<FakeDelivery, Failure> {
        let mut brokers = self.brokers.lock();
        let end = brokers.bounds.end;
        let outcome = brokers.outcomes.pop_front().unwrap_or(Ok(Some(end)));
        if outcome.is_ok() {
            brokers.add(end, value.len());
        }
        Ok(FakeDelivery { outcome, _permit: permit })
    }

    fn start_fetcher(&self, _: PartitionId) -> Result<FakeFetcher, Failure> {
        Ok(FakeFetcher { brokers: self.brokers.clone(), clock: self.clock.clone(), next: u64::MAX })
    }

    fn starved_after(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn close(&self, _: Duration) -> Closing {
        let brokers = self.brokers.clone();
        Box::new(move || brokers.lock().is_closed = true)
    }
}

/// Append whose outcome is known.
pub(super) struct FakeDelivery {
    outcome: Result<Option<u64>, LogError>,
    _permit: InFlightPermit,
}

impl Delivery for FakeDelivery {
    fn is_resolved(&mut self) -> bool {
        true
    }

    fn wait(&mut self, _: Duration) -> Option<Result<Option<u64>, LogError>> {
        Some(self.outcome.clone())
    }
}

/// Reader of the records, all at once.
pub(super) struct FakeFetcher {
    brokers: Arc<Mutex<FakeBrokers>>,
    clock: Arc<dyn Clock>,
    next: u64,
}

impl Fetcher for FakeFetcher {
    fn seek(&mut self, offset: u64) -> Result<(), LogError> {
        self.brokers.lock().seeks.push(offset);
        self.next = offset;
        Ok(())
    }

    fn poll(&mut self, wait: Duration, _: usize) -> Result<Vec<Record>, Failure> {
        let mut brokers = self.brokers.lock();
        if let Some(failure) = brokers.poll_failures.pop_front() {
            return Err(failure);
        }
        let found: Vec<Record> = brokers
            .records
            .iter()
            .filter(|record| record.offset >= self.next && !brokers.is_mute)
            .cloned()
            .collect();
        match found.last() {
            Some(last) => self.next = last.offset + 1,
            None => self.clock.sleep(wait),
        }
        Ok(found)
    }
}
