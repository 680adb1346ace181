//! Sender of a write, and the log lines about what was refused of it: with the series, the time of the sample
//! and the client's address.
//! Not here: how many lines (`reject_log`), metrics, texts of answers.

use axum::extract::Request;
use chronolith_model::TenantId;

use super::written::Written;
use crate::app::App;
use crate::http::error::ApiError;
use crate::http::request::RequestInfo;
use crate::http::tenant::tenant_of;

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
            let reason = kind.reason();
            let error = kind.message();
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
        let status = refused.kind.status().as_u16();
        let error = refused.message.as_str();
        tracing::warn!(request_id, remote, tenant, reason, status, suppressed, error, "remote write refused");
    }

    fn admit(&self, app: &App, reason: &'static str, count: u64) -> Option<u64> {
        app.writes.reject_log.admit(app.env.clock.mono_ns(), reason, self.tenant.as_ref(), count)
    }

    /// Id of the request, address of the client, tenant.
    fn fields(&self) -> (String, String, &str) {
        let tenant = self.tenant.as_ref().map_or("", TenantId::as_str);
        (self.info.id.to_string(), self.info.remote_text(), tenant)
    }
}
