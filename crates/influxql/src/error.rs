//! Errors of statements that can be parsed and have no meaning.

/// Reason for refusing a statement; the text is InfluxDB 1.8's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SemanticError {
    message: String,
}

impl SemanticError {
    /// An error with a text.
    #[must_use]
    pub fn new(message: impl Into<String>) -> SemanticError {
        SemanticError { message: message.into() }
    }

    /// The text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}
