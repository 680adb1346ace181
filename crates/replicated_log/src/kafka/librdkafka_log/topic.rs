//! The topic: found or created, its identity, bounds of its partitions.
//!
//! Invariant: once another topic of the same name was seen, every call ends with
//! [`LogError::TopicReplaced`]. Appends name the topic, not its id, so an acknowledgement is believed after a
//! look at the identity: at once where an offset went back, else at most [`APPEND_IDENTITY_AGE`] old.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::{Clock, Env};
use parking_lot::Mutex;
use rdkafka::error::RDKafkaErrorCode as Code;

use super::administrator::Administrator;
use super::connection::Connection;
use super::failure;
use super::native::Description;
use super::queued::AckedEnds;
use crate::error::LogError;
use crate::kafka::identity::Identity;
use crate::kafka::settings::{KafkaSettings, NewTopic};
use crate::kafka::topic_settings;
use crate::position::{Bounds, PartitionId, TopicId};

/// Pause between two looks for a topic that was created.
const CREATED_PAUSE: Duration = Duration::from_millis(50);
/// Pause before the next question while the leader of a partition changes.
const LEADER_PAUSE: Duration = Duration::from_millis(50);
/// Age of the identity at which an acknowledged append looks at it again.
pub(super) const APPEND_IDENTITY_AGE: Duration = Duration::from_secs(1);
/// Age of the identity at which a read, bounds or a failed append look at it again.
pub(super) const IDENTITY_AGE: Duration = Duration::from_millis(50);
/// Longest look at an identity that nothing speaks against.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// State of the topic when the log is opened.
pub(super) struct Found {
    pub(super) partition_count: u32,
    /// Limit of the topic, or of no topic if it may not be asked for.
    pub(super) record_bytes_max: usize,
}

/// The topic of a log.
pub(super) struct Topic {
    pub(super) connection: Connection,
    pub(super) name: String,
    pub(super) acked_ends: Arc<AckedEnds>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) call_timeout: Duration,
    identity: Identity,
    identity_checked_ns: AtomicU64,
    /// Offsets that went back before the last look at the identity.
    backward_checked: AtomicU64,
    /// Ends that brokers have reported.
    ends: Mutex<BTreeMap<PartitionId, u64>>,
}

impl Topic {
    /// Finds the topic within `left`, or creates it where the settings say so.
    ///
    /// # Errors
    /// [`LogError::TopicMissing`] with the command that creates it; others of the connection.
    pub(super) fn find(
        env: &Env,
        connection: Connection,
        settings: &KafkaSettings,
        administrator: &Administrator,
        left: &dyn Fn() -> Duration,
    ) -> Result<(Topic, Found), LogError> {
        let name = settings.address.topic.clone();
        let description = match connection.describe(&name, left(), true) {
            Ok(description) => description,
            Err(code) if is_missing(code) => {
                let Some(wanted) = settings.new_topic else {
                    return Err(topic_settings::missing(&connection.brokers, &name));
                };
                administrator.create(&connection, &name, wanted, left())?;
                wait_for_leaders(env, &connection, &name, wanted, left)?
            }
            Err(code) => return Err(connection.failed(code)),
        };
        let record_bytes_max = administrator.record_bytes_max(&connection, &name, left());
        let topic = Topic {
            identity: Identity::new(name.clone(), description.id),
            name,
            connection,
            acked_ends: Arc::default(),
            clock: env.clock.clone(),
            call_timeout: settings.ack_timeout,
            identity_checked_ns: AtomicU64::new(env.clock.mono_ns()),
            backward_checked: AtomicU64::new(0),
            ends: Mutex::default(),
        };
        Ok((topic, Found { partition_count: description.partition_count, record_bytes_max }))
    }

    /// Returns the identity when the log was opened.
    pub(super) fn identity(&self) -> TopicId {
        self.identity.expected()
    }

    /// Returns the error of a topic that is known to be another one.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`].
    pub(super) fn check_identity(&self) -> Result<(), LogError> {
        self.identity.check()
    }

    /// Asks the brokers for the identity if the last look is older than `age`, or an acknowledged offset went
    /// back since. Without one, a single thread asks, at most a second, and no answer is no error.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`]; others of the connection if an offset went back.
    pub(super) fn check_identity_within(&self, age: Duration) -> Result<(), LogError> {
        self.identity.check()?;
        let backward_count = self.acked_ends.backward_count();
        if backward_count > self.backward_checked.load(Ordering::Acquire) {
            self.ask_identity()?;
            self.backward_checked.fetch_max(backward_count, Ordering::Release);
            return Ok(());
        }
        let now_ns = self.clock.mono_ns();
        let checked_ns = self.identity_checked_ns.load(Ordering::Relaxed);
        let is_recent = u128::from(now_ns.saturating_sub(checked_ns)) < age.as_nanos();
        let order = Ordering::Relaxed;
        if is_recent || self.identity_checked_ns.compare_exchange(checked_ns, now_ns, order, order).is_err() {
            return Ok(());
        }
        let within = LOOK_WITHIN.min(self.call_timeout / 4);
        if let Ok(found) = self.connection.describe(&self.name, within, false) {
            self.identity.note(found.id);
        }
        self.identity.check()
    }

    /// Asks the brokers for the identity.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`], [`LogError::TopicMissing`], or of the connection.
    fn ask_identity(&self) -> Result<(), LogError> {
        self.describe().map(drop)
    }

    fn describe(&self) -> Result<Description, LogError> {
        match self.connection.describe(&self.name, self.call_timeout, false) {
            Ok(found) => {
                self.identity.note(found.id);
                self.identity.check()?;
                Ok(found)
            }
            Err(code) if is_missing(code) => {
                Err(topic_settings::missing(&self.connection.brokers, &self.name))
            }
            Err(code) => Err(self.connection.failed(code)),
        }
    }

    /// Returns the number of partitions.
    ///
    /// # Errors
    /// [`LogError`] of topic and connection.
    pub(super) fn partition_count(&self) -> Result<u32, LogError> {
        self.identity.check()?;
        Ok(self.describe()?.partition_count)
    }

    /// Returns the offsets that a partition has.
    ///
    /// # Errors
    /// [`LogError`] of topic and connection.
    pub(super) fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        self.identity.check()?;
        let number = partition_number(partition);
        let (start, end) = self.ask_offsets(number).map_err(|code| self.failed(code))?;
        let bounds = Bounds { start: offset(start), end: offset(end) };
        let is_smaller = {
            let mut ends = self.ends.lock();
            let highest = ends.entry(partition).or_default();
            let is_smaller = bounds.end < *highest;
            *highest = bounds.end.max(*highest);
            is_smaller
        };
        // Bounds are asked for by name. An end that went back is of another topic, or of a broker that lost
        // records.
        if is_smaller {
            self.ask_identity()?;
        } else {
            self.check_identity_within(IDENTITY_AGE)?;
        }
        Ok(bounds)
    }

    /// Asks the leader of a partition for its offsets, again while leaders change.
    fn ask_offsets(&self, partition: i32) -> Result<(i64, i64), Code> {
        let start_ns = self.clock.mono_ns();
        loop {
            let elapsed = Duration::from_nanos(self.clock.mono_ns().saturating_sub(start_ns));
            let left = self.call_timeout.saturating_sub(elapsed);
            match self.connection.offsets(&self.name, partition, left) {
                Err(Code::NotLeaderForPartition | Code::LeaderNotAvailable) if !left.is_zero() => {
                    self.clock.sleep(LEADER_PAUSE);
                }
                asked => return asked,
            }
        }
    }

    /// Words a code, after a look if the topic has still its identity.
    pub(super) fn failed(&self, code: Code) -> LogError {
        if failure::is_of_topic(code)
            && let Err(found) = self.ask_identity()
        {
            return found;
        }
        self.connection.failed(code)
    }
}

/// Waits until all partitions of a new topic have leaders: brokers learn of it one after the other.
fn wait_for_leaders(
    env: &Env,
    connection: &Connection,
    name: &str,
    wanted: NewTopic,
    left: &dyn Fn() -> Duration,
) -> Result<Description, LogError> {
    loop {
        let within = left();
        match connection.describe(name, within, true) {
            Ok(found) if found.partition_count >= wanted.partition_count && found.has_leaders => {
                return Ok(found);
            }
            Ok(_) => {}
            Err(code) if is_missing(code) => {}
            Err(code) => return Err(connection.failed(code)),
        }
        if within.is_zero() {
            let brokers = &connection.brokers;
            return Err(LogError::Unavailable { why: format!("{brokers}: topic {name} has no leaders yet") });
        }
        env.clock.sleep(CREATED_PAUSE);
    }
}

fn is_missing(code: Code) -> bool {
    matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopic)
}

/// Returns the number of a partition as the protocol has it.
pub(super) fn partition_number(partition: PartitionId) -> i32 {
    i32::try_from(partition.0).unwrap_or(i32::MAX)
}

/// Returns an offset of the protocol, in which negative ones mean none.
pub(super) fn offset(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}
