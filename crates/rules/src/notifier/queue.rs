//! Alerts that wait for one Alertmanager: a bounded queue, batches, and retries of those that failed.
//!
//! Invariants: at most `capacity` alerts wait, and the oldest are dropped for newer ones; at most one batch
//! is out at a time; every alert ends as sent, dropped, or replaced by a newer one of the same labels.
//! Not here: requests, timers (the caller waits until [`Next::WaitMs`]).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use chronolith_model::Labels;

use super::alert::Alert;

/// Alerts of one request, as in Prometheus.
pub const BATCH_ALERTS_MAX: usize = 256;
/// Alerts that wait for one Alertmanager, as in Prometheus.
pub const QUEUE_ALERTS_MAX: usize = 10_000;
/// Longest time for which an alert waits, as long as a resolved alert is sent again.
const RETRY_AGE_MAX_MS: i64 = 15 * 60_000;
/// First pause after a failed request; doubled with each further one.
const RETRY_PAUSE_MS: i64 = 500;
/// Longest pause after a failed request.
const RETRY_PAUSE_MAX_MS: i64 = 10_000;

/// Alerts of one request.
#[derive(Debug)]
pub struct Batch {
    waiting: Vec<Waiting>,
}

impl Batch {
    /// The alerts, oldest first.
    #[must_use]
    pub fn alerts(&self) -> Vec<Arc<Alert>> {
        self.waiting.iter().map(|waiting| waiting.alert.clone()).collect()
    }

    /// Number of alerts, 1 to [`BATCH_ALERTS_MAX`].
    #[must_use]
    pub fn alert_count(&self) -> usize {
        self.waiting.len()
    }
}

/// Kind of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The Alertmanager was not reached, did not answer in time, or had an error of its own.
    Transient,
    /// The Alertmanager refused the request, and would refuse it again.
    Refused,
}

/// Next step of a sender.
#[derive(Debug)]
pub enum Next {
    /// Send this batch and report the outcome.
    Send(Batch),
    /// Wait for this many milliseconds.
    WaitMs(i64),
    /// Wait until alerts are queued.
    Idle,
}

/// Counts of alerts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounts {
    /// Alerts that were sent.
    pub sent: u64,
    /// Alerts of failed requests, counted again for each retry.
    pub errors: u64,
    /// Alerts that were given up.
    pub dropped: u64,
}

#[derive(Debug)]
struct Waiting {
    alert: Arc<Alert>,
    queued_ms: i64,
}

/// Notifications of the same kind about the same alert; the newest replaces the others.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    labels: Labels,
    starts_at_ms: i64,
    is_resolved: bool,
}

impl Key {
    fn of(alert: &Alert) -> Key {
        let is_resolved = alert.end.is_resolved();
        Key { labels: alert.labels.clone(), starts_at_ms: alert.starts_at_ms, is_resolved }
    }
}

/// The queue of one Alertmanager.
#[derive(Debug)]
pub struct SendQueue {
    capacity: usize,
    waiting: VecDeque<Waiting>,
    /// Number of the alert at the front; each alert after it has the next number.
    front_number: i64,
    /// Numbers of waiting alerts.
    numbers: HashMap<Key, i64>,
    /// Failed requests since the last one that succeeded.
    failure_count: u32,
    retry_at_ms: i64,
    is_draining: bool,
    counts: QueueCounts,
}

impl SendQueue {
    /// An empty queue for `capacity` alerts.
    #[must_use]
    pub fn new(capacity: usize) -> SendQueue {
        SendQueue {
            capacity,
            waiting: VecDeque::new(),
            front_number: 0,
            numbers: HashMap::new(),
            failure_count: 0,
            retry_at_ms: i64::MIN,
            is_draining: false,
            counts: QueueCounts::default(),
        }
    }

    /// Number of waiting alerts, without the batch that is out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no alert waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.counts
    }

    /// Queues alerts and returns the number of alerts that were dropped for them, the oldest. A waiting alert
    /// that is sent again is replaced where it stands.
    pub fn push(&mut self, alerts: &[Arc<Alert>], now_ms: i64) -> usize {
        for alert in alerts {
            let key = Key::of(alert);
            let waiting = Waiting { alert: alert.clone(), queued_ms: now_ms };
            let number = self.numbers.get(&key).copied();
            match number.and_then(|number| self.at(number)) {
                Some(at) => *at = waiting,
                None => {
                    self.numbers.insert(key, self.front_number + self.waiting.len() as i64);
                    self.waiting.push_back(waiting);
                }
            }
        }
        self.drop_oldest()
    }

    /// Returns the next step of the sender. It reports each batch by [`SendQueue::sent`] or
    /// [`SendQueue::failed`] before it asks again.
    pub fn next(&mut self, now_ms: i64) -> Next {
        if self.waiting.is_empty() {
            return Next::Idle;
        }
        if !self.is_draining && now_ms < self.retry_at_ms {
            return Next::WaitMs(self.retry_at_ms - now_ms);
        }
        let count = self.waiting.len().min(BATCH_ALERTS_MAX);
        Next::Send(Batch { waiting: (0..count).filter_map(|_| self.pop_front()).collect() })
    }

    /// Counts a batch as sent.
    #[expect(clippy::needless_pass_by_value, reason = "a batch has one outcome")]
    pub fn sent(&mut self, batch: Batch) {
        self.counts.sent += batch.waiting.len() as u64;
        self.failure_count = 0;
        self.retry_at_ms = i64::MIN;
    }

    /// Counts a batch as failed. Its alerts wait again at the front, unless the Alertmanager refuses them,
    /// they have waited for a quarter of an hour, or the queue drains.
    pub fn failed(&mut self, batch: Batch, failure: Failure, now_ms: i64) {
        self.counts.errors += batch.waiting.len() as u64;
        if failure == Failure::Refused || self.is_draining {
            self.counts.dropped += batch.waiting.len() as u64;
            return;
        }
        let pause_ms = RETRY_PAUSE_MS.saturating_mul(1 << self.failure_count.min(16)).min(RETRY_PAUSE_MAX_MS);
        self.failure_count = self.failure_count.saturating_add(1);
        self.retry_at_ms = now_ms.saturating_add(pause_ms);
        for waiting in batch.waiting.into_iter().rev() {
            let key = Key::of(&waiting.alert);
            if self.numbers.contains_key(&key) {
                continue;
            }
            if now_ms.saturating_sub(waiting.queued_ms) > RETRY_AGE_MAX_MS {
                self.counts.dropped += 1;
                continue;
            }
            self.front_number -= 1;
            self.numbers.insert(key, self.front_number);
            self.waiting.push_front(waiting);
        }
        self.drop_oldest();
    }

    /// Ends retries: from now on a batch is sent once, without a pause, and dropped if it fails.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Gives up all waiting alerts and returns their number.
    pub fn clear(&mut self) -> usize {
        let count = self.waiting.len();
        while self.pop_front().is_some() {}
        self.counts.dropped += count as u64;
        count
    }

    fn at(&mut self, number: i64) -> Option<&mut Waiting> {
        let idx = usize::try_from(number - self.front_number).ok()?;
        self.waiting.get_mut(idx)
    }

    fn pop_front(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.numbers.remove(&Key::of(&waiting.alert));
        self.front_number += 1;
        Some(waiting)
    }

    fn drop_oldest(&mut self) -> usize {
        let count = self.waiting.len().saturating_sub(self.capacity);
        assert!(self.numbers.len() <= self.waiting.len(), "each number is that of a waiting alert");
        for _ in 0..count {
            self.pop_front();
        }
        self.counts.dropped += count as u64;
        count
    }
}
