//! Errors of the library, by what the caller of a log can do.
//!
//! Invariants: an append counts as not written only where the library knows it; no text has the value of a
//! setting, which may be a secret.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::error::LogError;
use crate::kafka::client::{Cause, Failure};
use crate::kafka::failed_append::FailedAppend;

/// Words an error of a connection, a question or a read; `reason` is the last error of a connection.
pub(super) fn of_call(code: Code, reason: Option<&str>, brokers: &str) -> LogError {
    let address = brokers.to_owned();
    let why = match reason {
        Some(reason) => format!("{code}; last error of a connection: {reason}"),
        None => code.to_string(),
    };
    match code {
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed => LogError::NotAuthorised { address, why },
        Code::SSL if is_about_certificate(&why) => LogError::UntrustedCertificate { address, why },
        _ => LogError::Unavailable { why: format!("{brokers}: {why}") },
    }
}

/// Words an error of the settings of a client.
pub(super) fn of_settings(error: &KafkaError) -> LogError {
    let expected = match error {
        KafkaError::ClientConfig(_, what, setting, _) => format!("{setting} that librdkafka takes ({what})"),
        KafkaError::ClientCreation(why) => format!("settings that librdkafka takes ({why})"),
        _ => "settings that librdkafka takes".to_owned(),
    };
    LogError::Setting { setting: "kafka", expected, found: "other settings".to_owned() }
}

/// Returns the code of an error; errors without one concern the library's own state.
pub(super) fn code(error: &KafkaError) -> Code {
    match error {
        KafkaError::AdminOp(code) => *code,
        _ => error.rdkafka_error_code().unwrap_or(Code::Fail),
    }
}

/// Returns true for codes that may mean another topic, or none.
pub(super) fn is_of_topic(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId
    )
}

/// Returns true for the codes of a topic that does not exist.
pub(super) fn is_missing(code: Code) -> bool {
    matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopic)
}

/// Returns what else is to be found out about a code.
pub(super) fn cause(code: Code) -> Cause {
    match code {
        Code::AutoOffsetReset | Code::OffsetOutOfRange => Cause::Offset,
        Code::NotLeaderForPartition | Code::LeaderNotAvailable => Cause::Leader,
        code if is_of_topic(code) => Cause::Topic,
        _ => Cause::Other,
    }
}

fn is_about_certificate(why: &str) -> bool {
    ["certificate verify failed", "certificate could not be verified", "hostname mismatch"]
        .iter()
        .any(|text| why.contains(text))
}

impl FailedAppend {
    /// Words the error of a record that was never queued.
    pub(super) fn before_queue(&self, code: Code) -> Failure {
        let error = match code {
            Code::MessageSizeTooLarge => self.too_large(),
            _ => self.not_written(code.to_string()),
        };
        Failure { cause: cause(code), error }
    }

    /// Words the error of a record that was queued. `is_not_written`: no broker has it.
    pub(super) fn after_queue(
        &self,
        code: Code,
        is_not_written: bool,
        reason: Option<&str>,
        brokers: &str,
    ) -> LogError {
        if !is_not_written {
            return self.possibly_written(match reason {
                Some(reason) => format!("{code}; last error of a connection: {reason}"),
                None => code.to_string(),
            });
        }
        match (code, of_call(code, reason, brokers)) {
            (Code::MessageSizeTooLarge | Code::MessageBatchTooLarge, _) => self.too_large(),
            (_, refused @ LogError::NotAuthorised { .. }) => refused,
            (_, LogError::Unavailable { why } | LogError::UntrustedCertificate { why, .. }) => {
                self.not_written(why)
            }
            (_, _) => self.not_written(code.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
