//! Sender of a write, and the log lines and examples of its refused samples: with the series, the time of the
//! sample and the client's address.
//! Not here: how many lines (`service::write::reject_log`), metrics, texts of answers.

use axum::extract::Request;
use chronolith_model::{ExemplarReject, TenantId, TimeUnit};
use chronolith_service::activity::rejects::{RejectOrigin, WriteSender};

use super::written::Written;
use crate::http::error::ApiError;
use crate::http::request::RequestInfo;
use crate::http::sender::identity_of;
use crate::web::Web;

/// Identity of the client that sent a write.
pub(super) struct Sender {
    /// `None` where the request names none, or a wrong one.
    tenant: Option<TenantId>,
    info: RequestInfo,
    /// As examples of refused samples name it.
    name: WriteSender,
}

impl Sender {
    pub(super) fn of(request: &Request) -> Sender {
        let tenant = identity_of(request.extensions()).ok().map(|identity| identity.tenant().clone());
        let info = RequestInfo::of(request.extensions());
        let name = info.write_sender(request.headers());
        Sender { tenant, info, name }
    }

    /// Records and logs samples that were refused while the others were stored.
    pub(super) fn note_rejects(&self, web: &Web, written: &Written) {
        let refused = &written.refused;
        self.note_dropped(
            web,
            "metadata_invalid_utf8",
            refused.metadata_count,
            refused.metadata_first.as_ref(),
        );
        let invalid =
            [ExemplarReject::InvalidUtf8, ExemplarReject::DuplicateLabel, ExemplarReject::EmptyLabelName];
        let exemplar_count = invalid.into_iter().map(|reason| refused.exemplars.of(reason)).sum();
        self.note_dropped(web, "exemplar_invalid", exemplar_count, refused.exemplar_first.as_ref());
        if written.outcome.rejected_count() == 0 && refused.first.is_none() {
            return;
        }
        let fault = refused.first.as_deref().unwrap_or("");
        web.service.writes.rejects.record_outcome(&written.outcome, TimeUnit::Milli, fault, self.origin(web));
        self.log_rejects(web, written);
    }

    /// Records and logs exemplars or texts of metadata that were dropped; `first` is the first of them.
    fn note_dropped(&self, web: &Web, reason: &'static str, count: u64, first: Option<&String>) {
        let Some(error) = first else { return };
        web.service.writes.rejects.record_text(reason, count, error, self.origin(web));
        let Some(suppressed) = self.admit(web, reason, count) else { return };
        let (request_id, remote, tenant) = self.fields();
        tracing::warn!(
            request_id,
            remote,
            tenant,
            reason,
            count,
            suppressed,
            error,
            "items dropped, samples stored"
        );
    }

    /// Records and logs a request of which nothing was stored; `reason` is the limit that refused it.
    pub(super) fn note_refusal(&self, web: &Web, refused: &ApiError, reason: Option<&'static str>) {
        let reason = reason.unwrap_or_else(|| refused.kind.error_type());
        web.service.writes.rejects.record_text(reason, 1, &refused.message, self.origin(web));
        self.log_refusal(web, refused);
    }

    fn origin(&self, web: &Web) -> RejectOrigin<'_> {
        let now_ms = web.service.env.clock.now_ms();
        RejectOrigin { tenant: self.tenant.as_ref(), sender: &self.name, now_ms }
    }

    /// Logs samples that were refused while the others were stored.
    fn log_rejects(&self, web: &Web, written: &Written) {
        let outcome = &written.outcome;
        for (kind, series, time_ms) in outcome.first_rejects() {
            let count = outcome.rejected[*kind as usize];
            let Some(suppressed) = self.admit(web, kind.reason(), count) else { continue };
            let (request_id, remote, tenant) = self.fields();
            let reason = kind.reason();
            let error = &*outcome.message(*kind);
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
            let Some(suppressed) = self.admit(web, reason, count) else { return };
            let (request_id, remote, tenant) = self.fields();
            tracing::warn!(request_id, remote, tenant, reason, count, suppressed, error, "samples rejected");
        }
    }

    /// Logs a request of which nothing was stored.
    fn log_refusal(&self, web: &Web, refused: &ApiError) {
        let reason = refused.kind.error_type();
        let Some(suppressed) = self.admit(web, reason, 1) else { return };
        let (request_id, remote, tenant) = self.fields();
        let status = refused.kind.status().as_u16();
        let error = refused.message.as_str();
        tracing::warn!(request_id, remote, tenant, reason, status, suppressed, error, "remote write refused");
    }

    fn admit(&self, web: &Web, reason: &'static str, count: u64) -> Option<u64> {
        web.service.writes.reject_log.admit(
            web.service.env.clock.mono_ns(),
            reason,
            self.tenant.as_ref(),
            count,
        )
    }

    /// Id of the request, address of the client, tenant.
    fn fields(&self) -> (String, String, &str) {
        let tenant = self.tenant.as_ref().map_or("", TenantId::as_str);
        (self.info.id.to_string(), self.info.remote_text(), tenant)
    }
}
