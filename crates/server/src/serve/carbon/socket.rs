//! Socket of a carbon connection, with or without TLS.
//!
//! Invariants: the kernel resets the connection whenever the socket is dropped, until
//! [`Socket::end_in_order`]; nothing but TLS itself is written to a client.
//! Not here: bytes of the protocols (`stream`).

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Longest wait for a client to take the end of its TLS connection.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Lets the kernel reset a connection whenever it is closed, until [`Socket::end_in_order`].
pub(super) fn reset_when_dropped(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "a connection cannot be reset");
    }
}

impl Socket {
    /// Address of the client; `None` if it has left.
    pub(super) fn peer_ip(&self) -> Option<IpAddr> {
        self.tcp().peer_addr().ok().map(|address| address.ip())
    }

    /// Appends bytes that have arrived; returns their number, 0 at the end of the connection. No byte is lost
    /// if the future is dropped.
    ///
    /// # Errors
    /// The connection was reset, or its bytes are not TLS. Any host on the way can end a connection without
    /// the end of TLS, so it counts as reset.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.read_buf(buffer).await,
            Socket::Tls(stream) => stream.read_buf(buffer).await,
        }
    }

    /// As [`Socket::read`]; `None` if no byte has arrived.
    pub(super) async fn read_arrived(&mut self, buffer: &mut Vec<u8>) -> Option<io::Result<usize>> {
        match self {
            Socket::Plain(stream) => {
                let read = stream.try_read_buf(buffer);
                Some(read).filter(|read| {
                    !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
                })
            }
            Socket::Tls(stream) => tokio::select! {
                biased;
                read = stream.read_buf(buffer) => Some(read),
                () = std::future::ready(()) => None,
            },
        }
    }

    /// Ends the connection by FIN, which senders take as the acknowledgement of all points.
    pub(super) async fn end_in_order(mut self) {
        if let Socket::Tls(stream) = &mut self {
            // A client that takes no byte is none that waits for the end.
            let _ = timeout(CLOSE_WAIT, stream.shutdown()).await;
        }
        keep_when_dropped(self.tcp());
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// Lets the kernel send all written bytes before it closes a connection.
#[expect(deprecated, reason = "without a linger time, closing never blocks")]
pub(super) fn keep_when_dropped(stream: &TcpStream) {
    if let Err(error) = stream.set_linger(None) {
        tracing::debug!(%error, "a connection without lost points is reset");
    }
}
