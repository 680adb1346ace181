//! Open connections: how many, which of them are idle, and which are in their TLS handshake.
//! Invariants: never more than `count_max`, but for those that are being evicted; evicting takes idle ones
//! only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_base::{Clock, Disk};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::{CONNECTION_COUNT_MAX, CONNECTION_COUNT_MIN, FILES_RESERVED, TLS_HANDSHAKE_COUNT_MAX};
use crate::process::open_files_max;

/// State of one connection that is visible outside of its task.
pub(crate) struct ConnectionState {
    clock: Arc<dyn Clock>,
    in_flight: AtomicUsize,
    served: AtomicU64,
    active_ns: AtomicU64,
    is_in_handshake: AtomicBool,
    evict: Notify,
}

impl ConnectionState {
    /// Returns true if a request is running.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Number of requests that have started.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Notes that bytes have moved.
    pub(super) fn touch(&self) {
        self.active_ns.store(self.clock.mono_ns(), Ordering::Relaxed);
    }

    /// Waits until the connection is to be closed in favor of others.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

/// A running request.
pub(super) struct InFlight(Arc<ConnectionState>);

impl InFlight {
    pub(super) fn new(state: &Arc<ConnectionState>) -> InFlight {
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

/// A running TLS handshake.
pub(super) struct Handshake {
    state: Arc<ConnectionState>,
    count: Arc<AtomicUsize>,
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.state.is_in_handshake.store(false, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

type Table = Arc<Mutex<HashMap<u64, Arc<ConnectionState>>>>;

/// All open connections.
pub(crate) struct Connections {
    open: Table,
    handshake_count: Arc<AtomicUsize>,
    next_id: AtomicU64,
    count_max: usize,
}

impl Connections {
    /// Allows as many connections as the limit of open files leaves after the store's files.
    pub(crate) fn new(disk: &dyn Disk) -> Connections {
        let files = open_files_max(disk).unwrap_or(CONNECTION_COUNT_MAX + FILES_RESERVED);
        let count_max =
            files.saturating_sub(FILES_RESERVED).clamp(CONNECTION_COUNT_MIN, CONNECTION_COUNT_MAX);
        Connections::with_count_max(count_max)
    }

    fn with_count_max(count_max: usize) -> Connections {
        let handshake_count = Arc::default();
        Connections { open: Table::default(), handshake_count, next_id: AtomicU64::new(0), count_max }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Connections in their TLS handshake.
    pub(crate) fn handshake_count(&self) -> usize {
        self.handshake_count.load(Ordering::Relaxed)
    }

    pub(crate) fn count_max(&self) -> usize {
        self.count_max
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= self.count_max
    }

    /// Closes the connection that has been idle longest; false if all are busy.
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
            is_in_handshake: AtomicBool::new(false),
            evict: Notify::new(),
            clock,
        });
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(id, state.clone());
        OpenConnection { open: self.open.clone(), handshake_count: self.handshake_count.clone(), id, state }
    }
}

/// An entry of the table; leaves it when dropped.
pub(super) struct OpenConnection {
    open: Table,
    handshake_count: Arc<AtomicUsize>,
    id: u64,
    state: Arc<ConnectionState>,
}

impl OpenConnection {
    pub(super) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Counts a handshake until the value is dropped. At [`TLS_HANDSHAKE_COUNT_MAX`], the oldest one is given
    /// up.
    pub(super) fn begin_handshake(&self) -> Handshake {
        self.begin_handshake_within(TLS_HANDSHAKE_COUNT_MAX)
    }

    fn begin_handshake_within(&self, count_max: usize) -> Handshake {
        if self.handshake_count.fetch_add(1, Ordering::Relaxed) >= count_max {
            let open = self.open.lock();
            let running = open.values().filter(|state| state.is_in_handshake.load(Ordering::Relaxed));
            let oldest = running.min_by_key(|state| state.active_ns.load(Ordering::Relaxed));
            if let Some(oldest) = oldest {
                // Not the oldest for the next one, before its task has ended.
                oldest.is_in_handshake.store(false, Ordering::Relaxed);
                oldest.evict.notify_one();
            }
        }
        self.state.is_in_handshake.store(true, Ordering::Relaxed);
        Handshake { state: self.state.clone(), count: self.handshake_count.clone() }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.lock().remove(&self.id);
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

    /// Covers a regression: half-open handshakes held a limited number of places until their deadline.
    #[tokio::test]
    async fn a_handshake_at_the_limit_takes_the_place_of_the_oldest() {
        let clock = Arc::new(ManualClock::new(0));
        let connections = Connections::with_count_max(100);
        let mut half_open = Vec::new();
        for _ in 0..3 {
            clock.advance(Duration::from_secs(1));
            let connection = connections.register(clock.clone());
            half_open.push((connection.begin_handshake_within(2), connection));
        }
        assert_eq!(connections.handshake_count(), 3, "until the task of the oldest has ended");
        half_open.remove(0).1.state().evicted().await;
        assert_eq!(connections.handshake_count(), 2);
        let next = connections.register(clock);
        let _running = next.begin_handshake_within(2);
        half_open.remove(0).1.state().evicted().await;
    }

    #[test]
    fn an_unknown_limit_of_files_means_the_usual_number() {
        assert_eq!(Connections::new(&MemDisk::new()).count_max(), CONNECTION_COUNT_MAX);
    }
}
