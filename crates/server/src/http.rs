//! The router, and layers around all routes: origins, compression, answers for unknown paths and for methods
//! that a path does not have.
//! Not here: the table of routes (`routes`), connections and their deadlines (`serve`).

mod access;
mod active;
mod activity;
mod admin;
mod audit;
mod audit_notes;
mod authorization;
mod block_list;
mod body;
mod bucket_status;
mod call;
mod cardinality;
mod cluster_status;
pub(crate) mod compress;
mod consistency;
mod dispatch;
pub(crate) mod error;
mod features;
mod federate;
mod go_json;
mod graphite;
mod host_check;
mod inflate;
pub(crate) mod influx;
mod internal;
mod lifecycle;
mod login;
mod metadata;
mod observe;
mod offsets;
mod openapi;
mod origin;
mod owner_wait;
mod page;
mod params;
mod partial;
mod paths;
mod printer;
pub(crate) mod query;
mod remote_read;
pub(crate) mod request;
mod routes;
mod routing;
mod rules;
mod search;
mod self_metrics;
mod sender;
mod series;
mod status;
mod stream;
mod targets;
pub(crate) mod tenant;
mod tenant_deletion;
mod tree;
mod web_config;
pub(crate) mod write;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use chronolith_service::access::Principal;

use self::access::Access;
use crate::web::Web;

pub(crate) use lifecycle::reload_by_signal;
#[cfg(test)]
pub(crate) use lifecycle::reload_now;

/// All routes of the server. Without access control everybody may do everything.
pub(crate) fn router(web: Arc<Web>) -> Router {
    // Users of the web configuration file may come and go.
    let access = match web.service.access.is_on() || web.web_config().is_some() {
        true => Access::logins(),
        false => Access::of(Principal::unrestricted()),
    };
    router_with(web, &access)
}

fn router_with(web: Arc<Web>, access: &Access) -> Router {
    let table = routes::table();
    let routes = routes::router(&web, access)
        .fallback(move |request| paths::unrouted(table, request))
        .method_not_allowed_fallback(paths::wrong_method)
        .layer(middleware::from_fn_with_state(web.clone(), compress::compress))
        .layer(middleware::from_fn(paths::redirect_unclean))
        .layer(middleware::from_fn_with_state(web.clone(), paths::refuse_outside))
        .layer(middleware::from_fn_with_state((web.clone(), table), origin::check))
        .layer(middleware::from_fn_with_state(web.clone(), host_check::check));
    let routes = match web.web_config() {
        Some(_) => routes.layer(middleware::from_fn_with_state(web.clone(), web_config::apply)),
        None => routes,
    };
    // Nodes call by other hosts and paths than clients, and have a login of their own.
    let routes = routes.merge(internal::router(&web));
    let observed = middleware::from_fn_with_state(web.clone(), observe::observe);
    let routes = routes.layer(observed).with_state(web.clone());
    // The router adds `Allow` after all of its layers, so a further layer around it has to complete it. The
    // prefix goes before there is a route, so that each route has one name in metrics.
    Router::new()
        .fallback_service(routes)
        .layer(middleware::map_response(paths::complete_allow))
        .layer(middleware::map_request_with_state(web, paths::strip_prefix))
}
