//! A server with a web configuration file, and clients with TLS: policies for certificates, HTTP/2, new
//! certificates under load, handshakes that do not go on.
#![expect(clippy::disallowed_methods, reason = "certificates of a test are files next to a data directory")]

mod authority;
mod carbon;
mod client;
mod floods;
mod routes;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chronolith_base::Env;
use chronolith_server::{Server, ServerOptions};
use chronolith_tsdb::BucketOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use self::authority::{Authority, Pair};
use self::client::{Client, Reply, basic};

/// Longer than any answer and any reading of a changed file takes.
const WAIT: Duration = Duration::from_secs(30);

/// A section with the user alice, whose password is "secret".
fn users_section() -> String {
    let salt = *b"0123456789abcdef";
    let hash =
        bcrypt::hash_with_salt("secret", 4, salt).expect("hashed").format_for_version(bcrypt::Version::TwoY);
    format!("basic_auth_users:\n  alice: {hash}\n")
}

/// A running server with the files of its TLS.
struct Fixture {
    server: Server,
    dir: tempfile::TempDir,
    authority: Authority,
    clients: Runtime,
}

impl Fixture {
    /// Starts a server whose web configuration is `config`. The files server.crt, server.key and ca.crt are
    /// next to it; `access` is the access file.
    fn start_with(config: &str, access: Option<&str>) -> Fixture {
        Fixture::start_changed(config, access, |_, _| {})
    }

    /// As [`Fixture::start_with`], with other options; `change` gets the directory of the files.
    fn start_changed(
        config: &str,
        access: Option<&str>,
        change: impl FnOnce(&mut ServerOptions, &Path),
    ) -> Fixture {
        let dir = tempfile::tempdir().expect("directory");
        let authority = Authority::new("authority");
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        put("ca.crt", authority.pem());
        let pair = authority.pair("localhost");
        put("server.crt", &pair.certificate_pem);
        put("server.key", &pair.key_pem);
        put("web.yml", config);
        let mut options = ServerOptions::new(dir.path().join("data"));
        options.listen = "127.0.0.1:0".to_owned();
        options.self_scrape_interval_ms = 0;
        options.web.config_file = Some(dir.path().join("web.yml"));
        if let Some(access) = access {
            put("access.yml", access);
            options.service.access.file = Some(dir.path().join("access.yml"));
        }
        change(&mut options, dir.path());
        let server = Server::start(Env::real(), options, None).expect("starts");
        server.wait_ready().expect("opens");
        Fixture { server, dir, authority, clients: Runtime::new().expect("threads") }
    }

    /// Starts a server with TLS and further lines of its section.
    fn start_tls(lines: &str) -> Fixture {
        Fixture::start_with(&tls_section(lines), None)
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn client(&self) -> Client {
        Client::new(self.address(), self.authority.pem())
    }

    fn get(&self, client: &Client, path: &str) -> Result<Reply, String> {
        self.clients.block_on(client.get(path, &[]))
    }

    /// Reads the counter or gauge with these labels.
    fn metric(&self, client: &Client, name: &str) -> f64 {
        let reply = self.get(client, "/metrics").expect("metrics");
        let line = reply.text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or_else(|| panic!("no {name}"))
    }
}

fn tls_section(lines: &str) -> String {
    let mut text = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n".to_owned();
    for line in lines.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// Waits until `is_done` returns true.
#[track_caller]
fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !is_done() {
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn http2_is_chosen_by_alpn_and_switched_off_by_the_file() {
    let fixture = Fixture::start_tls("");
    for (protocols, is_http2) in [(&["h2", "http/1.1"][..], true), (&["http/1.1"], false), (&[], false)] {
        let client = fixture.client().with_alpn(protocols);
        let reply = fixture.get(&client, "/-/healthy").expect("an answer");
        assert_eq!((reply.status, reply.is_http2), (200, is_http2), "{protocols:?}");
    }
    let both = ["h2", "http/1.1"];
    let off =
        Fixture::start_with(&format!("{}http_server_config: {{http2: false}}\n", tls_section("")), None);
    let reply = off.get(&off.client().with_alpn(&both), "/-/healthy").expect("an answer");
    assert_eq!((reply.status, reply.is_http2), (200, false));
}

/// Without TLS, a client of HTTP/2 sends its first frame at once. It got 400.
#[test]
fn http2_by_prior_knowledge_reaches_the_handlers() {
    let fixture = Fixture::start_with("", None);
    let client = Client::plain(fixture.address());
    for _ in 0..3 {
        let reply = fixture.clients.block_on(client.get_http2("/api/v1/query?query=1%2B1", &[]));
        let reply = reply.expect("an answer");
        assert!(reply.status == 200 && reply.text.contains("\"2\""), "{} {}", reply.status, reply.text);
    }
    let reply = fixture.get(&client, "/-/healthy").expect("HTTP/1.1 as well");
    assert_eq!((reply.status, reply.is_http2), (200, false));
    let off = Fixture::start_with("http_server_config: {http2: false}", None);
    let refused = off.clients.block_on(Client::plain(off.address()).get_http2("/-/healthy", &[]));
    assert!(refused.is_err(), "http2: false");
}

#[test]
fn each_policy_for_client_certificates_asks_for_what_its_name_says() {
    let stranger = Authority::new("stranger").pair("agent.example");
    // A client gets in or not: without certificate, with a stranger's, with one of the authority.
    for (policy, want) in [
        ("client_auth_type: NoClientCert", [true, true, true]),
        ("client_auth_type: RequestClientCert", [true, true, true]),
        ("client_auth_type: RequireAnyClientCert", [false, true, true]),
        ("client_auth_type: RequireClientCert", [false, true, true]),
        ("client_auth_type: VerifyClientCertIfGiven\nclient_ca_file: ca.crt", [true, false, true]),
        ("client_auth_type: RequireAndVerifyClientCert\nclient_ca_file: ca.crt", [false, false, true]),
    ] {
        let fixture = Fixture::start_tls(policy);
        let known = fixture.authority.pair("agent.example");
        let pairs = [None, Some(&stranger), Some(&known)];
        for version in ["1.2", "1.3"] {
            let gets_in = pairs.map(|pair: Option<&Pair>| {
                let client = fixture.client().with_version(version).with_certificate(pair);
                fixture.get(&client, "/-/healthy").is_ok_and(|reply| reply.status == 200)
            });
            assert_eq!(gets_in, want, "{policy}, TLS {version}");
        }
    }
}

#[test]
fn a_client_needs_one_of_the_allowed_names() {
    let lines = "client_auth_type: RequireAndVerifyClientCert\nclient_ca_file: ca.crt\n\
                 client_allowed_sans: [agent.example, 10.1.2.3]";
    let fixture = Fixture::start_tls(lines);
    for (name, gets_in) in [("agent.example", true), ("10.1.2.3", true), ("other.example", false)] {
        let pair = fixture.authority.pair(name);
        let client = fixture.client().with_certificate(Some(&pair));
        assert_eq!(fixture.get(&client, "/-/healthy").is_ok(), gets_in, "{name}");
    }
    let agent = fixture.client().with_certificate(Some(&fixture.authority.pair("agent.example")));
    let failures = "chronolith_tls_handshake_failures_total{reason=\"client_certificate\"}";
    assert_eq!(fixture.metric(&agent, failures), 1.0);
}

#[test]
fn versions_outside_of_the_range_are_refused() {
    let fixture = Fixture::start_tls("min_version: TLS13");
    assert!(fixture.get(&fixture.client().with_version("1.3"), "/-/healthy").is_ok());
    assert!(fixture.get(&fixture.client().with_version("1.2"), "/-/healthy").is_err());
    let failures = "chronolith_tls_handshake_failures_total{reason=\"nothing_in_common\"}";
    assert_eq!(fixture.metric(&fixture.client(), failures), 1.0);
}

#[test]
fn a_request_without_tls_is_told_so() {
    let fixture = Fixture::start_tls("");
    let answer = fixture.clients.block_on(async {
        let mut stream = TcpStream::connect(fixture.address()).await.expect("connects");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("text");
        answer
    });
    assert!(answer.starts_with("HTTP/1.0 400 ") && answer.contains("HTTPS"), "{answer}");
}

/// The certificate changes again and again while clients connect: no request fails, open connections live
/// on, and each new certificate comes into use.
#[test]
fn new_certificates_come_into_use_without_a_failed_request() {
    let fixture = Fixture::start_tls("");
    let is_over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicU64::new(0));
    let kept = fixture.clients.block_on(fixture.client().connect()).expect("connects");
    let mut load = Vec::new();
    for protocol in ["h2", "http/1.1", "h2", "http/1.1"] {
        let client = fixture.client().with_alpn(&[protocol]);
        let is_over = is_over.clone();
        let served = served.clone();
        load.push(fixture.clients.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let reply = client.get("/-/healthy", &[]).await.expect("no request fails");
                assert_eq!(reply.status, 200);
                served.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for _ in 0..3 {
        let pair = fixture.authority.pair("localhost");
        // One file is written before the other: in between they do not fit.
        std::fs::write(fixture.dir.path().join("server.key"), &pair.key_pem).expect("written");
        std::fs::write(fixture.dir.path().join("server.crt"), &pair.certificate_pem).expect("written");
        let client = fixture.client();
        wait_until("the new certificate", || {
            let presented = fixture.clients.block_on(client.presented_certificate()).expect("connects");
            presented == pair.certificate_der
        });
    }
    is_over.store(true, Ordering::Relaxed);
    for task in load {
        fixture.clients.block_on(task).expect("no request failed");
    }
    assert!(served.load(Ordering::Relaxed) > 100, "{served:?} requests");
    let reply = fixture.clients.block_on(kept.get("/-/healthy", &[])).expect("the first connection lives");
    assert_eq!(reply.status, 200);
}

/// Covers a regression: a read-only server over a bucket read neither certificates nor the access file again.
#[test]
fn a_read_only_server_over_a_bucket_uses_a_new_certificate() {
    let fixture = Fixture::start_changed(&tls_section(""), None, |options, _| {
        options.bucket = Some(BucketOptions { is_read_only: true, ..BucketOptions::new("memory://") });
    });
    let pair = fixture.authority.pair("localhost");
    std::fs::write(fixture.dir.path().join("server.key"), &pair.key_pem).expect("written");
    std::fs::write(fixture.dir.path().join("server.crt"), &pair.certificate_pem).expect("written");
    let client = fixture.client();
    wait_until("the new certificate", || {
        let presented = fixture.clients.block_on(client.presented_certificate()).expect("connects");
        presented == pair.certificate_der
    });
}

#[test]
fn a_broken_certificate_leaves_the_one_in_use() {
    let fixture = Fixture::start_tls("");
    let client = fixture.client();
    let before = fixture.clients.block_on(client.presented_certificate()).expect("connects");
    let ok = "chronolith_web_config_last_read_successful";
    assert_eq!(fixture.metric(&client, ok), 1.0);
    std::fs::write(fixture.dir.path().join("server.crt"), "broken").expect("written");
    wait_until("the broken file is noticed", || fixture.metric(&client, ok) == 0.0);
    let after = fixture.clients.block_on(client.presented_certificate()).expect("connects");
    assert!(before == after, "the certificate in use stays");
    let pair = fixture.authority.pair("localhost");
    std::fs::write(fixture.dir.path().join("server.key"), &pair.key_pem).expect("written");
    std::fs::write(fixture.dir.path().join("server.crt"), &pair.certificate_pem).expect("written");
    wait_until("the good file is noticed", || fixture.metric(&client, ok) == 1.0);
    assert!(fixture.metric(&client, "chronolith_web_config_certificate_expiry_timestamp_seconds") > 1.7e9);
    // TLS does not vanish with its section.
    std::fs::write(fixture.dir.path().join("web.yml"), "").expect("written");
    wait_until("the section is missed", || fixture.metric(&client, ok) == 0.0);
}

/// Connections that send nothing, or the first bytes of a handshake alone.
#[test]
fn handshakes_that_do_not_go_on_hold_up_no_other() {
    let fixture = Fixture::start_tls("");
    let client = fixture.client();
    let half_open: Vec<TcpStream> = fixture.clients.block_on(async {
        let mut streams = Vec::new();
        for number in 0..200 {
            let mut stream = TcpStream::connect(fixture.address()).await.expect("connects");
            if number % 2 == 0 {
                stream.write_all(&[0x16, 3, 1, 2, 0, 1]).await.expect("sent");
            }
            streams.push(stream);
        }
        streams
    });
    for _ in 0..20 {
        assert_eq!(fixture.get(&client, "/-/healthy").expect("an answer").status, 200);
    }
    assert_eq!(fixture.metric(&client, "chronolith_tls_handshakes_running"), half_open.len() as f64);
    drop(half_open);
    wait_until("closed handshakes end", || {
        fixture.metric(&client, "chronolith_tls_handshakes_running") == 0.0
    });
}

#[test]
fn users_of_the_file_log_in_and_may_do_everything() {
    let users = users_section();
    let fixture = Fixture::start_with(&format!("{}{users}", tls_section("")), None);
    let client = fixture.client();
    let status = |password: Option<&str>, path: &str| {
        let headers = password.map(client::basic).map(|value| ("authorization", value));
        let reply = fixture.clients.block_on(client.get(path, headers.as_slice()));
        reply.expect("an answer").status
    };
    for path in ["/api/v1/query?query=1", "/metrics", "/api/v1/status/config", "/render?target=a&format=json"]
    {
        assert_eq!(status(None, path), 401, "{path}");
        assert_eq!(status(Some("alice:wrong"), path), 401, "{path}");
        assert_eq!(status(Some("bob:secret"), path), 401, "{path}");
        assert_eq!(status(Some("alice:secret"), path), 200, "{path}");
    }
    assert_eq!(status(None, "/-/healthy"), 200, "health checks have no password");
    // Users come by a change of the file; without any, no client gets in by mistake.
    let other = users.replace("alice", "carol");
    std::fs::write(fixture.dir.path().join("web.yml"), format!("{}{other}", tls_section("")))
        .expect("written");
    wait_until("the new user", || status(Some("carol:secret"), "/metrics") == 200);
    assert_eq!(status(Some("alice:secret"), "/metrics"), 401);
    std::fs::write(fixture.dir.path().join("web.yml"), tls_section("")).expect("written");
    wait_until("no user", || status(Some("carol:secret"), "/metrics") == 401);
    assert_eq!(status(None, "/metrics"), 401);
}

#[test]
fn a_certificate_is_a_login_of_the_access_file() {
    let access = "principals:\n- name: agent\n  certificate: {sans: [agent.example]}\n  scopes: [metrics]\n";
    let lines = "client_auth_type: VerifyClientCertIfGiven\nclient_ca_file: ca.crt";
    let fixture = Fixture::start_with(&tls_section(lines), Some(access));
    let status = |pair: Option<&Pair>, path: &str| {
        let reply = fixture.get(&fixture.client().with_certificate(pair), path);
        reply.expect("an answer").status
    };
    let agent = fixture.authority.pair("agent.example");
    let other = fixture.authority.pair("other.example");
    assert_eq!(status(Some(&agent), "/metrics"), 200);
    assert_eq!(status(Some(&agent), "/api/v1/query?query=1"), 403, "the scope of the principal holds");
    assert_eq!(status(Some(&other), "/metrics"), 401);
    assert_eq!(status(None, "/metrics"), 401);
}

/// A certificate that no authority has signed must not be a login, whatever names it has.
#[test]
fn a_certificate_without_an_authority_is_no_login() {
    let access = "principals:\n- name: agent\n  certificate: {sans: [agent.example]}\n  scopes: [metrics]\n";
    let fixture = Fixture::start_with(&tls_section("client_auth_type: RequireAnyClientCert"), Some(access));
    let forged = Authority::new("forger").pair("agent.example");
    let client = fixture.client().with_certificate(Some(&forged));
    assert_eq!(fixture.get(&client, "/metrics").expect("an answer").status, 401);
}

#[test]
fn the_rate_limit_answers_429_before_logins_and_headers() {
    let config = format!(
        "http_server_config:\n  headers: {{X-Frame-Options: deny}}\nrate_limit: {{interval: 1h, burst: 2}}\n{}",
        users_section()
    );
    let fixture = Fixture::start_with(&config, None);
    let client = Client::plain(fixture.address());
    let replies: Vec<Reply> =
        (0..3).map(|_| fixture.get(&client, "/api/v1/query?query=1").expect("an answer")).collect();
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [401, 401, 429]);
    let framed = replies.iter().map(|reply| reply.headers.contains_key("x-frame-options"));
    assert_eq!(framed.collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(replies[2].text, "Too Many Requests\n");
}
