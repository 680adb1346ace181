//! Settings of a log of Kafka's protocol. Secrets are in files, never in settings.

use std::path::PathBuf;
use std::time::Duration;

use super::address::KafkaAddress;
use crate::error::LogError;

/// Codec of batches; records that were compressed before need none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Batches as they are.
    None,
    /// Zstandard.
    Zstd,
}

/// Files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that are trusted, PEM; without it the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate chain of this client, PEM. The files are read again once per minute.
    pub cert_file: Option<PathBuf>,
    /// Key of this client, PEM.
    pub key_file: Option<PathBuf>,
    /// Name that the certificates of brokers must have, where it is not their host.
    pub server_name: Option<String>,
}

/// SASL mechanism, with the file that has the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// `PLAIN`.
    Plain {
        /// User name.
        user: String,
        /// File with the password; a line end after it does not count.
        password_file: PathBuf,
    },
    /// `SCRAM-SHA-256`.
    ScramSha256 {
        /// User name.
        user: String,
        /// File with the password; a line end after it does not count.
        password_file: PathBuf,
    },
    /// `SCRAM-SHA-512`.
    ScramSha512 {
        /// User name.
        user: String,
        /// File with the password; a line end after it does not count.
        password_file: PathBuf,
    },
    /// `OAUTHBEARER`; the file is read for each connection, so that a token may be replaced.
    OAuthBearer {
        /// File with the token.
        token_file: PathBuf,
    },
}

/// Encryption and login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Security {
    /// TLS; without it connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// Login by SASL.
    pub login: Option<Login>,
}

/// A topic to create if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTopic {
    /// At least 1.
    pub partition_count: u32,
    /// Copies of a partition, at least 1. From 3 on, all but one must acknowledge a record.
    pub replication_factor: u16,
}

/// Settings of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSettings {
    /// Brokers and topic.
    pub address: KafkaAddress,
    /// Name of this client in the brokers' logs and metrics.
    pub client_id: String,
    /// Encryption and login.
    pub security: Security,
    /// Creates the topic if it is missing.
    pub new_topic: Option<NewTopic>,
    /// Longest wait for the first connection, login included.
    pub open_timeout: Duration,
    /// Longest time from an append to its outcome, retries included; 1 s to 10 minutes. Half of it is the
    /// timeout of a request, a fifth the one of a connection.
    pub ack_timeout: Duration,
    /// Longest wait for more records of a batch.
    pub linger: Duration,
    /// Bytes at which a batch is sent at once.
    pub batch_bytes: usize,
    /// Codec of batches.
    pub compression: Compression,
    /// Bytes of records that wait for their acknowledgement; one partition has at most half of them.
    pub in_flight_bytes_max: u64,
    /// Bytes of a record; the topic's own limit counts, too.
    pub record_bytes_max: usize,
    /// Bytes of one answer to a fetch; readers of up to four partitions have one each.
    pub fetch_bytes_max: usize,
}

impl KafkaSettings {
    /// Returns the default settings for an address.
    #[must_use]
    pub fn new(address: KafkaAddress) -> KafkaSettings {
        KafkaSettings {
            address,
            client_id: "chronolith".to_owned(),
            security: Security::default(),
            new_topic: None,
            open_timeout: Duration::from_secs(15),
            ack_timeout: Duration::from_secs(10),
            linger: Duration::from_millis(5),
            batch_bytes: 200_000,
            compression: Compression::None,
            in_flight_bytes_max: 64 << 20,
            record_bytes_max: 900_000,
            fetch_bytes_max: 16 << 20,
        }
    }

    /// Returns the addresses of the brokers, separated by commas.
    pub(super) fn brokers(&self) -> String {
        self.address.brokers.join(",")
    }

    /// Timeout of one request: an append has time for a second one.
    pub(super) fn request_timeout(&self) -> Duration {
        self.ack_timeout / 2
    }

    /// Timeout of one connection.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.ack_timeout / 5
    }

    /// Checks what the client cannot work with.
    pub(super) fn check(&self) -> Result<(), LogError> {
        let wrong = |setting, expected: &str, found: String| {
            Err(LogError::Setting { setting, expected: expected.to_owned(), found })
        };
        if !(Duration::from_secs(1)..=Duration::from_secs(600)).contains(&self.ack_timeout) {
            return wrong("ack_timeout", "1 s to 10 minutes", format!("{:?}", self.ack_timeout));
        }
        if self.linger > self.ack_timeout / 4 {
            return wrong("linger", "at most a quarter of ack_timeout", format!("{:?}", self.linger));
        }
        if !(1..=64 << 20).contains(&self.record_bytes_max) {
            return wrong("record_bytes_max", "1 to 67108864 bytes", self.record_bytes_max.to_string());
        }
        if self.in_flight_bytes_max < 2 * self.record_bytes_max as u64 {
            return wrong(
                "in_flight_bytes_max",
                "at least two records",
                self.in_flight_bytes_max.to_string(),
            );
        }
        if !(1024..=64 << 20).contains(&self.batch_bytes) {
            return wrong("batch_bytes", "1024 to 67108864 bytes", self.batch_bytes.to_string());
        }
        if !(self.record_bytes_max..=1 << 30).contains(&self.fetch_bytes_max) {
            return wrong(
                "fetch_bytes_max",
                "a record to 1073741824 bytes",
                self.fetch_bytes_max.to_string(),
            );
        }
        if let Some(topic) = self.new_topic
            && (topic.partition_count == 0 || topic.replication_factor == 0)
        {
            return wrong("new_topic", "at least one partition and one copy", format!("{topic:?}"));
        }
        let tls = self.security.tls.as_ref();
        if tls.is_some_and(|tls| tls.cert_file.is_some() != tls.key_file.is_some()) {
            return wrong("cert_file, key_file", "both or none", "one of them".to_owned());
        }
        Ok(())
    }
}
