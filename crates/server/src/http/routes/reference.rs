//! docs/reference/api.md against the table of routes.
#![expect(clippy::disallowed_methods, reason = "the page is in the repository, not below a data directory")]

use std::fmt::Write as _;

use super::table;
use crate::http::openapi::parameters;
use crate::http::routing::{Route, TENANT, Tag};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");

const HEAD: &str = "\
# HTTP API

Paths, parameters, JSON and error texts of Prometheus's endpoints are those of Prometheus 3.16. `GET` includes `HEAD`. Errors are JSON: `{\"status\": \"error\", \"errorType\": ...,
\"error\": ...}`, or plain text for writes and for `/-/`. All paths below `/api/v1/` also answer below `/prometheus/api/v1/`, Mimir's prefix; metrics have the path without it. A 404 names
the path that a typo or a wrong base URL was meant to be.

With `--multitenancy` routes with *tenant* need `X-Scope-OrgID`. A *scope* is the permission that a method needs (ADR [0115](../adr/0115-one-table-of-routes-with-a-scope-per-method.md)). There
are no credentials, except for InfluxDB's users: everybody has all scopes.

This page is made from the table in `crates/server/src/http/routes`; a test compares them
(`UPDATE_REFERENCE=1 cargo test -p chronolith-server reference` writes it). `/api/v1/openapi.yaml` is made from the same table.
";

/// Heading and introduction of tags.
fn heading(tag: Tag) -> (&'static str, &'static str) {
    match tag {
        Tag::Remote => ("Write", ""),
        Tag::Graphite => (
            "Graphite",
            "Parameters and answers are those of graphite-web 1.1.10 ([graphite.md](../graphite.md)); errors \
             are 4xx with the reason as text. Forms are urlencoded or multipart.",
        ),
        Tag::Influxdb => (
            "InfluxDB",
            "Paths, parameters, JSON and error texts are those of InfluxDB 1.8 \
             ([influxdb.md](../influxdb.md)). Errors are `{\"error\": ...}` and the header \
             `X-Influxdb-Error`.",
        ),
        Tag::Query | Tag::Search => ("Query", "Parameters may be sent in the URL or, with POST, as a form."),
        Tag::Pages => (
            "Web interface",
            "One document at all addresses ([ui.md](../ui.md)), with `Content-Security-Policy`. Parameters \
             are read in the browser; `tenant` is sent as `X-Scope-OrgID`.",
        ),
        Tag::Status => ("Status", ""),
        Tag::Rules => (
            "Rules and alerts",
            "Answers of `/api/v1` are Prometheus's, `/config/v1/rules` is Mimir's API that changes rules \
             ([rules.md](../rules.md)).",
        ),
        Tag::Targets => (
            "For clients that expect a Prometheus",
            "These endpoints answer in Prometheus's form with empty lists: nothing is scraped. Parameters are \
             checked as in Prometheus.",
        ),
        Tag::Admin => ("Lifecycle and administration", ""),
    }
}

/// `scope`, or the scope of each method if they differ.
fn scopes(route: &Route) -> String {
    let all: Vec<_> = route.operations().collect();
    let is_one = all.iter().all(|operation| operation.scope == all[0].scope);
    if is_one {
        return format!("`{}`", all[0].scope.name());
    }
    let one = |operation: &&super::Operation| {
        format!("{} `{}`", operation.methods.names().join(", "), operation.scope.name())
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn put_rows(out: &mut String, route: &Route) {
    let methods = route.methods().collect::<Vec<_>>().join(", ");
    let has_tenant = route.parameters().any(|parameter| parameter.name == TENANT);
    let tenant = if has_tenant { "yes" } else { "no" };
    for (idx, path) in route.paths.iter().enumerate() {
        let what = match (idx, route.details) {
            (0, "") => route.summary.to_owned(),
            (0, details) => details.to_owned(),
            _ => format!("the same as `{}`", route.paths[0]),
        };
        let scopes = scopes(route);
        writeln!(out, "| `{path}` | {methods} | {scopes} | {tenant} | {what} |").expect("a string");
    }
}

fn page() -> String {
    let mut out = HEAD.to_owned();
    let mut heading_now = "";
    for (tag, route) in table().rows() {
        let (title, introduction) = heading(tag);
        if title != heading_now {
            heading_now = title;
            write!(out, "\n## {title}\n\n").expect("a string");
            if !introduction.is_empty() {
                write!(out, "{introduction}\n\n").expect("a string");
            }
            out.push_str("| path | methods | scope | tenant | what |\n|---|---|---|---|---|\n");
        }
        put_rows(&mut out, route);
    }
    out.push_str("\n## Parameters\n\n| parameter | type | meaning |\n|---|---|---|\n");
    for definition in parameters::definitions() {
        let (name, kind, description) = (definition.name, definition.kind, definition.description);
        writeln!(out, "| `{name}` | {kind} | {description} |").expect("a string");
    }
    out
}

#[test]
fn the_reference_lists_every_route() {
    let want = page();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(PAGE, &want).expect("docs/reference is there");
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(found == want, "docs/reference/api.md is not what the table of routes says: see its head");
}
