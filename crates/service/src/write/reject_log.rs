//! Rate limit of the log of refused writes: one line per reason, tenant and [`LINE_EVERY_NS`]. Repeats within
//! that time are counted, and the next line of that reason and tenant has their count.
//! Invariants: at most [`KEY_COUNT_MAX`] pairs of reason and tenant have lines of their own; all other
//! tenants share one line per reason.
//! Not here: the lines (`server`).

use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use parking_lot::Mutex;

/// Time from one line to the next of the same reason and tenant.
const LINE_EVERY_NS: u64 = 10_000_000_000;
/// Pairs of reason and tenant.
const KEY_COUNT_MAX: usize = 1024;

/// Reason and tenant; `None` stands for all tenants beyond the limit, and for requests without one.
type Key = (&'static str, Option<TenantId>);

#[derive(Default)]
struct Line {
    /// Time from which the next line may be written.
    due_ns: u64,
    suppressed: u64,
}

/// The last log line per reason and tenant.
#[derive(Default)]
pub struct RejectLog {
    lines: Mutex<HashMap<Key, Line>>,
}

impl RejectLog {
    /// Notes `count` refused samples. Returns how many were left out since the last line if it is time for
    /// another.
    pub fn admit(
        &self,
        now_ns: u64,
        reason: &'static str,
        tenant: Option<&TenantId>,
        count: u64,
    ) -> Option<u64> {
        let mut lines = self.lines.lock();
        let mut key = (reason, tenant.cloned());
        if lines.len() >= KEY_COUNT_MAX && !lines.contains_key(&key) {
            lines.retain(|_, line| line.due_ns > now_ns);
            if lines.len() >= KEY_COUNT_MAX {
                key.1 = None;
            }
        }
        let line = lines.entry(key).or_default();
        if now_ns < line.due_ns {
            line.suppressed += count;
            return None;
        }
        line.due_ns = now_ns.saturating_add(LINE_EVERY_NS);
        Some(std::mem::take(&mut line.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_reason_tenant_and_ten_seconds() {
        let log = RejectLog::default();
        let (a, b) = (TenantId::anonymous(), TenantId::new("b").expect("valid"));
        assert_eq!(log.admit(0, "too_old", Some(&a), 5), Some(0));
        assert_eq!(log.admit(1, "too_old", Some(&a), 7), None);
        assert_eq!(log.admit(2, "too_old", Some(&b), 1), Some(0));
        assert_eq!(log.admit(3, "out_of_bounds", Some(&a), 1), Some(0));
        assert_eq!(log.admit(4, "too_old", Some(&a), 1), None);
        assert_eq!(log.admit(LINE_EVERY_NS, "too_old", Some(&a), 1), Some(8));
        assert_eq!(log.admit(2 * LINE_EVERY_NS, "too_old", Some(&a), 1), Some(0));
    }

    #[test]
    fn many_tenants_share_lines() {
        let log = RejectLog::default();
        let tenants = (0..2 * KEY_COUNT_MAX).map(|i| TenantId::new(&format!("t{i}")).expect("valid"));
        let lines = tenants.filter_map(|tenant| log.admit(1, "too_old", Some(&tenant), 1)).count();
        assert_eq!(lines, KEY_COUNT_MAX + 1);
        assert_eq!(log.lines.lock().len(), KEY_COUNT_MAX + 1);
        assert_eq!(log.admit(2 * LINE_EVERY_NS, "too_old", Some(&TenantId::anonymous()), 1), Some(0));
        assert!(log.lines.lock().len() <= KEY_COUNT_MAX, "lines that are due again make room");
    }
}
