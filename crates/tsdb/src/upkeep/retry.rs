//! Windows that could not be cut to a block: when each is tried again.
//! Holds: one that fails every time is tried after pauses that double up to an hour, and no other waits for it.
//! Not here: cutting (`upkeep`).

use std::collections::BTreeMap;

use chronolith_model::{TenantId, TimeRange};

/// After the first failure in a row the next try waits this long, then twice as long each time.
const PAUSE_FIRST_MS: i64 = 10_000;
const PAUSE_LAST_MS: i64 = 3_600_000;

/// A window, or several neighbours that are cut together.
pub(crate) type TenantRange = (TenantId, TimeRange);

struct Retry {
    due_ms: i64,
    pause_ms: i64,
}

/// Windows whose last try failed.
#[derive(Default)]
pub(crate) struct Retries(BTreeMap<TenantRange, Retry>);

impl Retries {
    /// Takes those that have to wait out of `ranges`, which are all that could be cut, and forgets about others.
    pub(crate) fn keep_due(&mut self, ranges: &mut Vec<TenantRange>, now_ms: i64) {
        self.0.retain(|range, _| ranges.binary_search(range).is_ok());
        ranges.retain(|range| {
            // A clock that was set back must not make a window wait for long.
            let is_due = |r: &Retry| now_ms >= r.due_ms || r.due_ms > now_ms.saturating_add(PAUSE_LAST_MS);
            self.0.get(range).is_none_or(is_due)
        });
    }

    /// Notes a failure at `now_ms`; gives how long the window waits.
    pub(crate) fn fail(&mut self, range: TenantRange, now_ms: i64) -> i64 {
        let retry = self.0.entry(range).or_insert(Retry { due_ms: 0, pause_ms: 0 });
        retry.pause_ms = retry.pause_ms.saturating_mul(2).clamp(PAUSE_FIRST_MS, PAUSE_LAST_MS);
        retry.due_ms = now_ms.saturating_add(retry.pause_ms);
        retry.pause_ms
    }

    /// Notes a success.
    pub(crate) fn succeed(&mut self, range: &TenantRange) {
        self.0.remove(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_end_with_a_success() {
        let range = |start| (TenantId::anonymous(), TimeRange { start, end: start + 10 });
        let all = vec![range(0), range(10)];
        let mut retries = Retries::default();
        let mut tries = Vec::new();
        for now_ms in (0..10_800_000).step_by(10_000) {
            let mut due = all.clone();
            retries.keep_due(&mut due, now_ms);
            assert!(due.contains(&all[1]), "the other window never waits");
            if due.contains(&all[0]) {
                tries.push(now_ms / 1000);
                retries.fail(all[0].clone(), now_ms);
            }
        }
        assert_eq!(tries, [0, 10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 8710]);
        let mut due = all.clone();
        retries.keep_due(&mut due, 0);
        assert_eq!(due, all, "the clock was set back");
        retries.succeed(&all[0]);
        let mut due = all.clone();
        retries.keep_due(&mut due, 8_720_000);
        assert_eq!(due, all);
    }

    #[test]
    fn windows_that_are_gone_are_forgotten() {
        let range = (TenantId::anonymous(), TimeRange { start: 0, end: 10 });
        let mut retries = Retries::default();
        retries.fail(range.clone(), 0);
        retries.keep_due(&mut Vec::new(), 1);
        assert!(retries.0.is_empty());
        assert_eq!(retries.fail(range, 2), PAUSE_FIRST_MS);
    }
}
