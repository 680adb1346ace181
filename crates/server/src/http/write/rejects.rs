//! Log of refused writes: one line per reason, tenant and [`LINE_EVERY_NS`], with the series, the time of the
//! sample and the client's address. Repeats within that time are counted, and the next line of that reason
//! and tenant has their count.
//! Holds: at most [`KEY_COUNT_MAX`] pairs of reason and tenant have lines of their own; all others share
//! those of one.
//! Not here: metrics (`metrics`), texts of answers.

use axum::extract::Request;
use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use parking_lot::Mutex;

use super::Written;
use crate::app::App;
use crate::http::error::ApiError;
use crate::http::request::RequestInfo;
use crate::http::tenant::tenant_of;

/// Time from one line to the next of the same reason and tenant.
const LINE_EVERY_NS: u64 = 10_000_000_000;
/// Pairs of reason and tenant.
const KEY_COUNT_MAX: usize = 1024;

/// Reason and tenant; `None` stands for all tenants beyond the limit, and for requests without one.
type Key = (&'static str, Option<TenantId>);

#[derive(Default)]
struct Line {
    /// When the next line may follow.
    due_ns: u64,
    suppressed: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct RejectLog {
    lines: Mutex<HashMap<Key, Line>>,
}

impl RejectLog {
    /// Notes `count` refused samples. Returns how many were left out since the last line if it is time for another.
    fn admit(&self, now_ns: u64, reason: &'static str, tenant: Option<&TenantId>, count: u64) -> Option<u64> {
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

/// Who sent a write.
pub(super) struct Sender {
    /// `None` where the request names none, or a wrong one.
    tenant: Option<TenantId>,
    info: RequestInfo,
}

impl Sender {
    pub(super) fn of(app: &App, request: &Request) -> Sender {
        let tenant = tenant_of(app.options.multitenancy, request.headers()).ok();
        Sender { tenant, info: RequestInfo::of(request.extensions()) }
    }

    /// Logs samples that were refused while the others were stored.
    pub(super) fn log_rejects(&self, app: &App, written: &Written) {
        let outcome = &written.outcome;
        for (kind, series, time_ms) in outcome.first_rejects() {
            let count = outcome.rejected[*kind as usize];
            let Some(suppressed) = self.admit(app, kind.reason(), count) else { continue };
            let (request_id, remote, tenant) = self.fields();
            let (reason, error) = (kind.reason(), kind.message());
            tracing::warn!(
                request_id,
                remote,
                tenant,
                reason,
                series,
                time_ms,
                count,
                suppressed,
                error,
                "samples rejected"
            );
        }
        if let Some(error) = &written.refused.first {
            let refused = &written.refused;
            let count = refused.sample_count + refused.histogram_count + refused.invalid_histogram_count;
            let reason = "malformed";
            let Some(suppressed) = self.admit(app, reason, count) else { return };
            let (request_id, remote, tenant) = self.fields();
            tracing::warn!(request_id, remote, tenant, reason, count, suppressed, error, "samples rejected");
        }
    }

    /// Logs a request of which nothing was stored.
    pub(super) fn log_refusal(&self, app: &App, refused: &ApiError) {
        let reason = refused.kind.error_type();
        let Some(suppressed) = self.admit(app, reason, 1) else { return };
        let (request_id, remote, tenant) = self.fields();
        let (status, error) = (refused.kind.status().as_u16(), refused.message.as_str());
        tracing::warn!(request_id, remote, tenant, reason, status, suppressed, error, "write refused");
    }

    fn admit(&self, app: &App, reason: &'static str, count: u64) -> Option<u64> {
        app.reject_log.admit(app.env.clock.mono_ns(), reason, self.tenant.as_ref(), count)
    }

    /// Id of the request, address of the client, tenant.
    fn fields(&self) -> (String, String, &str) {
        let tenant = self.tenant.as_ref().map_or("", TenantId::as_str);
        (self.info.id.to_string(), self.info.remote_text(), tenant)
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
