//! Refusals of calls whose caller reads blocks of an old catalogue.

use parking_lot::Mutex;

/// Refusal of a call since the number of the catalogue is too old.
#[derive(Default)]
pub(crate) struct StaleCalls(Mutex<Option<String>>);

impl StaleCalls {
    /// Notes the reason of a node.
    pub(crate) fn note(&self, why: String) {
        self.0.lock().get_or_insert(why);
    }

    /// Returns the reason, once.
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}
