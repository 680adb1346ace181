//! Rows of rules and alerts.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::routing::{Effect, Methods, Route, Shows, handler};
use crate::http::rules;

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/api/v1/rules"], "rule groups with the last evaluation of each rule")
        .on(Methods::Get, Scope::ReadRules, Shows::AllSeries, Effect::Reads, handler!(rules::rules))
        .takes(
            "type rule_name[] rule_group[] file[] match[] exclude_alerts group_limit group_next_token \
             @tenant",
        )
        .details(
            "rule groups with the last evaluation of each rule, as in Prometheus: `type` (alert, record), \
                  `rule_name[]`, `rule_group[]`, `file[]`, `match[]` (labels of rules), `exclude_alerts`, \
                  `group_limit`, `group_next_token`. Refused for a principal with `matchers`",
        ),
    Route::new(&["/api/v1/alerts"], "pending and firing alerts")
        .on(Methods::Get, Scope::ReadRules, Shows::SeriesOfTenant, Effect::Reads, handler!(rules::alerts))
        .takes("@tenant")
        .details(
            "lists pending and firing alerts, as in Prometheus; a principal with `matchers` gets the alerts whose \
                  series `ALERTS` it may read",
        ),
    Route::new(&["/api/v1/alertmanagers"], "Alertmanagers").on(
        Methods::Get,
        Scope::ReadRules,
        Shows::NoSeries,
        Effect::Reads,
        handler!(rules::alertmanagers),
    ),
];
