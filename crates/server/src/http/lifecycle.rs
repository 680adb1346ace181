//! `/-/healthy`, `/-/ready`, `/-/reload` and `/metrics`. Invariant: all but `reload` are served during the
//! replay.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap, HeaderValue, Response, StatusCode, header};

use chronolith_model::{TenantId, TenantLimits};
use chronolith_service::Service;
use chronolith_service::audit::{AuditOutcome, AuditSubject};
use chronolith_service::evaluation::rules::files::load_rule_files;
use chronolith_service::limits::ADMIN_QUEUE_WAIT;

use super::audit_notes::AuditNotes;
use super::dispatch;
use super::error::text;
use crate::exposition::gather::gather;
use crate::exposition::text::{TextFormat, write as write_text};
use crate::options::ShownSetting;
use crate::web::Web;

/// 503 once nothing but a restart helps, so that an orchestrator restarts the process.
pub(super) async fn healthy(State(web): State<Arc<Web>>) -> Response<Body> {
    match web.service.lifecycle.failure() {
        None => text(StatusCode::OK, "Chronolith is Healthy."),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("Chronolith is not Healthy: {why}")),
    }
}

pub(super) async fn ready(State(web): State<Arc<Web>>) -> Response<Body> {
    let of_owners = || web.query_node().and_then(|node| node.unready_reason());
    match web.service.lifecycle.unready_reason().or_else(of_owners) {
        None => text(StatusCode::OK, "Chronolith is Ready."),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("Service Unavailable: {why}")),
    }
}

pub(super) async fn reload(State(web): State<Arc<Web>>, extensions: Extensions) -> Response<Body> {
    if !web.options.web.lifecycle {
        return Response::builder()
            .status(StatusCode::FORBIDDEN)
            .body(Body::from("Lifecycle API is not enabled."))
            .unwrap_or_default();
    }
    let class = &web.service.admission.admin;
    let tenant = TenantId::anonymous();
    match dispatch::run_to_end(&web, class, &tenant, ADMIN_QUEUE_WAIT, reload_now).await {
        Ok(Ok(changed)) => {
            AuditNotes::of(&extensions).set_count("changed", changed);
            text(StatusCode::OK, "configuration reloaded")
        }
        Ok(Err(why)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("failed to reload config: {why}")),
        Err(error) => error.into_text(),
    }
}

/// Reads the configuration again because of a signal; the outcome is logged. Blocks the thread.
pub(crate) fn reload_by_signal(web: &Web) {
    let Service { audit, env, .. } = &*web.service;
    let subject = AuditSubject { action: "SIGHUP".to_owned(), ..AuditSubject::default() };
    if let Err(error) = audit.begin(env, &subject) {
        tracing::error!(%error, "configuration reload");
        return;
    }
    let outcome = match reload_now(web) {
        Ok(changed) => AuditOutcome {
            status: StatusCode::OK.as_u16(),
            counts: [("changed".to_owned(), changed.into())].into_iter().collect(),
            error: None,
        },
        Err(why) => AuditOutcome {
            status: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            error: Some(why),
            ..AuditOutcome::default()
        },
    };
    audit.end(env, &subject, outcome);
}

/// Reads the configuration again, applies what may change in a running server, and returns the names of the
/// settings that have another value.
pub(crate) fn reload_now(web: &Web) -> Result<Vec<String>, String> {
    let options = &web.service.options;
    let has_rules = !options.write.carbon.rules.is_empty() || !options.rules.files.is_empty();
    let Some(reload) = &web.configuration.reload else {
        let has_log = web.service.queries.log.is_on() || web.service.audit.is_on();
        if !has_log && !has_rules && !web.has_node_token() {
            return Err("cannot reload: started without --config".to_owned());
        }
        let limits = web.service.limits_of(&web.service.options.rules.tenant);
        return reopen_files(web, &limits).map(|()| Vec::new());
    };
    let rule_tenant = &web.service.options.rules.tenant;
    let result = reload().and_then(|reloaded| {
        let limits = reloaded.limits.of(rule_tenant).clone();
        reopen_files(web, &limits).map(|()| reloaded)
    });
    let mut shown = web.configuration.shown.write();
    shown.reload_ok = result.is_ok();
    match result {
        Ok(reloaded) => {
            web.service.set_limits(reloaded.limits);
            let changed = changed_settings(&shown.settings, &reloaded.shown);
            shown.settings = reloaded.shown;
            shown.config_yaml = reloaded.config_yaml;
            shown.reloaded_ms = web.service.env.clock.now_ms();
            tracing::info!("configuration reloaded");
            Ok(changed)
        }
        Err(why) => {
            web.metrics.background.reload_failures.add(1);
            tracing::error!(why, "configuration reload failed, the previous one stays in use");
            Err(why)
        }
    }
}

/// Names of the settings that are in one list alone, or have another value there, in order.
fn changed_settings(old: &[ShownSetting], new: &[ShownSetting]) -> Vec<String> {
    let pairs = |list: &[ShownSetting]| {
        list.iter().map(|one| (one.name.clone(), one.value.clone())).collect::<BTreeSet<_>>()
    };
    let changed =
        pairs(old).symmetric_difference(&pairs(new)).map(|(name, _)| name.clone()).collect::<Vec<_>>();
    changed.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Opens the logs again, and reads the files of Graphite's rules, the token and the authorities of nodes, and
/// the rule files again, the latter within the limits of their tenant.
fn reopen_files(web: &Web, limits: &TenantLimits) -> Result<(), String> {
    web.service.audit.open(&*web.service.env.disk)?;
    web.service.queries.log.open(&*web.service.env.disk)?;
    web.service.read_rules()?;
    web.read_node_token()?;
    load_rule_files(&web.service, &limits.queries.rules)
}

pub(super) async fn metrics(State(web): State<Arc<Web>>, headers: HeaderMap) -> Response<Body> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let format = TextFormat::negotiate(accept);
    let printed = dispatch::run_status(&web, move |web| {
        let mut out = Vec::new();
        write_text(&gather(web), format, &mut out);
        out
    });
    match printed.await {
        Ok(out) => {
            let mut response = Response::new(Body::from(out));
            let kind = HeaderValue::from_static(format.content_type());
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Err(error) => error.into_text(),
    }
}
