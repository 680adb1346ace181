//! Sender of one Alertmanager: its queue, and the task that empties it.
//!
//! Invariant: the task ends once the sender ends and nothing waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Uri;
use chronolith_base::Clock;
use chronolith_rules::notifier::{Alert, Batch, Next, QUEUE_ALERTS_MAX, QueueCounts, SendQueue, body};
use chronolith_service::counter::Seconds;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::client::HttpClient;
use super::reading::Endpoint;

/// Sends alerts to one Alertmanager.
pub(crate) struct Sender {
    url: String,
    uri: Uri,
    client: RwLock<Arc<HttpClient>>,
    queue: Mutex<SendQueue>,
    /// Wakes the task.
    changed: Notify,
    is_ending: AtomicBool,
    /// Durations of requests that succeeded.
    latency: Arc<Seconds>,
}

impl Sender {
    pub(super) fn new(endpoint: Endpoint, client: Arc<HttpClient>, latency: Arc<Seconds>) -> Sender {
        Sender {
            url: endpoint.url,
            uri: endpoint.uri,
            client: RwLock::new(client),
            queue: Mutex::new(SendQueue::new(QUEUE_ALERTS_MAX)),
            changed: Notify::new(),
            is_ending: AtomicBool::new(false),
            latency,
        }
    }

    /// URL of the API.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Durations of requests that succeeded.
    pub(crate) fn latency(&self) -> Arc<Seconds> {
        self.latency.clone()
    }

    /// Counts of alerts.
    pub(crate) fn counts(&self) -> QueueCounts {
        self.queue.lock().counts()
    }

    /// Alerts that wait.
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Sends by another client from the next batch on.
    pub(super) fn set_client(&self, client: Arc<HttpClient>) {
        *self.client.write() = client;
    }

    /// Queues alerts and wakes the task. Waits for nothing.
    pub(super) fn queue(&self, alerts: &[Arc<Alert>], clock: &dyn Clock) {
        if alerts.is_empty() || self.is_ending.load(Ordering::Relaxed) {
            return;
        }
        let count = self.queue.lock().push(alerts, now_ms(clock));
        if count > 0 {
            let alertmanager = self.url.as_str();
            tracing::warn!(alertmanager, count, "queue of notifications full, oldest alerts dropped");
        }
        self.changed.notify_one();
    }

    /// Ends the task once each waiting batch has been sent or has failed.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.queue.lock().drain();
        self.changed.notify_one();
    }

    /// Gives up what waits and returns the number of alerts.
    pub(super) fn give_up(&self) -> usize {
        self.queue.lock().clear()
    }

    async fn send(&self, batch: Batch, clock: &dyn Clock) {
        let client = self.client.read().clone();
        let started_ns = clock.mono_ns();
        let sent = client.post(&self.uri, body(&batch.alerts())).await;
        let mut queue = self.queue.lock();
        let error = match sent {
            Ok(()) => {
                self.latency.observe_ns(clock.mono_ns().saturating_sub(started_ns));
                return queue.sent(batch);
            }
            Err(error) => error,
        };
        let count = batch.alert_count();
        let dropped_before = queue.counts().dropped;
        queue.failed(batch, error.failure, now_ms(clock));
        let dropped = queue.counts().dropped - dropped_before;
        let alertmanager = self.url.as_str();
        tracing::error!(alertmanager, count, dropped, error = error.why, "sending alerts failed");
    }
}

/// Empties the queue until the sender ends. `guard` is dropped with the task.
pub(super) async fn run(sender: Arc<Sender>, clock: Arc<dyn Clock>, guard: watch::Receiver<()>) {
    loop {
        let next = sender.queue.lock().next(now_ms(&*clock));
        match next {
            Next::Send(batch) => sender.send(batch, &*clock).await,
            Next::WaitMs(pause_ms) => {
                let pause = Duration::from_millis(pause_ms.unsigned_abs());
                let _ = timeout(pause, sender.changed.notified()).await;
            }
            Next::Idle if sender.is_ending.load(Ordering::Relaxed) => break,
            Next::Idle => sender.changed.notified().await,
        }
    }
    drop(guard);
}

/// Time of queues, which never goes back.
fn now_ms(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.mono_ns() / 1_000_000).unwrap_or(i64::MAX)
}
