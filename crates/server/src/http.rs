//! Routes, and what holds for all of them: origins, compression, answers for unknown paths and for
//! methods that a path does not have.
//! Not here: connections and their deadlines (`serve`).

mod active;
mod activity;
mod admin;
mod block_list;
mod body;
mod bucket_status;
mod call;
mod cardinality;
pub(crate) mod compress;
mod dispatch;
pub(crate) mod error;
mod features;
mod federate;
mod go_json;
mod graphite;
mod host_check;
mod inflate;
pub(crate) mod influx;
mod lifecycle;
mod metadata;
mod observe;
mod openapi;
mod origin;
mod page;
mod params;
mod partial;
mod paths;
mod printer;
pub(crate) mod query;
mod remote_read;
pub(crate) mod request;
mod search;
mod self_metrics;
mod series;
mod status;
mod stream;
mod targets;
pub(crate) mod tenant;
mod tree;
pub(crate) mod write;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};

use crate::app::App;

pub(crate) use lifecycle::reload_now;

/// All routes of the server.
pub(crate) fn router(app: Arc<App>) -> Router {
    let routes = Router::new()
        .merge(api())
        .merge(admin_api())
        .merge(influx::routes(&app))
        .merge(graphite::routes())
        .merge(page::routes())
        .route("/-/healthy", get(lifecycle::healthy))
        .route("/-/ready", get(lifecycle::ready))
        .route("/-/reload", post(lifecycle::reload).put(lifecycle::reload))
        .route("/metrics", get(lifecycle::metrics).post(graphite::write_metrics))
        .route("/version", get(status::version))
        .route("/federate", get(federate::federate).post(federate::federate))
        .fallback(paths::unknown)
        .method_not_allowed_fallback(paths::wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), compress::compress))
        .layer(middleware::from_fn(paths::redirect_unclean))
        .layer(middleware::from_fn_with_state(app.clone(), origin::check))
        .layer(middleware::from_fn_with_state(app.clone(), host_check::check))
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app);
    // The router adds `Allow` after all of its layers, so a further layer around it has to complete it. The
    // prefix goes before there is a route, so that each route has one name in metrics.
    Router::new()
        .fallback_service(routes)
        .layer(middleware::map_response(paths::complete_allow))
        .layer(middleware::map_request(paths::strip_prefix))
}

fn api() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/write", post(write::write))
        .route("/api/v1/push", post(write::write))
        .route("/api/v1/read", post(remote_read::read))
        .route("/api/v1/carbon", post(graphite::write_lines))
        .route("/api/v1/graphite/refused", get(graphite::refused))
        .route("/api/v1/graphite/explain", get(graphite::explain))
        .route("/api/v1/graphite/series", get(graphite::listing::series))
        .route("/api/v1/query", get(query::instant).post(query::instant))
        .route("/api/v1/query_range", get(query::range).post(query::range))
        .route("/api/v1/query_cost", get(query::cost::instant).post(query::cost::instant))
        .route("/api/v1/query_range_cost", get(query::cost::range).post(query::cost::range))
        .route("/api/v1/format_query", get(query::format).post(query::format))
        .route("/api/v1/parse_query", get(query::parse_tree).post(query::parse_tree))
        .route("/api/v1/query_exemplars", get(metadata::exemplars).post(metadata::exemplars))
        .route("/api/v1/series", get(series::series).post(series::series))
        .route("/api/v1/labels", get(series::label_names).post(series::label_names))
        .route("/api/v1/label/{name}/values", get(series::label_values).post(series::label_values))
        .merge(search::routes())
        .route("/api/v1/metadata", get(metadata::metadata))
        .route("/api/v1/rules", get(status::rules))
        .route("/api/v1/alerts", get(status::alerts))
        .route("/api/v1/targets", get(targets::targets))
        .route("/api/v1/targets/metadata", get(metadata::of_targets))
        .route("/api/v1/targets/relabel_steps", get(targets::relabel_steps))
        .route("/api/v1/scrape_pools", get(targets::scrape_pools))
        .route("/api/v1/scrape_pools/config", get(targets::pool_config))
        .route("/api/v1/notifications", get(status::empty_list))
        .route("/api/v1/alertmanagers", get(status::alertmanagers))
        .route("/api/v1/features", get(features::features))
        .route("/api/v1/openapi.yaml", get(openapi::openapi))
        .route("/api/v1/status/buildinfo", get(status::build))
        .route("/api/v1/status/runtimeinfo", get(status::runtime))
        .route("/api/v1/status/tsdb", get(status::tsdb))
        .route("/api/v1/status/tsdb/blocks", get(block_list::blocks))
        .merge(activity::routes())
        .route("/api/v1/status/active_queries", get(active::list))
        .route("/api/v1/status/active_queries/kill", post(active::kill))
        .route("/api/v1/status/storage", get(status::storage))
        .route("/api/v1/status/memory", get(status::memory))
        .route("/api/v1/status/bucket", get(bucket_status::bucket))
        .route("/api/v1/status/self_metrics", get(self_metrics::self_metrics))
        .route("/api/v1/status/flags", get(status::flags))
        .route("/api/v1/status/settings", get(status::settings))
        .route("/api/v1/status/config", get(status::config))
        .route("/api/v1/status/walreplay", get(status::replay))
}

fn admin_api() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/admin/tsdb/delete_series", post(admin::delete_series).put(admin::delete_series))
        .route(
            "/api/v1/admin/tsdb/clean_tombstones",
            post(admin::clean_tombstones).put(admin::clean_tombstones),
        )
        .route("/api/v1/admin/tsdb/snapshot", post(admin::snapshot).put(admin::snapshot))
        .route("/api/v1/admin/tsdb/compaction", post(admin::compaction).put(admin::compaction))
}
