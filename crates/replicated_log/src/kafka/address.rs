//! Address of a log: `kafka://HOST:PORT,HOST:PORT/TOPIC`.

use std::str::FromStr;

use crate::error::LogError;

const SETTING: &str = "log";
const SCHEME: &str = "kafka://";
/// Bytes of the name of a topic, by Kafka's own rule.
const TOPIC_BYTES_MAX: usize = 249;

/// Brokers and topic of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaAddress {
    /// Brokers to begin with, `HOST:PORT`; they name the others.
    pub brokers: Vec<String>,
    /// Name of the topic.
    pub topic: String,
}

impl FromStr for KafkaAddress {
    type Err = LogError;

    fn from_str(text: &str) -> Result<KafkaAddress, LogError> {
        let wrong = || {
            let expected = "kafka://HOST:PORT,HOST:PORT/TOPIC, without user and password".to_owned();
            // A password in the address must not come back in a message.
            let found = if text.contains('@') { "an address with @".to_owned() } else { format!("{text:?}") };
            LogError::Setting { setting: SETTING, expected, found }
        };
        let rest = text.strip_prefix(SCHEME).filter(|rest| !rest.contains('@')).ok_or_else(wrong)?;
        let (brokers, topic) = rest.split_once('/').ok_or_else(wrong)?;
        let brokers: Vec<String> = brokers.split(',').map(str::to_owned).collect();
        if !brokers.iter().all(|broker| is_broker(broker)) || !is_topic(topic) {
            return Err(wrong());
        }
        Ok(KafkaAddress { brokers, topic: topic.to_owned() })
    }
}

/// Returns true for `HOST:PORT` with a port that is one.
fn is_broker(broker: &str) -> bool {
    broker.rsplit_once(':').is_some_and(|(host, port)| {
        let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
        is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// Returns true for the names that Kafka takes.
fn is_topic(topic: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !topic.is_empty()
        && topic.len() <= TOPIC_BYTES_MAX
        && topic != "."
        && topic != ".."
        && topic.chars().all(is_valid)
}
