//! Transport of calls to another node.
//!
//! Not here: implementations, which are the business of servers and tests.

use chronolith_model::{QueryError, ReadContext};

/// Way to send calls to one node.
pub trait PeerTransport: Send + Sync {
    /// Name of the node in errors and warnings.
    fn node(&self) -> &str;

    /// Sends a call and returns at once. The work ends when the stream is dropped, and with the time that
    /// `ctx` has for sources.
    fn send(&self, call: Vec<u8>, ctx: &ReadContext) -> Box<dyn PeerStream>;
}

/// Bytes of an answer as they arrive.
pub trait PeerStream: Send {
    /// Waits for further bytes; `None` after the last ones.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] without the name of the node; as [`ReadContext::check_source`].
    fn next_bytes(&mut self, ctx: &ReadContext) -> Result<Option<Vec<u8>>, QueryError>;

    /// Returns true after an error of [`PeerStream::next_bytes`] if the node refuses the catalogue of the
    /// call as too old.
    fn is_stale(&self) -> bool {
        false
    }
}
