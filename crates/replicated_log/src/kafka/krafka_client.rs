//! The client `krafka`, in Rust (ADR 0133).
//!
//! Invariant: one batch per partition is on its way. Brokers from Kafka 4.0 on take an append or a read with
//! the id of the topic, so a request to another topic of the name is one after this id has changed.
//! Not here: the log over a client (`kafka_log`).

mod appender;
mod connection;
mod failure;
mod fetcher;
mod security;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use krafka::KrafkaError;
use krafka::admin::{
    AdminClient, ConfigResource, CreateTopicsOptions, DescribeConfigsOptions, DescribeTopicsOptions,
    NewTopic as TopicOfAdmin,
};
use krafka::consumer::Consumer;
use krafka::error::ErrorCode;
use tokio::runtime::Handle;

use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::kafka::client::{Client, Closing, Description, Failure, Phase, offset, partition_number};
use crate::kafka::deadline::Deadline;
use crate::kafka::failed_append::FailedAppend;
use crate::kafka::settings::{KafkaSettings, NewTopic};
use crate::kafka::topic_settings::{self, BATCH_LIMIT};
use crate::position::{Bounds, PartitionId, TopicId};
use appender::{Appender, KrafkaDelivery};
use connection::Connection;
use fetcher::{FetchOptions, KrafkaFetcher};

/// Client of one topic.
pub struct KrafkaClient {
    connection: Arc<Connection>,
    topic: String,
    /// Member of no group, without partitions: asks for bounds and metadata.
    questions: Consumer,
    admin: AdminClient,
    appender: Appender,
    fetch: FetchOptions,
}

impl KrafkaClient {
    async fn batch_limit_of_topic(&self) -> Option<String> {
        let resource = ConfigResource::topic(&self.topic);
        let options = DescribeConfigsOptions::default().config_names(vec![BATCH_LIMIT.to_owned()]);
        let mut described = self.admin.describe_configs([resource.clone()], options).await.ok()?;
        let entries = described.remove(&resource)?.ok()?;
        entries.into_iter().find(|entry| entry.name == BATCH_LIMIT)?.value
    }

    /// Waits for a call at most `within`.
    fn call<T>(
        &self,
        within: Duration,
        call: impl Future<Output = Result<T, KrafkaError>>,
    ) -> Result<T, Failure> {
        self.connection.call(within, call)
    }
}

impl Client for KrafkaClient {
    const NAME: &'static str = "krafka";
    const APPEND_LOOK_AGE: Duration = Duration::from_millis(50);
    /// Looks read what the client knows, without a request.
    const READ_LOOK_AGE: Duration = Duration::ZERO;
    const REFETCH_WITHIN: Duration = Duration::ZERO;

    type Delivery = KrafkaDelivery;
    type Fetcher = KrafkaFetcher;

    fn connect(
        env: &Env,
        runtime: &Handle,
        settings: &KafkaSettings,
        // Readers have no records but the returned ones.
        _read_buffer_bytes: &Arc<AtomicU64>,
        deadline: &Deadline,
    ) -> Result<KrafkaClient, LogError> {
        let connection = Arc::new(Connection::open(env, runtime, settings, deadline)?);
        let building = connection.kafka.consumer_without_group().metrics_push(false).build();
        let questions = connection.call(deadline.left(), building).map_err(|failure| failure.error)?;
        Ok(KrafkaClient {
            topic: settings.address.topic.clone(),
            questions,
            admin: connection.kafka.admin().default_api_timeout(settings.ack_timeout),
            appender: Appender::new(connection.clone(), settings),
            fetch: FetchOptions::new(settings),
            connection,
        })
    }

    fn describe(&self, within: Duration, _: Phase) -> Result<Option<Description>, LogError> {
        let name = self.topic.as_str();
        let asking = self.admin.describe_topics([name], DescribeTopicsOptions::default());
        let found = self.call(within, asking).map_err(|failure| failure.error)?.remove(name);
        match found {
            Some(Ok(found)) => Ok(Some(Description {
                id: TopicId(found.topic_id),
                partition_count: u32::try_from(found.partitions.len()).unwrap_or(u32::MAX),
                has_leaders: found.partitions.iter().all(|partition| partition.leader.is_some()),
            })),
            None | Some(Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. })) => {
                Ok(None)
            }
            Some(Err(error)) => Err(self.connection.failed(&error).error),
        }
    }

    fn recent_description(&self, within: Duration) -> Result<Description, Failure> {
        let known = self.call(within, self.questions.fetch_metadata(Some(&self.topic)))?;
        let Some(topic) = known.topics.iter().find(|topic| topic.name == self.topic) else {
            return Err(self.connection.failed(&KrafkaError::unknown_topic(&self.topic)));
        };
        Ok(Description {
            id: TopicId(topic.topic_id),
            partition_count: u32::try_from(topic.partition_count()).unwrap_or(u32::MAX),
            has_leaders: true,
        })
    }

    fn create_topic(&self, wanted: NewTopic, within: Duration) -> Result<(), LogError> {
        let name = self.topic.as_str();
        let failed = |error: KrafkaError| self.connection.failed(&error).error;
        let partition_count = i32::try_from(wanted.partition_count).unwrap_or(i32::MAX);
        let replication_factor = i16::try_from(wanted.replication_factor).unwrap_or(i16::MAX);
        let mut topic = TopicOfAdmin::new(name, partition_count, replication_factor).map_err(failed)?;
        for (setting, value) in topic_settings::of_new_topic(wanted) {
            topic = topic.with_config(setting, value);
        }
        let creating = self.admin.create_topics([topic], CreateTopicsOptions::default());
        match self.call(within, creating).map_err(|failure| failure.error)?.remove(name) {
            None | Some(Ok(())) => {
                tracing::info!(topic = name, ?wanted, "created the topic of a replicated log");
                Ok(())
            }
            Some(Err(KrafkaError::Broker { code: ErrorCode::TopicAlreadyExists, .. })) => Ok(()),
            Some(Err(error)) => Err(failed(error)),
        }
    }

    fn batch_limit(&self, within: Duration) -> Option<String> {
        let asking = async { Ok(self.batch_limit_of_topic().await) };
        self.call(within, asking).ok().flatten()
    }

    fn prepare_appends(&mut self, _: usize, within: Duration) -> Result<(), LogError> {
        self.appender.start(within)
    }

    fn identity_in_use(&self, within: Duration) -> Option<TopicId> {
        let known = self.call(within, self.questions.fetch_metadata(None)).ok()?;
        let topic = known.topics.iter().find(|topic| topic.name == self.topic)?;
        Some(TopicId(topic.topic_id))
    }

    fn offsets(&self, partition: PartitionId, within: Duration) -> Result<Bounds, Failure> {
        let asking = self.questions.fetch_watermarks(&self.topic, partition_number(partition));
        let (start, end) = self.call(within, asking)?;
        Ok(Bounds { start: offset(start), end: offset(end) })
    }

    fn enqueue(
        &self,
        value: Bytes,
        append: FailedAppend,
        permit: InFlightPermit,
    ) -> Result<KrafkaDelivery, Failure> {
        self.appender.enqueue(value, append, permit)
    }

    fn start_fetcher(&self, partition: PartitionId) -> Result<KrafkaFetcher, Failure> {
        KrafkaFetcher::start(&self.connection, &self.fetch, partition)
    }

    /// Two reads that got nothing.
    fn starved_after(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn close(&self, within: Duration) -> Closing {
        self.appender.close(within)
    }
}

#[cfg(test)]
mod tests;
