//! Rules and alerts in Prometheus's API: groups with the last evaluation of each rule, pending and firing
//! alerts, Alertmanagers.
//!
//! Invariants: an answer shows each group as it is after one round, and has the order of file and name. A
//! principal with matchers sees the alerts whose `ALERTS` series it may read, and no rules.
//! Not here: evaluation (`service::rules`), the API that changes rules (`configure`).

pub(super) mod backfill;
pub(super) mod configure;
mod filter;
mod print;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_model::{Labels, METRIC_NAME};
use chronolith_rules::alert::{ALERT_STATE, ALERTS};
use chronolith_service::access::SeriesFilter;
use serde_json::{Value, json};

use self::filter::{Page, RuleFilter};
use super::call;
use super::compress::Packing;
use super::dispatch;
use super::error::ApiError;
use super::printer::Printer;
use super::status::success;
use crate::web::Web;

/// `GET /api/v1/rules`: groups with the last evaluation of each rule.
pub(super) async fn rules(State(web): State<Arc<Web>>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let filter = RuleFilter::parse(&call.params)?;
    let class = &web.service.admission.status;
    let timeout_ms = web.service.options.query.timeout_ms;
    let packing = Packing::new(&web, call.coding);
    let identity = call.identity.clone();
    let printed = dispatch::run_as(&web, class, &identity, timeout_ms, move |web, ctx| {
        let groups = web.service.rules.groups(&call.tenant);
        let mut printer = Printer::open_packed(ctx, &packing)?;
        let Page { groups, next_token } = filter.page_of(&groups)?;
        print::put_groups(&mut printer, &groups, filter.shown(), ctx)?;
        print::close_groups(&mut printer, next_token.as_deref());
        printer.close(ctx, &[], &infos_of(web))
    });
    Ok(printed.await?.into_json())
}

/// `GET /api/v1/alerts`: pending and firing alerts of all rules.
pub(super) async fn alerts(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let class = &web.service.admission.status;
    let timeout_ms = web.service.options.query.timeout_ms;
    let packing = Packing::new(&web, call.coding);
    let identity = call.identity.clone();
    let printed = dispatch::run_as(&web, class, &identity, timeout_ms, move |web, ctx| {
        let groups = web.service.rules.groups(&call.tenant);
        let series_filter = call.identity.principal().filter();
        let rules = groups.iter().flat_map(|group| &group.rules);
        let shown = rules.flat_map(|rule| rule.alerts.active()).filter(|(labels, alert)| {
            series_filter.is_none_or(|filter| may_read(filter, labels, alert.state.as_str()))
        });
        let mut printer = Printer::open_packed(ctx, &packing)?;
        printer.out.extend_from_slice(b"{\"alerts\":");
        print::put_alerts(&mut printer, shown, ctx)?;
        printer.out.push(b'}');
        printer.close(ctx, &[], &infos_of(web))
    });
    Ok(printed.await?.into_json())
}

/// Returns the note that rules are shown without their state; none on a process that evaluates them.
fn infos_of(web: &Web) -> Vec<String> {
    let lease = web.service.lifecycle.roles.rule_lease();
    let note = "another process of the cluster evaluates these rules, or none does yet: this one has no \
                lease, and shows them without state";
    lease.filter(|lease| lease.term().is_none()).map(|_| note.to_owned()).into_iter().collect()
}

/// Returns true if a principal with `filter` may read the `ALERTS` series of an alert.
fn may_read(filter: &SeriesFilter, labels: &Labels, state: &str) -> bool {
    let mut series = labels.to_builder();
    series.set(METRIC_NAME, ALERTS);
    series.set(ALERT_STATE, state);
    filter.selects(&series.finish())
}

/// `GET /api/v1/alertmanagers`: the Alertmanagers in use, and those that relabelling drops.
pub(super) async fn alertmanagers(State(web): State<Arc<Web>>) -> Response<Body> {
    let (active, dropped) = web.notifier().urls();
    let entries = |urls: Vec<String>| urls.into_iter().map(|url| json!({ "url": url })).collect::<Value>();
    success(&json!({ "activeAlertmanagers": entries(active), "droppedAlertmanagers": entries(dropped) }))
}
