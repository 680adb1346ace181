//! Hedged requests: a read that is slower than the recent p99 is sent a second time; the first good answer
//! wins and the other request is dropped.
//!
//! Invariants: hedges are at most [`HEDGE_PERCENT`] % of reads; no hedge waits for a permit.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};

/// Hedges per 100 reads, in the long run.
pub(crate) const HEDGE_PERCENT: u64 = 5;
/// Hedges that may be sent at once after many fast reads.
const HEDGE_BURST: u64 = 10;

/// Token bucket of hedges, in hundredths of a hedge. It begins empty.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget {
    hundredths: AtomicU64,
}

impl HedgeBudget {
    /// Adds the share of one read.
    pub(crate) fn deposit(&self) {
        let add = |now: u64| Some((now + HEDGE_PERCENT).min(HEDGE_BURST * 100));
        let _ = self.hundredths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Takes one hedge. Returns true if there was one.
    pub(crate) fn withdraw(&self) -> bool {
        let take = |now: u64| now.checked_sub(100);
        self.hundredths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Answer of a race.
pub(crate) struct Raced<T, E> {
    pub(crate) answer: Result<T, E>,
    /// Set if the second request answered first.
    pub(crate) is_hedge: bool,
}

/// Runs `first`; after `delay`, runs what `second` returns as well. If one of two fails, the other decides.
pub(crate) async fn race<T, E, A, B>(
    first: A,
    delay: Duration,
    second: impl FnOnce() -> Option<B>,
) -> Raced<T, E>
where
    A: Future<Output = Result<T, E>>,
    B: Future<Output = Result<T, E>>,
{
    let first = pin!(first);
    let first = match select(first, pin!(tokio::time::sleep(delay))).await {
        Either::Left((answer, _)) => return Raced { answer, is_hedge: false },
        Either::Right(((), first)) => first,
    };
    let Some(second) = second() else {
        return Raced { answer: first.await, is_hedge: false };
    };
    match select(first, pin!(second)).await {
        Either::Left((answer @ Ok(_), _)) => Raced { answer, is_hedge: false },
        Either::Left((Err(_), second)) => Raced { answer: second.await, is_hedge: true },
        Either::Right((answer @ Ok(_), _)) => Raced { answer, is_hedge: true },
        Either::Right((Err(_), first)) => Raced { answer: first.await, is_hedge: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hedges_are_a_twentieth_of_reads() {
        let budget = HedgeBudget::default();
        assert!(!budget.withdraw(), "a new store has no hedges");
        let mut hedges = 0;
        for _ in 0..10_000 {
            budget.deposit();
            hedges += u64::from(budget.withdraw());
        }
        assert_eq!(hedges, 500);
        (0..10_000).for_each(|_| budget.deposit());
        assert_eq!((0..100).filter(|_| budget.withdraw()).count() as u64, HEDGE_BURST);
    }

    async fn after(ms: u64, answer: Result<u8, u8>) -> Result<u8, u8> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        answer
    }

    #[track_caller]
    fn check(
        first: (u64, Result<u8, u8>),
        second: Option<(u64, Result<u8, u8>)>,
        want: (Result<u8, u8>, bool),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let raced =
            runtime.unwrap().block_on(race(after(first.0, first.1), Duration::from_millis(10), || {
                second.map(|(ms, answer)| after(ms, answer))
            }));
        assert_eq!((raced.answer, raced.is_hedge), want);
    }

    #[test]
    fn the_first_good_answer_wins() {
        check((5, Ok(1)), Some((0, Ok(2))), (Ok(1), false));
        check((5, Err(1)), Some((0, Ok(2))), (Err(1), false));
        check((2000, Ok(1)), Some((5, Ok(2))), (Ok(2), true));
        check((12, Ok(1)), Some((5, Ok(2))), (Ok(1), false));
        check((20, Ok(1)), Some((5, Err(2))), (Ok(1), false));
        check((12, Err(1)), Some((5, Ok(2))), (Ok(2), true));
        check((2000, Ok(1)), None, (Ok(1), false));
    }
}
