//! Retries: classification of failures, exponential backoff with full jitter, retry budget (token bucket).
//!
//! Invariants: [`Outcome::is_retryable`] is the only place that decides; retries are at most
//! [`RETRY_PERCENT`] % of requests, plus a small burst, when all fail.
//! Not here: deadlines and the loop (`store::attempts`).

use std::error::Error as StdError;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Rng;
use object_store::client::{HttpError, HttpErrorKind};

use super::http::StatusError;
use super::request::Operation;

/// Retries per 100 requests, in the long run.
pub const RETRY_PERCENT: u64 = 20;
/// Retries that a quiet store may make at once.
const RETRY_BURST: u64 = 20;
/// Attempts of one request, the first included.
pub(crate) const ATTEMPTS_MAX: u32 = 10;
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
/// Longest backoff of a bucket.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Failure of one attempt.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Error of the storage or of its client.
    Store(object_store::Error),
    /// The body ended early, or did not end where it should.
    CutBody {
        /// Bytes that the answer promised.
        expected_bytes: u64,
        /// Bytes that came.
        found_bytes: u64,
    },
    /// The object is shorter than the range, or larger than the reader allows.
    Size { what: &'static str, expected_bytes: u64, found_bytes: u64 },
    /// A listing has a key that is not below its prefix.
    ForeignKey { prefix: String, key: String },
    /// No answer within the request timeout.
    Timeout(Duration),
    /// The deadline of the context passed.
    Deadline,
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Failure {
        Failure::Store(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Store(error) => write!(f, "{error}"),
            Failure::CutBody { expected_bytes, found_bytes } => {
                write!(f, "body cut: expected {expected_bytes} bytes, found {found_bytes}")
            }
            Failure::Size { what, expected_bytes, found_bytes } => {
                write!(f, "{what}: expected {expected_bytes} bytes, found {found_bytes}")
            }
            Failure::ForeignKey { prefix, key } => {
                write!(f, "key of a listing: expected one below {prefix}, found {key}")
            }
            Failure::Timeout(after) => write!(f, "no answer within {} ms", after.as_millis()),
            Failure::Deadline => f.write_str("deadline passed"),
        }
    }
}

/// Result of one attempt, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// Success.
    Ok,
    /// No such object.
    NotFound,
    /// Status 401 or 403.
    Denied,
    /// The object exists, or two creations conflict (409, 412 of a creation).
    Exists,
    /// Another ETag than expected.
    Changed,
    /// Status 429 or 503: fewer requests, please.
    Throttled,
    /// Status 408, 500, 502, 504 and other 5xx.
    ServerError,
    /// No answer within the request timeout.
    Timeout,
    /// No connection, connection reset, body cut.
    Network,
    /// Size of the object does not match the request.
    Mismatch,
    /// Any other refusal.
    Refused,
    /// The deadline passed.
    Deadline,
    /// The caller dropped the request.
    Canceled,
}

impl Outcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Outcome; 13] = [
        Outcome::Ok,
        Outcome::NotFound,
        Outcome::Denied,
        Outcome::Exists,
        Outcome::Changed,
        Outcome::Throttled,
        Outcome::ServerError,
        Outcome::Timeout,
        Outcome::Network,
        Outcome::Mismatch,
        Outcome::Refused,
        Outcome::Deadline,
        Outcome::Canceled,
    ];

    /// Label value in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::NotFound => "not_found",
            Outcome::Denied => "denied",
            Outcome::Exists => "exists",
            Outcome::Changed => "changed",
            Outcome::Throttled => "throttled",
            Outcome::ServerError => "server_error",
            Outcome::Timeout => "timeout",
            Outcome::Network => "network",
            Outcome::Mismatch => "mismatch",
            Outcome::Refused => "refused",
            Outcome::Deadline => "deadline",
            Outcome::Canceled => "canceled",
        }
    }

    pub(crate) fn idx(self) -> usize {
        self as usize
    }

    /// Returns true if another attempt may succeed. `Exists` under [`Operation::Create`] is settled by
    /// reading the object back first.
    #[must_use]
    pub fn is_retryable(self, operation: Operation) -> bool {
        match self {
            Outcome::Throttled | Outcome::ServerError | Outcome::Timeout | Outcome::Network => true,
            // 409: another request on the same key is in progress.
            Outcome::Exists => matches!(operation, Operation::Create | Operation::Put | Operation::Multipart),
            Outcome::Ok
            | Outcome::NotFound
            | Outcome::Denied
            | Outcome::Changed
            | Outcome::Mismatch
            | Outcome::Refused
            | Outcome::Deadline
            | Outcome::Canceled => false,
        }
    }
}

/// Outcome of a failed attempt.
pub(crate) fn classify(failure: &Failure) -> Outcome {
    match failure {
        Failure::Store(error) => classify_store(error),
        Failure::CutBody { .. } | Failure::ForeignKey { .. } => Outcome::Network,
        Failure::Size { .. } => Outcome::Mismatch,
        Failure::Timeout(_) => Outcome::Timeout,
        Failure::Deadline => Outcome::Deadline,
    }
}

fn classify_store(error: &object_store::Error) -> Outcome {
    use object_store::Error;
    match error {
        Error::NotFound { .. } => Outcome::NotFound,
        Error::AlreadyExists { .. } => Outcome::Exists,
        Error::Precondition { .. } | Error::NotModified { .. } => Outcome::Changed,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Outcome::Denied,
        Error::JoinError { .. } => Outcome::Canceled,
        Error::Generic { source, .. } => classify_source(source.as_ref()),
        _ => Outcome::Refused,
    }
}

/// Looks for a status, a transport error or an I/O error among the causes.
fn classify_source(error: &(dyn StdError + 'static)) -> Outcome {
    let mut transport = None;
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<StatusError>() {
            return classify_status(error.status);
        }
        if let Some(error) = error.downcast_ref::<HttpError>() {
            transport = Some(classify_transport(error.kind()));
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            transport = transport.or(Some(classify_io(error.kind())));
        }
        cause = error.source();
    }
    transport.unwrap_or_else(|| classify_text(&error.to_string()))
}

/// S3 reports some failures of a completed multipart upload in the body of a status 200.
fn classify_text(message: &str) -> Outcome {
    if message.contains("SlowDown") {
        Outcome::Throttled
    } else if message.contains("InternalError") {
        Outcome::ServerError
    } else {
        Outcome::Refused
    }
}

fn classify_status(status: u16) -> Outcome {
    match status {
        429 | 503 => Outcome::Throttled,
        408 | 500..=599 => Outcome::ServerError,
        // The range begins after the end of the object.
        416 => Outcome::Mismatch,
        _ => Outcome::Refused,
    }
}

fn classify_transport(kind: HttpErrorKind) -> Outcome {
    match kind {
        HttpErrorKind::Timeout => Outcome::Timeout,
        _ => Outcome::Network,
    }
}

fn classify_io(kind: io::ErrorKind) -> Outcome {
    match kind {
        io::ErrorKind::PermissionDenied => Outcome::Denied,
        io::ErrorKind::TimedOut => Outcome::Timeout,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::Interrupted
        | io::ErrorKind::UnexpectedEof => Outcome::Network,
        _ => Outcome::Refused,
    }
}

/// Backoff before attempt `attempts` + 1: a random part of an exponentially growing limit of at most `max`,
/// at least half.
pub(crate) fn backoff(attempts: u32, max: Duration, rng: &Rng) -> Duration {
    let doubled = BACKOFF_FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let limit_us = u64::try_from(doubled.min(max).as_micros()).unwrap_or(u64::MAX);
    let half_us = limit_us / 2;
    Duration::from_micros(half_us + rng.below(half_us + 1))
}

/// Token bucket of retries, in hundredths of a retry.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    hundredths: AtomicU64,
}

impl RetryBudget {
    /// A full budget.
    pub(crate) fn new() -> RetryBudget {
        RetryBudget { hundredths: AtomicU64::new(RETRY_BURST * 100) }
    }

    /// Adds the share of one first attempt.
    pub(crate) fn deposit(&self) {
        let add = |now: u64| Some((now + RETRY_PERCENT).min(RETRY_BURST * 100));
        let _ = self.hundredths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Takes one retry. Returns true if there was one.
    pub(crate) fn withdraw(&self) -> bool {
        let take = |now: u64| now.checked_sub(100);
        self.hundredths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests;
