//! Waiting requests of one tenant: a FIFO per principal, served in turn (round robin).
//!
//! Invariants: `len` is the number of waiters; a principal has a queue, and one turn, while it has a waiter.

use std::collections::VecDeque;
use std::sync::Arc;

use chronolith_base::hash::HashMap;

/// Waiting requests of a tenant, each with an id that ascends in order of arrival.
pub(super) struct PrincipalQueues<W> {
    by_name: HashMap<Arc<str>, VecDeque<(u64, W)>>,
    /// Principals, the next one first.
    turns: VecDeque<Arc<str>>,
    len: usize,
}

impl<W> Default for PrincipalQueues<W> {
    fn default() -> PrincipalQueues<W> {
        PrincipalQueues { by_name: HashMap::default(), turns: VecDeque::new(), len: 0 }
    }
}

impl<W> PrincipalQueues<W> {
    /// Number of waiting requests.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of waiting requests of `principal`.
    pub(super) fn len_of(&self, principal: &str) -> usize {
        self.by_name.get(principal).map_or(0, VecDeque::len)
    }

    pub(super) fn push(&mut self, principal: &str, id: u64, waiter: W) {
        self.len += 1;
        if let Some(queue) = self.by_name.get_mut(principal) {
            queue.push_back((id, waiter));
            return;
        }
        let name: Arc<str> = principal.into();
        self.turns.push_back(name.clone());
        self.by_name.insert(name, VecDeque::from([(id, waiter)]));
    }

    /// Takes the oldest request of the next principal.
    pub(super) fn pop(&mut self) -> Option<W> {
        let name = self.turns.pop_front()?;
        let queue = self.by_name.get_mut(&name)?;
        let (_, waiter) = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.by_name.remove(&name);
        } else {
            self.turns.push_back(name);
        }
        Some(waiter)
    }

    /// Removes the request `id` of `principal`. Returns false if it does not wait.
    pub(super) fn remove(&mut self, principal: &str, id: u64) -> bool {
        let Some(queue) = self.by_name.get_mut(principal) else { return false };
        let Ok(at) = queue.binary_search_by_key(&id, |(id, _)| *id) else { return false };
        queue.remove(at);
        self.len -= 1;
        self.forget_if_empty(principal);
        true
    }

    /// Takes the newest request of the principal with the longest queue, if that has at least `len_min`
    /// requests. Cost: one look at each principal.
    pub(super) fn pop_newest_of_longest(&mut self, len_min: usize) -> Option<W> {
        let longest = self.by_name.iter_mut().max_by_key(|(_, queue)| queue.len());
        let (name, queue) = longest.filter(|(_, queue)| queue.len() >= len_min)?;
        let name = name.clone();
        let (_, waiter) = queue.pop_back()?;
        self.len -= 1;
        self.forget_if_empty(&name);
        Some(waiter)
    }

    fn forget_if_empty(&mut self, principal: &str) {
        if self.len_of(principal) == 0 {
            self.by_name.remove(principal);
            self.turns.retain(|turn| **turn != *principal);
        }
    }
}
