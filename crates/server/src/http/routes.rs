//! The one table of routes: paths, methods, scopes, effects, handlers, and the texts of their documents. The
//! router, the check of access, the check of origins, hints of a 404, the OpenAPI description and
//! docs/reference/api.md are made from it (ADR 0115).
//!
//! Invariants: a path stands in one row; documents have the order of the rows.
//! Not here: handlers; what a layer does with a scope (`access`) or an effect (`origin`).

mod graphite;
mod influx;
mod lifecycle;
mod pages;
mod query;
mod remote;
mod rules;
mod status;
mod targets;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use axum::routing::MethodRouter;
use axum::{Extension, Router, middleware};
use chronolith_cluster::options::Role;

use super::access::{self, Access, Guard};
use super::audit_notes::AuditPoint;
use super::consistency;
use super::routing::table::Table;
use super::routing::{Operation, Route, Section, Tag};
use crate::web::Web;

const SECTIONS: &[Section] = &[
    Section::new(Tag::Remote, remote::ROUTES),
    Section::new(Tag::Graphite, graphite::ROUTES),
    Section::new(Tag::Influxdb, influx::ROUTES),
    Section::new(Tag::Query, query::QUERIES),
    Section::new(Tag::Search, query::SEARCH),
    Section::new(Tag::Query, query::METADATA),
    Section::new(Tag::Pages, pages::ROUTES),
    Section::new(Tag::Status, status::ROUTES),
    Section::new(Tag::Rules, rules::ROUTES),
    Section::new(Tag::Targets, targets::ROUTES),
    Section::new(Tag::Admin, lifecycle::ROUTES),
];

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new(SECTIONS));

/// The table, indexed by path.
pub(super) fn table() -> &'static Table {
    &TABLE
}

/// Makes the routes of all rows; each handler runs after the check of access, and on nodes of a
/// cluster that answer queries after the look for records that a read has to see.
pub(super) fn router(web: &Arc<Web>, access: &Access) -> Router<Arc<Web>> {
    SECTIONS.iter().fold(Router::new(), |all, section| all.merge(section_router(section, web, access)))
}

fn section_router(section: &'static Section, web: &Arc<Web>, access: &Access) -> Router<Arc<Web>> {
    let mut router = Router::new();
    for route in section.routes {
        for path in route.paths {
            router = router.route(path, handlers(section.tag, route, web, access));
        }
    }
    match section.tag {
        Tag::Influxdb => {
            let headers = middleware::from_fn_with_state(web.clone(), super::influx::add_headers);
            router.route_layer(headers)
        }
        // Lists of features and of routes are made from the table.
        Tag::Status => router.route_layer(Extension(table())),
        _ => router,
    }
}

fn handlers(tag: Tag, route: &'static Route, web: &Arc<Web>, access: &Access) -> MethodRouter<Arc<Web>> {
    let reads_log = web.service.lifecycle.roles.roles().has(Role::Owner) || web.is_query_node();
    let guarded = |operation: &Operation| {
        let guard = Guard {
            access: access.clone(),
            scope: operation.scope,
            shows: operation.shows,
            errors: route.error_form(tag),
            takes_url_credentials: tag == Tag::Influxdb,
            audit: AuditPoint { audited: operation.audited(), tag, route },
            web: web.clone(),
        };
        let check = middleware::from_fn_with_state(guard, access::check);
        let handler = (operation.handler)(operation.methods.filter());
        let handler = match reads_log && operation.shows_series() {
            true => handler.route_layer(middleware::from_fn_with_state(web.clone(), consistency::layer)),
            false => handler,
        };
        handler.route_layer(check)
    };
    route.operations().map(guarded).fold(MethodRouter::new(), MethodRouter::merge)
}
