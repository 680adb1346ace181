//! Waits that a signal ends: SIGINT (Ctrl-C) and SIGTERM.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// State that the thread of signals sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    shared: Arc<(Mutex<bool>, Condvar)>,
}

impl Stop {
    /// Listens from now on.
    pub(crate) fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot listen to signals")?;
        let guard = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen to SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen to SIGTERM")?;
        drop(guard);
        let of_thread = stop.clone();
        chronolith_base::thread::spawn("signals", move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            of_thread.set();
        })
        .context("cannot start the thread of signals")?;
        Ok(stop)
    }

    fn set(&self) {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.1.notify_all();
    }

    /// Returns true once a signal has come.
    pub(crate) fn is_set(&self) -> bool {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `duration` or a signal. Returns true if a signal has come.
    pub(crate) fn wait(&self, duration: Duration) -> bool {
        let is_set = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.1.wait_timeout_while(is_set, duration, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
