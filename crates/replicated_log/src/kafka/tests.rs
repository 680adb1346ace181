//! Tests without a broker: addresses, settings, secrets, ports.

use std::path::PathBuf;
use std::time::Duration;

use chronolith_base::Env;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::*;
use crate::error::LogError;
use crate::kafka::tls_probe::{answers_plaintext, answers_tls};

fn settings() -> KafkaSettings {
    KafkaSettings::new("kafka://127.0.0.1:9092/log".parse().unwrap())
}

#[test]
fn addresses_have_brokers_and_a_topic() {
    let address: KafkaAddress = "kafka://a:9092,[::1]:9093/metrics.log-1".parse().unwrap();
    assert_eq!(address.brokers, ["a:9092", "[::1]:9093"]);
    assert_eq!(address.topic, "metrics.log-1");
    for wrong in [
        "kafka://a:9092",
        "kafka://a:9092/",
        "kafka:///t",
        "kafka://a/t",
        "kafka://a:0/t",
        "kafka://a:99999/t",
        "kafka://a:1,/t",
        "http://a:1/t",
        "kafka://a:1/t/u",
        "kafka://a:1/..",
        "kafka://a:1/t t",
        "kafka://:1/t",
    ] {
        let error = wrong.parse::<KafkaAddress>().unwrap_err().to_string();
        assert!(error.contains("kafka://HOST:PORT") && error.contains(wrong), "{error}");
    }
    assert!(format!("kafka://a:1/{}", "t".repeat(250)).parse::<KafkaAddress>().is_err());
}

#[test]
fn a_password_in_an_address_is_not_printed() {
    let error = "kafka://alice:hunter2@a:9092/t".parse::<KafkaAddress>().unwrap_err().to_string();
    assert!(error.contains("without user and password") && !error.contains("hunter2"), "{error}");
}

#[test]
fn settings_are_checked_before_a_connection() {
    settings().check().unwrap();
    let tls = |cert: bool| TlsFiles { cert_file: cert.then(|| PathBuf::from("c")), ..TlsFiles::default() };
    for (change, setting) in [
        (
            Box::new(|s: &mut KafkaSettings| s.ack_timeout = Duration::from_millis(999))
                as Box<dyn Fn(&mut KafkaSettings)>,
            "ack_timeout",
        ),
        (Box::new(|s| s.linger = Duration::from_secs(3)), "linger"),
        (Box::new(|s| s.record_bytes_max = 0), "record_bytes_max"),
        (Box::new(|s| s.in_flight_bytes_max = 1_000_000), "in_flight_bytes_max"),
        (Box::new(|s| s.batch_bytes = 10), "batch_bytes"),
        (Box::new(|s| s.fetch_bytes_max = 10), "fetch_bytes_max"),
        (
            Box::new(|s| s.new_topic = Some(NewTopic { partition_count: 0, replication_factor: 1 })),
            "new_topic",
        ),
        (Box::new(move |s| s.security.tls = Some(tls(true))), "cert_file, key_file"),
    ] {
        let mut wrong = settings();
        change(&mut wrong);
        let error = wrong.check().unwrap_err();
        assert!(matches!(&error, LogError::Setting { setting: found, .. } if *found == setting), "{error}");
    }
}

#[test]
fn secrets_come_from_files_and_stay_out_of_messages() {
    let (env, ..) = Env::fake(0, 1);
    env.disk.create_dir_all(std::path::Path::new("/s")).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = PathBuf::from("/s").join(name);
        env.disk.write_atomic(&path, bytes).unwrap();
        path
    };
    let load = |path: PathBuf| secret::read(&*env.disk, &path);
    assert_eq!(load(file("good", b"hunter2\r\n")).unwrap(), "hunter2");
    for (name, bytes) in [("empty", &b"\n"[..]), ("binary", b"hunter2\xff")] {
        let error = load(file(name, bytes)).map(drop).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains("hunter2"), "{error}");
    }
    let error = load(PathBuf::from("/s/absent")).map(drop).unwrap_err();
    assert!(matches!(error, LogError::File { .. }), "{error}");
}

/// A TLS alert of a server.
static ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 70];
/// Begin of an answer to `ApiVersions` with correlation id 1.
static VERSIONS: [u8; 10] = [0, 0, 0, 6, 0, 0, 0, 1, 0, 35];

/// Answers one connection with `answer`.
fn answer_once(runtime: &Runtime, answer: &'static [u8]) -> String {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    runtime.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).await.unwrap();
        stream.write_all(answer).await.unwrap();
        stream.shutdown().await.unwrap();
        // The client closes the connection.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    address
}

#[test]
fn ports_with_and_without_tls_are_told_apart() {
    let runtime = Runtime::new().unwrap();
    let within = Duration::from_secs(10);
    let ask_tls = |answer| {
        let address = answer_once(&runtime, answer);
        runtime.block_on(answers_tls(&address, within))
    };
    assert!(ask_tls(&ALERT) && !ask_tls(&VERSIONS) && !ask_tls(&[]));
    let ask_plaintext = |answer| {
        let address = answer_once(&runtime, answer);
        runtime.block_on(answers_plaintext(&address, within))
    };
    assert!(ask_plaintext(&VERSIONS) && !ask_plaintext(&ALERT) && !ask_plaintext(&[]));
    assert!(!runtime.block_on(answers_tls("127.0.0.1:1", within)));
}
