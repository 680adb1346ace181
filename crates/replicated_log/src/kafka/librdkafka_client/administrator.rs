//! Questions of the start that change or describe settings of the topic.
//!
//! Not here: the identity of a topic (`native`).

use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, NewTopic as TopicOfAdmin, ResourceSpecifier, TopicReplication,
};
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::runtime::Handle;

use super::connection::Connection;
use super::events::Events;
use super::{failure, native};
use crate::error::LogError;
use crate::kafka::settings::NewTopic;
use crate::kafka::topic_settings::{self, BATCH_LIMIT};

/// Client of the library for each question: it has a connection and threads of its own.
pub(super) struct Administrator {
    runtime: Handle,
}

impl Administrator {
    /// Returns an administrator whose calls block threads outside of the runtime.
    pub(super) fn new(runtime: Handle) -> Administrator {
        Administrator { runtime }
    }

    /// Creates the topic; another process may do so at the same time.
    ///
    /// # Errors
    /// [`LogError`] of connection and rights.
    pub(super) fn create(
        &self,
        connection: &Connection,
        name: &str,
        wanted: NewTopic,
        within: Duration,
    ) -> Result<(), LogError> {
        let client = start(connection)?;
        let partition_count = i32::try_from(wanted.partition_count).unwrap_or(i32::MAX);
        let copies = TopicReplication::Fixed(wanted.replication_factor.into());
        let settings = topic_settings::of_new_topic(wanted);
        let mut topic = TopicOfAdmin::new(name, partition_count, copies);
        for (setting, value) in &settings {
            topic = topic.set(setting, value);
        }
        let options = options(within).operation_timeout(Some(within));
        let created = self.runtime.block_on(client.create_topics([&topic], &options));
        let created = created.map_err(|error| connection.failed(failure::code(&error)).error)?;
        match created.into_iter().next() {
            None | Some(Ok(_)) => {
                tracing::info!(topic = name, ?wanted, "created the topic of a replicated log");
                Ok(())
            }
            Some(Err((_, Code::TopicAlreadyExists))) => Ok(()),
            Some(Err((_, code))) => Err(connection.failed(code).error),
        }
    }

    /// Returns the setting of the topic with the limit of a batch; `None` if this client may not ask.
    pub(super) fn batch_limit(
        &self,
        connection: &Connection,
        name: &str,
        within: Duration,
    ) -> Option<String> {
        let client = start(connection).ok()?;
        let topic = ResourceSpecifier::Topic(name);
        let described = self.runtime.block_on(client.describe_configs([&topic], &options(within)));
        let settings = described.ok()?.into_iter().next()?.ok()?;
        settings.get(BATCH_LIMIT)?.value.clone()
    }
}

fn options(within: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(within))
}

fn start(connection: &Connection) -> Result<AdminClient<Events>, LogError> {
    let started = connection.administrator_config().create_with_context(connection.events(None));
    let client: AdminClient<Events> = started.map_err(|error| failure::of_settings(&error))?;
    if let Some(file) = &connection.token {
        let token = file.read()?;
        let set = native::set_token(client.inner(), &token.token, &token.principal_name, token.lifetime_ms);
        set.map_err(|why| LogError::NotAuthorised { address: connection.brokers.clone(), why })?;
    }
    Ok(client)
}
