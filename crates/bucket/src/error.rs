//! Errors of the bucket, by the reaction of a caller.
//! Not here: outcomes of single attempts (`store::retry`).

/// Reason why an operation on the bucket failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// No object has this key.
    #[error("object {key} not found in the bucket")]
    NotFound {
        /// Key below the prefix of the bucket.
        key: String,
    },
    /// Status 401 or 403: credentials are missing or lack a right. Trying again does not help.
    #[error("access to {key} denied: {detail}")]
    Denied {
        /// Key below the prefix of the bucket.
        key: String,
        /// Answer of the server.
        detail: String,
    },
    /// The storage did not answer usefully. A later call may succeed. A write may have taken effect.
    #[error("bucket unavailable: {what} failed after {attempts} attempts, last error: {last}")]
    Unavailable {
        /// Operation and key.
        what: String,
        /// Requests that were sent or tried.
        attempts: u32,
        /// Error of the last attempt.
        last: String,
    },
    /// The object has another ETag than the caller expects.
    #[error("object {key} changed while it was read")]
    Changed {
        /// Key below the prefix of the bucket.
        key: String,
    },
    /// The object is not as the caller described it, for example shorter than the range.
    #[error("object {key} is corrupt: {what}, expected {expected}, found {found}")]
    Corrupt {
        /// Key below the prefix of the bucket.
        key: String,
        /// Property that does not match.
        what: &'static str,
        /// Expected value.
        expected: String,
        /// Value of the object.
        found: String,
    },
    /// A setting, a URL or a key is not valid.
    #[error("{setting}: expected {expected}, found {found}")]
    Config {
        /// Name of the setting.
        setting: &'static str,
        /// Valid values.
        expected: String,
        /// Value given.
        found: String,
    },
    /// The deadline of the request passed. A write may have taken effect.
    #[error("deadline passed during {what}")]
    Deadline {
        /// Operation and key.
        what: String,
    },
    /// The runtime is shutting down.
    #[error("{what} canceled")]
    Canceled {
        /// Operation and key.
        what: String,
    },
    /// The storage refused the request for a reason that another attempt does not change.
    #[error("bucket refused {what}: {detail}")]
    Refused {
        /// Operation and key.
        what: String,
        /// Answer of the storage.
        detail: String,
    },
    /// The local file to upload cannot be read.
    #[error("reading the file to upload as {key}: {detail}")]
    SourceFile {
        /// Key below the prefix of the bucket.
        key: String,
        /// Error of the disk.
        detail: String,
    },
}
