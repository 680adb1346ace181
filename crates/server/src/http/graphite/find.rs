//! `/metrics/find`, `/metrics/expand`, `/metrics/index.json` and `/functions`: the tree of paths, and the
//! functions of the language.
//!
//! Not here: the search (`service::graphite`), the formats (`graphite::output`).

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use chronolith_graphite::output::find::{self, WildcardNode};
use chronolith_graphite::output::{functions, msgpack, pickle};
use chronolith_graphite::storage::{Node, Source as _};
use chronolith_graphite::time::parse_time;
use chronolith_model::ReadContext;
use chronolith_service::graphite::source::{SourceSettings, TenantSource};
use jiff::tz::TimeZone;

use super::render::failed;
use crate::http::call::{self, Call};
use crate::http::dispatch;
use crate::http::error::{ApiError, text};
use crate::http::printer::Printer;
use crate::web::Web;

/// `GET` and `POST /metrics/find`.
pub(crate) async fn find(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    respond(run(&web, request, print_nodes).await)
}

/// `GET` and `POST /metrics/expand`.
pub(crate) async fn expand(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    respond(run(&web, request, print_paths).await)
}

/// `GET` and `POST /metrics/index.json`: all paths as a list.
pub(crate) async fn index(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    respond(run(&web, request, print_index).await)
}

fn respond(answer: Result<Response<Body>, ApiError>) -> Response<Body> {
    answer.unwrap_or_else(|error| text(error.kind.status(), &error.message))
}

/// `GET /functions` and `GET /functions/NAME`.
pub(crate) async fn describe(request: Request) -> Response<Body> {
    let mut json = String::new();
    let name = request.uri().path().trim_start_matches("/functions").trim_matches('/');
    if name.is_empty() {
        functions::render_all(&mut json);
    } else if !functions::render_one(name, &mut json) {
        return text(StatusCode::NOT_FOUND, &format!("unknown function: {name}"));
    }
    let mut response = Response::new(Body::from(json));
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A request at work.
struct Finding<'a> {
    call: &'a Call,
    source: &'a TenantSource<'a>,
    ctx: &'a ReadContext,
    now_s: i64,
}

/// An answer with its content type.
type Printed = Result<(Printer, &'static str), ApiError>;

async fn run(
    web: &Arc<Web>,
    request: Request,
    print: fn(&Finding<'_>) -> Printed,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(web, request).await?;
    let identity = call.identity.clone();
    let timeout_ms = web.service.options.query.timeout_ms;
    let now_s = web.service.env.clock.now_ms().div_euclid(1000);
    let printed = dispatch::run(web, &identity, timeout_ms, move |web, ctx| {
        let limits = web.service.limits_of(&call.tenant).queries.graphite;
        let settings = SourceSettings { rules: web.service.carbon.rules(), limits, now_s };
        let source = TenantSource::new(ctx.source_of(&web.service, &call.identity)?, ctx, settings)?;
        let printed = print(&Finding { call: &call, source: &source, ctx, now_s })?;
        dispatch::refuse_partial(ctx)?;
        Ok(printed)
    });
    let (printer, content_type) = printed.await?;
    Ok(printer.into_response(content_type))
}

/// Nodes of a pattern within the range of the request.
fn nodes_of(finding: &Finding<'_>, pattern: &str) -> Result<Vec<Node>, ApiError> {
    let Finding { call, source, ctx, now_s } = *finding;
    let time = |name: &str| {
        // As in graphite-web, -1 is no bound.
        let given = call.params.get(name).filter(|text| !matches!(*text, "" | "-1"));
        let parsed = given.map(|text| parse_time(text, &TimeZone::UTC, now_s)).transpose();
        parsed.map_err(|error| ApiError::parameter(name, error))
    };
    let from = time("from")?;
    let until = time("until")?;
    let mut nodes = source.find(pattern, from, until).map_err(|error| failed(&error, source, ctx))?;
    // Without intervals graphite-web takes a leaf of several servers for one without points.
    for node in nodes.iter_mut().filter(|node| node.is_leaf && node.intervals.is_empty()) {
        let end = until.unwrap_or(now_s);
        node.intervals.push((from.unwrap_or(0).min(end), end));
    }
    Ok(nodes)
}

fn query_of(call: &Call) -> Result<&str, ApiError> {
    let query = call.params.get("query").filter(|query| !query.is_empty());
    query.ok_or_else(|| ApiError::bad_request("missing required parameter 'query'"))
}

/// A parameter that is a whole number, 0 without it.
fn whole(call: &Call, name: &str) -> Result<i64, ApiError> {
    let Some(text) = call.params.get(name) else { return Ok(0) };
    let parsed = text.trim().parse::<i64>();
    parsed.map_err(|_| ApiError::parameter(name, format!("{text:?} is not a whole number")))
}

fn print_nodes(finding: &Finding<'_>) -> Printed {
    let Finding { call, ctx, .. } = *finding;
    let query = query_of(call)?;
    let format = call.params.get("format").unwrap_or("treejson");
    let is_set = |name: &str| call.params.get(name).is_some_and(|text| !matches!(text, "" | "0"));
    let wildcard = if is_set("wildcards") { WildcardNode::Shown } else { WildcardNode::Hidden };
    let pattern = if format == "completer" { find::completer_pattern(query) } else { query.to_owned() };
    let mut nodes = nodes_of(finding, &pattern)?;
    let leaves_only = whole(call, "leavesOnly")? != 0;
    nodes.retain(|node| node.is_leaf || !leaves_only);
    find::sort_by_name(&mut nodes);
    let mut printer = Printer::new(ctx)?;
    let mut text = String::new();
    let content_type = match format {
        "treejson" => {
            find::render_tree(query, &nodes, wildcard, &mut text);
            "application/json"
        }
        "completer" => {
            find::render_completer(&nodes, wildcard, &mut text);
            "application/json"
        }
        "json" => {
            find::render_json(&nodes, &mut text);
            "application/json"
        }
        "nodelist" => {
            let position = call.params.get("position").and_then(|text| text.parse().ok()).unwrap_or(-1);
            find::render_node_list(&nodes, position, &mut text);
            "application/json"
        }
        "pickle" => {
            pickle::find(&nodes, &mut printer.out);
            "application/pickle"
        }
        "msgpack" => {
            msgpack::find(&nodes, &mut printer.out);
            "application/x-msgpack"
        }
        other => {
            let expected = "expected treejson, completer, json, nodelist, pickle or msgpack";
            return Err(ApiError::parameter("format", format!("unknown format {other:?}, {expected}")));
        }
    };
    if !text.is_empty() {
        printer.out = text.into_bytes();
    }
    printer.settle(ctx)?;
    Ok((printer, content_type))
}

fn print_paths(finding: &Finding<'_>) -> Printed {
    let Finding { call, ctx, .. } = *finding;
    query_of(call)?;
    let leaves_only = whole(call, "leavesOnly")? != 0;
    let by_expression = whole(call, "groupByExpr")? != 0;
    let mut groups = serde_json::Map::new();
    let mut all = BTreeSet::new();
    for query in call.params.all("query") {
        let nodes = nodes_of(finding, query)?;
        let paths = nodes.into_iter().filter(|node| node.is_leaf || !leaves_only).map(|node| node.path);
        let paths: BTreeSet<String> = paths.collect();
        if by_expression {
            groups.insert(query.to_owned(), paths.into_iter().collect());
        } else {
            all.extend(paths);
        }
    }
    let results: serde_json::Value =
        if by_expression { groups.into() } else { all.into_iter().collect::<Vec<String>>().into() };
    print_value(&serde_json::json!({ "results": results }), ctx)
}

fn print_index(finding: &Finding<'_>) -> Printed {
    let ctx = finding.ctx;
    let mut paths = BTreeSet::new();
    let mut pattern = "*".to_owned();
    loop {
        let nodes = nodes_of(finding, &pattern)?;
        if nodes.is_empty() {
            break;
        }
        paths.extend(nodes.into_iter().filter(|node| node.is_leaf).map(|node| node.path));
        pattern.push_str(".*");
    }
    print_value(&paths.into_iter().collect::<Vec<String>>().into(), ctx)
}

fn print_value(value: &serde_json::Value, ctx: &ReadContext) -> Printed {
    let mut printer = Printer::new(ctx)?;
    printer.out = value.to_string().into_bytes();
    printer.settle(ctx)?;
    Ok((printer, "application/json"))
}
