//! Single flight: one request at a time, whose result all callers share that waited for it to begin.
//!
//! Invariants: a result is of a request that began after its caller asked for it; one request runs.
//! Not here: the request.

use parking_lot::{Condvar, Mutex};

/// Requests of one kind, numbered from 1 on in the order of their begins.
pub(super) struct SingleFlight<A> {
    state: Mutex<State<A>>,
    ended: Condvar,
}

struct State<A> {
    /// Number of the request that began last.
    begun: u64,
    is_running: bool,
    /// Number and result of the request that ended last.
    ended_with: Option<(u64, A)>,
}

impl<A: Clone> SingleFlight<A> {
    /// Nothing has run yet.
    pub(super) fn new() -> SingleFlight<A> {
        let state = State { begun: 0, is_running: false, ended_with: None };
        SingleFlight { state: Mutex::new(state), ended: Condvar::new() }
    }

    /// Returns the result of a request that begins after this call. Waits for the end of one that runs; then
    /// one of the callers that waited calls `request`, and all of them return its result.
    pub(super) fn run(&self, request: impl FnOnce() -> A) -> A {
        let mut state = self.state.lock();
        let number = state.begun + 1;
        loop {
            if let Some((ended, result)) = &state.ended_with
                && *ended >= number
            {
                return result.clone();
            }
            if !state.is_running {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.begun += 1;
        state.is_running = true;
        let running = Running { of: self, number: state.begun };
        drop(state);
        let result = request();
        running.of.state.lock().ended_with = Some((running.number, result.clone()));
        result
    }
}

/// The request that runs; a panic ends it as well.
struct Running<'a, A> {
    of: &'a SingleFlight<A>,
    number: u64,
}

impl<A> Drop for Running<'_, A> {
    fn drop(&mut self) {
        self.of.state.lock().is_running = false;
        self.of.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
