//! Encryption and logins: each one that is supported, and each way in which they fail.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock as _, SystemClock};
use chronolith_replicated_log::kafka::{KafkaSettings, Login, Security, TlsFiles};
use chronolith_replicated_log::{LogError, PartitionId, ReplicatedLog};

use super::broker::Broker;
use super::{open, settings};
use crate::conformance::{append_all, read_range};

const OPEN_WITHIN: Duration = Duration::from_secs(15);
const SECRETS: [&str; 3] = ["alice-secret", "bob-secret", "not-the-secret"];

fn plain(user: &str, password_file: PathBuf) -> Option<Login> {
    Some(Login::Plain { user: user.to_owned(), password_file })
}

fn tls(broker: &Broker, ca: &str) -> TlsFiles {
    TlsFiles { ca_file: Some(broker.file(ca)), ..TlsFiles::default() }
}

fn with(broker: &Broker, listener: &str, tls: Option<TlsFiles>, login: Option<Login>) -> KafkaSettings {
    let mut settings = settings(broker.listener(listener), "logins");
    settings.security = Security { tls, login };
    settings
}

#[test]
fn each_login_appends_and_reads() {
    let Some(broker) = Broker::shared() else { return };
    let user = || "alice".to_owned();
    let password = || broker.file("alice.password");
    let scram_256 = || Some(Login::ScramSha256 { user: user(), password_file: password() });
    let scram_512 = || Some(Login::ScramSha512 { user: user(), password_file: password() });
    let token = Some(Login::OAuthBearer { token_file: broker.file("alice.token") });
    let mutual = TlsFiles {
        cert_file: Some(broker.file("client.pem")),
        key_file: Some(broker.file("client.key")),
        ..tls(&broker, "ca.pem")
    };
    let ca = || Some(tls(&broker, "ca.pem"));
    for (what, settings) in [
        ("PLAIN", with(&broker, "sasl", None, plain("alice", password()))),
        ("SCRAM-SHA-256", with(&broker, "sasl", None, scram_256())),
        ("SCRAM-SHA-512", with(&broker, "sasl", None, scram_512())),
        ("OAUTHBEARER", with(&broker, "sasl", None, token.clone())),
        ("TLS", with(&broker, "tls", ca(), None)),
        ("client certificate", with(&broker, "mtls", Some(mutual), None)),
        ("PLAIN over TLS", with(&broker, "sasltls", ca(), plain("alice", password()))),
        ("SCRAM-SHA-512 over TLS", with(&broker, "sasltls", ca(), scram_512())),
        ("OAUTHBEARER over TLS", with(&broker, "sasltls", ca(), token)),
    ] {
        println!("login: {what}");
        check_login(what, &settings);
    }
}

#[track_caller]
fn check_login(what: &str, settings: &KafkaSettings) {
    let log = open(settings).unwrap_or_else(|error| panic!("{what}: {error}"));
    let partition = PartitionId(3);
    let value = Bytes::from(what.to_owned());
    let at = append_all(&log, partition, std::slice::from_ref(&value))[0].offset;
    assert_eq!(read_range(&log, partition, at, at + 1)[0].value, value);
}

/// Certificates are compared with the name of the settings; librdkafka cannot be given one, and a setting
/// that is ignored would trust any certificate of the authority.
#[test]
fn certificates_have_the_name_of_the_settings() {
    let Some(broker) = Broker::shared() else { return };
    let named = |name: &str| {
        let named = TlsFiles { server_name: Some(name.to_owned()), ..tls(&broker, "ca.pem") };
        with(&broker, "tls", Some(named), None)
    };
    if cfg!(feature = "kafka-librdkafka") {
        let error = open(&named("localhost")).map(drop).expect_err("is refused");
        assert!(matches!(error, LogError::Setting { setting: "server_name", .. }), "{error:?}");
        return;
    }
    check_login("TLS with a server name", &named("localhost"));
    let other = check_failure("another server name", &named("elsewhere.example"));
    assert!(matches!(other, LogError::UntrustedCertificate { .. }), "{other:?}");
}

/// Opens a log that must fail in time, with the broker's address and no secret. Returns the error.
#[track_caller]
fn check_failure(what: &str, settings: &KafkaSettings) -> LogError {
    let clock = SystemClock::new();
    let Err(error) = open(settings) else { panic!("{what}: opened") };
    let text = error.to_string();
    println!("{what}: {text}");
    let elapsed = Duration::from_nanos(clock.mono_ns());
    assert!(elapsed < OPEN_WITHIN + Duration::from_secs(1), "{what} after {elapsed:?}");
    let address = &settings.address.brokers[0];
    assert!(text.contains(address.as_str()), "{what} names no broker: {text}");
    for secret in SECRETS {
        assert!(!format!("{error:?} {settings:?}").contains(secret), "{what} shows a secret");
    }
    error
}

#[test]
fn failed_logins_name_broker_and_reason() {
    let Some(broker) = Broker::shared() else { return };
    let wrong = || broker.file("wrong.password");
    let scram = Some(Login::ScramSha256 { user: "alice".to_owned(), password_file: wrong() });
    let over_tls = Some(tls(&broker, "ca.pem"));
    for (what, settings) in [
        ("wrong password by PLAIN", with(&broker, "sasl", None, plain("alice", wrong()))),
        ("wrong password by SCRAM", with(&broker, "sasl", None, scram)),
        ("unknown user over TLS", with(&broker, "sasltls", over_tls, plain("nemo", wrong()))),
        ("user without rights", with(&broker, "sasl", None, plain("bob", broker.file("bob.password")))),
    ] {
        let error = check_failure(what, &settings);
        assert!(matches!(error, LogError::NotAuthorised { .. }), "{what}: {error:?}");
    }
    let error =
        check_failure("no client certificate", &with(&broker, "mtls", Some(tls(&broker, "ca.pem")), None));
    let is_right = matches!(error, LogError::NotAuthorised { .. } | LogError::Unavailable { .. });
    assert!(is_right, "no client certificate: {error:?}");
}

#[test]
fn certificates_and_ports_that_do_not_fit_are_told_apart() {
    let Some(broker) = Broker::shared() else { return };
    let unknown =
        check_failure("unknown CA", &with(&broker, "tls", Some(tls(&broker, "other-ca.pem")), None));
    assert!(matches!(unknown, LogError::UntrustedCertificate { .. }), "{unknown:?}");
    let to_tls = check_failure("plaintext to a TLS port", &with(&broker, "tls", None, None));
    assert!(matches!(to_tls, LogError::PlaintextToTls { .. }), "{to_tls:?}");
    let to_plain =
        check_failure("TLS to a plaintext port", &with(&broker, "plain", Some(tls(&broker, "ca.pem")), None));
    assert!(matches!(to_plain, LogError::TlsToPlaintext { .. }), "{to_plain:?}");
    let login = plain("alice", broker.file("alice.password"));
    let to_sasl_tls =
        check_failure("login without TLS to a TLS port", &with(&broker, "sasltls", None, login));
    assert!(matches!(to_sasl_tls, LogError::PlaintextToTls { .. }), "{to_sasl_tls:?}");
    let no_login = check_failure("no login to a port that asks for one", &with(&broker, "sasl", None, None));
    assert!(matches!(no_login, LogError::Unavailable { .. }), "{no_login:?}");
}

#[test]
fn a_port_without_a_broker_is_unavailable() {
    let Some(broker) = Broker::shared() else { return };
    let mut settings = settings(broker.listener("plain"), "nowhere");
    // A port of this machine on which nothing listens.
    settings.address.brokers = vec!["127.0.0.1:1".to_owned()];
    let error = check_failure("no broker", &settings);
    assert!(matches!(error, LogError::Unavailable { .. }) && error.is_retriable(), "{error:?}");
    settings.address.brokers.push(broker.listener("plain").to_owned());
    assert!(open(&settings).is_ok_and(|log| log.partition_count().is_ok()), "one of two brokers answers");
}
