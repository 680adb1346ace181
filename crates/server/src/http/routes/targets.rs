//! Rows that clients expect of a Prometheus: lists that are empty, as nothing is scraped.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::routing::{Answer, Effect, Methods, Route, Shows, handler};
use crate::http::{metadata, status, targets};

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/api/v1/notifications"], "notifications").on(
        Methods::Get,
        Scope::ReadRules,
        Shows::NoSeries,
        Effect::Reads,
        handler!(status::empty_list),
    ),
    Route::new(&["/api/v1/targets"], "targets").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::AllSeries,
        Effect::Reads,
        handler!(targets::targets),
    ),
    Route::new(&["/api/v1/targets/metadata"], "metadata of targets")
        .on(
            Methods::Get,
            Scope::ReadMetrics,
            Shows::SeriesOfTenant,
            Effect::Reads,
            handler!(metadata::of_targets),
        )
        .takes("match_target metric limit")
        .details("metadata by target; what senders sent is in `/api/v1/metadata`"),
    Route::new(&["/api/v1/targets/relabel_steps"], "refused: there is no scrape pool")
        .on(
            Methods::Get,
            Scope::ReadStatus,
            Shows::AllSeries,
            Effect::Reads,
            handler!(targets::relabel_steps),
        )
        .takes("scrapePool! labels!")
        .answers(Answer::Refusal)
        .details("returns the error that there is no pool `scrapePool`, after a check of `labels`"),
    Route::new(&["/api/v1/scrape_pools"], "scrape pools").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::AllSeries,
        Effect::Reads,
        handler!(targets::scrape_pools),
    ),
    Route::new(&["/api/v1/scrape_pools/config"], "refused: there is no scrape pool")
        .on(Methods::Get, Scope::ReadStatus, Shows::AllSeries, Effect::Reads, handler!(targets::pool_config))
        .takes("scrapePool!")
        .answers(Answer::Refusal)
        .details("returns the error that there is no pool `scrapePool`"),
];
