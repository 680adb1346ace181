//! Rows of rules and alerts.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::routing::{Answer, Effect, ErrorForm, Methods, RequestBody, Route, Shows, handler};
use crate::http::rules::{self, backfill, configure};

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/api/v1/rules"], "rule groups with the last evaluation of each rule")
        .on(Methods::Get, Scope::ReadRules, Shows::AllSeries, Effect::Reads, handler!(rules::rules))
        .takes(
            "type rule_name[] rule_group[] file[] match[] exclude_alerts group_limit group_next_token \
             extended @tenant",
        )
        .details(
            "rule groups with the last evaluation of each rule, as in Prometheus: `type` (alert, record), \
                  `rule_name[]`, `rule_group[]`, `file[]`, `match[]` (labels of rules), `exclude_alerts`, \
                  `group_limit`, `group_next_token`; `extended` (1) adds counts of rounds and samples. Refused for a principal with `matchers`",
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
    Route::new(&["/config/v1/rules"], "configured rule groups by namespace, as in Mimir")
        .on(Methods::Get, Scope::ReadRules, Shows::AllSeries, Effect::Reads, handler!(configure::list))
        .takes("@tenant")
        .answers(Answer::Yaml)
        .errors(ErrorForm::Text)
        .details(
            "configured rule groups by namespace, in YAML, as in Mimir. This and the following need \
                  `--rules.configuration-api` and are also served below `/prometheus`",
        ),
    Route::new(&["/config/v1/rules/{namespace}"], "rule groups of a namespace: lists, sets one, deletes all")
        .on(Methods::Get, Scope::ReadRules, Shows::AllSeries, Effect::Reads, handler!(configure::list))
        .on(Methods::Post, Scope::WriteRules, Shows::AllSeries, Effect::Changes, handler!(configure::set))
        .on(
            Methods::Delete,
            Scope::WriteRules,
            Shows::AllSeries,
            Effect::Changes,
            handler!(configure::delete_namespace),
        )
        .takes("@tenant")
        .body(RequestBody::Yaml)
        .answers(Answer::Yaml)
        .errors(ErrorForm::Text)
        .details(
            "GET lists the groups of a namespace; POST adds the group in its body, or replaces the one of its \
                  name, and answers 202; DELETE removes all",
        ),
    Route::new(&["/config/v1/rules/{namespace}/{group}"], "a configured rule group: shows, deletes it")
        .on(Methods::Get, Scope::ReadRules, Shows::AllSeries, Effect::Reads, handler!(configure::group))
        .on(
            Methods::Delete,
            Scope::WriteRules,
            Shows::AllSeries,
            Effect::Changes,
            handler!(configure::delete_group),
        )
        .takes("@tenant")
        .answers(Answer::Yaml)
        .errors(ErrorForm::Text)
        .details("GET shows a group, DELETE removes it and answers 202"),
    Route::new(&["/api/v1/admin/rules/backfill"], "history of recording rules over a range of past time")
        .on(
            Methods::Post,
            Scope::WriteRules,
            Shows::AllSeries,
            Effect::Changes,
            handler!(backfill::backfill),
        )
        .takes("start! end! name group[] dry_run resume @tenant")
        .body(RequestBody::Yaml)
        .answers(Answer::JsonLines)
        .details(
            "records what the recording rules of the rule file in the body would have recorded between `start` \
                  and `end`, in lines of JSON with the progress ([rules.md](../rules.md#history)); needs \
                  `--web.enable-admin-api`",
        ),
];
