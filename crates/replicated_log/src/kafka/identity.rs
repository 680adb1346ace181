//! Identity of the topic, and another topic of the same name.
//!
//! Invariant: once another topic was seen, every check ends with [`LogError::TopicReplaced`].
//! Not here: questions to brokers.

use std::sync::OnceLock;

use crate::error::LogError;
use crate::position::TopicId;

/// The topic when the log was opened, and another topic that replaced it.
pub(super) struct Identity {
    topic: String,
    expected: TopicId,
    replaced_by: OnceLock<TopicId>,
}

impl Identity {
    /// Returns the identity of a topic that was just found.
    pub(super) fn new(topic: String, expected: TopicId) -> Identity {
        Identity { topic, expected, replaced_by: OnceLock::new() }
    }

    /// Returns the identity when the log was opened.
    pub(super) fn expected(&self) -> TopicId {
        self.expected
    }

    /// Records the identity that brokers report for the name of the topic.
    pub(super) fn note(&self, found: TopicId) {
        // Brokers that know no ids report zeros.
        if found != self.expected && found.0 != [0; 16] {
            let _ = self.replaced_by.set(found);
        }
    }

    /// Returns the error of a topic that is known to be another one.
    ///
    /// # Errors
    /// [`LogError::TopicReplaced`].
    pub(super) fn check(&self) -> Result<(), LogError> {
        match self.replaced_by.get() {
            None => Ok(()),
            Some(found) => {
                let topic = self.topic.clone();
                Err(LogError::TopicReplaced { topic, expected: self.expected, found: *found })
            }
        }
    }
}
