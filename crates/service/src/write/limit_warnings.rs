//! Warnings in the log for tenants that are near a limit.
//!
//! Invariants: a tenant is checked at most once per [`CHECK_EVERY_MS`], and has at most one line per limit
//! and [`LINE_EVERY_MS`]. At most [`KEY_COUNT_MAX`] pairs of tenant and limit are remembered; further ones
//! have no line until others are due again.
//! Not here: use of the limits (`tsdb`), limits of queries.

use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use chronolith_tsdb::LimitUse;
use parking_lot::Mutex;

/// Time between two checks of a tenant.
pub(crate) const CHECK_EVERY_MS: i64 = 60_000;
/// Time from one line to the next of the same tenant and limit.
const LINE_EVERY_MS: i64 = 3_600_000;
/// Pairs of tenant and limit.
const KEY_COUNT_MAX: usize = 4096;
/// Part of a limit from which it is near, in percent.
const NEAR_PERCENT: u64 = 80;

/// Times of the last lines, by tenant and limit.
#[derive(Default)]
pub(crate) struct LimitWarnings {
    due_ms: Mutex<HashMap<(TenantId, String), i64>>,
}

/// Returns true if the use of a limit is near it or above it.
fn is_near(one: &LimitUse) -> bool {
    let near = |limit: u64| u128::from(one.used) * 100 >= u128::from(limit) * u128::from(NEAR_PERCENT);
    one.limit.is_some_and(|limit| limit > 0 && near(limit))
}

impl LimitWarnings {
    /// Logs the limits that `tenant` is near.
    pub(crate) fn log(&self, tenant: &TenantId, uses: &[LimitUse], now_ms: i64) {
        for one in self.due(tenant, uses, now_ms) {
            tracing::warn!(
                tenant = tenant.as_str(),
                limit = one.setting.unwrap_or(&one.name),
                used = one.used,
                max = one.limit,
                "tenant uses {NEAR_PERCENT} % of a limit or more"
            );
        }
    }

    /// Returns the limits that `tenant` is near and that are due for a line.
    fn due<'a>(&self, tenant: &TenantId, uses: &'a [LimitUse], now_ms: i64) -> Vec<&'a LimitUse> {
        let mut due_ms = self.due_ms.lock();
        let mut is_due = |one: &&LimitUse| {
            let key = (tenant.clone(), one.name.clone());
            // A clock that was set back must not keep it quiet for long.
            let is_later =
                |due_ms: i64| (now_ms..=now_ms.saturating_add(LINE_EVERY_MS)).contains(&(due_ms - 1));
            if due_ms.get(&key).is_some_and(|due_ms| is_later(*due_ms)) {
                return false;
            }
            if due_ms.len() >= KEY_COUNT_MAX && !due_ms.contains_key(&key) {
                due_ms.retain(|_, due_ms| is_later(*due_ms));
                if due_ms.len() >= KEY_COUNT_MAX {
                    return false;
                }
            }
            due_ms.insert(key, now_ms.saturating_add(LINE_EVERY_MS));
            true
        };
        uses.iter().filter(|one| is_near(one)).filter(|one| is_due(one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(name: &str, used: u64) -> LimitUse {
        LimitUse { name: name.to_owned(), setting: None, used, limit: Some(100) }
    }

    fn tenant(idx: usize) -> TenantId {
        TenantId::new(&format!("t{idx}")).expect("valid")
    }

    #[track_caller]
    fn check(warnings: &LimitWarnings, of: usize, uses: &[LimitUse], now_ms: i64, want: &[&str]) {
        let tenant = tenant(of);
        let due = warnings.due(&tenant, uses, now_ms);
        assert_eq!(due.iter().map(|one| &*one.name).collect::<Vec<_>>(), want);
    }

    #[test]
    fn one_line_per_tenant_limit_and_hour_from_80_percent_on() {
        let warnings = LimitWarnings::default();
        let unlimited = LimitUse { limit: None, ..used("c", 1000) };
        let uses = [used("a", 80), used("b", 79), unlimited];
        check(&warnings, 0, &uses, 0, &["a"]);
        check(&warnings, 0, &[used("a", 200), used("b", 81)], 1, &["b"]);
        check(&warnings, 1, &uses, 2, &["a"]);
        check(&warnings, 0, &uses, LINE_EVERY_MS - 1, &[]);
        check(&warnings, 0, &uses, LINE_EVERY_MS, &["a"]);
        // The clock is set back by a day.
        check(&warnings, 0, &uses, LINE_EVERY_MS - 86_400_000, &["a"]);
    }

    #[test]
    fn many_tenants_have_a_bounded_number_of_lines() {
        let warnings = LimitWarnings::default();
        let lines: usize =
            (0..2 * KEY_COUNT_MAX).map(|idx| warnings.due(&tenant(idx), &[used("a", 90)], 0).len()).sum();
        assert_eq!((lines, warnings.due_ms.lock().len()), (KEY_COUNT_MAX, KEY_COUNT_MAX));
        check(&warnings, 2 * KEY_COUNT_MAX, &[used("a", 90)], LINE_EVERY_MS, &["a"]);
    }
}
