//! Open connections: how many, which of them idle, and one task for each.
//! Holds: never more than `count_max`, but for those that are being evicted; evicting takes idle ones only.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use chronolith_base::hash::HashMap;
use chronolith_base::{Clock, Disk};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tower::ServiceExt as _;

use super::stream::TimedStream;
use crate::app::App;
use crate::http::request::RemoteAddress;
use crate::limits::{
    CONNECTION_COUNT_MAX, CONNECTION_COUNT_MIN, FILES_RESERVED, HEADER_BYTES_MAX, HEADER_COUNT_MAX,
};
use crate::metrics::open_files_max;

/// What is known of one connection outside its task.
pub(crate) struct ConnectionState {
    clock: Arc<dyn Clock>,
    in_flight: AtomicUsize,
    served: AtomicU64,
    active_ns: AtomicU64,
    evict: Notify,
}

impl ConnectionState {
    /// Whether a request is at work.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Requests that have begun.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Notes that bytes have moved.
    pub(super) fn touch(&self) {
        self.active_ns.store(self.clock.mono_ns(), Ordering::Relaxed);
    }
}

/// A request at work.
struct InFlight(Arc<ConnectionState>);

impl InFlight {
    fn new(state: &Arc<ConnectionState>) -> InFlight {
        state.in_flight.fetch_add(1, Ordering::Relaxed);
        state.served.fetch_add(1, Ordering::Relaxed);
        InFlight(state.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

type Table = Arc<Mutex<HashMap<u64, Arc<ConnectionState>>>>;

/// All open connections.
pub(crate) struct Connections {
    open: Table,
    next_id: AtomicU64,
    count_max: usize,
}

impl Connections {
    /// Room for as many connections as the limit of open files leaves beside the store's files.
    pub(crate) fn new(disk: &dyn Disk) -> Connections {
        let files = open_files_max(disk).unwrap_or(CONNECTION_COUNT_MAX + FILES_RESERVED);
        let count_max =
            files.saturating_sub(FILES_RESERVED).clamp(CONNECTION_COUNT_MIN, CONNECTION_COUNT_MAX);
        Connections::with_count_max(count_max)
    }

    fn with_count_max(count_max: usize) -> Connections {
        Connections { open: Table::default(), next_id: AtomicU64::new(0), count_max }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }

    pub(crate) fn count_max(&self) -> usize {
        self.count_max
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= self.count_max
    }

    /// Closes the connection that has been idle longest; false if all are at work.
    pub(super) fn evict_idlest(&self) -> bool {
        let mut open = self.open.lock();
        let idle = open.iter().filter(|(_, state)| !state.is_busy());
        let idlest = idle.min_by_key(|(_, state)| state.active_ns.load(Ordering::Relaxed)).map(|(id, _)| *id);
        let Some(state) = idlest.and_then(|id| open.remove(&id)) else { return false };
        state.evict.notify_one();
        true
    }

    pub(super) fn register(&self, clock: Arc<dyn Clock>) -> OpenConnection {
        let state = Arc::new(ConnectionState {
            in_flight: AtomicUsize::new(0),
            served: AtomicU64::new(0),
            active_ns: AtomicU64::new(clock.mono_ns()),
            evict: Notify::new(),
            clock,
        });
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(id, state.clone());
        OpenConnection { open: self.open.clone(), id, state }
    }
}

/// An entry of the table; leaves it when dropped.
pub(super) struct OpenConnection {
    open: Table,
    id: u64,
    state: Arc<ConnectionState>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.lock().remove(&self.id);
    }
}

/// Serves one connection until its client leaves, its time is over, it is evicted, or the server stops.
pub(super) async fn serve(
    connection: OpenConnection,
    stream: TcpStream,
    app: Arc<App>,
    router: Router,
    mut closed: watch::Receiver<bool>,
) {
    let state = connection.state.clone();
    let remote = stream.peer_addr().ok().map(RemoteAddress);
    let io = TokioIo::new(TimedStream::new(stream, state.clone(), app));
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        if let Some(remote) = remote {
            request.extensions_mut().insert(remote);
        }
        let in_flight = InFlight::new(&state);
        let router = router.clone();
        async move {
            let _in_flight = in_flight;
            let response = router.oneshot(request.map(Body::new)).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // The stream below has the deadlines: it tells an idle connection from a slow request.
        .header_read_timeout(None)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_COUNT_MAX)
        // Names of headers have no case, but scripts that search them do.
        .title_case_headers(true)
        .serve_connection(io, service);
    tokio::pin!(served);
    let mut stopping = *closed.borrow();
    if stopping {
        served.as_mut().graceful_shutdown();
    }
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = state.evict.notified() => return,
            _ = closed.changed(), if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chronolith_base::{ManualClock, MemDisk};

    use super::*;

    #[test]
    fn the_idlest_goes_first_and_busy_ones_stay() {
        let clock = Arc::new(ManualClock::new(0));
        let connections = Connections::with_count_max(2);
        let first = connections.register(clock.clone());
        clock.advance(Duration::from_secs(1));
        let second = connections.register(clock.clone());
        assert!(connections.is_full());
        let busy = InFlight::new(&first.state);
        assert!(connections.evict_idlest());
        assert!(!connections.open.lock().contains_key(&second.id), "the busy one stays though it is older");
        assert!(!connections.evict_idlest());
        drop(busy);
        assert!(connections.evict_idlest());
        drop((first, second));
        assert_eq!(connections.count(), 0);
    }

    #[test]
    fn an_unknown_limit_of_files_means_the_usual_number() {
        assert_eq!(Connections::new(&MemDisk::new()).count_max(), CONNECTION_COUNT_MAX);
    }
}
