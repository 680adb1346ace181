//! From the signal to the end: lame duck, drain, close.
//!
//! Invariants: `/-/ready` is 503 before the listener closes; a stop takes [`STOP_TIME_MAX`] at most, and a
//! second signal ends it at once, unless it comes with the first. A stop that is cut short loses nothing
//! acknowledged: it is equal to a kill, and the next start replays the log.
//! Not here: closing of the store (`tsdb`).

use std::future::{self, Future};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use chronolith_base::thread;
use chronolith_tsdb::HeadError;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::error::RunError;
use super::stop::Stop;
use crate::limits::{
    DRAIN_TIME_MAX, NOTIFIER_DRAIN_TIME_MAX, RULES_STOP_TIME_MAX, STOP_CLOSE_TIME, STOP_TIME_MAX,
};
use crate::web::Web;

/// Signals that end the process.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(super) fn new() -> Result<StopSignals, RunError> {
        let listen = |kind| signal(kind).map_err(RunError::Threads);
        Ok(StopSignals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Signals within this time are one: `timeout` and shells send theirs to the process and to its group.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for a signal that was sent later than [`SIGNAL_INTERVAL`] after this call.
async fn second_signal(mut next: impl AsyncFnMut()) {
    let end = Instant::now() + SIGNAL_INTERVAL;
    while timeout_at(end, next()).await.is_ok() {}
    next().await;
}

/// Ends a stop early.
async fn abort_signal(signals: Option<&mut StopSignals>) {
    match signals {
        Some(signals) => second_signal(async || signals.next().await).await,
        None => future::pending().await,
    }
}

/// The parts of a server that a stop ends.
pub(super) struct Running {
    pub(super) web: Arc<Web>,
    pub(super) runtime: Runtime,
    /// Runtime of requests to the bucket, if it is read.
    pub(super) bucket: Option<Runtime>,
    /// Set to true when nothing more is to be accepted.
    pub(super) closing: watch::Sender<bool>,
    /// Flag that the background threads wait for.
    pub(super) stop: Arc<Stop>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Stops everything; one of `signals` cuts it short.
    pub(super) fn stop(mut self, signals: Option<StopSignals>) -> Result<(), RunError> {
        tracing::info!("stopping");
        self.web.service.lifecycle.begin_drain();
        let (closed, closing) = oneshot::channel();
        let web = self.web.clone();
        let stop = self.stop.clone();
        let threads = std::mem::take(&mut self.threads);
        let close = move || {
            stop.stop();
            if let Some(store) = web.service.lifecycle.opened() {
                store.bucket_jobs().stop();
            }
            for joined in threads {
                if joined.join().is_err() {
                    tracing::error!("background thread panicked");
                }
            }
            // The receiver is gone when the shutdown was aborted.
            drop(closed.send(web.service.lifecycle.opened().map_or(Ok(()), |store| store.close())));
        };
        let ended = self.runtime.block_on(run(&self, signals, close, closing));
        // Requests that go on by now hold nothing that is acknowledged.
        self.runtime.shutdown_background();
        if let Some(bucket) = self.bucket.take() {
            bucket.shutdown_background();
        }
        if ended.is_ok() {
            tracing::info!("stopped");
        }
        ended
    }
}

async fn run(
    running: &Running,
    mut signals: Option<StopSignals>,
    close: impl FnOnce() + Send + 'static,
    closing: oneshot::Receiver<Result<(), HeadError>>,
) -> Result<(), RunError> {
    // Timers are the runtime's own business; nothing that is stored depends on them.
    let deadline = Instant::now() + STOP_TIME_MAX;
    let stop = async {
        let delay = running.web.options.web.shutdown_delay;
        if !delay.is_zero() {
            tracing::info!(delay_s = delay.as_secs_f64(), "not ready, serving until shutdown-delay is over");
            sleep(delay).await;
        }
        // There is no listener if the server never became ready.
        let _ = running.closing.send(true);
        drained(&running.web, (deadline - STOP_CLOSE_TIME).min(Instant::now() + DRAIN_TIME_MAX)).await;
        // Rounds end before their last alerts are sent, see below; continuous queries end with them.
        let web = running.web.clone();
        let stop_rules = move || web.service.rules.engine.stop(RULES_STOP_TIME_MAX);
        if matches!(tokio::task::spawn_blocking(stop_rules).await, Ok(false)) {
            tracing::warn!("rounds of rules or continuous queries did not end in time");
        }
        let limit = NOTIFIER_DRAIN_TIME_MAX.min((deadline - STOP_CLOSE_TIME).duration_since(Instant::now()));
        running.web.notifier().stop(limit).await;
        running.web.service.lifecycle.begin_close();
        thread::spawn("shutdown", close).map_err(RunError::Threads)?;
        match closing.await {
            Ok(closed) => closed.map_err(RunError::Close),
            Err(_) => Err(RunError::Interrupted("closing the store panicked")),
        }
    };
    first_of(stop, abort_signal(signals.as_mut()), deadline).await
}

/// Returns the result of `stop`, unless a signal or the deadline comes first.
async fn first_of(
    stop: impl Future<Output = Result<(), RunError>>,
    signal: impl Future<Output = ()>,
    deadline: Instant,
) -> Result<(), RunError> {
    let stop = pin!(stop);
    let signal = pin!(signal);
    let either = async {
        tokio::select! {
            stopped = stop => stopped,
            () = signal => Err(RunError::Interrupted("a second signal")),
        }
    };
    timeout_at(deadline, either).await.unwrap_or(Err(RunError::Interrupted("it took too long")))
}

/// Waits until all connections are closed, at most until `deadline`.
async fn drained(web: &Web, deadline: Instant) {
    let open = || web.connections.count() + web.service.carbon.open_connections();
    let wait = async {
        while open() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout_at(deadline, wait).await.is_err() {
        tracing::warn!(connections = open(), "closing connections whose requests did not finish in time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals after the first were ignored, and a stop could take longer than an orchestrator waits.
    #[tokio::test]
    async fn a_second_signal_or_the_deadline_ends_a_stop() {
        let never = || future::pending::<Result<(), RunError>>();
        let soon = Instant::now() + Duration::from_millis(1);
        let later = Instant::now() + Duration::from_secs(3600);
        let cut = first_of(never(), future::ready(()), later).await;
        assert!(matches!(cut, Err(RunError::Interrupted("a second signal"))), "{cut:?}");
        let cut = first_of(never(), future::pending(), soon).await;
        assert!(matches!(cut, Err(RunError::Interrupted("it took too long"))), "{cut:?}");
        assert!(first_of(future::ready(Ok(())), future::pending(), later).await.is_ok());
    }

    /// Covers a regression: `timeout 10 chronolith serve` aborted every stop: it signals the process and its
    /// group.
    #[tokio::test(start_paused = true)]
    async fn signals_at_the_same_time_are_one() {
        let start = Instant::now();
        let mut delays = [0, 1, 100, 5000, 10].into_iter();
        second_signal(async || sleep(Duration::from_millis(delays.next().expect("enough"))).await).await;
        assert!(start.elapsed() > SIGNAL_INTERVAL, "{:?}", start.elapsed());
        assert_eq!(delays.next(), None, "the one after the interval ends the stop");
    }
}
