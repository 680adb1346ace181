//! One request: permit, count, timeout; and the loop that retries it within the deadline.
//!
//! Invariants: no permit is held during a backoff; an attempt ends at the request timeout or at the deadline,
//! whichever is first.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, Rng};

use super::limits::{Limits, Permit};
use super::meter::{Meter, Transfer};
use super::request::{Operation, RequestContext};
use super::retry::{self, ATTEMPTS_MAX, Failure, Outcome, RetryBudget};
use crate::error::BucketError;

/// Value of an answer, with its bytes and time for the meter.
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) transfer: Transfer,
}

impl<T> Answer<T> {
    /// An answer without a body in either direction.
    pub(crate) fn bare(value: T) -> Answer<T> {
        Answer { value, transfer: Transfer::default() }
    }

    /// An answer to a request with a body.
    pub(crate) fn sent(value: T, sent_bytes: usize) -> Answer<T> {
        let transfer = Transfer { sent_bytes: sent_bytes as u64, ..Transfer::default() };
        Answer { value, transfer }
    }
}

/// Sends requests: limits, counters, retries.
pub(crate) struct Requests {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<Rng>,
    pub(crate) meter: Meter,
    pub(crate) limits: Limits,
    pub(crate) budget: RetryBudget,
    pub(crate) request_timeout: Duration,
    /// Longest backoff before an attempt.
    pub(crate) backoff_max: Duration,
}

impl Requests {
    /// Makes attempts until one succeeds, fails for good, or the budget or the deadline ends.
    pub(crate) async fn retried<T, A, F>(
        &self,
        context: &RequestContext,
        operation: Operation,
        key: &str,
        mut attempt: A,
    ) -> Result<T, BucketError>
    where
        A: FnMut() -> F,
        F: Future<Output = Result<T, Failure>>,
    {
        let mut series = self.attempts(operation, key);
        loop {
            match attempt().await {
                Ok(value) => return Ok(value),
                Err(failure) => series.pause(self, context, failure).await?,
            }
        }
    }

    /// Begins the attempts of one operation.
    pub(crate) fn attempts<'k>(&self, operation: Operation, key: &'k str) -> Attempts<'k> {
        self.budget.deposit();
        Attempts { operation, key, count: 0 }
    }

    /// One attempt: waits for a permit, then sends.
    pub(crate) async fn once<T, F>(
        &self,
        context: &RequestContext,
        operation: Operation,
        call: F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Answer<T>, Failure>>,
    {
        let remaining = context.remaining(&*self.clock);
        if remaining.is_zero() {
            return Err(Failure::Deadline);
        }
        let permit = match tokio::time::timeout(remaining, self.limits.acquire(context.tenant())).await {
            Ok(Some(permit)) => permit,
            Ok(None) | Err(_) => return Err(Failure::Deadline),
        };
        self.sent(context, operation, permit, call).await
    }

    /// Sends with a permit, which is held until the answer is complete.
    pub(crate) async fn sent<T, F>(
        &self,
        context: &RequestContext,
        operation: Operation,
        permit: Permit,
        call: F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Answer<T>, Failure>>,
    {
        let record = self.meter.start(operation, context.tenant());
        let remaining = context.remaining(&*self.clock);
        let is_last = remaining <= self.request_timeout;
        let limit = remaining.min(self.request_timeout);
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer,
            Err(_) if is_last => Err(Failure::Deadline),
            Err(_) => Err(Failure::Timeout(limit)),
        };
        drop(permit);
        match answer {
            Ok(answer) => {
                record.finish(Outcome::Ok, answer.transfer);
                Ok(answer.value)
            }
            Err(failure) => {
                record.finish(retry::classify(&failure), Transfer::default());
                Err(failure)
            }
        }
    }
}

/// Attempts of one operation on one key.
pub(crate) struct Attempts<'k> {
    operation: Operation,
    key: &'k str,
    count: u32,
}

impl Attempts<'_> {
    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The failure, if it is final or if budget or deadline allow no further attempt.
    pub(crate) async fn pause(
        &mut self,
        requests: &Requests,
        context: &RequestContext,
        failure: Failure,
    ) -> Result<(), BucketError> {
        self.count += 1;
        let outcome = retry::classify(&failure);
        if !outcome.is_retryable(self.operation) {
            return Err(self.error(&failure));
        }
        let pause = retry::backoff(self.count, requests.backoff_max, &requests.rng);
        let fits = context.remaining(&*requests.clock) > pause;
        if self.count >= ATTEMPTS_MAX || !fits || !requests.budget.withdraw() {
            requests.meter.add_retry_refused();
            return Err(BucketError::Unavailable {
                what: self.what(),
                attempts: self.count,
                last: failure.to_string(),
            });
        }
        requests.meter.add_retry();
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn what(&self) -> String {
        format!("{} {}", self.operation, self.key)
    }

    /// The error of a final failure.
    pub(crate) fn error(&self, failure: &Failure) -> BucketError {
        let key = self.key.to_owned();
        match (retry::classify(failure), failure) {
            (Outcome::NotFound, _) => BucketError::NotFound { key },
            (Outcome::Denied, _) => BucketError::Denied { key, detail: failure.to_string() },
            (Outcome::Changed, _) => BucketError::Changed { key },
            (Outcome::Deadline, _) => BucketError::Deadline { what: self.what() },
            (Outcome::Canceled, _) => BucketError::Canceled { what: self.what() },
            (Outcome::Mismatch, Failure::Size { what, expected_bytes, found_bytes }) => {
                BucketError::Corrupt {
                    key,
                    what,
                    expected: format!("{expected_bytes} bytes"),
                    found: format!("{found_bytes} bytes"),
                }
            }
            (Outcome::Mismatch, _) => BucketError::Corrupt {
                key,
                what: "range",
                expected: "bytes within the object".to_owned(),
                found: failure.to_string(),
            },
            _ => BucketError::Refused { what: self.what(), detail: failure.to_string() },
        }
    }
}
