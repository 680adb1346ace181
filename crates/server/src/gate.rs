//! Admission: so many at work, so many waiting, the rest refused at once.
//! Holds: `waiting <= waiting_max`; a place is free again when its [`Place`] is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GateError {
    /// The queue is full.
    #[error("too many {what}: {waiting_max} are waiting already")]
    QueueFull {
        /// What waits.
        what: &'static str,
        /// Limit of the queue.
        waiting_max: usize,
    },
    /// No place became free in time.
    #[error("too many {what}: no place became free within {} ms", waited.as_millis())]
    Patience {
        /// What waits.
        what: &'static str,
        /// How long.
        waited: Duration,
    },
}

/// A place at work.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

pub(crate) struct Gate {
    what: &'static str,
    places: Arc<Semaphore>,
    place_count: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    refused: std::sync::atomic::AtomicU64,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(crate) fn new(what: &'static str, place_count: usize, waiting_max: usize) -> Gate {
        let place_count = place_count.max(1);
        Gate {
            what,
            places: Arc::new(Semaphore::new(place_count)),
            place_count,
            waiting: AtomicUsize::new(0),
            waiting_max,
            refused: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Waits for a place, at most `patience`. Dropping the future gives up the place in the queue.
    pub(crate) async fn enter(&self, patience: Duration) -> Result<Place, GateError> {
        if let Ok(permit) = self.places.clone().try_acquire_owned() {
            return Ok(Place { _permit: permit });
        }
        let full = |waiting: usize| (waiting < self.waiting_max).then_some(waiting + 1);
        if self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, full).is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(GateError::QueueFull { what: self.what, waiting_max: self.waiting_max });
        }
        let _waiting = Waiting(&self.waiting);
        match tokio::time::timeout(patience, self.places.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Place { _permit: permit }),
            Ok(Err(_)) | Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(GateError::Patience { what: self.what, waited: patience })
            }
        }
    }

    /// Places in use.
    pub(crate) fn busy(&self) -> usize {
        self.place_count.saturating_sub(self.places.available_permits())
    }

    /// Requests in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Requests refused since start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_and_places_return() {
        let gate = Gate::new("writes", 1, 0);
        let place = gate.enter(Duration::from_secs(1)).await.unwrap();
        let full = gate.enter(Duration::from_secs(1)).await.err();
        assert_eq!(full, Some(GateError::QueueFull { what: "writes", waiting_max: 0 }));
        drop(place);
        assert!(gate.enter(Duration::from_secs(1)).await.is_ok());
        assert_eq!((gate.busy(), gate.waiting(), gate.refused()), (0, 0, 1));
    }

    #[tokio::test]
    async fn patience_ends_and_the_queue_is_left() {
        let gate = Gate::new("queries", 1, 4);
        let _place = gate.enter(Duration::from_secs(1)).await.unwrap();
        let late = gate.enter(Duration::from_millis(1)).await.err();
        assert!(matches!(late, Some(GateError::Patience { .. })));
        assert_eq!(gate.waiting(), 0);
    }
}
