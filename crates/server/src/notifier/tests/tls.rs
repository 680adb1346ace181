//! HTTPS: authorities, names, certificates of clients, versions.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority, and a certificate for `am.example` with its key, in PEM.
struct Authority {
    ca: String,
    cert: String,
    key: String,
}

impl Authority {
    fn new() -> Authority {
        let ca_key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca = params.self_signed(&ca_key).expect("signed").pem();
        let issuer = Issuer::new(params, ca_key);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["am.example".to_owned()]).expect("a name");
        let cert = params.signed_by(&key, &issuer).expect("signed").pem();
        Authority { ca, cert, key: key.serialize_pem() }
    }

    /// Settings of a server; with `clients` it asks for a certificate of this authority.
    fn acceptor(&self, asks_for_certificate: bool, is_old: bool) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let versions = if is_old { vec![&TLS12] } else { vec![&TLS13, &TLS12] };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .expect("versions");
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        let builder = if asks_for_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(certificate(&self.ca)).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key");
        let config = builder.with_single_cert(vec![certificate(&self.cert)], key).expect("they fit");
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Sends an alert to a server of `authority` and returns true if it was sent, false after a failed request.
async fn is_sent(authority: &Authority, tls: (bool, bool), lines: &str) -> bool {
    let fake = Fake::listen("127.0.0.1:0", OK, Some(authority.acceptor(tls.0, tls.1))).await;
    let fixture = Fixture::stopped(&config(&[(&fake, &format!("scheme: https\n{lines}"))]));
    fixture.put("ca.crt", &authority.ca);
    fixture.put("other.crt", &Authority::new().ca);
    fixture.put("am.crt", &authority.cert);
    fixture.put("am.key", &authority.key);
    fixture.notifier.start(Handle::current());
    assert_eq!(fixture.read(), Ok(true));
    fixture.send(&["a"]);
    fixture.wait_counts(&fake, |sent, errors, _| sent + errors > 0).await;
    let sender = fixture.notifier.senders().into_values().flatten().next().expect("a sender");
    sender.counts().sent == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_servers_are_verified_by_authority_and_name() {
    let authority = Authority::new();
    for (lines, want) in [
        ("tls_config: {ca_file: ca.crt, server_name: am.example}", true),
        ("tls_config: {ca_file: ca.crt, server_name: am.example}\nenable_http2: false", true),
        // The address is not in the certificate.
        ("tls_config: {ca_file: ca.crt}", false),
        ("tls_config: {ca_file: ca.crt, server_name: other.example}", false),
        ("tls_config: {ca_file: other.crt, server_name: am.example}", false),
        ("tls_config: {server_name: am.example}", false),
        ("tls_config: {insecure_skip_verify: true}", true),
    ] {
        assert_eq!(is_sent(&authority, (false, false), lines).await, want, "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_clients_and_versions_are_used() {
    let authority = Authority::new();
    let verified = "tls_config: {ca_file: ca.crt, server_name: am.example";
    for (tls, lines, want) in [
        ((true, false), ", cert_file: am.crt, key_file: am.key}", true),
        ((true, false), "}", false),
        ((false, true), "}", true),
        ((false, true), ", min_version: TLS13}", false),
        ((false, true), ", max_version: TLS12}", true),
    ] {
        assert_eq!(is_sent(&authority, tls, &format!("{verified}{lines}")).await, want, "{tls:?} {lines}");
    }
}
