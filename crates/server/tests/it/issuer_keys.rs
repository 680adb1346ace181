//! A running server whose access file names an OpenID Connect provider.
#![expect(clippy::disallowed_methods, reason = "the access file of a test is next to a data directory")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chronolith_base::Env;
use chronolith_server::{Server, ServerOptions};
use chronolith_tsdb::BucketOptions;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Longer than any fetch and any reading of a changed file takes.
const WAIT: Duration = Duration::from_secs(30);

/// Answers requests for the document and the keys of an issuer.
async fn provide(listener: TcpListener, issuer: String, jwks: String) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => request.push(byte),
                Err(_) => break,
            }
        }
        let document = format!(r#"{{"issuer":"{issuer}","jwks_uri":"{issuer}/keys"}}"#);
        let body = if request.starts_with(b"GET /keys ") { &jwks } else { &document };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}

/// Returns the status of `/metrics` for a token.
async fn status(address: SocketAddr, token: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    answer.get(9..12).and_then(|status| status.parse().ok()).expect("a status")
}

fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let end = Instant::now() + WAIT;
    while !is_done() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn write_access_file(path: &Path, issuer: &str, scope: &str) {
    let text = format!(
        "jwt:\n- {{issuer: '{issuer}', audience: chronolith}}\nprincipals:\n\
         - name: ops\n  jwt: {{issuer: '{issuer}', claims: {{sub: ops}}}}\n  scopes: [{scope}]\n"
    );
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(new, path).expect("renamed");
}

/// Covers a read-only server over a bucket, which read its access file once, at the start.
#[test]
fn keys_and_the_access_file_are_followed_with_a_store_and_without_one() {
    let runtime = Runtime::new().expect("threads");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("bound");
    let issuer = format!("http://{}", listener.local_addr().expect("an address"));
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
    let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
    let point = URL_SAFE_NO_PAD.encode(key.public_key());
    let jwks = format!(r#"{{"keys":[{{"kty":"OKP","kid":"a","crv":"Ed25519","x":"{point}"}}]}}"#);
    runtime.spawn(provide(listener, issuer.clone(), jwks));
    let now_s = Env::real().clock.now_ms() / 1000;
    let claims = format!(r#"{{"iss":"{issuer}","aud":"chronolith","sub":"ops","exp":{}}}"#, now_s + 300);
    let signed = [r#"{"alg":"EdDSA","kid":"a"}"#, &claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())));
    for is_read_only in [false, true] {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("access.yml");
        write_access_file(&file, &issuer, "metrics");
        let mut options = ServerOptions::new(dir.path().join("data"));
        options.listen = "127.0.0.1:0".to_owned();
        options.self_scrape_interval_ms = 0;
        options.service.access.file = Some(file.clone());
        if is_read_only {
            options.bucket = Some(BucketOptions { is_read_only, ..BucketOptions::new("memory://") });
        }
        let server = Server::start(Env::real(), options, None).expect("starts");
        server.wait_ready().expect("opens");
        let has_status = |want: u16| runtime.block_on(status(server.address(), &token)) == want;
        wait_until("a login with fetched keys", || has_status(200));
        write_access_file(&file, &issuer, "write");
        wait_until("the changed file", || has_status(403));
        server.stop().expect("stops");
    }
}
