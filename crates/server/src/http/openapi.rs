//! `/api/v1/openapi.yaml`: a description of all routes, OpenAPI 3.1 or 3.2.
//!
//! Invariants: paths, methods and texts come from the table of routes. Both versions describe the same: an
//! answer of server-sent events, which only 3.2 can describe, is not there.
//! Not here: shapes of answers in detail (docs/reference/api.md).

pub(super) mod parameters;
mod schemas;
mod yaml;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use self::parameters::Parameters;
use self::schemas::reference;
use super::error::ApiError;
use super::params::Params;
use super::routing::table::Table;
use super::routing::{RequestBody, Route, Tag};
use crate::version::VERSION;
use crate::web::Web;

/// The description, without its first line and the section `servers`.
static DESCRIPTION: OnceLock<Description> = OnceLock::new();

struct Description {
    info: String,
    rest: String,
}

pub(super) async fn openapi(
    State(web): State<Arc<Web>>,
    Extension(table): Extension<&'static Table>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let params = Params::of_url(request.uri())?;
    let version = match params.get("openapi_version") {
        Some("3.2" | "3.2.0") => "3.2.0",
        _ => "3.1.0",
    };
    let description = DESCRIPTION.get_or_init(|| describe(table));
    let mut servers = String::new();
    yaml::put_entry(&mut servers, "servers", &json!([{ "url": web.options.web.base_url() }]), 0);
    let Description { info, rest } = description;
    let mut response = Response::new(Body::from(format!("openapi: {version}\n{info}{servers}{rest}")));
    for (name, value) in [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache, no-store, must-revalidate"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

fn describe(table: &Table) -> Description {
    let mut writer = Writer { parameters: Parameters::read(), used: BTreeSet::new() };
    let info = json!({
        "title": "Chronolith API",
        "description": "Time series database with the APIs of Prometheus, InfluxDB 1.x and Graphite.",
        "version": VERSION,
    });
    let tags: Value =
        Tag::ALL.iter().map(|tag| json!({ "name": tag.name(), "description": tag.description() })).collect();
    let entry = |key: &str, value: &Value| {
        let mut out = String::new();
        yaml::put_entry(&mut out, key, value, 0);
        out
    };
    let info = entry("info", &info);
    let mut out = entry("tags", &tags);
    out.push_str("paths:\n");
    // The table has the order of the documentation.
    for (tag, route) in table.rows() {
        for path in route.paths {
            let item = writer.path_item(tag, route, path);
            // A star says that the rest of the path is one parameter, which OpenAPI has no word for.
            yaml::put_entry(&mut out, &path.replace("{*", "{"), &item, 1);
        }
    }
    let components = json!({
        "parameters": writer.parameters.components(&writer.used),
        "responses": schemas::errors(),
        "schemas": schemas::schemas(),
    });
    yaml::put_entry(&mut out, "components", &components, 0);
    Description { info, rest: out }
}

/// Describes operations and collects the parameters that they refer to.
struct Writer {
    parameters: Parameters,
    /// Names with whether they are required.
    used: BTreeSet<(&'static str, bool)>,
}

impl Writer {
    /// A path with its operations.
    fn path_item(&mut self, tag: Tag, route: &Route, path: &str) -> Value {
        let methods = route.methods().map(str::to_ascii_lowercase);
        let operations = methods.map(|method| {
            let operation = self.operation(tag, route, path, &method);
            (method, operation)
        });
        Value::Object(operations.collect())
    }

    fn operation(&mut self, tag: Tag, route: &Route, path: &str, method: &str) -> Value {
        let body = if matches!(method, "get" | "delete") { RequestBody::None } else { route.body };
        let mut listed: Vec<Value> = parameters::in_path(path).collect();
        for parameter in route.parameters() {
            // In a request with a form it may be there instead.
            let is_required = parameter.is_required && body != RequestBody::Form;
            self.used.insert((parameter.name, is_required));
            let name = parameters::component_name(parameter.name, is_required);
            listed.push(reference("parameters", &name));
        }
        let mut operation = json!({
            "tags": [tag.name()],
            "summary": route.summary,
            "operationId": operation_id(method, path),
            "responses": schemas::responses(route.answer, route.error_form(tag)),
        });
        if !listed.is_empty() {
            operation["parameters"] = listed.into();
        }
        let fields = parameters::fields(&self.parameters, route.parameters());
        if let Some(body) = schemas::request_body(body, fields) {
            operation["requestBody"] = body;
        }
        operation
    }
}

/// `get /api/v1/label/{name}/values` is `get-api-v1-label-name-values`.
fn operation_id(method: &str, path: &str) -> String {
    let words: Vec<&str> = path
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let end = if path.len() > 1 && path.ends_with('/') { "-slash" } else { "" };
    format!("{method}-{}{end}", words.join("-")).trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes;

    #[test]
    fn operations_have_names_of_their_own() {
        assert_eq!(operation_id("get", "/"), "get");
        assert_eq!(operation_id("get", "/tags/{tag}"), "get-tags-tag");
        assert_eq!(operation_id("post", "/render/"), "post-render-slash");
        assert_eq!(operation_id("get", "/-/ready"), "get-ready");
        let mut all = Vec::new();
        for (_, route) in routes::table().rows() {
            for path in route.paths {
                all.extend(route.methods().map(|method| operation_id(&method.to_ascii_lowercase(), path)));
            }
        }
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    }
}
