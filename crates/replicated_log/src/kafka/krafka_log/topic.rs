//! The topic: found or created, its identity, bounds of its partitions.
//!
//! Invariant: once another topic of the same name was seen, every call ends with
//! [`LogError::TopicReplaced`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::{Clock, Env};
use krafka::KrafkaError;
use krafka::admin::{
    AdminClient, ConfigResource, CreateTopicsOptions, DescribeConfigsOptions, DescribeTopicsOptions,
    TopicDescription,
};
use krafka::consumer::Consumer;
use krafka::error::ErrorCode;
use parking_lot::Mutex;

use super::client::Client;
use crate::error::LogError;
use crate::kafka::identity::Identity;
use crate::kafka::settings::{KafkaSettings, NewTopic};
use crate::kafka::topic_settings::{self, BATCH_LIMIT, missing};
use crate::position::{Bounds, PartitionId, TopicId};

/// Pause between two looks for a topic that was created.
const CREATED_PAUSE: Duration = Duration::from_millis(50);
/// Pause before the next question while the leader of a partition changes.
const LEADER_PAUSE: Duration = Duration::from_millis(50);
/// Age at which the identity that the brokers reported is looked at again.
const IDENTITY_AGE_MAX_NS: u64 = 50_000_000;

/// State of the topic when the log is opened.
pub(super) struct Found {
    pub(super) partition_count: u32,
    /// Limit of the topic, or of no topic if it may not be asked for.
    pub(super) record_bytes_max: usize,
}

/// The topic of a log.
pub(super) struct Topic {
    pub(super) client: Client,
    pub(super) name: String,
    clock: Arc<dyn Clock>,
    identity: Identity,
    /// Member of no group, without partitions: asks for bounds and metadata.
    questions: Consumer,
    admin: AdminClient,
    call_timeout: Duration,
    identity_checked_ns: AtomicU64,
    /// Ends that brokers have reported.
    ends: Mutex<BTreeMap<PartitionId, u64>>,
}

impl Topic {
    /// Finds the topic, or creates it where the settings say so.
    ///
    /// # Errors
    /// [`LogError::TopicMissing`] with the command that creates it; others of the connection.
    pub(super) async fn find(
        env: &Env,
        client: Client,
        settings: &KafkaSettings,
    ) -> Result<(Topic, Found), LogError> {
        let name = settings.address.topic.clone();
        let admin = client.kafka.admin().default_api_timeout(settings.ack_timeout);
        let description = match describe(&client, &admin, &name).await? {
            Some(description) => description,
            None => create(&client, &admin, &name, settings.new_topic).await?,
        };
        let partition_count = u32::try_from(description.partitions.len()).unwrap_or(u32::MAX);
        let record_bytes_max = record_bytes_max(&admin, &name).await;
        let built = client.kafka.consumer_without_group().metrics_push(false).build().await;
        let questions = built.map_err(|error| client.failed(&error))?;
        let topic = Topic {
            name,
            clock: env.clock.clone(),
            identity: Identity::new(settings.address.topic.clone(), TopicId(description.topic_id)),
            questions,
            admin,
            call_timeout: settings.ack_timeout,
            identity_checked_ns: AtomicU64::new(0),
            ends: Mutex::default(),
            client,
        };
        Ok((topic, Found { partition_count, record_bytes_max }))
    }

    /// Returns the identity when the log was opened.
    pub(super) fn identity(&self) -> TopicId {
        self.identity.expected()
    }

    /// Looks at the identity that requests use. Brokers from Kafka 4.0 on take an append or a read with the
    /// id of the topic, so a request to another topic of the name is one after this id has changed.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`].
    pub(super) async fn check_identity_of_requests(&self) -> Result<(), LogError> {
        if self.check_identity().is_ok()
            && let Ok(known) = self.questions.fetch_metadata(None).await
            && let Some(topic) = known.topics.iter().find(|topic| topic.name == self.name)
        {
            self.identity.note(TopicId(topic.topic_id));
        }
        self.check_identity()
    }

    /// As [`Topic::check_identity_of_requests`], at most 20 times per second.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`].
    pub(super) async fn check_identity_now_and_then(&self) -> Result<(), LogError> {
        let now_ns = self.clock.mono_ns();
        let checked_ns = self.identity_checked_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(checked_ns) < IDENTITY_AGE_MAX_NS {
            return self.check_identity();
        }
        self.identity_checked_ns.store(now_ns, Ordering::Relaxed);
        self.check_identity_of_requests().await
    }

    /// Returns the error of a topic that is known to be another one.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`].
    pub(super) fn check_identity(&self) -> Result<(), LogError> {
        self.identity.check()
    }

    /// Asks the brokers for the identity.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`], [`LogError::TopicMissing`], or of the connection.
    async fn ask_identity(&self) -> Result<(), LogError> {
        match describe(&self.client, &self.admin, &self.name).await? {
            None => Err(missing(&self.client.brokers, &self.name)),
            Some(found) => {
                self.identity.note(TopicId(found.topic_id));
                self.check_identity()
            }
        }
    }

    /// Returns the number of partitions, at most some seconds old.
    ///
    /// # Errors
    /// [`LogError`] of topic and connection.
    pub(super) async fn partition_count(&self) -> Result<u32, LogError> {
        let asked =
            tokio::time::timeout(self.call_timeout, self.questions.fetch_metadata(Some(&self.name))).await;
        let known = match asked {
            Ok(Ok(known)) => known,
            Ok(Err(error)) => return Err(self.failed(&error).await),
            Err(_) => return Err(self.no_answer()),
        };
        let Some(topic) = known.topics.iter().find(|topic| topic.name == self.name) else {
            self.ask_identity().await?;
            return Err(self.no_answer());
        };
        self.identity.note(TopicId(topic.topic_id));
        self.check_identity()?;
        Ok(u32::try_from(topic.partition_count()).unwrap_or(u32::MAX))
    }

    /// Returns the offsets that a partition has.
    ///
    /// # Errors
    /// [`LogError`] of topic and connection.
    pub(super) async fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        self.check_identity()?;
        let asking = self.ask_offsets(partition_number(partition));
        let (start, end) = match tokio::time::timeout(self.call_timeout, asking).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(self.failed(&error).await),
            Err(_) => return Err(self.no_answer()),
        };
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
            self.ask_identity().await?;
        } else {
            self.check_identity_of_requests().await?;
        }
        Ok(bounds)
    }

    /// Asks the leader of a partition for its offsets, again while leaders change.
    async fn ask_offsets(&self, partition: i32) -> Result<(i64, i64), KrafkaError> {
        loop {
            match self.questions.fetch_watermarks(&self.name, partition).await {
                Err(KrafkaError::Broker {
                    code: ErrorCode::NotLeaderForPartition | ErrorCode::LeaderNotAvailable,
                    ..
                }) => tokio::time::sleep(LEADER_PAUSE).await,
                asked => return asked,
            }
        }
    }

    /// Words an error, after a look if the topic has still its identity.
    pub(super) async fn failed(&self, error: &KrafkaError) -> LogError {
        let is_of_topic = matches!(
            error,
            KrafkaError::UnknownTopic { .. }
                | KrafkaError::Broker {
                    code: ErrorCode::UnknownTopicOrPartition
                        | ErrorCode::UnknownTopicId
                        | ErrorCode::LeaderNotAvailable
                        | ErrorCode::InconsistentTopicId,
                    ..
                }
        );
        if is_of_topic && let Err(found) = self.ask_identity().await {
            return found;
        }
        self.client.failed(error)
    }

    fn no_answer(&self) -> LogError {
        let brokers = &self.client.brokers;
        LogError::Unavailable { why: format!("{brokers}: no answer within {:?}", self.call_timeout) }
    }
}

/// Returns the number of a partition as the protocol has it.
pub(super) fn partition_number(partition: PartitionId) -> i32 {
    i32::try_from(partition.0).unwrap_or(i32::MAX)
}

/// Returns an offset of the protocol, in which negative ones mean none.
pub(super) fn offset(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

async fn describe(
    client: &Client,
    admin: &AdminClient,
    name: &str,
) -> Result<Option<TopicDescription>, LogError> {
    let asked = admin.describe_topics([name], DescribeTopicsOptions::default()).await;
    let found = asked.map_err(|error| client.failed(&error))?.remove(name);
    match found {
        Some(Ok(description)) => Ok(Some(description)),
        None | Some(Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. })) => Ok(None),
        Some(Err(error)) => Err(client.failed(&error)),
    }
}

/// Creates the topic; another process may do so at the same time.
async fn create(
    client: &Client,
    admin: &AdminClient,
    name: &str,
    new_topic: Option<NewTopic>,
) -> Result<TopicDescription, LogError> {
    let Some(wanted) = new_topic else { return Err(missing(&client.brokers, name)) };
    let partition_count = i32::try_from(wanted.partition_count).unwrap_or(i32::MAX);
    let replication_factor = i16::try_from(wanted.replication_factor).unwrap_or(i16::MAX);
    let mut topic = krafka::admin::NewTopic::new(name, partition_count, replication_factor)
        .map_err(|error| client.failed(&error))?;
    for (setting, value) in topic_settings::of_new_topic(wanted) {
        topic = topic.with_config(setting, value);
    }
    let created = admin.create_topics([topic], CreateTopicsOptions::default()).await;
    match created.map_err(|error| client.failed(&error))?.remove(name) {
        None | Some(Ok(())) => {
            tracing::info!(topic = name, ?wanted, "created the topic of a replicated log");
        }
        Some(Err(KrafkaError::Broker { code: ErrorCode::TopicAlreadyExists, .. })) => {}
        Some(Err(error)) => return Err(client.failed(&error)),
    }
    // Brokers learn of the topic and elect its leaders one after the other; `open_timeout` bounds the wait.
    loop {
        if let Some(found) = describe(client, admin, name).await?
            && found.partitions.len() >= wanted.partition_count as usize
            && found.partitions.iter().all(|partition| partition.leader.is_some())
        {
            return Ok(found);
        }
        tokio::time::sleep(CREATED_PAUSE).await;
    }
}

/// Returns the bytes of the largest record of the topic; no limit if this client may not ask.
async fn record_bytes_max(admin: &AdminClient, name: &str) -> usize {
    let resource = ConfigResource::topic(name);
    let options = DescribeConfigsOptions::default().config_names(vec![BATCH_LIMIT.to_owned()]);
    let described = admin.describe_configs([resource.clone()], options).await.ok();
    let entries = described.and_then(|mut found| found.remove(&resource)).and_then(Result::ok);
    let limit = entries.as_ref().and_then(|entries| entries.iter().find(|entry| entry.name == BATCH_LIMIT));
    topic_settings::record_bytes_max(name, limit.and_then(|entry| entry.value.as_deref()))
}
