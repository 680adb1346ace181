//! Errors of the client, by what the caller of a log can do.
//!
//! Invariant: an append counts as not written only where the broker's answer, or the lack of a request,
//! proves it.

use std::error::Error as _;
use std::io;

use krafka::KrafkaError;
use krafka::error::ErrorCode;

use crate::error::LogError;
use crate::kafka::client::{Cause, Failure};
use crate::kafka::failed_append::FailedAppend;

/// Words an error of a connection, a question or a read.
pub(super) fn of_call(error: &KrafkaError, brokers: &str) -> Failure {
    Failure { cause: cause(error), error: log_error(error, brokers) }
}

fn cause(error: &KrafkaError) -> Cause {
    match error {
        KrafkaError::NoOffset { .. } => Cause::Offset,
        KrafkaError::UnknownTopic { .. } => Cause::Topic,
        KrafkaError::Broker { code, .. } => match code {
            ErrorCode::NotLeaderForPartition | ErrorCode::LeaderNotAvailable => Cause::Leader,
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId => Cause::Topic,
            _ => Cause::Other,
        },
        _ => Cause::Other,
    }
}

fn log_error(error: &KrafkaError, brokers: &str) -> LogError {
    let address = brokers.to_owned();
    match error {
        KrafkaError::Auth { message, .. } => match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(why)) => {
                LogError::UntrustedCertificate { address, why: why.to_string() }
            }
            Some(rustls::Error::InvalidMessage(_)) => LogError::TlsToPlaintext { address },
            _ => LogError::NotAuthorised { address, why: message.clone() },
        },
        KrafkaError::Broker { code, message } if is_refusal(*code) => {
            LogError::NotAuthorised { address, why: format!("{code:?}: {message}") }
        }
        KrafkaError::Config { message } => LogError::Setting {
            setting: "kafka",
            expected: message.clone(),
            found: "other settings".to_owned(),
        },
        other => LogError::Unavailable { why: format!("{brokers}: {other}") },
    }
}

impl FailedAppend {
    /// Words an error of a record that was never queued.
    pub(super) fn before_queue(&self, error: &KrafkaError, brokers: &str) -> Failure {
        let mut failure = of_call(error, brokers);
        if !matches!(failure.error, LogError::NotAuthorised { .. }) {
            failure.error = self.not_written(error.to_string());
        }
        failure
    }

    /// Words the error of a record that was queued.
    pub(super) fn after_queue(&self, error: &KrafkaError, brokers: &str) -> LogError {
        match error {
            KrafkaError::DeliveryTimeout { possibly_written: false, .. } => {
                self.not_written(error.to_string())
            }
            KrafkaError::Broker {
                code: ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge, ..
            } => self.too_large(),
            KrafkaError::Broker { code: ErrorCode::TopicAuthorizationFailed, .. } => {
                log_error(error, brokers)
            }
            KrafkaError::Broker { code, .. } if is_proof_of_no_append(*code) => {
                self.not_written(error.to_string())
            }
            _ => self.possibly_written(error.to_string()),
        }
    }
}

/// Returns true for answers that a broker gives before it appends.
fn is_proof_of_no_append(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InvalidRecord
            | ErrorCode::CorruptMessage
            | ErrorCode::InvalidRequiredAcks
            | ErrorCode::UnsupportedCompressionType
            | ErrorCode::InvalidTimestamp
    )
}

/// Returns true for answers about rights.
fn is_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::TopicAuthorizationFailed
            | ErrorCode::ClusterAuthorizationFailed
            | ErrorCode::SaslAuthenticationFailed
    )
}

/// Returns the TLS library's error within an error of a handshake.
fn tls_error(error: &KrafkaError) -> Option<&rustls::Error> {
    // The client wraps the error of the connection to make it cloneable.
    let wrapped = error.source()?.source()?;
    wrapped.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests;
