//! Settings of the library's clients, from the settings of the log.
//!
//! Invariant: memory is bounded. The producer keeps at most the bytes in flight; a consumer fetches half of
//! `fetch_bytes_max` and keeps as much, so that an answer on its way fits in the rest.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::kafka::settings::{Compression, KafkaSettings};

/// Age at which topics and their leaders are looked up again, ms.
const METADATA_AGE_MS: &str = "10000";
/// Longest wait between two connections to a broker that does not answer, ms.
const RECONNECT_MS_MAX: &str = "1000";
/// Shortest timeout of a connection that the library takes.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Records in the queue of the producer, which has a limit in bytes as well.
const QUEUED_RECORDS_MAX: &str = "1000000";
/// Longest wait of a broker for records of one answer. A seek waits for the answer before.
const FETCH_WAIT_MS: &str = "100";
/// Pause before the next fetch while the queue of a consumer is full, ms.
const FULL_PAUSE_MS: &str = "5";
/// Time between two reports of bytes in the queue of a consumer, ms.
const STATISTICS_MS: &str = "5000";
/// Bytes of a request around its records, rounded up.
const REQUEST_OVERHEAD_BYTES: usize = 4096;

/// Returns the settings that all clients of a log have, without encryption and login.
pub(super) fn of_client(settings: &KafkaSettings) -> ClientConfig {
    let mut config = ClientConfig::new();
    let connect_timeout = settings.connect_timeout().max(CONNECT_TIMEOUT_MIN);
    config
        .set("bootstrap.servers", settings.brokers())
        .set("client.id", &settings.client_id)
        .set("socket.timeout.ms", ms(settings.request_timeout()))
        .set("socket.connection.setup.timeout.ms", ms(connect_timeout))
        .set("socket.keepalive.enable", "true")
        .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX)
        .set("topic.metadata.refresh.interval.ms", METADATA_AGE_MS)
        .set("topic.metadata.propagation.max.ms", "1000")
        .set("enable.metrics.push", "false");
    config.set_log_level(RDKafkaLogLevel::Warning);
    config
}

/// Returns the settings of the producer. Batches are at most as large as the topic's largest record.
pub(super) fn of_producer(
    common: &ClientConfig,
    settings: &KafkaSettings,
    record_bytes_max: usize,
) -> ClientConfig {
    let codec = match settings.compression {
        Compression::None => "none",
        Compression::Zstd => "zstd",
    };
    let queue_kbytes = settings.in_flight_bytes_max.div_ceil(1024).clamp(1, i32::MAX as u64);
    let linger_ms = settings.linger.as_secs_f64() * 1000.0;
    let mut config = common.clone();
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("allow.auto.create.topics", "false")
        .set("message.timeout.ms", ms(settings.ack_timeout))
        .set("request.timeout.ms", ms(settings.request_timeout()))
        .set("queue.buffering.max.ms", linger_ms.to_string())
        .set("queue.buffering.max.messages", QUEUED_RECORDS_MAX)
        .set("queue.buffering.max.kbytes", queue_kbytes.to_string())
        .set("batch.size", settings.batch_bytes.min(record_bytes_max).max(1).to_string())
        .set("message.max.bytes", (settings.record_bytes_max + REQUEST_OVERHEAD_BYTES).to_string())
        .set("compression.codec", codec);
    config
}

/// Returns the settings of a consumer of one partition.
pub(super) fn of_consumer(common: &ClientConfig, settings: &KafkaSettings) -> ClientConfig {
    let fetch_bytes = (settings.fetch_bytes_max / 2).max(1);
    let mut config = common.clone();
    config
        // No client joins this group: the library assigns partitions by hand to clients with a name alone.
        .set("group.id", &settings.client_id)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false")
        .set("isolation.level", "read_uncommitted")
        .set("check.crcs", "true")
        .set("fetch.message.max.bytes", fetch_bytes.to_string())
        .set("fetch.max.bytes", fetch_bytes.max(1000).to_string())
        .set("queued.max.messages.kbytes", (fetch_bytes / 1024).max(1).to_string())
        .set("fetch.queue.backoff.ms", FULL_PAUSE_MS)
        .set("fetch.wait.max.ms", FETCH_WAIT_MS)
        .set("fetch.error.backoff.ms", FETCH_WAIT_MS)
        .set("statistics.interval.ms", STATISTICS_MS);
    config
}

fn ms(duration: Duration) -> String {
    duration.as_millis().to_string()
}
