//! Carbon listeners: plaintext lines and pickled frames on TCP, a task per connection; lines in datagrams.
//!
//! Invariants: nothing is written to a client, since senders read for the end of the connection; a bad point
//! never ends a connection. A connection ends in order (FIN) only if all of its valid points are durable; in
//! every other case, also a panic or a killed process, it is reset. A connection is read again once its
//! points are appended, so that a full store slows its senders down; they are synced within
//! [`chronolith_service::options::CarbonOptions::sync_ms`] of reading.
//! A plaintext connection that begins as gzip is decompressed in bounded steps (`gzip`).
//! A client whose address `--carbon.allow` does not have is refused before its first byte is read.
//! Not here: the queue of datagrams (`udp`), the append (`crate::carbon`), the protocols (`ingest::carbon`).

mod gzip;
pub(super) mod listener;
mod socket;
mod stream;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chronolith_service::activity::rejects::WriteSender;
use chronolith_service::carbon::append::{NotStored, PointTarget, Rejected, append_lines, wait_durable};
use chronolith_service::write::destination::{Applied, Destination};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use self::listener::Listener;
use self::socket::{Socket, keep_when_dropped, reset_when_dropped};
use self::stream::{Appended, PointStream};
use crate::limits::ACCEPT_PAUSE;
use crate::serve::{tls, udp};
use crate::web::{CarbonTls, Web};

/// Open connections of one listener.
const CONNECTIONS_MAX: usize = 10_000;
/// Bytes that are decoded together, at most.
const INPUT_BYTES_MAX: usize = 512 << 10;
/// Room for a read of a connection that sends little.
const READ_BYTES_MIN: usize = 8 << 10;
/// After the stop, a connection is read until nothing has arrived for this time.
const STOP_PAUSE: Duration = Duration::from_millis(20);
/// Time of these reads at most: senders may go on.
const STOP_READ_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes that are applied before a connection waits for the disk.
const UNSYNCED_BYTES_MAX: usize = 8 << 20;

/// Lines in datagrams.
#[derive(Clone)]
pub(super) struct Datagrams(pub(super) Arc<Listener>);

impl udp::DatagramStore for Datagrams {
    fn name(&self) -> &str {
        &self.0.input.name
    }

    fn admits(&self, sender: IpAddr) -> bool {
        let is_allowed = self.0.allows(sender);
        if !is_allowed {
            self.0.input.datagrams_not_allowed.add(1);
        }
        is_allowed
    }

    fn store(&self, web: &Web, store: &Destination, body: Vec<u8>) -> Result<(), String> {
        let Listener { options, input, identity, .. } = &*self.0;
        // Datagrams of several senders are stored together.
        let sender = WriteSender { listener: Some(input.name.clone()), ..WriteSender::default() };
        let to = PointTarget { input, identity, prefix: &options.prefix, sender: &sender };
        let (appended, outcome) = append_lines(&web.service.writes, &web.service.carbon, store, to, &body);
        // Points that were appended before a failure become durable as well.
        let durable = match appended.applied {
            Some(applied) => wait_durable(&web.service.writes, store, to, applied).map(drop),
            None => Ok(()),
        };
        outcome.map_err(|error| error.text).and(durable)
    }
}

/// Accepts connections until the stop.
pub(super) async fn accept(listener: Arc<Listener>, socket: TcpListener, mut closing: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = closing.changed() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                reset_when_dropped(&stream);
                if !listener.allows(peer.ip()) {
                    listener.input.connections_not_allowed.add(1);
                    continue;
                }
                match permits.clone().try_acquire_owned() {
                    Ok(permit) => {
                        listener.input.connections_opened.add(1);
                        tokio::spawn(serve(listener.clone(), stream, permit, closing.clone()));
                    }
                    Err(_) => listener.input.connections_refused.add(1),
                }
            }
            Err(error) => {
                listener.web.metrics.http.accept_failures.add(1);
                tracing::warn!(%error, listener = listener.input.name, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection to its end.
async fn serve(
    listener: Arc<Listener>,
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    mut closing: watch::Receiver<bool>,
) {
    let web = listener.web.clone();
    let socket = match web.carbon_tls() {
        None => Some(Socket::Plain(stream)),
        Some(tls) => tokio::select! {
            socket = begin_tls(&listener, stream, tls) => socket,
            _ = closing.changed() => None,
        },
    };
    if let Some(socket) = socket {
        read_to_end(listener.clone(), socket, closing).await;
    }
    listener.input.connections_closed.add(1);
    drop(permit);
}

/// Runs the TLS handshake of a connection; `None` if it failed, which is counted and logged.
async fn begin_tls(listener: &Listener, stream: TcpStream, tls: &CarbonTls) -> Option<Socket> {
    let remote = stream.peer_addr().ok();
    let in_use = tls.current();
    let handshakes = tls.file().handshakes();
    let registered = tls.register(&listener.web.service.env);
    // The client sees the reason of a failure.
    keep_when_dropped(&stream);
    // Nothing is written to a sender without TLS, which would not read it.
    match tls::handshake(&registered, stream, in_use.tls()?, b"").await {
        Ok(encrypted) => {
            handshakes.count_done();
            reset_when_dropped(encrypted.stream.get_ref().0);
            Some(Socket::Tls(Box::new(encrypted.stream)))
        }
        Err(failure) => {
            handshakes.count_failed(failure);
            let reason = failure.name();
            // Senders connect again at once, and show nothing of the reason.
            if let Some(suppressed) = listener.admit_log_line("carbon_tls") {
                tracing::warn!(
                    ?remote,
                    listener = listener.input.name,
                    reason,
                    suppressed,
                    "TLS handshake of a carbon connection failed"
                );
            }
            None
        }
    }
}

/// Reads one connection to its end. It is reset unless it ends in order.
async fn read_to_end(listener: Arc<Listener>, mut socket: Socket, closing: watch::Receiver<bool>) {
    let destination = udp::opened(&listener.web).await;
    let sender = Arc::new(WriteSender {
        address: socket.peer_ip(),
        user_agent: None,
        listener: Some(listener.input.name.clone()),
    });
    let points = Some(PointStream::new(listener.clone(), sender.clone()));
    let mut connection =
        Connection { points, destination, unsynced: None, rejected: Rejected::default(), listener, sender };
    match connection.run(&mut socket, closing).await {
        Ok(()) if connection.rejected.retryable_count == 0 => socket.end_in_order().await,
        Ok(()) => connection
            .count_reset(&NotStored { text: connection.rejected.message.to_owned(), point_count: 0 }),
        Err(ConnectionEnd::Stopped) => {}
        Err(ConnectionEnd::Failed(mut failure)) => {
            // Points before the failure may be durable all the same, and are not counted as lost then.
            if let Err(unsynced) = connection.sync().await {
                failure.point_count += unsynced.point_count;
            }
            connection.count_reset(&failure);
        }
    }
}

/// End of a connection that is reset.
enum ConnectionEnd {
    /// The server stops; all that has arrived is durable.
    Stopped,
    /// Points are not stored, or could not be found in the bytes.
    Failed(NotStored),
}

impl From<NotStored> for ConnectionEnd {
    fn from(failure: NotStored) -> ConnectionEnd {
        ConnectionEnd::Failed(failure)
    }
}

/// A failure that is none of counted points.
fn failed(text: impl ToString) -> NotStored {
    NotStored { text: text.to_string(), point_count: 0 }
}

/// Points that are visible and not durable yet.
struct Unsynced {
    applied: Applied,
    point_count: u64,
    bytes: usize,
    due: Instant,
}

struct Connection {
    listener: Arc<Listener>,
    destination: Destination,
    /// `None` while a thread decodes.
    points: Option<PointStream>,
    unsynced: Option<Unsynced>,
    /// Points that the store rejected. They do not end the connection, since it may have others.
    rejected: Rejected,
    sender: Arc<WriteSender>,
}

/// Bytes that are not decoded yet.
struct Rest {
    buffer: Vec<u8>,
    /// Set if they have points without further bytes of the connection.
    has_more: bool,
}

/// End of the bytes that were read from a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// More may follow.
    Open,
    /// The sender has closed it: the last line needs no newline.
    Closed,
    /// The connection is reset: the last line may be cut off.
    Reset,
}

/// Next step of a connection.
enum Step {
    Read(io::Result<usize>),
    Sync,
    Stop,
}

impl Connection {
    /// Returns once the sender has ended the connection and its points are durable or rejected.
    ///
    /// # Errors
    /// [`ConnectionEnd`]: the connection is to be reset.
    async fn run(
        &mut self,
        socket: &mut Socket,
        mut closing: watch::Receiver<bool>,
    ) -> Result<(), ConnectionEnd> {
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            buffer.reserve(READ_BYTES_MIN);
            let step = tokio::select! {
                read = socket.read(&mut buffer) => Step::Read(read),
                () = until(self.unsynced.as_ref().map(|unsynced| unsynced.due)) => Step::Sync,
                _ = closing.changed() => Step::Stop,
            };
            let end = match step {
                Step::Sync => {
                    self.sync().await?;
                    // Idle connections keep no large buffer.
                    buffer.shrink_to_fit();
                    continue;
                }
                Step::Read(Ok(0)) => End::Closed,
                Step::Read(Ok(_)) => read_more(socket, &mut buffer).await,
                Step::Read(Err(_)) => End::Reset,
                Step::Stop => return self.stop(socket, buffer).await,
            };
            buffer = self.append(buffer, end).await?;
            self.check_stream()?;
            if end != End::Open {
                return Ok(self.sync().await?);
            }
        }
    }

    /// # Errors
    /// If no point can be found in the bytes that follow.
    fn check_stream(&mut self) -> Result<(), NotStored> {
        let failure = self.points.as_mut().and_then(PointStream::take_failure);
        failure.map_or(Ok(()), |text| Err(failed(text)))
    }

    /// Counts and logs that the connection is reset because of points that are not stored.
    fn count_reset(&self, failure: &NotStored) {
        let Listener { web, options, input, .. } = &*self.listener;
        let point_count = failure.point_count + self.rejected.retryable_count;
        input.connections_reset.add(1);
        input.points_not_stored.add(point_count);
        let now_ns = web.service.env.clock.mono_ns();
        let reason = "carbon_reset";
        // Senders connect again at once and send the same points.
        let admitted =
            web.service.writes.reject_log.admit(now_ns, reason, Some(&options.tenant), point_count);
        let Some(suppressed) = admitted else { return };
        tracing::warn!(
            error = failure.text,
            listener = input.name,
            point_count,
            suppressed,
            "carbon points are not stored, the connection is reset so that its sender repeats them"
        );
    }

    /// Appends what has arrived, and lets the connection be reset: the next write of a sender fails, and it
    /// sends these bytes again. After an orderly close, its first write succeeds and is lost.
    async fn stop(&mut self, socket: &mut Socket, mut buffer: Vec<u8>) -> Result<(), ConnectionEnd> {
        let stop_by = Instant::now() + STOP_READ_TIME_MAX;
        let mut end = End::Open;
        while end == End::Open {
            buffer.reserve(READ_BYTES_MIN);
            let quiet_by = stop_by.min(Instant::now() + STOP_PAUSE);
            let Ok(read) = timeout_at(quiet_by, socket.read(&mut buffer)).await else { break };
            end = match read {
                Ok(0) => End::Closed,
                Ok(_) => read_more(socket, &mut buffer).await,
                Err(_) => End::Reset,
            };
            buffer = self.append(buffer, end).await?;
        }
        self.check_stream()?;
        self.sync().await?;
        if end == End::Open { Err(ConnectionEnd::Stopped) } else { Ok(()) }
    }

    /// Decodes and appends all points that have arrived. Returns the buffer with the unfinished rest.
    async fn append(&mut self, buffer: Vec<u8>, end: End) -> Result<Vec<u8>, NotStored> {
        let mut rest = Rest { buffer, has_more: true };
        while rest.has_more {
            rest = self.append_step(rest.buffer, end).await?;
        }
        Ok(rest.buffer)
    }

    /// Decodes and appends on a thread that may wait, a bounded number of points.
    async fn append_step(&mut self, mut buffer: Vec<u8>, end: End) -> Result<Rest, NotStored> {
        let Some(mut points) = self.points.take() else { return Err(failed("a thread panicked")) };
        // In this order: thousands of connections must not fill the queue of writes.
        let permit = self.listener.web.service.carbon.threads.clone().acquire_owned().await;
        let apply = self.listener.append_permit().await;
        let store = self.destination.clone();
        let appending = tokio::task::spawn_blocking(move || {
            let appended = points.append(&store, &mut buffer, end == End::Closed);
            drop(apply);
            (points, buffer, appended)
        });
        let (points, buffer, appended) = appending.await.map_err(failed)?;
        drop(permit);
        self.points = Some(points);
        let Appended { applied, point_count, bytes, has_more } = appended?;
        if let Some(applied) = applied {
            let due = Instant::now()
                + Duration::from_millis(self.listener.web.service.options.write.carbon.sync_ms);
            self.unsynced = Some(match self.unsynced.take() {
                Some(before) => Unsynced {
                    applied: before.applied.join(applied),
                    point_count: before.point_count + point_count,
                    bytes: before.bytes + bytes,
                    due: before.due,
                },
                None => Unsynced { applied, point_count, bytes, due },
            });
        }
        let is_due =
            |unsynced: &Unsynced| unsynced.bytes > UNSYNCED_BYTES_MAX || unsynced.due <= Instant::now();
        if self.unsynced.as_ref().is_some_and(is_due) {
            self.sync().await?;
        }
        Ok(Rest { buffer, has_more })
    }

    /// Waits until the applied points are durable.
    async fn sync(&mut self) -> Result<(), NotStored> {
        let Some(Unsynced { applied, point_count, .. }) = self.unsynced.take() else { return Ok(()) };
        let _permit = self.listener.web.service.carbon.threads.acquire().await;
        let listener = self.listener.clone();
        let store = self.destination.clone();
        let sender = self.sender.clone();
        let wait = move || {
            let Listener { web, options, input, identity } = &*listener;
            let to = PointTarget { input, identity, prefix: &options.prefix, sender: &sender };
            wait_durable(&web.service.writes, &store, to, applied)
        };
        let waited = tokio::task::spawn_blocking(wait).await;
        let waited = waited.unwrap_or_else(|error| Err(error.to_string()));
        let rejected = waited.map_err(|text| NotStored { text, point_count })?;
        self.rejected.add(rejected);
        Ok(())
    }
}

/// Reads what has already arrived.
async fn read_more(socket: &mut Socket, buffer: &mut Vec<u8>) -> End {
    while buffer.len() < INPUT_BYTES_MAX {
        // A sender that fills the buffer gets a larger one.
        let room = buffer.len().clamp(READ_BYTES_MIN, INPUT_BYTES_MAX - buffer.len() + READ_BYTES_MIN);
        buffer.reserve(room);
        match socket.read_arrived(buffer).await {
            None => return End::Open,
            Some(Ok(0)) => return End::Closed,
            Some(Ok(_)) => {}
            Some(Err(_)) => return End::Reset,
        }
    }
    End::Open
}

/// Waits until a time; for ever without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
