//! Times at which an alert is sent again, and until which it is valid, as in Prometheus.

/// Factor of [`valid_until_ms`]: two evaluations or two requests may fail.
const VALIDITY_FACTOR: i64 = 4;

/// Returns true if an alert that is not pending is due: for the first time, since it has been resolved after
/// it was last sent, or since `delay_ms` has gone by.
#[must_use]
pub fn is_due(last_sent_ms: Option<i64>, resolved_at_ms: Option<i64>, now_ms: i64, delay_ms: i64) -> bool {
    let Some(sent_ms) = last_sent_ms else { return true };
    resolved_at_ms.is_some_and(|resolved_ms| resolved_ms > sent_ms)
        || sent_ms.saturating_add(delay_ms) < now_ms
}

/// Returns `endsAt` of an alert that fires: four times the longer of resend delay and interval of the group.
#[must_use]
pub fn valid_until_ms(now_ms: i64, interval_ms: i64, delay_ms: i64) -> i64 {
    now_ms.saturating_add(interval_ms.max(delay_ms).saturating_mul(VALIDITY_FACTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY_MS: i64 = 60_000;

    #[test]
    fn alerts_are_sent_first_when_resolved_and_after_the_delay() {
        for (last_sent, resolved, now, want) in [
            (None, None, 0, true),
            (Some(0), None, 0, false),
            (Some(0), None, DELAY_MS, false),
            (Some(0), None, DELAY_MS + 1, true),
            (Some(10), Some(11), 11, true),
            // A resolved alert is sent again after the delay alone.
            (Some(11), Some(11), 12, false),
            (Some(11), Some(11), 12 + DELAY_MS, true),
        ] {
            assert_eq!(is_due(last_sent, resolved, now, DELAY_MS), want, "{last_sent:?} {resolved:?} {now}");
        }
    }

    #[test]
    fn alerts_are_valid_for_four_of_the_longer_times() {
        assert_eq!(valid_until_ms(1000, 15_000, DELAY_MS), 1000 + 4 * DELAY_MS);
        assert_eq!(valid_until_ms(1000, 300_000, DELAY_MS), 1000 + 1_200_000);
        assert_eq!(valid_until_ms(i64::MAX - 1, 300_000, DELAY_MS), i64::MAX);
    }
}
