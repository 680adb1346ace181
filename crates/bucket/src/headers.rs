//! Memory of index headers: the least recently used ones are dropped beyond a budget.
//!
//! Invariant: headers without readers have at most `bytes_max` bytes, or one header alone has more.
//! Not here: reading a header (`block`).

use std::sync::{Arc, Weak};

use chronolith_base::hash::HashMap;
use parking_lot::Mutex;

/// Owner of a header.
pub(crate) trait HeaderOwner: Send + Sync {
    /// Drops the header; readers keep it.
    fn drop_header(&self);
}

/// Budget of the headers of all blocks.
pub(crate) struct HeaderBudget {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the address of the owner.
    headers: HashMap<usize, Header>,
    bytes: u64,
    /// Ascends with each use of any header.
    use_count: u64,
}

struct Header {
    owner: Weak<dyn HeaderOwner>,
    bytes: u64,
    last_use: u64,
}

impl HeaderBudget {
    pub(crate) fn new(bytes_max: u64) -> HeaderBudget {
        HeaderBudget { bytes_max, state: Mutex::default() }
    }

    /// Records the header of `owner`; drops others if it does not fit.
    pub(crate) fn add<T: HeaderOwner + 'static>(&self, owner: &Arc<T>, bytes: u64) {
        let weak: Weak<T> = Arc::downgrade(owner);
        let mut state = self.state.lock();
        state.use_count += 1;
        let header = Header { owner: weak, bytes, last_use: state.use_count };
        state.bytes += bytes;
        if let Some(old) = state.headers.insert(key_of(&**owner), header) {
            state.bytes -= old.bytes;
        }
        let mut dropped = Vec::new();
        while state.bytes > self.bytes_max && state.headers.len() > 1 {
            let oldest = state.headers.iter().min_by_key(|(_, header)| header.last_use).map(|(key, _)| *key);
            let Some(header) = oldest.and_then(|key| state.headers.remove(&key)) else { break };
            state.bytes -= header.bytes;
            dropped.extend(header.owner.upgrade());
        }
        drop(state);
        dropped.iter().for_each(|owner| owner.drop_header());
    }

    /// Records a use of the header of `owner`.
    pub(crate) fn note_use<T: HeaderOwner>(&self, owner: &T) {
        let mut state = self.state.lock();
        state.use_count += 1;
        let last_use = state.use_count;
        if let Some(header) = state.headers.get_mut(&key_of(owner)) {
            header.last_use = last_use;
        }
    }

    /// Forgets the header of an owner that is dropped.
    pub(crate) fn remove<T: HeaderOwner>(&self, owner: &T) {
        let mut state = self.state.lock();
        if let Some(header) = state.headers.remove(&key_of(owner)) {
            state.bytes -= header.bytes;
        }
    }

    /// Number of headers in memory, and their bytes.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.headers.len(), state.bytes)
    }
}

fn key_of<T: HeaderOwner>(owner: &T) -> usize {
    std::ptr::from_ref(owner).addr()
}
