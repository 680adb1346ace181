//! Kafka's protocol against a real broker, which `kits/kafka/broker.py` fetches and starts.
//!
//! Invariant: where there is no broker, each test prints that it did not run, and fails in CI.

mod admin;
mod broker;
mod faults;
mod logins;
mod reads;
mod topics;

use std::sync::OnceLock;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_replicated_log::kafka::{KafkaAddress, KafkaLog, KafkaSettings, NewTopic};
use chronolith_replicated_log::{LogError, ReplicatedLog};
use tokio::runtime::{Handle, Runtime};

use crate::conformance::{PARTITION_COUNT, RECORD_BYTES_MAX, Suite};
use broker::Broker;

/// Runtime of all tests.
fn runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime")).handle()
}

/// Settings for a topic that is created, over a listener of the broker.
fn settings(addresses: &str, topic: &str) -> KafkaSettings {
    let address: KafkaAddress = format!("kafka://{addresses}/{topic}").parse().expect("an address");
    let mut settings = KafkaSettings::new(address);
    settings.record_bytes_max = RECORD_BYTES_MAX;
    settings.new_topic = Some(NewTopic { partition_count: PARTITION_COUNT, replication_factor: 1 });
    settings
}

/// For tests whose appends must all be acknowledged, on a machine that does other work as well.
fn patient(settings: KafkaSettings) -> KafkaSettings {
    KafkaSettings { ack_timeout: Duration::from_secs(100), ..settings }
}

fn open(settings: &KafkaSettings) -> Result<KafkaLog, LogError> {
    KafkaLog::open(&Env::real(), runtime(), settings.clone())
}

#[test]
fn conformance_against_a_broker() {
    let Some(broker) = Broker::shared() else { return };
    let settings = patient(settings(broker.listener("plain"), "conformance"));
    Suite { open: &|| Box::new(open(&settings).expect("opens")) }.run();
}

/// Batches of one record each, without compression: the way of large records.
#[test]
fn conformance_without_linger_and_compression() {
    let Some(broker) = Broker::shared() else { return };
    let mut settings = patient(settings(broker.listener("plain"), "conformance-unbatched"));
    settings.linger = Duration::ZERO;
    settings.batch_bytes = 1024;
    settings.compression = chronolith_replicated_log::kafka::Compression::None;
    Suite { open: &|| Box::new(open(&settings).expect("opens")) as Box<dyn ReplicatedLog> }.run();
}
