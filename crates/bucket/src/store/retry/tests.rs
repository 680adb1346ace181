//! Table of failures and their classification; backoff and budget.

use super::*;

fn generic(source: impl StdError + Send + Sync + 'static) -> Failure {
    Failure::Store(object_store::Error::Generic { store: "test", source: Box::new(source) })
}

fn status(status: u16) -> Failure {
    // As a remote store reports it: the status is the cause of a transport error.
    generic(HttpError::new(HttpErrorKind::Unknown, StatusError { status, body: String::new() }))
}

fn transport(kind: HttpErrorKind) -> Failure {
    generic(HttpError::new(kind, io::Error::other("test")))
}

#[track_caller]
fn check(failure: Failure, outcome: Outcome, retried_get: bool, retried_create: bool) {
    let found = classify(&failure);
    assert_eq!(found, outcome, "{failure}");
    assert_eq!(found.is_retryable(Operation::Get), retried_get, "get: {failure}");
    assert_eq!(found.is_retryable(Operation::Create), retried_create, "create: {failure}");
}

#[test]
fn failures_are_classified() {
    for code in [429, 503] {
        check(status(code), Outcome::Throttled, true, true);
    }
    for code in [408, 500, 502, 504, 507] {
        check(status(code), Outcome::ServerError, true, true);
    }
    for code in [400, 405, 411] {
        check(status(code), Outcome::Refused, false, false);
    }
    check(status(416), Outcome::Mismatch, false, false);
    check(transport(HttpErrorKind::Timeout), Outcome::Timeout, true, true);
    for kind in [HttpErrorKind::Connect, HttpErrorKind::Request, HttpErrorKind::Interrupted] {
        check(transport(kind), Outcome::Network, true, true);
    }
    check(transport(HttpErrorKind::Decode), Outcome::Network, true, true);
    check(generic(io::Error::from(io::ErrorKind::ConnectionReset)), Outcome::Network, true, true);
    check(generic(io::Error::from(io::ErrorKind::StorageFull)), Outcome::Refused, false, false);
    check(generic(io::Error::from(io::ErrorKind::PermissionDenied)), Outcome::Denied, false, false);
    check(Failure::Timeout(Duration::from_secs(1)), Outcome::Timeout, true, true);
    check(Failure::CutBody { expected_bytes: 9, found_bytes: 1 }, Outcome::Network, true, true);
    let size = Failure::Size { what: "range", expected_bytes: 9, found_bytes: 1 };
    check(size, Outcome::Mismatch, false, false);
    check(Failure::Deadline, Outcome::Deadline, false, false);
}

#[test]
fn kinds_of_the_library_are_classified() {
    type Make = fn(String, Box<dyn StdError + Send + Sync>) -> object_store::Error;
    let table: [(Make, Outcome, bool); 6] = [
        (|path, source| object_store::Error::NotFound { path, source }, Outcome::NotFound, false),
        (|path, source| object_store::Error::AlreadyExists { path, source }, Outcome::Exists, true),
        (|path, source| object_store::Error::Precondition { path, source }, Outcome::Changed, false),
        (|path, source| object_store::Error::NotModified { path, source }, Outcome::Changed, false),
        (|path, source| object_store::Error::PermissionDenied { path, source }, Outcome::Denied, false),
        (|path, source| object_store::Error::Unauthenticated { path, source }, Outcome::Denied, false),
    ];
    for (make, outcome, retried_create) in table {
        let failure = Failure::Store(make("key".to_owned(), "test".into()));
        check(failure, outcome, false, retried_create);
    }
}

#[test]
fn backoff_grows_to_its_limit_and_differs_between_callers() {
    let rng = Rng::from_seed(7);
    for attempts in 1..40 {
        let limit = BACKOFF_FIRST.saturating_mul(1 << (attempts - 1).min(16)).min(BACKOFF_MAX);
        let pause = backoff(attempts, BACKOFF_MAX, &rng);
        assert!(pause >= limit / 2 && pause <= limit, "attempt {attempts}: {pause:?} of {limit:?}");
    }
    assert_ne!(backoff(8, BACKOFF_MAX, &rng), backoff(8, BACKOFF_MAX, &rng));
}

#[test]
fn retries_are_a_fifth_of_requests_when_all_fail() {
    let budget = RetryBudget::new();
    let mut retries = 0;
    for _ in 0..10_000 {
        budget.deposit();
        for _ in 1..ATTEMPTS_MAX {
            if !budget.withdraw() {
                break;
            }
            retries += 1;
        }
    }
    assert!((2000..=2000 + RETRY_BURST).contains(&retries), "{retries} retries of 10,000 requests");
}
