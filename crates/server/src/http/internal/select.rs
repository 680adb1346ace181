//! Answer to a select of another node: `POST /internal/v1/select`.
//!
//! Invariants: a call takes a permit of its class and memory of queries of its tenant, and ends with the
//! deadline of the caller, or when the caller is gone. An answer that cannot be completed has its failure, or
//! ends the connection.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_cluster::options::Role;
use chronolith_cluster::owner::{NotReady, PartitionOwner};
use chronolith_model::min_offsets::ReadConsistency;
use chronolith_model::{QueryError, TenantId};
use chronolith_service::access::Identity;
use chronolith_tsdb::{
    AnswerEnd, CALL_BYTES_MAX, SelectCall, SelectError, SelectQuestion, decode_call, send_answer,
    send_records,
};

use crate::http::body;
use crate::http::dispatch::{self, Admitted};
use crate::http::error::{ApiError, ErrorKind};
use crate::http::owner_wait::{self, WaitError};
use crate::http::stream::{self, Parts, StreamKind};
use crate::limits::{ANSWER_TIMEOUT, INLINE_CALL_BYTES_MAX};
use crate::metrics::select::SelectResult;
use crate::web::Web;

/// Part of the caller's time that is left for a refusal after a wait for records, and its longest.
const REFUSAL_MARGIN_DIVISOR: u64 = 8;
const REFUSAL_MARGIN_MS_MAX: u64 = 500;

const KIND: StreamKind = StreamKind {
    name: "select",
    content_type: "application/octet-stream",
    timeout: ANSWER_TIMEOUT,
    metrics: |metrics| metrics.select().stream(),
};

pub(super) async fn select(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    match answer(&web, request).await {
        Ok(response) => response,
        Err(error) => {
            web.metrics.select().count(SelectResult::Refused);
            error.into_text()
        }
    }
}

async fn answer(web: &Arc<Web>, request: Request) -> Result<Response<Body>, ApiError> {
    let started_ns = web.service.env.clock.mono_ns();
    let call = read_call(web, request).await?;
    let longest_ms = ANSWER_TIMEOUT.as_secs() * 1000;
    let timeout_ms = if call.deadline_ms == 0 { longest_ms } else { call.deadline_ms.min(longest_ms) };
    wait_for_records(web, &call.consistency, started_ns, timeout_ms).await?;
    check_current(web, &call)?;
    learn_catalogue(web, &call).await?;
    if let Some(why) = stale_reason(web, &call) {
        return Err(ApiError::new(ErrorKind::Stale, why));
    }
    let store = web.service.lifecycle.readable_store()?.clone();
    let waited_ms = web.service.env.clock.mono_ns().saturating_sub(started_ns) / 1_000_000;
    let timeout_ms = timeout_ms.saturating_sub(waited_ms);
    let identity = Identity::internal(&call.tenant);
    let admitted = web.service.admit(&web.service.admission.streams.select, &identity, timeout_ms).await?;
    let print = move |web: &Web, admitted: Admitted, parts: &Parts| {
        // A source that this node cannot read is named in the answer, while there is time to send it.
        let ctx = match &call.question {
            SelectQuestion::Read(read) if read.request.allows_partial => {
                admitted.ctx().with_partial_response()
            }
            _ => admitted.ctx().clone(),
        };
        if let Some(why) = log_away_warning(web) {
            ctx.warn(why);
        }
        let mut not_sent = None;
        let mut send = |frames| {
            parts.send(frames, &ctx).map_err(|error| {
                not_sent = Some(error);
                QueryError::Canceled
            })
        };
        // Windows may leave while their series are read.
        let check = || match stale_reason(web, &call) {
            Some(why) => Err(QueryError::Unavailable { what: format!("{why}; try again") }),
            None => Ok(()),
        };
        let ended = match &call.question {
            SelectQuestion::Read(_) => {
                send_answer(&*store.reader().source_of(&call), &call, 0, &ctx, &check, &mut send)
            }
            SelectQuestion::Metadata { .. } | SelectQuestion::Exemplars { .. } | SelectQuestion::Ranges => {
                send_records(|| store.reader().records_of(&call, &ctx), &call, &ctx, &mut send)
            }
        };
        let metrics = web.metrics.select();
        metrics.observe_ns(web.service.env.clock.mono_ns().saturating_sub(started_ns));
        match ended {
            Ok(AnswerEnd::Complete) => metrics.count(SelectResult::Complete),
            Ok(AnswerEnd::Failed(error)) => {
                metrics.count(SelectResult::Failed);
                tracing::debug!(tenant = %call.tenant, %error, "select of another node failed");
            }
            Err(error) => return Err(not_sent.unwrap_or_else(|| error.into())),
        }
        Ok(())
    };
    stream::answer(web, admitted, KIND, print).await
}

/// Refuses a call while the owner has not caught up with the log: the caller may not know it yet, and would
/// take the answer for one with all samples. A call that waited for the end of the log has them.
fn check_current(web: &Web, call: &SelectCall) -> Result<(), ApiError> {
    let roles = &web.service.lifecycle.roles;
    let why = match roles.owner() {
        _ if call.consistency.is_strong => return Ok(()),
        None if roles.roles().has(Role::Owner) => "this node owns no partition yet".to_owned(),
        None => return Ok(()),
        Some(owner) => match owner.check_ready() {
            Ok(()) | Err(NotReady::LogAway(_)) => return Ok(()),
            Err(why) => why.to_string(),
        },
    };
    Err(ApiError::new(ErrorKind::Unavailable, why))
}

/// Returns the warning of an owner that cannot read the log.
fn log_away_warning(web: &Web) -> Option<String> {
    let owner = web.service.lifecycle.roles.owner()?;
    let Err(NotReady::LogAway(why)) = owner.check_ready() else { return None };
    let partition = owner.partition().number;
    Some(format!("samples that partition {partition} took since its log cannot be read are missing: {why}"))
}

/// Waits until the owner has applied the records that the call has to see. The wait ends before the time of
/// the caller, which reads the reason then.
async fn wait_for_records(
    web: &Web,
    consistency: &ReadConsistency,
    started_ns: u64,
    timeout_ms: u64,
) -> Result<(), ApiError> {
    if consistency.is_eventual() {
        return Ok(());
    }
    let owner = web.service.lifecycle.roles.owner().ok_or_else(|| {
        let why = "the call waits for records of the log, and this node owns no partition yet";
        ApiError::new(ErrorKind::Unavailable, why)
    })?;
    let longest_ms =
        timeout_ms.saturating_sub((timeout_ms / REFUSAL_MARGIN_DIVISOR).min(REFUSAL_MARGIN_MS_MAX));
    let deadline_ns = started_ns.saturating_add(longest_ms.saturating_mul(1_000_000));
    let waited = owner_wait::wait(owner, consistency, &*web.service.env.clock, deadline_ns).await;
    waited.map_err(|error| {
        let kind = match error {
            WaitError::OtherTopic(_) => ErrorKind::BadRequest,
            WaitError::Unavailable(_) => ErrorKind::Unavailable,
        };
        ApiError::new(kind, error)
    })
}

/// Reads and decodes a call: a long one off the async workers, since regular expressions are compiled.
async fn read_call(web: &Arc<Web>, request: Request) -> Result<SelectCall, ApiError> {
    let memory = &web.service.admission.query_memory.total;
    let body = body::read_query(request.into_body(), CALL_BYTES_MAX, memory).await?;
    let decoded = if body.bytes.len() <= INLINE_CALL_BYTES_MAX {
        decode_call(&body.bytes)
    } else {
        let class = &web.service.admission.streams.select;
        let decode = move |_: &Web| decode_call(&body.bytes);
        dispatch::run_to_end(web, class, &TenantId::anonymous(), ANSWER_TIMEOUT, decode).await?
    };
    decoded.map_err(|error| {
        let kind = match error {
            SelectError::Version { .. } => ErrorKind::Conflict,
            SelectError::Content(_) => ErrorKind::BadRequest,
        };
        ApiError::new(kind, error)
    })
}

/// Reads which catalogue a caller needs for windows that left before the start, if this node does not know it
/// yet. While the bucket does not answer, recent samples are answered all the same.
async fn learn_catalogue(web: &Arc<Web>, call: &SelectCall) -> Result<(), ApiError> {
    let Some(owner) = asked_owner(web, call) else { return Ok(()) };
    if !owner.is_start_catalogue_due(&call.tenant, call.store) {
        return Ok(());
    }
    let owner = owner.clone();
    let tenant = call.tenant.clone();
    let store = call.store;
    let class = &web.service.admission.streams.select;
    let read = move |_: &Web| owner.read_start_catalogue(&tenant, store);
    let read = dispatch::run_to_end(web, class, &TenantId::anonymous(), ANSWER_TIMEOUT, read).await?;
    if let Err(error) = read {
        let tenant = &call.tenant;
        tracing::warn!(%tenant, %error, "reading the newest catalogue failed, query nodes with an older one may miss samples that left before the start");
    }
    Ok(())
}

/// Returns the owner of a call for samples: other records do not leave for blocks.
fn asked_owner<'a>(web: &'a Web, call: &SelectCall) -> Option<&'a Arc<dyn PartitionOwner>> {
    let is_read = matches!(call.question, SelectQuestion::Read(_));
    web.service.lifecycle.roles.owner().filter(|_| is_read)
}

/// Returns the reason to refuse a caller that reads blocks of a catalogue without windows that have left the
/// store.
fn stale_reason(web: &Web, call: &SelectCall) -> Option<String> {
    let owner = asked_owner(web, call)?;
    let needed = owner.catalogue_needed(&call.tenant, call.store);
    let found = call.catalogue;
    (found < needed).then(|| {
        format!("windows have left this node for blocks of catalogue {needed}, the caller reads {found}")
    })
}
