//! Address of a log: `kafka://HOST:PORT,HOST:PORT/TOPIC` or `dir:///PATH`.
//!
//! Invariant: an error never repeats a text that may have a password.

use std::path::PathBuf;
use std::str::FromStr;

const EXPECTED: &str = "expected kafka://HOST:PORT,HOST:PORT/TOPIC or dir:///PATH";

/// Address of Kafka's protocol; a build without a client has none.
#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
type KafkaAddress = chronolith_replicated_log::kafka::KafkaAddress;
#[cfg(not(any(feature = "kafka", feature = "kafka-librdkafka")))]
type KafkaAddress = std::convert::Infallible;

/// Location of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogAddress {
    /// An absolute path.
    Dir(PathBuf),
    /// Brokers and topic.
    Kafka(KafkaAddress),
}

impl FromStr for LogAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<LogAddress, String> {
        if let Some(path) = text.strip_prefix("dir://") {
            let is_absolute = path.len() > 1 && path.starts_with('/');
            return if is_absolute {
                Ok(LogAddress::Dir(PathBuf::from(path)))
            } else {
                Err(EXPECTED.to_owned())
            };
        }
        if text.starts_with("kafka://") {
            return kafka_address(text);
        }
        Err(EXPECTED.to_owned())
    }
}

#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
fn kafka_address(text: &str) -> Result<LogAddress, String> {
    match text.parse() {
        Ok(address) => Ok(LogAddress::Kafka(address)),
        Err(chronolith_replicated_log::LogError::Setting { expected, found, .. }) => {
            Err(format!("expected {expected}, found {found}"))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(any(feature = "kafka", feature = "kafka-librdkafka")))]
fn kafka_address(_text: &str) -> Result<LogAddress, String> {
    Err("this build has no client of Kafka's protocol: expected dir:///PATH, or a build with the feature kafka"
        .to_owned())
}
