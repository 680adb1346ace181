//! The last error of a client's connections, which the library reports apart from the errors of calls.
//!
//! Not here: errors of calls (`failure`).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rdkafka::error::RDKafkaErrorCode as Code;

/// Last error since something succeeded.
#[derive(Default)]
pub(super) struct ConnectionErrors {
    last: Mutex<Option<(Code, String)>>,
    /// True if there is one: a success looks at this alone.
    is_failing: AtomicBool,
    are_all_down: AtomicBool,
}

impl ConnectionErrors {
    /// Records an error. That all brokers are down gives no reason, so it replaces none.
    pub(super) fn note(&self, code: Code, reason: &str) {
        if code == Code::AllBrokersDown {
            self.are_all_down.store(true, Ordering::Relaxed);
            return;
        }
        // Reasons of a login or certificate outlast the end of their connection.
        let mut last = self.last.lock();
        if last.as_ref().is_none_or(|(before, _)| !is_final(*before) || is_final(code)) {
            *last = Some((code, reason.to_owned()));
        }
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// Records that brokers have answered.
    pub(super) fn note_success(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            *self.last.lock() = None;
        }
        self.are_all_down.store(false, Ordering::Relaxed);
    }

    /// Returns the reason of the last error.
    pub(super) fn reason(&self) -> Option<String> {
        self.last.lock().as_ref().map(|(_, reason)| reason.clone())
    }

    /// Returns the code and reason of the last error.
    pub(super) fn last(&self) -> Option<(Code, String)> {
        self.last.lock().clone()
    }

    /// Returns true if a further attempt of the same client would fail like the last one.
    pub(super) fn is_hopeless(&self) -> bool {
        self.are_all_down.load(Ordering::Relaxed)
            || self.last.lock().as_ref().is_some_and(|(code, _)| is_final(*code))
    }
}

/// Returns true for refusals, which a repeat does not change.
fn is_final(code: Code) -> bool {
    matches!(code, Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL)
}

#[cfg(test)]
mod tests;
