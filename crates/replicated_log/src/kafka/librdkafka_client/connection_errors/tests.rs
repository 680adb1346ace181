//! Tests of the last error of connections.

use super::*;

#[test]
fn the_reason_of_a_refusal_outlasts_its_connection() {
    let errors = ConnectionErrors::default();
    assert!(!errors.is_hopeless() && errors.last().is_none());
    errors.note(Code::BrokerTransportFailure, "refused");
    assert!(!errors.is_hopeless());
    errors.note(Code::AllBrokersDown, "1/1 brokers are down");
    assert!(errors.is_hopeless());
    assert_eq!(errors.reason().as_deref(), Some("refused"));
    errors.note(Code::Authentication, "wrong password");
    errors.note(Code::BrokerTransportFailure, "closed");
    assert_eq!(errors.last(), Some((Code::Authentication, "wrong password".to_owned())));
    errors.note_success();
    assert!(!errors.is_hopeless() && errors.reason().is_none());
}
