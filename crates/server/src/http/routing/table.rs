//! Index of the table of routes by path: the questions that layers around all handlers ask.
//!
//! Invariant: a path stands in one row.
//! Not here: rows; which handler answers (axum's router, made from the same rows).

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use chronolith_base::hash::HashMap;

use super::{Effect, Route, Section, Tag};

/// Paths below are Prometheus's API and extensions of it; they are also served below Mimir's prefix.
const PROMETHEUS_API: &str = "/api/v1/";
/// Mimir's API that changes rules; also served below Mimir's prefix.
const RULER_API: &str = "/config/v1/rules";
/// Pages of allowed origins may read answers of paths below, unknown ones included.
const API: &str = "/api/";

/// Returns true if a path is also served below Mimir's prefix.
pub(in crate::http) fn is_below_mimir_prefix(path: &str) -> bool {
    path.starts_with(PROMETHEUS_API) || path.starts_with(RULER_API)
}

pub(in crate::http) struct Table {
    sections: &'static [Section],
    by_path: HashMap<&'static str, &'static Route>,
}

impl Table {
    /// # Panics
    /// If a path stands in two rows.
    pub(in crate::http) fn new(sections: &'static [Section]) -> Table {
        let mut by_path = HashMap::default();
        for route in sections.iter().flat_map(|section| section.routes) {
            for path in route.paths {
                assert!(by_path.insert(*path, route).is_none(), "{path} stands in two rows");
            }
        }
        Table { sections, by_path }
    }

    /// All rows in the order of the documentation, with their tags.
    pub(in crate::http) fn rows(&self) -> impl Iterator<Item = (Tag, &'static Route)> {
        self.sections.iter().flat_map(|section| section.routes.iter().map(|route| (section.tag, route)))
    }

    /// Paths of all rows that have no parameter.
    pub(in crate::http) fn static_paths(&self) -> impl Iterator<Item = &'static str> {
        self.rows().flat_map(|(_, route)| route.paths.iter().copied()).filter(|path| !path.contains('{'))
    }

    /// Returns true if there is a row of `path`, written as in the row.
    pub(in crate::http) fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// The row that the router found for a request, whether or not the row has its method.
    fn route_of(&self, request: &Request) -> Option<&'static Route> {
        let matched = request.extensions().get::<MatchedPath>()?;
        self.by_path.get(matched.as_str()).copied()
    }

    /// Returns true if the request may change stored data or the running server: safe methods never do. A
    /// method that the row lacks counts as its POST, and an unknown path as a change.
    pub(in crate::http) fn is_change(&self, request: &Request) -> bool {
        let method = request.method();
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return false;
        }
        let operation = self
            .route_of(request)
            .and_then(|route| route.operation(method).or_else(|| route.operation(&Method::POST)));
        operation.is_none_or(|operation| matches!(operation.effect, Effect::Changes | Effect::Controls))
    }

    /// Returns true if pages of allowed origins may read the answer.
    pub(in crate::http) fn is_cors(&self, request: &Request) -> bool {
        request.uri().path().starts_with(API) || self.route_of(request).is_some_and(|route| route.is_cors)
    }
}
