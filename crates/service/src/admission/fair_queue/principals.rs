//! Waiting requests of one tenant: a FIFO per principal, served in turn (round robin). A paused request of a
//! principal is served before its requests that have not run yet, so that no more are begun than needed.
//!
//! Invariants: `len` is the number of waiters that have not run; a principal has a queue, and one turn, while
//! it has a waiter or a paused request.

use std::collections::VecDeque;
use std::sync::Arc;

use chronolith_base::hash::{HashMap, hash_bytes};

/// Waiting requests of a tenant, each with an id that ascends in order of arrival.
pub(super) struct PrincipalQueues<W> {
    by_name: HashMap<Arc<str>, PrincipalQueue<W>>,
    /// Principals, the next one first.
    turns: VecDeque<Arc<str>>,
    len: usize,
}

struct PrincipalQueue<W> {
    paused: VecDeque<(u64, W)>,
    waiting: VecDeque<(u64, W)>,
}

impl<W> Default for PrincipalQueue<W> {
    fn default() -> PrincipalQueue<W> {
        PrincipalQueue { paused: VecDeque::new(), waiting: VecDeque::new() }
    }
}

impl<W> PrincipalQueue<W> {
    fn is_empty(&self) -> bool {
        self.paused.is_empty() && self.waiting.is_empty()
    }
}

impl<W> Default for PrincipalQueues<W> {
    fn default() -> PrincipalQueues<W> {
        PrincipalQueues { by_name: HashMap::default(), turns: VecDeque::new(), len: 0 }
    }
}

impl<W> PrincipalQueues<W> {
    /// Number of waiting requests, without paused ones.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is neither a waiting nor a paused request.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Number of waiting requests of `principal`, without paused ones.
    pub(super) fn len_of(&self, principal: &str) -> usize {
        self.by_name.get(principal).map_or(0, |queue| queue.waiting.len())
    }

    pub(super) fn push(&mut self, principal: &str, id: u64, waiter: W) {
        self.len += 1;
        self.queue_of(principal).waiting.push_back((id, waiter));
    }

    /// Adds a request that has run; it goes on before requests of its principal that have not. The principal
    /// comes after all others.
    pub(super) fn push_paused(&mut self, principal: &str, id: u64, waiter: W) {
        self.queue_of(principal).paused.push_back((id, waiter));
        if let Some(at) = self.turns.iter().position(|turn| **turn == *principal)
            && let Some(turn) = self.turns.remove(at)
        {
            self.turns.push_back(turn);
        }
    }

    fn queue_of(&mut self, principal: &str) -> &mut PrincipalQueue<W> {
        let name: Arc<str> = principal.into();
        if !self.by_name.contains_key(principal) {
            self.turns.push_back(name.clone());
        }
        self.by_name.entry(name).or_default()
    }

    /// Takes the next request of the next principal.
    pub(super) fn pop(&mut self) -> Option<(Arc<str>, W)> {
        self.pop_first(|_| true)
    }

    /// Takes the next request of the first principal, in order of turns, for which `may_run` holds.
    pub(super) fn pop_first(&mut self, may_run: impl Fn(&str) -> bool) -> Option<(Arc<str>, W)> {
        let at = self.turns.iter().position(|name| may_run(name))?;
        let name = self.turns.remove(at)?;
        let queue = self.by_name.get_mut(&name)?;
        let (_, waiter) = match queue.paused.pop_front() {
            Some(paused) => paused,
            None => {
                self.len -= 1;
                queue.waiting.pop_front()?
            }
        };
        if queue.is_empty() {
            self.by_name.remove(&name);
        } else {
            self.turns.push_back(name.clone());
        }
        Some((name, waiter))
    }

    /// Returns the request that [`PrincipalQueues::pop_first`] takes.
    pub(super) fn first(&self, may_run: impl Fn(&str) -> bool) -> Option<&W> {
        let name = self.turns.iter().find(|name| may_run(name))?;
        let queue = self.by_name.get(name)?;
        queue.paused.front().or_else(|| queue.waiting.front()).map(|(_, waiter)| waiter)
    }

    /// Takes the request `id` of `principal` out of the queue; `None` if it does not wait.
    pub(super) fn remove(&mut self, principal: &str, id: u64) -> Option<W> {
        let queue = self.by_name.get_mut(principal)?;
        let removed = match queue.waiting.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => {
                self.len -= 1;
                queue.waiting.remove(at)
            }
            Err(_) => {
                let at = queue.paused.iter().position(|(paused, _)| *paused == id)?;
                queue.paused.remove(at)
            }
        };
        self.forget_if_empty(principal);
        removed.map(|(_, waiter)| waiter)
    }

    /// Takes the newest request of the principal with the longest queue, if that has at least `len_min`
    /// requests that have not run. Cost: one look at each principal.
    pub(super) fn pop_newest_of_longest(&mut self, len_min: usize) -> Option<W> {
        let longest = self.by_name.iter_mut().max_by_key(|(_, queue)| queue.waiting.len());
        let (name, queue) = longest.filter(|(_, queue)| queue.waiting.len() >= len_min)?;
        let name = name.clone();
        let (_, waiter) = queue.waiting.pop_back()?;
        self.len -= 1;
        self.forget_if_empty(&name);
        Some(waiter)
    }

    fn forget_if_empty(&mut self, principal: &str) {
        if self.by_name.get(principal).is_some_and(PrincipalQueue::is_empty) {
            self.by_name.remove(principal);
            self.turns.retain(|turn| **turn != *principal);
        }
    }
}

/// Hash of the name of a principal: two names with equal hashes count as one principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrincipalHash(u64);

impl PrincipalHash {
    pub(super) fn of(principal: &str) -> PrincipalHash {
        PrincipalHash(hash_bytes(principal.as_bytes()))
    }
}

/// Numbers of running requests of a tenant by principal; as many entries as requests at most.
#[derive(Default)]
pub(super) struct RunningCounts(Vec<(PrincipalHash, usize)>);

impl RunningCounts {
    pub(super) fn of(&self, principal: PrincipalHash) -> usize {
        self.0.iter().find(|(known, _)| *known == principal).map_or(0, |(_, count)| *count)
    }

    pub(super) fn add(&mut self, principal: PrincipalHash) {
        match self.0.iter_mut().find(|(known, _)| *known == principal) {
            Some((_, count)) => *count += 1,
            None => self.0.push((principal, 1)),
        }
    }

    pub(super) fn remove(&mut self, principal: PrincipalHash) {
        let Some(at) = self.0.iter().position(|(known, _)| *known == principal) else { return };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
    }
}
