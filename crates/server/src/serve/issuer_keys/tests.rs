//! Fetches from a provider on a loopback address: good, wrong, slow and too long.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chronolith_base::{Env, ManualClock};
use chronolith_service::access::control::{AccessControl, AccessOptions, LoginError};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const NOW_S: i64 = 1_800_000_000;

/// Behaviour of a provider.
#[derive(Clone)]
enum Answers {
    /// Status line with headers, and body, by path.
    Fixed { document: String, keys: String },
    /// Accepts a connection and is silent.
    Silence,
    /// Sends a response to the end of time, in the form of these headers.
    Endless(&'static str),
}

struct Provider {
    issuer: String,
    answers: Arc<Mutex<Answers>>,
    /// Bytes that were sent in endless responses.
    sent_bytes: Arc<Mutex<usize>>,
}

fn ok(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

impl Provider {
    async fn start() -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let issuer = format!("http://{}", listener.local_addr().expect("an address"));
        let answers = Arc::new(Mutex::new(Answers::Silence));
        let sent_bytes = Arc::new(Mutex::new(0));
        let provider = Provider { issuer, answers: answers.clone(), sent_bytes: sent_bytes.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answers = answers.lock().clone();
                tokio::spawn(answer(stream, answers, sent_bytes.clone()));
            }
        });
        provider
    }

    fn document(&self) -> String {
        ok("", &format!(r#"{{"issuer":"{0}","jwks_uri":"{0}/keys"}}"#, self.issuer))
    }

    fn set_keys(&self, keys: String) {
        *self.answers.lock() = Answers::Fixed { document: self.document(), keys };
    }
}

async fn answer(mut stream: TcpStream, answers: Answers, sent_bytes: Arc<Mutex<usize>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let request = String::from_utf8(request).expect("ASCII");
    match answers {
        Answers::Fixed { document, keys } => {
            let is_document = request.starts_with("GET /.well-known/openid-configuration HTTP/1.1\r\n");
            assert!(is_document || request.starts_with("GET /keys HTTP/1.1\r\n"), "{request}");
            let _ = stream.write_all(if is_document { document.as_bytes() } else { keys.as_bytes() }).await;
        }
        // Ends when the client goes.
        Answers::Silence => drop(stream.read_u8().await),
        Answers::Endless(headers) => {
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes()).await;
            let chunk = format!("10000\r\n{}\r\n", "a".repeat(1 << 16));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {
                *sent_bytes.lock() += chunk.len();
            }
        }
    }
}

/// A key of a provider with this id.
struct Signer {
    key: Ed25519KeyPair,
    id: &'static str,
}

impl Signer {
    fn new(id: &'static str) -> Signer {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Signer { key: Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key"), id }
    }

    fn jwks(&self) -> String {
        let point = URL_SAFE_NO_PAD.encode(self.key.public_key());
        format!(r#"{{"keys":[{{"kty":"OKP","kid":"{}","crv":"Ed25519","x":"{point}"}}]}}"#, self.id)
    }

    fn token(&self, issuer: &str) -> String {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, self.id);
        let claims = format!(r#"{{"iss":"{issuer}","aud":"a","sub":"ops","exp":{}}}"#, NOW_S + 300);
        let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

/// Access control with a provider as issuer.
struct Fixture {
    provider: Provider,
    control: AccessControl,
    env: Env,
    clock: Arc<ManualClock>,
}

impl Fixture {
    async fn new() -> Fixture {
        let provider = Provider::start().await;
        let issuer = &provider.issuer;
        let text = format!(
            "jwt:\n- {{issuer: '{issuer}', audience: a}}\nprincipals:\n\
             - name: ops\n  jwt: {{issuer: '{issuer}', claims: {{sub: ops}}}}\n  scopes: [read]\n"
        );
        let (env, clock, _) = Env::fake(NOW_S * 1000, 1);
        env.disk.create_dir_all(Path::new("/conf")).expect("a folder");
        env.disk.write_atomic(Path::new("/conf/access.yml"), text.as_bytes()).expect("written");
        let control =
            AccessControl::new(AccessOptions { file: Some("/conf/access.yml".into()) }, false, &env.rng);
        assert_eq!(control.read(&env), Ok(true));
        Fixture { provider, control, env, clock }
    }

    /// Makes the fetch that is due; returns the reported outcome.
    async fn fetch(&self, timeout: Duration) -> Option<Result<usize, String>> {
        for due in self.control.begin_key_fetches(self.env.clock.mono_ns()) {
            run(new_client().expect("a client"), due, timeout).await;
        }
        self.control.take_fetched_keys(&self.env).pop().map(|report| report.keys)
    }

    async fn check_failure(&self, answers: Answers, want: &str) {
        *self.provider.answers.lock() = answers;
        self.clock.advance(Duration::from_secs(3600));
        let error = self.fetch(FETCH_TIMEOUT).await.expect("reported").expect_err("failed");
        assert!(error.contains(want), "{error}");
        assert_eq!(self.control.jwt_key_count(), 1, "the keys in use stay in use");
    }

    fn login(&self, token: &str) -> Result<(), LoginError> {
        self.control.find_jwt(token, NOW_S * 1000).map(|found| assert!(found.is_some()))
    }
}

#[tokio::test]
async fn rotated_keys_of_a_provider_are_followed() {
    let server = Fixture::new().await;
    let issuer = &server.provider.issuer;
    let old = Signer::new("old");
    let new = Signer::new("new");
    server.provider.set_keys(ok("Cache-Control: public, max-age=1000\r\n", &old.jwks()));
    assert_eq!(server.login(&old.token(issuer)), Err(LoginError::KeysPending));
    assert_eq!(server.fetch(FETCH_TIMEOUT).await, Some(Ok(1)));
    assert_eq!(server.login(&old.token(issuer)), Ok(()));
    server.provider.set_keys(ok("Cache-Control: max-age=1000\r\n", &new.jwks()));
    server.clock.advance(Duration::from_secs(899));
    assert_eq!(server.fetch(FETCH_TIMEOUT).await, None, "max-age is not over");
    assert_eq!(server.login(&new.token(issuer)), Err(LoginError::KeysPending), "asks for a fetch");
    assert_eq!(server.fetch(FETCH_TIMEOUT).await, Some(Ok(1)));
    assert_eq!(server.login(&new.token(issuer)), Ok(()));
    assert!(matches!(server.login(&old.token(issuer)), Err(LoginError::Jwt(_))));
    let third = Signer::new("third");
    server.provider.set_keys(ok("", &third.jwks()));
    server.clock.advance(Duration::from_secs(900));
    assert_eq!(server.fetch(FETCH_TIMEOUT).await, Some(Ok(1)), "without a token that asks for it");
    assert_eq!(server.login(&third.token(issuer)), Ok(()));
}

#[tokio::test]
async fn wrong_slow_and_endless_responses_leave_the_keys_in_use() {
    let server = Fixture::new().await;
    let issuer = server.provider.issuer.clone();
    let signer = Signer::new("a");
    server.provider.set_keys(ok("", &signer.jwks()));
    assert_eq!(server.fetch(FETCH_TIMEOUT).await, Some(Ok(1)));
    let of_other = ok("", &format!(r#"{{"issuer":"{issuer}/","jwks_uri":"{issuer}/keys"}}"#));
    let fixed =
        |document: &str, keys: &str| Answers::Fixed { document: document.to_owned(), keys: keys.to_owned() };
    let valid = server.provider.document();
    server.check_failure(fixed(&of_other, ""), "`issuer` of the OpenID configuration").await;
    let moved = format!("HTTP/1.1 302 Found\r\nLocation: {issuer}/keys\r\nContent-Length: 0\r\n\r\n");
    server
        .check_failure(fixed(&moved, ""), "/.well-known/openid-configuration: status 302, expected 200")
        .await;
    server.check_failure(fixed(&valid, &moved), "/keys: status 302, expected 200").await;
    server.check_failure(fixed(&valid, &ok("", "<html>")), "no JWK set").await;
    let gigabyte = Answers::Endless("Content-Length: 1073741824\r\n");
    server.check_failure(gigabyte, "longer than 1048576 bytes").await;
    server.check_failure(fixed("SSH-2.0\r\n", ""), "/.well-known/openid-configuration: ").await;
    server
        .check_failure(Answers::Endless("Transfer-Encoding: chunked\r\n"), "longer than 1048576 bytes")
        .await;
    assert_eq!(server.login(&signer.token(&issuer)), Ok(()));
    // The buffers of two sockets, in addition to the limit of each.
    let sent_bytes = *server.provider.sent_bytes.lock();
    assert!(sent_bytes < 64 << 20, "{sent_bytes}");
    // Silence ends in time.
    *server.provider.answers.lock() = Answers::Silence;
    server.clock.advance(Duration::from_secs(3600));
    let outcome = server.fetch(Duration::from_millis(50)).await;
    assert_eq!(outcome, Some(Err("no response within 0.05 s".to_owned())));
    assert_eq!(server.login(&signer.token(&issuer)), Ok(()));
}

#[test]
fn max_age_is_a_directive_of_any_case_and_order() {
    for (text, want) in [
        ("public, max-age=19845, must-revalidate, no-transform", Some(19845)),
        ("Max-Age=60", Some(60)),
        ("max-age=\"60\"", Some(60)),
        ("no-cache", Some(0)),
        ("max-age=60, no-store", Some(0)),
        ("s-maxage=60", None),
        ("max-age=-1", None),
        ("max-age", None),
        ("", None),
    ] {
        assert_eq!(max_age_s(text), want, "{text}");
    }
}
