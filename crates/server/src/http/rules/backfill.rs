//! `POST /api/v1/admin/rules/backfill`: history of recording rules, with the progress in lines of JSON.
//!
//! Invariants: a request that is wrong gets 400 before anything is evaluated; after the first line a failure
//! is the last line, with the position from which another request goes on. A client that leaves ends the
//! backfill after its chunk.
//! Not here: evaluation and writes (`service::evaluation::rules::backfill`).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, header};
use chronolith_model::{QueryError, ReadContext};
use chronolith_service::access::Identity;
use chronolith_service::evaluation::rules::backfill::{
    Backfill, BackfillEnd, BackfillError, BackfillMode, BackfillProgress, BackfillRefusal, BackfillRequest,
    BackfillTotals, prepare, read_groups,
};
use chronolith_service::limits::RULE_BACKFILL_TIME_MAX_MS;
use serde_json::{Value, json};

use crate::http::admin::{check_enabled, switch};
use crate::http::audit_notes::AuditNotes;
use crate::http::body;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::params::Params;
use crate::http::sender::identity_of;
use crate::http::stream::{self, Parts, StreamKind};
use crate::limits::BACKFILL_BYTES_MAX;
use crate::web::Web;

/// Name of the rule file of a request that has none.
const DEFAULT_NAME: &str = "rules.yml";
/// Names of alerting rules in the first line.
const NAMES_MAX: usize = 20;

const STREAM: StreamKind = StreamKind {
    name: "backfill of rules",
    content_type: "application/x-ndjson",
    timeout: Duration::from_millis(RULE_BACKFILL_TIME_MAX_MS),
    metrics: |metrics| &metrics.backfill,
};

impl From<BackfillRefusal> for ApiError {
    fn from(refusal: BackfillRefusal) -> ApiError {
        let kind = match refusal {
            BackfillRefusal::Invalid(_) => ErrorKind::BadRequest,
            BackfillRefusal::Busy => ErrorKind::Conflict,
        };
        ApiError::new(kind, refusal)
    }
}

/// Parameters of a request.
struct Parameters {
    range: (i64, i64),
    name: String,
    group_names: Vec<String>,
    mode: BackfillMode,
    resume: Option<String>,
}

impl Parameters {
    fn parse(params: &Params) -> Result<Parameters, ApiError> {
        params.well_formed()?;
        let mode = match switch(params, "dry_run")? {
            Some(true) => BackfillMode::DryRun,
            Some(false) | None => BackfillMode::Write,
        };
        Ok(Parameters {
            range: (params.time_ms_required("start")?, params.time_ms_required("end")?),
            name: params.get("name").unwrap_or(DEFAULT_NAME).to_owned(),
            group_names: params.all("group[]").map(str::to_owned).collect(),
            mode,
            resume: params.get("resume").map(str::to_owned),
        })
    }
}

pub(in crate::http) async fn backfill(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    check_enabled(&web)?;
    let (parts, request_body) = request.into_parts();
    let tenant = identity_of(&parts.extensions)?.tenant().clone();
    let mut params = Params::default();
    params.parse(parts.uri.query().unwrap_or(""))?;
    let notes = AuditNotes::of(&parts.extensions);
    notes.set_parameters(&params);
    let parameters = Parameters::parse(&params)?;
    let memory_max = web.service.limits_of(&tenant).queries.memory_bytes_max;
    let memory = web.service.admission.query_memory.of(&tenant, memory_max);
    let read = body::read_query(request_body, BACKFILL_BYTES_MAX, &memory.budget).await?;
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.trim_start().starts_with("application/json"));
    // Rules act on all series of their tenant, as the rules of the server do.
    let identity = Identity::internal(&tenant);
    let class = &web.service.admission.rule_work.backfills;
    let admitted = web.service.admit(class, &identity, RULE_BACKFILL_TIME_MAX_MS).await?;
    let answered = stream::answer(&web, admitted, STREAM, move |web, mut admitted, parts| {
        let Parameters { range, name, group_names, mode, resume } = parameters;
        let files = if is_json { files_of_json(&read.bytes)? } else { vec![(name, read.bytes)] };
        let groups = read_groups(&web.service, &files).map_err(ApiError::bad_request)?;
        drop(read.held);
        let request = BackfillRequest { tenant, groups, range, group_names, mode, resume };
        let backfill = prepare(&web.service, request)?;
        parts.send(line(&begin_line(&backfill)), admitted.ctx())?;
        let end = backfill
            .run(&web.service, &admitted, &mut |progress| send_progress(parts, admitted.ctx(), progress));
        log_end(&backfill, &end);
        // A client that has the last line may begin the next one.
        drop(backfill);
        admitted.release_permit();
        parts.send_last(line(&end_line(&end)));
        Ok(())
    });
    answered.await
}

/// Files of `{"files": [{"name": ..., "content": ...}]}`.
fn files_of_json(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ApiError> {
    let body: Value = serde_json::from_slice(bytes)
        .map_err(|error| ApiError::bad_request(format_args!("body is no JSON: {error}")))?;
    let wrong = || ApiError::bad_request("body has to be {\"files\": [{\"name\": TEXT, \"content\": TEXT}]}");
    let files = body["files"].as_array().ok_or_else(wrong)?;
    let file = |file: &Value| {
        let text = |key: &str| file[key].as_str().ok_or_else(wrong);
        Ok((text("name")?.to_owned(), text("content")?.as_bytes().to_vec()))
    };
    files.iter().map(file).collect()
}

fn send_progress(
    parts: &Parts,
    ctx: &ReadContext,
    progress: &BackfillProgress<'_>,
) -> Result<(), BackfillError> {
    let sent = parts.send(line(&progress_line(progress)), ctx);
    sent.map_err(|_| BackfillError::Ended(ctx.check().err().unwrap_or(QueryError::Canceled)))
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

fn begin_line(backfill: &Backfill<'_>) -> Value {
    let (start_ms, end_ms) = backfill.range();
    let skipped = backfill.skipped_alerts();
    json!({
        "event": "begin",
        "start": seconds(start_ms),
        "end": seconds(end_ms),
        "groups": backfill.group_count(),
        "rules": backfill.rule_count(),
        "rounds": backfill.round_count(),
        "stages": backfill.stage_count(),
        "estimate": backfill.is_estimate(),
        "skippedAlertingRuleCount": skipped.len(),
        "skippedAlertingRules": skipped.iter().take(NAMES_MAX).collect::<Vec<_>>(),
    })
}

fn progress_line(progress: &BackfillProgress<'_>) -> Value {
    let mut line = json!({
        "event": "progress",
        "file": progress.group.file,
        "group": progress.group.name,
        "rules": progress.rules.len(),
        "stage": progress.stage,
        "stages": progress.stage_count,
        "until": seconds(progress.done_until_ms),
        "done": progress.done_rounds,
        "rounds": progress.round_count,
        "totals": totals_json(&progress.totals),
        "resume": progress.resume,
    });
    if let [rule] = progress.rules[..] {
        line["rule"] = rule.into();
    }
    line
}

fn end_line(end: &BackfillEnd) -> Value {
    let mut line = json!({
        "event": "end",
        "status": if end.error.is_none() { "success" } else { "error" },
        "totals": totals_json(&end.totals),
        "firstFailure": end.first_failure,
        "firstReject": end.first_reject,
    });
    if let Some(error) = &end.error {
        line["error"] = error.to_string().into();
        line["resume"] = end.resume.as_str().into();
    }
    line
}

fn totals_json(totals: &BackfillTotals) -> Value {
    let BackfillTotals { rounds, failed_rounds, series, samples, rejected } = totals;
    json!({
        "rounds": rounds,
        "failedRounds": failed_rounds,
        "series": series,
        "added": samples.added,
        "replaced": samples.replaced,
        "removed": samples.removed,
        "equal": samples.equal,
        "rejected": rejected,
    })
}

fn log_end(backfill: &Backfill<'_>, end: &BackfillEnd) {
    let BackfillTotals { rounds, failed_rounds, series, samples, rejected } = end.totals;
    let error = end.error.as_ref().map(ToString::to_string).unwrap_or_default();
    tracing::info!(
        rules = backfill.rule_count(),
        rounds,
        failed_rounds,
        series,
        added = samples.added,
        replaced = samples.replaced,
        removed = samples.removed,
        rejected,
        error,
        "backfill of recording rules ended"
    );
}
