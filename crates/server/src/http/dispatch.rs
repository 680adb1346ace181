//! Execution of requests by the service, for handlers that need the server's own state too.
//! Not here: permits, deadlines and threads (`service::evaluation::run`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_model::ReadContext;
use chronolith_service::access::Identity;
use chronolith_service::admission::small::Candidate;
use chronolith_service::admission::{Caller, Class};
use chronolith_service::evaluation::call_context::CallContext;
pub(super) use chronolith_service::evaluation::run::{Admitted, CancelOnDrop};
use chronolith_service::evaluation::run::{CallError, End};

use super::error::{ApiError, ErrorKind};
use crate::web::Web;

impl CallError for ApiError {
    fn end(&self) -> End {
        match self.kind {
            ErrorKind::Canceled => End::Canceled,
            ErrorKind::Timeout => End::Timeout,
            ErrorKind::BadRequest => End::Invalid,
            _ => End::Failed,
        }
    }

    fn text(&self) -> &str {
        &self.message
    }
}

/// Refuses a result of which a source has returned a part only, for answers that have no room for warnings.
pub(super) fn refuse_partial(ctx: &ReadContext) -> Result<(), ApiError> {
    let warnings = ctx.warnings();
    if warnings.is_partial() {
        return Err(ApiError::new(ErrorKind::Execution, warnings.texts().join("; ")));
    }
    Ok(())
}

/// Runs `work` as a query: see [`chronolith_service::Service::run`].
pub(super) async fn run<T: Send + 'static>(
    web: &Arc<Web>,
    identity: &Identity,
    timeout_ms: u64,
    work: impl FnOnce(&Web, &CallContext) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    run_as(web, &web.service.admission.query, identity, timeout_ms, work).await
}

/// As [`run`], with a permit of `class`.
pub(super) async fn run_as<T: Send + 'static>(
    web: &Arc<Web>,
    class: &Class,
    identity: &Identity,
    timeout_ms: u64,
    work: impl FnOnce(&Web, &CallContext) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let shared = web.clone();
    web.service.run(class, identity, timeout_ms, move |ctx| work(&shared, ctx)).await
}

/// Runs `work` here if it is small: see [`chronolith_service::Service::run_small_first`].
pub(super) async fn run_small_first<T: Send + 'static>(
    web: &Arc<Web>,
    identity: &Identity,
    timeout_ms: u64,
    candidate: Option<Candidate>,
    work: impl Fn(&Web, &CallContext) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let shared = web.clone();
    web.service.run_small_first(identity, timeout_ms, candidate, move |ctx| work(&shared, ctx)).await
}

/// Runs `work` to its end: see [`chronolith_service::Service::run_to_end`].
pub(super) async fn run_to_end<T: Send + 'static>(
    web: &Arc<Web>,
    class: &Class,
    caller: impl Into<Caller<'_>>,
    wait_max: Duration,
    work: impl FnOnce(&Web) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let shared = web.clone();
    Ok(web.service.run_to_end(class, caller, wait_max, move || work(&shared)).await?)
}

/// Runs `work`, which reads what the server knows of itself.
pub(super) async fn run_status<T: Send + 'static>(
    web: &Arc<Web>,
    work: impl FnOnce(&Web) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let shared = web.clone();
    Ok(web.service.run_status(move || work(&shared)).await?)
}
