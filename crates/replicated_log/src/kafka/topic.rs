//! The topic: found or created, its identity, bounds of its partitions.
//!
//! Invariants: once another topic of the same name was seen, every call ends with
//! [`LogError::TopicReplaced`]; an acknowledgement, a read and bounds are believed after a look at the
//! identity that is not older than the client says.
//! Not here: requests (`client`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::{Clock, Env};
use parking_lot::Mutex;

use super::client::{Cause, Client, Description, Failure, Phase};
use super::deadline::Deadline;
use super::identity::Identity;
use super::settings::{KafkaSettings, NewTopic};
use super::single_flight::SingleFlight;
use super::topic_settings;
use crate::error::LogError;
use crate::position::{Bounds, PartitionId, TopicId};

/// Pause between two looks for a topic that was created.
const CREATED_PAUSE: Duration = Duration::from_millis(50);
/// Pause before the next question while the leader of a partition changes.
const LEADER_PAUSE: Duration = Duration::from_millis(50);
/// Longest look at an identity that nothing speaks against.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// State of the topic when the log is opened.
pub(super) struct Found {
    pub(super) description: Description,
    /// Limit of the topic, or of no topic if it may not be asked for.
    pub(super) record_bytes_max: usize,
}

/// Bounds of one partition.
struct Partition {
    bounds: SingleFlight<Result<Bounds, LogError>>,
    /// Greatest end that brokers have reported.
    end: AtomicU64,
}

/// The topic of a log.
pub(super) struct Topic<C> {
    pub(super) client: C,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) call_timeout: Duration,
    /// Addresses of the settings, for messages.
    brokers: String,
    name: String,
    identity: Identity,
    identity_checked_ns: AtomicU64,
    /// Offsets that went back before the last look at the identity.
    backward_checked: AtomicU64,
    /// Partitions whose bounds were asked for; as many as the topic has.
    partitions: Mutex<BTreeMap<PartitionId, Arc<Partition>>>,
}

/// Finds the topic, or creates it where the settings say so.
///
/// # Errors
/// [`LogError::TopicMissing`] with the command that creates it; others of the connection.
pub(super) fn find<C: Client>(
    client: &C,
    clock: &dyn Clock,
    settings: &KafkaSettings,
    deadline: &Deadline,
) -> Result<Found, LogError> {
    let brokers = settings.brokers();
    let name = &settings.address.topic;
    let description = match (client.describe(deadline.left(), Phase::Start)?, settings.new_topic) {
        (Some(description), _) => description,
        (None, None) => return Err(topic_settings::missing(&brokers, name)),
        (None, Some(wanted)) => {
            client.create_topic(wanted, deadline.left())?;
            wait_for_leaders(client, clock, wanted, deadline)?.ok_or_else(|| LogError::Unavailable {
                why: format!("{brokers}: topic {name} was created and has no leaders yet"),
            })?
        }
    };
    let limit = client.batch_limit(deadline.left());
    let record_bytes_max = topic_settings::record_bytes_max(name, limit.as_deref());
    Ok(Found { description, record_bytes_max })
}

/// Waits until all partitions of a new topic have leaders: brokers learn of it one after the other.
fn wait_for_leaders<C: Client>(
    client: &C,
    clock: &dyn Clock,
    wanted: NewTopic,
    deadline: &Deadline,
) -> Result<Option<Description>, LogError> {
    loop {
        let left = deadline.left();
        if left.is_zero() {
            return Ok(None);
        }
        if let Some(found) = client.describe(left, Phase::Start)?
            && found.partition_count >= wanted.partition_count
            && found.has_leaders
        {
            return Ok(Some(found));
        }
        clock.sleep(CREATED_PAUSE);
    }
}

impl<C: Client> Topic<C> {
    /// Returns a topic that was found.
    pub(super) fn new(env: &Env, client: C, settings: &KafkaSettings, id: TopicId) -> Topic<C> {
        let name = settings.address.topic.clone();
        Topic {
            client,
            clock: env.clock.clone(),
            call_timeout: settings.ack_timeout,
            brokers: settings.brokers(),
            identity: Identity::new(name.clone(), id),
            name,
            identity_checked_ns: AtomicU64::new(env.clock.mono_ns()),
            backward_checked: AtomicU64::new(0),
            partitions: Mutex::default(),
        }
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

    /// Records the identity that a reader reports, and checks it.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`].
    pub(super) fn note_identity(&self, found: TopicId) -> Result<(), LogError> {
        self.identity.note(found);
        self.identity.check()
    }

    /// Looks at the identity if the last look is older than `age`, or an acknowledged offset went back since.
    /// Without one, a single thread looks, at most a second, and no answer is no error; at an age of zero
    /// each thread looks.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`]; others of the connection if an offset went back.
    pub(super) fn check_identity_within(&self, age: Duration) -> Result<(), LogError> {
        self.identity.check()?;
        let backward_count = self.client.backward_count();
        if backward_count > self.backward_checked.load(Ordering::Acquire) {
            self.ask_identity()?;
            self.backward_checked.fetch_max(backward_count, Ordering::Release);
            return Ok(());
        }
        if !age.is_zero() && !self.take_look(age) {
            return Ok(());
        }
        if let Some(found) = self.client.identity_in_use(LOOK_WITHIN.min(self.call_timeout / 4)) {
            self.identity.note(found);
        }
        self.identity.check()
    }

    /// Returns true if the last look is older than `age` and no other thread looks.
    fn take_look(&self, age: Duration) -> bool {
        let now_ns = self.clock.mono_ns();
        let checked_ns = self.identity_checked_ns.load(Ordering::Relaxed);
        let is_recent = u128::from(now_ns.saturating_sub(checked_ns)) < age.as_nanos();
        let order = Ordering::Relaxed;
        !is_recent && self.identity_checked_ns.compare_exchange(checked_ns, now_ns, order, order).is_ok()
    }

    /// Asks the brokers for the identity.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`], [`LogError::TopicMissing`], or of the connection.
    fn ask_identity(&self) -> Result<(), LogError> {
        match self.client.describe(self.call_timeout, Phase::Open)? {
            None => Err(topic_settings::missing(&self.brokers, &self.name)),
            Some(found) => {
                self.identity.note(found.id);
                self.identity.check()
            }
        }
    }

    /// Returns the number of partitions, at most some seconds old.
    ///
    /// # Errors
    /// [`LogError`] of topic and connection.
    pub(super) fn partition_count(&self) -> Result<u32, LogError> {
        self.identity.check()?;
        let found = self.client.recent_description(self.call_timeout);
        let found = found.map_err(|failure| self.failed(failure))?;
        self.identity.note(found.id);
        self.identity.check()?;
        Ok(found.partition_count)
    }

    /// Asks for the bytes of the largest record; no limit if it may not be asked for.
    pub(super) fn record_bytes_max(&self) -> usize {
        let limit = self.client.batch_limit(LOOK_WITHIN.min(self.call_timeout / 4));
        topic_settings::record_bytes_max(&self.name, limit.as_deref())
    }

    /// Returns the offsets that a partition, which exists, has; callers at the same time share an answer to a
    /// request that began after each of them called.
    ///
    /// # Errors
    /// [`LogError`] of topic and connection.
    pub(super) fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        let asked =
            self.partitions.lock().entry(partition).or_insert_with(|| Arc::new(Partition::new())).clone();
        asked.bounds.run(|| self.ask_bounds(partition, &asked.end))
    }

    fn ask_bounds(&self, partition: PartitionId, end: &AtomicU64) -> Result<Bounds, LogError> {
        self.identity.check()?;
        let bounds = self.ask_offsets(partition).map_err(|failure| self.failed(failure))?;
        // Bounds are asked for by name. An end that went back is of another topic, or of a broker that lost
        // records.
        if bounds.end < end.fetch_max(bounds.end, Ordering::Relaxed) {
            self.ask_identity()?;
        } else {
            self.check_identity_within(C::READ_LOOK_AGE)?;
        }
        Ok(bounds)
    }

    /// Asks the leader of a partition for its offsets, again while leaders change.
    fn ask_offsets(&self, partition: PartitionId) -> Result<Bounds, Failure> {
        let deadline = Deadline::after(&self.clock, self.call_timeout);
        loop {
            let left = deadline.left();
            match self.client.offsets(partition, left) {
                Err(Failure { cause: Cause::Leader, .. }) if !left.is_zero() => {
                    self.clock.sleep(LEADER_PAUSE.min(left));
                }
                asked => return asked,
            }
        }
    }

    /// Returns the error of a call, after a look if the topic has still its identity.
    pub(super) fn failed(&self, failure: Failure) -> LogError {
        if matches!(failure.cause, Cause::Topic | Cause::Leader)
            && let Err(found) = self.ask_identity()
        {
            return found;
        }
        failure.error
    }
}

impl Partition {
    fn new() -> Partition {
        Partition { bounds: SingleFlight::new(), end: AtomicU64::new(0) }
    }
}
