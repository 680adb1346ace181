//! Carbon over TLS: clients of rustls on a socket.

use std::path::Path;

use chronolith_base::{Disk as _, MemDisk};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// An authority, and certificates of it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key.
struct Pair {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    key_pem: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).expect("signed").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn pair(&self) -> Pair {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Pair {
            certificate_pem: certificate.pem(),
            certificate: certificate.der().clone(),
            key_pem: key.serialize_pem(),
        }
    }

    /// A client that trusts this authority, with a certificate or without one.
    fn client(&self, pair: Option<&Pair>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM")).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).expect("a key");
                builder.with_client_auth_cert(vec![pair.certificate.clone()], key).expect("they fit")
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

/// A listener with TLS, and its files.
struct TlsListener {
    carbon: Carbon,
    disk: Arc<MemDisk>,
    authority: Authority,
}

impl TlsListener {
    /// With further lines of `tls_server_config`.
    async fn start(protocol: CarbonProtocol, lines: &str) -> TlsListener {
        let (env, _clock, disk) = Env::fake(NOW_MS, 1);
        let authority = Authority::new();
        disk.create_dir_all(Path::new("/etc")).expect("a directory");
        let mut text = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n".to_owned();
        for line in lines.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        put(&disk, "carbon.yml", &text);
        put(&disk, "ca.crt", &authority.pem);
        put_pair(&disk, &authority.pair());
        let mut options = ServerOptions::new("/data".into());
        options.service.write.carbon.tls_file = Some("/etc/carbon.yml".into());
        let web = |options| {
            let web = Web::new(env, options, None);
            web.carbon_tls().expect("has a file").read(&web.service.env).expect("can be used");
            Arc::new(web)
        };
        let carbon = Carbon::over(protocol, "", options, web).await;
        TlsListener { carbon, disk, authority }
    }

    async fn connect(&self, client: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").expect("a name");
        client.connect(name, self.carbon.connect().await).await
    }

    /// Sends bytes on a connection of their own, and waits until the server has ended it.
    async fn send(&self, client: &TlsConnector, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.connect(client).await?;
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        assert_eq!(answer, b"", "nothing is written to senders");
        Ok(())
    }

    /// The counter of failed handshakes for a reason.
    fn failed_handshakes(&self, reason: &str) -> f64 {
        let tls = self.carbon.server.web.carbon_tls().expect("has a file");
        let count = tls.file().handshakes().failed_counts().find(|(name, _)| *name == reason);
        count.expect("a reason").1
    }

    async fn wait_for_failure(&self, reason: &str, count: f64) {
        while self.failed_handshakes(reason) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn put(disk: &MemDisk, name: &str, text: &str) {
    disk.write_atomic(&Path::new("/etc").join(name), text.as_bytes()).expect("is written");
}

fn put_pair(disk: &MemDisk, pair: &Pair) {
    put(disk, "server.crt", &pair.certificate_pem);
    put(disk, "server.key", &pair.key_pem);
}

/// A frame with the point p.a = 1.5 at 1000: `pickle.dumps([("p.a", (1000, 1.5))], protocol=2)`.
const FRAME: &[u8] = b"\x00\x00\x00\x23\
    \x80\x02]q\x00X\x03\x00\x00\x00p.aq\x01M\xe8\x03G?\xf8\x00\x00\x00\x00\x00\x00\x86q\x02\x86q\x03a.";

#[tokio::test(flavor = "multi_thread")]
async fn lines_and_frames_over_tls_are_stored_and_the_connection_ends_in_order() {
    let listener = TlsListener::start(CarbonProtocol::Plaintext, "").await;
    let client = listener.authority.client(None);
    let lines: String = (0..60_000).map(|n| format!("long.path.of.host.number.m{n} {n} 1000\n")).collect();
    listener.send(&client, lines.as_bytes()).await.expect("ends in order");
    // The end of TLS ends the last line.
    listener.send(&client, b"t.a 1 1000\nt.b 2 1000").await.expect("ends in order");
    listener.send(&client, &gzipped(b"t.c 3 1000\n")).await.expect("ends in order");
    assert_eq!(listener.carbon.points(), 60_003);
    let found = listener.carbon.read("sum(%7B__name__%3D~%22t..%22%7D)", 1000).await;
    assert!(found.contains(r#""6""#), "{found}");

    let pickle = TlsListener::start(CarbonProtocol::Pickle, "").await;
    pickle.send(&pickle.authority.client(None), FRAME).await.expect("ends in order");
    assert_eq!(pickle.carbon.points(), 1);
    let metrics = pickle.carbon.server.get("/metrics").await.text;
    assert!(metrics.contains("\nchronolith_carbon_tls_handshakes_total 1\n"), "{metrics}");
    assert!(metrics.contains("\nchronolith_carbon_tls_last_read_successful 1\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_point_is_stored_while_its_connection_stays_open() {
    let listener = TlsListener::start(CarbonProtocol::Plaintext, "").await;
    let mut stream = listener.connect(&listener.authority.client(None)).await.expect("shakes hands");
    for (bytes, points) in [("a 1 10", 0), ("00\nb 1 1000\n", 2), ("c 1 1000\n", 3)] {
        stream.write_all(bytes.as_bytes()).await.expect("is read");
        stream.flush().await.expect("is read");
        listener.carbon.wait_for_points(points).await;
    }
}

/// Covers TCP connections that a host on the way ends: the line that it ends in may be cut.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_without_the_end_of_tls_keeps_its_whole_lines() {
    let listener = TlsListener::start(CarbonProtocol::Plaintext, "").await;
    let mut stream = listener.connect(&listener.authority.client(None)).await.expect("shakes hands");
    stream.write_all(b"whole 1 1000\ncut 1 1000").await.expect("is read");
    stream.flush().await.expect("is read");
    stream.get_mut().0.shutdown().await.expect("is open");
    while listener.carbon.listener.input.connections_closed.as_f64() < 1.0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(listener.carbon.points(), 1);
    assert_eq!(listener.carbon.listener.input.connections_reset.as_f64(), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_tls_stores_nothing_and_is_counted() {
    let listener = TlsListener::start(CarbonProtocol::Plaintext, "").await;
    let mut stream = listener.carbon.connect().await;
    stream.write_all(b"plain.a 1 1000\n").await.expect("is taken by the kernel");
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).await.map_err(|error| error.kind());
    assert_eq!((end, answer.as_slice()), (Err(io::ErrorKind::ConnectionReset), &b""[..]));
    listener.wait_for_failure("not_tls", 1.0).await;
    assert_eq!(listener.carbon.points(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_clients_with_a_certificate_of_the_authority_write() {
    let lines = "client_auth_type: RequireAndVerifyClientCert\nclient_ca_file: ca.crt";
    let listener = TlsListener::start(CarbonProtocol::Plaintext, lines).await;
    let stranger = Authority::new().pair();
    let mut refused_count = 0.0;
    for pair in [None, Some(&stranger)] {
        // In TLS 1.3 a client sends before it knows the verdict.
        let sent = listener.send(&listener.authority.client(pair), b"no.a 1 1000\n").await;
        assert!(sent.is_err(), "{:?}", pair.is_some());
        refused_count += 1.0;
        listener.wait_for_failure("client_certificate", refused_count).await;
    }
    let own = listener.authority.pair();
    listener.send(&listener.authority.client(Some(&own)), b"yes.a 1 1000\n").await.expect("ends in order");
    assert_eq!(listener.carbon.points(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_certificate_is_presented_to_the_next_connection() {
    let listener = TlsListener::start(CarbonProtocol::Plaintext, "").await;
    let client = listener.authority.client(None);
    let web = &listener.carbon.server.web;
    let mut open = listener.connect(&client).await.expect("shakes hands");
    let next = listener.authority.pair();
    put_pair(&listener.disk, &next);
    web.refresh_carbon_tls();
    let fresh = listener.connect(&client).await.expect("shakes hands");
    let presented = fresh.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
    assert_eq!(presented, Some(next.certificate));
    // A key that does not fit leaves the pair in use.
    put(&listener.disk, "server.key", &listener.authority.pair().key_pem);
    web.refresh_carbon_tls();
    assert!(!web.carbon_tls().expect("has a file").file().is_read());
    listener.send(&client, b"after.a 1 1000\n").await.expect("ends in order");
    open.write_all(b"open.a 1 1000\n").await.expect("is read");
    open.flush().await.expect("is read");
    listener.carbon.wait_for_points(2).await;
}

/// Covers connections that begin no handshake: their number is bounded, and a stop ends them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_half_open_handshakes() {
    let listener = TlsListener::start(CarbonProtocol::Plaintext, "").await;
    let tls = listener.carbon.server.web.carbon_tls().expect("has a file");
    let mut stream = listener.carbon.connect().await;
    stream.write_all(b"\x16").await.expect("is read");
    while tls.handshake_count() < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    listener.carbon.stop.send(true).expect("listens");
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    assert_eq!(answer, b"");
    while listener.carbon.listener.input.connections_closed.as_f64() < 1.0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(tls.handshake_count(), 0);
}

#[test]
fn a_file_without_tls_is_refused() {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/etc")).expect("a directory");
    put(&disk, "carbon.yml", "basic_auth_users: {}\n");
    let refused = crate::web_config::check_carbon_tls(Path::new("/etc/carbon.yml"), &disk);
    assert_eq!(refused.expect_err("no TLS"), "expected a `tls_server_config` with a certificate");
}
