//! Answers that callers at the same time share.
//!
//! Invariants: an answer is of a question that began after its caller asked; one question is on its way.
//! Not here: the question.

use parking_lot::{Condvar, Mutex};

/// Questions of one kind, numbered from 1 on in the order of their begins.
pub(super) struct SharedQuestion<A> {
    state: Mutex<State<A>>,
    ended: Condvar,
}

struct State<A> {
    /// Number of the question that began last.
    begun: u64,
    is_running: bool,
    /// Number and answer of the question that ended last.
    answered: Option<(u64, A)>,
}

impl<A: Clone> SharedQuestion<A> {
    /// Returns a question without an answer.
    pub(super) fn new() -> SharedQuestion<A> {
        let state = State { begun: 0, is_running: false, answered: None };
        SharedQuestion { state: Mutex::new(state), ended: Condvar::new() }
    }

    /// Returns the answer of a question that begins after this call. Waits for the end of one that is on its
    /// way; then one caller asks, and all that waited have its answer.
    pub(super) fn ask(&self, question: impl FnOnce() -> A) -> A {
        let mut state = self.state.lock();
        let number = state.begun + 1;
        loop {
            if let Some((answered, answer)) = &state.answered
                && *answered >= number
            {
                return answer.clone();
            }
            if !state.is_running {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.begun += 1;
        state.is_running = true;
        let asked = Asked { of: self, number: state.begun };
        drop(state);
        let answer = question();
        asked.of.state.lock().answered = Some((asked.number, answer.clone()));
        answer
    }
}

/// The question on its way; a panic ends it as well.
struct Asked<'a, A> {
    of: &'a SharedQuestion<A>,
    number: u64,
}

impl<A> Drop for Asked<'_, A> {
    fn drop(&mut self) {
        self.of.state.lock().is_running = false;
        self.of.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
