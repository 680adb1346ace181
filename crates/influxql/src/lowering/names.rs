//! Names of a plan: each is in memory once, however many levels and columns have it.

use std::cell::RefCell;
use std::sync::Arc;

use chronolith_base::hash::HashSet;

/// Names that a plan has so far.
#[derive(Default)]
pub(super) struct Names {
    known: RefCell<HashSet<Arc<str>>>,
}

impl Names {
    /// The shared form of a name.
    pub(super) fn shared(&self, name: &str) -> Arc<str> {
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = Arc::from(name);
        known.insert(shared.clone());
        shared
    }
}
