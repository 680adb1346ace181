//! Changes of topics, as an operator makes them: by the client that the build has.

use chronolith_replicated_log::kafka::KafkaAddress;

use super::broker::Broker;
use super::runtime;

/// Administrator over the listener without encryption.
pub(super) struct Admin(client::Client);

impl Admin {
    /// Connects to the broker.
    pub(super) fn new(broker: &Broker) -> Admin {
        let address: KafkaAddress =
            format!("kafka://{}/any", broker.listener("plain")).parse().expect("an address");
        Admin(client::connect(&address.brokers.join(",")))
    }

    /// Creates a topic with one copy of each partition.
    ///
    /// # Errors
    /// Text of the client.
    pub(super) fn create(
        &self,
        name: &str,
        partition_count: u32,
        settings: &[(&str, &str)],
    ) -> Result<(), String> {
        client::create(&self.0, name, partition_count, settings)
    }

    /// Deletes a topic.
    pub(super) fn delete(&self, name: &str) {
        client::delete(&self.0, name);
    }

    /// Adds partitions to a topic.
    pub(super) fn grow(&self, name: &str, partition_count: u32) {
        client::grow(&self.0, name, partition_count);
    }

    /// Removes the records of partition 0 before an offset.
    pub(super) fn delete_records(&self, name: &str, before: i64) {
        client::delete_records(&self.0, name, before);
    }

    /// Changes a setting of a topic.
    pub(super) fn set(&self, name: &str, setting: &str, value: &str) {
        client::set(&self.0, name, setting, value);
    }
}

#[cfg(not(feature = "kafka-librdkafka"))]
mod client {
    use krafka::Kafka;
    use krafka::admin::{
        AdminClient, ConfigOp, ConfigResource, CreatePartitionsOptions, CreateTopicsOptions,
        DeleteRecordsOptions, DeleteTopicsOptions, IncrementalAlterConfigsOptions, NewTopic, TopicPartition,
    };

    use super::runtime;

    pub(super) type Client = AdminClient;

    pub(super) fn connect(brokers: &str) -> Client {
        runtime().block_on(Kafka::builder(brokers).connect()).expect("connects").admin()
    }

    pub(super) fn create(
        client: &Client,
        name: &str,
        partition_count: u32,
        settings: &[(&str, &str)],
    ) -> Result<(), String> {
        let mut topic = NewTopic::new(name, partition_count as i32, 1).expect("a topic");
        for (setting, value) in settings {
            topic = topic.with_config(*setting, *value);
        }
        let created = runtime().block_on(client.create_topics([topic], CreateTopicsOptions::default()));
        let created = created.map_err(|error| error.to_string())?.remove(name);
        created.ok_or("no answer")?.map_err(|error| error.to_string())
    }

    pub(super) fn delete(client: &Client, name: &str) {
        let deleted = runtime().block_on(client.delete_topics([name], DeleteTopicsOptions::default()));
        deleted.expect("answers").remove(name).expect("this topic").expect("is deleted");
    }

    pub(super) fn grow(client: &Client, name: &str, partition_count: u32) {
        let wanted = [(name, partition_count as i32)];
        let grown = runtime().block_on(client.create_partitions(wanted, CreatePartitionsOptions::default()));
        assert!(grown.expect("answers").values().all(Result::is_ok));
    }

    pub(super) fn delete_records(client: &Client, name: &str, before: i64) {
        let wanted = [(TopicPartition::new(name, 0), before)];
        let removed = runtime().block_on(client.delete_records(wanted, DeleteRecordsOptions::default()));
        assert!(removed.expect("answers").values().all(Result::is_ok));
    }

    pub(super) fn set(client: &Client, name: &str, setting: &str, value: &str) {
        let wanted = [(ConfigResource::topic(name), vec![ConfigOp::set(setting, value)])];
        let options = IncrementalAlterConfigsOptions::default();
        let changed = runtime().block_on(client.incremental_alter_configs(wanted, options));
        assert!(changed.expect("answers").values().all(Result::is_ok));
    }
}

#[cfg(feature = "kafka-librdkafka")]
mod client {
    use rdkafka::admin::{
        AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
    };
    use rdkafka::client::DefaultClientContext;
    use rdkafka::{ClientConfig, Offset, TopicPartitionList};

    use super::runtime;

    pub(super) type Client = AdminClient<DefaultClientContext>;

    pub(super) fn connect(brokers: &str) -> Client {
        ClientConfig::new().set("bootstrap.servers", brokers).create().expect("starts")
    }

    pub(super) fn create(
        client: &Client,
        name: &str,
        partition_count: u32,
        settings: &[(&str, &str)],
    ) -> Result<(), String> {
        let mut topic = NewTopic::new(name, partition_count as i32, TopicReplication::Fixed(1));
        for (setting, value) in settings {
            topic = topic.set(setting, value);
        }
        let created = runtime().block_on(client.create_topics([&topic], &AdminOptions::new()));
        let created = created.map_err(|error| error.to_string())?.pop();
        created.ok_or("no answer")?.map(drop).map_err(|(_, code)| code.to_string())
    }

    pub(super) fn delete(client: &Client, name: &str) {
        let deleted = runtime().block_on(client.delete_topics(&[name], &AdminOptions::new()));
        assert!(deleted.expect("answers").iter().all(Result::is_ok));
    }

    pub(super) fn grow(client: &Client, name: &str, partition_count: u32) {
        let wanted = NewPartitions::new(name, partition_count as usize);
        let grown = runtime().block_on(client.create_partitions([&wanted], &AdminOptions::new()));
        assert!(grown.expect("answers").iter().all(Result::is_ok));
    }

    pub(super) fn delete_records(client: &Client, name: &str, before: i64) {
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition_offset(name, 0, Offset::Offset(before)).expect("an offset");
        let removed = runtime().block_on(client.delete_records(&wanted, &AdminOptions::new()));
        assert!(removed.expect("answers").elements().iter().all(|element| element.error().is_ok()));
    }

    pub(super) fn set(client: &Client, name: &str, setting: &str, value: &str) {
        let wanted = AlterConfig::new(ResourceSpecifier::Topic(name)).set(setting, value);
        let changed = runtime().block_on(client.alter_configs([&wanted], &AdminOptions::new()));
        assert!(changed.expect("answers").iter().all(Result::is_ok));
    }
}
