//! Settings of a topic on the brokers: the ones of a new topic, the limit of a batch.
//!
//! Not here: requests of the clients.

use super::settings::NewTopic;
use crate::error::LogError;

/// Setting of a topic with the limit of a batch in bytes.
pub(super) const BATCH_LIMIT: &str = "max.message.bytes";
/// Bytes of a batch around a record without key and headers, rounded up.
const BATCH_OVERHEAD_BYTES: usize = 200;

/// Returns the settings of a new topic.
pub(super) fn of_new_topic(topic: NewTopic) -> [(&'static str, String); 3] {
    // All copies but one must have a record before it is acknowledged, so that one may fail.
    let in_sync_min = topic.replication_factor.saturating_sub(1).max(1);
    [
        ("cleanup.policy", "delete".to_owned()),
        ("message.timestamp.type", "LogAppendTime".to_owned()),
        ("min.insync.replicas", in_sync_min.to_string()),
    ]
}

/// Returns the error of a topic that is missing, with the command that creates it.
pub(super) fn missing(brokers: &str, topic: &str) -> LogError {
    let command = format!(
        "kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions 12 --replication-factor 3 \
         --config min.insync.replicas=2 --config message.timestamp.type=LogAppendTime"
    );
    LogError::TopicMissing { topic: topic.to_owned(), command }
}

/// Returns the bytes of the largest record of a topic, from the value of [`BATCH_LIMIT`]; no limit without a
/// value, because this client may not ask.
pub(super) fn record_bytes_max(topic: &str, batch_limit: Option<&str>) -> usize {
    let Some(limit) = batch_limit.and_then(|limit| limit.parse::<usize>().ok()) else {
        tracing::warn!(
            topic,
            "the limit {BATCH_LIMIT} of a topic cannot be read; records above it are refused"
        );
        return usize::MAX;
    };
    limit.saturating_sub(BATCH_OVERHEAD_BYTES)
}
