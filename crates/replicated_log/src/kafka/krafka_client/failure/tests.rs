//! Tests of the kinds of errors.

use std::time::Duration;

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

#[track_caller]
fn check_append(error: &KrafkaError, may_be_written: bool) {
    let found = failed().after_queue(error, "b:1");
    assert_eq!(found.may_be_written(), may_be_written, "{error}: {found}");
}

#[test]
fn appends_without_proof_are_possibly_written() {
    check_append(&KrafkaError::delivery_timeout(true, "x"), true);
    check_append(&KrafkaError::delivery_timeout(false, "x"), false);
    check_append(&KrafkaError::timeout("x"), true);
    check_append(&KrafkaError::closed("x"), true);
    check_append(&KrafkaError::auth("x"), true);
    check_append(&KrafkaError::out_of_order_sequence("t", 0, "x"), true);
    check_append(&KrafkaError::broker(ErrorCode::NotEnoughReplicasAfterAppend, "x"), true);
    check_append(&KrafkaError::broker(ErrorCode::InvalidRecord, "x"), false);
    check_append(&KrafkaError::broker(ErrorCode::TopicAuthorizationFailed, "x"), false);
    let too_large = failed().after_queue(&KrafkaError::broker(ErrorCode::MessageTooLarge, "x"), "b:1");
    assert_eq!(too_large, LogError::TooLarge { record_bytes: 3000, record_bytes_max: 2999 });
}

#[test]
fn records_that_were_never_queued_are_not_written() {
    for error in [KrafkaError::timeout("x"), KrafkaError::closed("x"), KrafkaError::unknown_topic("t")] {
        assert!(matches!(failed().before_queue(&error, "b:1").error, LogError::NotWritten { .. }), "{error}");
    }
    let refused = failed().before_queue(&KrafkaError::auth("x"), "b:1").error;
    assert!(matches!(&refused, LogError::NotAuthorised { address, .. } if address == "b:1"), "{refused}");
}

#[test]
fn handshakes_name_the_certificate() {
    let handshake = |error: rustls::Error| {
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        of_call(&KrafkaError::auth_with_source("TLS handshake failed", error), "b:1").error
    };
    let unknown = handshake(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
    assert!(
        matches!(&unknown, LogError::UntrustedCertificate { why, .. } if why.contains("UnknownIssuer")),
        "{unknown}"
    );
    let plain = handshake(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
    assert!(matches!(plain, LogError::TlsToPlaintext { .. }), "{plain}");
    let alert = handshake(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired));
    assert!(matches!(alert, LogError::NotAuthorised { .. }), "{alert}");
    let network = of_call(&KrafkaError::timeout("x"), "b:1").error;
    assert!(matches!(&network, LogError::Unavailable { why } if why.contains("b:1")), "{network}");
}
