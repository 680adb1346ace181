//! Questions to a port: does it answer with TLS, does it answer without?
//!
//! Not here: logins. A probe sends nothing of this client but its first bytes.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::LogError;

/// First byte of a TLS record with an alert, with a handshake.
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];
/// Request `ApiVersions`, version 0, correlation id 1, without client id; its length in front.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
/// Correlation id of the answer.
const CORRELATION: [u8; 4] = [0, 0, 0, 1];

/// Returns the error of brokers that have TLS where the settings have none, or none where the settings have
/// it: both close a connection without a reason. All brokers are asked at once, at most `within`; runs on a
/// runtime.
pub(super) async fn find_mismatch(brokers: &[String], has_tls: bool, within: Duration) -> Option<LogError> {
    let ask = |address: &String| tokio::spawn(ask_broker(address.clone(), has_tls, within));
    let asked: Vec<_> = brokers.iter().map(ask).collect();
    let mut found = None;
    for answer in asked {
        found = found.or(answer.await.ok().flatten());
    }
    found
}

async fn ask_broker(address: String, has_tls: bool, within: Duration) -> Option<LogError> {
    if has_tls {
        let has_none = answers_plaintext(&address, within).await;
        return has_none.then_some(LogError::TlsToPlaintext { address });
    }
    let has_tls = answers_tls(&address, within).await;
    has_tls.then_some(LogError::PlaintextToTls { address })
}

/// Returns true if the port answers the begin of a TLS handshake with TLS.
pub(super) async fn answers_tls(address: &str, within: Duration) -> bool {
    let Some(hello) = client_hello() else { return false };
    let answer = ask::<1>(address, &hello, within).await;
    answer.is_some_and(|[first]| TLS_RECORDS.contains(&first))
}

/// Returns true if the port answers a request of Kafka's protocol without TLS.
pub(super) async fn answers_plaintext(address: &str, within: Duration) -> bool {
    let answer = ask::<8>(address, &API_VERSIONS, within).await;
    answer.is_some_and(|answer| answer.ends_with(&CORRELATION))
}

/// Sends bytes and returns the first ones of the answer.
async fn ask<const N: usize>(address: &str, bytes: &[u8], within: Duration) -> Option<[u8; N]> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(bytes).await.ok()?;
        let mut answer = [0u8; N];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer)
    };
    tokio::time::timeout(within, asking).await.ok().flatten()
}

/// First bytes of a TLS handshake; `None` if the library makes none.
fn client_hello() -> Option<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("probe.invalid").ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).ok()?;
    Some(hello)
}
