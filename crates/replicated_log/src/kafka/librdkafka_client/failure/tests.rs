//! Tests of the kinds of errors.

use std::time::Duration;

use rdkafka::types::RDKafkaConfRes;

use super::*;
use crate::position::PartitionId;

fn failed() -> FailedAppend {
    FailedAppend {
        partition: PartitionId(2),
        ack_timeout: Duration::from_secs(10),
        record_bytes: 3000,
        record_bytes_max: 5000,
    }
}

#[test]
fn appends_without_proof_are_possibly_written() {
    for code in [
        Code::MessageTimedOut,
        Code::PurgeInflight,
        Code::NotEnoughReplicasAfterAppend,
        Code::TopicAuthorizationFailed,
        Code::MessageSizeTooLarge,
        Code::Fatal,
    ] {
        let found = failed().after_queue(code, false, Some("closed"), "b:1");
        assert!(matches!(&found, LogError::PossiblyWritten { why, .. } if why.contains("closed")), "{found}");
    }
}

#[test]
fn appends_with_proof_are_not_written() {
    let after = |code| failed().after_queue(code, true, Some("closed"), "b:1");
    for code in [Code::MessageTimedOut, Code::PurgeQueue, Code::NotEnoughReplicas, Code::SSL] {
        let found = after(code);
        assert!(matches!(&found, LogError::NotWritten { why, .. } if why.contains("closed")), "{found}");
    }
    let refused = after(Code::TopicAuthorizationFailed);
    assert!(matches!(&refused, LogError::NotAuthorised { address, .. } if address == "b:1"), "{refused}");
    let too_large = LogError::TooLarge { record_bytes: 3000, record_bytes_max: 2999 };
    assert_eq!(after(Code::MessageSizeTooLarge), too_large);
    assert_eq!(failed().before_queue(Code::MessageSizeTooLarge).error, too_large);
    assert!(matches!(failed().before_queue(Code::QueueFull).error, LogError::NotWritten { .. }));
}

#[test]
fn handshakes_name_the_certificate() {
    let reason = "ssl://b:1/bootstrap: SSL handshake failed: certificate verify failed: unknown issuer";
    let found = of_call(Code::SSL, Some(reason), "b:1");
    assert!(
        matches!(&found, LogError::UntrustedCertificate { why, .. } if why.contains("unknown issuer")),
        "{found}"
    );
    let found = of_call(Code::SSL, Some("wrong version number"), "b:1");
    assert!(matches!(&found, LogError::Unavailable { why } if why.contains("b:1")), "{found}");
}

/// The library's error of a setting has the value, which may be a password.
#[test]
fn errors_of_settings_have_no_values() {
    let error = KafkaError::ClientConfig(
        RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
        "Invalid value".to_owned(),
        "sasl.password".to_owned(),
        "hunter2".to_owned(),
    );
    let found = of_settings(&error).to_string();
    assert!(found.contains("sasl.password") && !found.contains("hunter2"), "{found}");
}
