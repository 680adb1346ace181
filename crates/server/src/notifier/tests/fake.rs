//! An Alertmanager of a test: it counts requests and gives the answer that the test has set.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Longer than anything takes, so that a hang fails instead of hanging the run.
pub(super) const WAIT: Duration = Duration::from_secs(60);

/// Answer to requests.
#[derive(Clone)]
pub(super) enum Answer {
    /// Status line and body.
    Status(&'static str, &'static str),
    /// Nothing, with the connection left open.
    Nothing,
    /// Redirect to this URL.
    Redirect(String),
    /// Status 200 and a body, a byte per second.
    SlowBody,
    /// The status line, a byte per second.
    SlowHead,
    /// Status 200 and a body of 1 GB.
    Gigabyte,
    /// Headers without an end.
    EndlessHeaders,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) head: String,
    pub(super) body: String,
}

/// A listener on loopback.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    received: watch::Receiver<Vec<Received>>,
    /// Bytes of responses that the client has taken.
    pub(super) sent_bytes: Arc<AtomicU64>,
}

impl Fake {
    pub(super) async fn start(answer: Answer) -> Fake {
        Fake::listen("127.0.0.1:0", answer, None).await
    }

    pub(super) async fn listen(address: &str, answer: Answer, tls: Option<TlsAcceptor>) -> Fake {
        let listener = TcpListener::bind(address).await.expect("listens");
        let address = listener.local_addr().expect("an address");
        let (sender, received) = watch::channel(Vec::new());
        let answer = Arc::new(Mutex::new(answer));
        let sent_bytes = Arc::new(AtomicU64::new(0));
        let shared =
            Shared { answer: answer.clone(), sender: Arc::new(sender), sent_bytes: sent_bytes.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        None => shared.serve(stream).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => shared.serve(stream).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Fake { address, answer, received, sent_bytes }
    }

    pub(super) fn set_answer(&self, answer: Answer) {
        *self.answer.lock() = answer;
    }

    /// Requests so far.
    pub(super) fn received(&self) -> Vec<Received> {
        self.received.borrow().clone()
    }

    /// Waits for this many requests.
    pub(super) async fn wait_for(&self, count: usize) -> Vec<Received> {
        let mut received = self.received.clone();
        let enough = received.wait_for(|received| received.len() >= count);
        tokio::time::timeout(WAIT, enough).await.expect("requests in time").expect("a listener").clone()
    }

    /// Number of alerts of all requests.
    pub(super) fn alert_count(&self) -> usize {
        let count = |one: &Received| one.body.matches("\"startsAt\"").count();
        self.received.borrow().iter().map(count).sum()
    }
}

#[derive(Clone)]
struct Shared {
    answer: Arc<Mutex<Answer>>,
    sender: Arc<watch::Sender<Vec<Received>>>,
    sent_bytes: Arc<AtomicU64>,
}

impl Shared {
    /// Answers requests until the client closes the connection.
    async fn serve(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<()> {
        loop {
            let request = read_request(&mut stream).await?;
            self.sender.send_modify(|received| received.push(request));
            let answer = self.answer.lock().clone();
            match answer {
                Answer::Status(status, body) => {
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
                    self.write(&mut stream, head.as_bytes()).await?;
                }
                Answer::Nothing => std::future::pending().await,
                Answer::Redirect(url) => {
                    let head = format!(
                        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n"
                    );
                    self.write(&mut stream, head.as_bytes()).await?;
                }
                Answer::SlowBody => {
                    self.write(&mut stream, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await?;
                    self.drip(&mut stream, &[b'x'; 1000]).await?;
                }
                Answer::SlowHead => {
                    self.drip(&mut stream, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?
                }
                Answer::Gigabyte => {
                    self.write(&mut stream, b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n").await?;
                    for _ in 0..(1 << 30) / (64 << 10) {
                        self.write(&mut stream, &[b'x'; 64 << 10]).await?;
                    }
                }
                Answer::EndlessHeaders => {
                    self.write(&mut stream, b"HTTP/1.1 200 OK\r\n").await?;
                    loop {
                        self.write(&mut stream, &b"X-Header: 0123456789abcdef\r\n".repeat(1000)).await?;
                    }
                }
            }
        }
    }

    async fn write(&self, stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Option<()> {
        stream.write_all(bytes).await.ok()?;
        stream.flush().await.ok()?;
        self.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some(())
    }

    async fn drip(&self, stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Option<()> {
        for byte in bytes {
            self.write(stream, &[*byte]).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Some(())
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(Received { head: head.to_owned(), body: body.to_owned() });
            }
        }
        let mut part = [0; 16 << 10];
        let count = stream.read(&mut part).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(part.get(..count)?);
    }
}
