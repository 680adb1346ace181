//! Encryption and login of a log of Kafka's protocol.
//!
//! Invariant: secrets are in files, never in options.

use std::path::PathBuf;

/// Encryption and login; a directory has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSecurity {
    /// TLS; without it connections are not encrypted.
    pub tls: Option<LogTls>,
    /// Login by SASL.
    pub login: Option<LogLogin>,
}

/// Files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogTls {
    /// Certificates of the authorities that are trusted, PEM; `None` for the authorities of the system.
    pub ca_file: Option<PathBuf>,
    /// Certificate chain of this client, PEM.
    pub cert_file: Option<PathBuf>,
    /// Key of this client, PEM.
    pub key_file: Option<PathBuf>,
    /// Name that the certificates of brokers must have; `None` for their host.
    pub server_name: Option<String>,
}

/// Mechanism of SASL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    /// `PLAIN`.
    Plain,
    /// `SCRAM-SHA-256`.
    ScramSha256,
    /// `SCRAM-SHA-512`.
    ScramSha512,
    /// `OAUTHBEARER`, which has a token instead of user and password.
    OAuthBearer,
}

/// Login of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLogin {
    /// The mechanism.
    pub mechanism: SaslMechanism,
    /// User name; empty for a token.
    pub user: String,
    /// File with the password or token.
    pub secret_file: PathBuf,
}
