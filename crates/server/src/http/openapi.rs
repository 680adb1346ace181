//! `/api/v1/openapi.yaml`: a description of all routes, OpenAPI 3.1 or 3.2.
//!
//! Invariants: the tables below `openapi/` are the only source; a test compares their paths and methods with
//! the routes of the server. Both versions describe the same: what only 3.2 can say, an answer of server-sent
//! events, is not there.
//! Not here: shapes of answers in detail (docs/reference/api.md).

mod schemas;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, header};
use serde_json::{Map, Value, json};

use self::schemas::reference;
use super::error::ApiError;
use super::params::Params;
use crate::version::VERSION;

const ROUTES: &str = include_str!("openapi/routes.txt");
const PARAMETERS: &str = include_str!("openapi/parameters.txt");
/// Name of the parameter that is a header.
const TENANT: &str = "@tenant";
const TAGS: [(&str, &str); 9] = [
    ("query", "PromQL: queries, series, labels, metadata, remote read, federation"),
    ("search", "Search of names"),
    ("remote", "Remote write of Prometheus"),
    ("graphite", "Graphite"),
    ("influxdb", "InfluxDB 1.x"),
    ("status", "State of the server"),
    ("targets", "Lists that are empty, for clients that expect a Prometheus"),
    ("admin", "Lifecycle and administration"),
    ("pages", "Web interface"),
];

/// The description, without its first line.
static DESCRIPTION: LazyLock<String> = LazyLock::new(|| {
    let parameters = Parameters::read();
    let mut used = BTreeSet::new();
    let paths: Vec<(String, Value)> =
        rows(ROUTES).map(|row| path_item(&row, &parameters, &mut used)).collect();
    let mut out = String::new();
    let info = json!({
        "title": "Chronolith API",
        "description": "Time series database with the APIs of Prometheus, InfluxDB 1.x and Graphite.",
        "version": VERSION,
    });
    let tags: Value =
        TAGS.iter().map(|(name, description)| json!({ "name": name, "description": description })).collect();
    for (key, value) in [("info", info), ("servers", json!([{ "url": "/" }])), ("tags", tags)] {
        yaml::put_entry(&mut out, key, &value, 0);
    }
    out.push_str("paths:\n");
    // The table has the order of the documentation.
    for (path, item) in &paths {
        yaml::put_entry(&mut out, path, item, 1);
    }
    let components = json!({
        "parameters": parameters.components(&used),
        "responses": schemas::errors(),
        "schemas": schemas::schemas(),
    });
    yaml::put_entry(&mut out, "components", &components, 0);
    out
});

pub(super) async fn openapi(request: Request) -> Result<Response<Body>, ApiError> {
    let params = Params::of_url(request.uri())?;
    let version = match params.get("openapi_version") {
        Some("3.2" | "3.2.0") => "3.2.0",
        _ => "3.1.0",
    };
    let mut response = Response::new(Body::from(format!("openapi: {version}\n{}", *DESCRIPTION)));
    for (name, value) in [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache, no-store, must-revalidate"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Cells of the rows of a table.
fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(" | ").collect())
}

/// Paths of all routes without a placeholder.
pub(super) fn static_paths() -> impl Iterator<Item = &'static str> {
    rows(ROUTES).map(|row| cell(&row, 2)).filter(|path| !path.contains('{'))
}

/// Cell number `idx`; `-` stands for an empty one.
fn cell<'a>(row: &[&'a str], idx: usize) -> &'a str {
    row.get(idx).copied().filter(|text| *text != "-").unwrap_or("")
}

/// Types and descriptions of parameters by name.
struct Parameters(BTreeMap<&'static str, (&'static str, &'static str)>);

impl Parameters {
    fn read() -> Parameters {
        Parameters(rows(PARAMETERS).map(|row| (cell(&row, 0), (cell(&row, 1), cell(&row, 2)))).collect())
    }

    fn schema(&self, name: &str) -> Value {
        match self.0.get(name).map_or("", |(kind, _)| *kind) {
            "time" => reference("schemas", "Time"),
            "duration" => reference("schemas", "Duration"),
            "list" => json!({ "type": "array", "items": { "type": "string" } }),
            kind => json!({ "type": kind }),
        }
    }

    /// Definitions of the parameters that `used` names, with whether they are required.
    fn components(&self, used: &BTreeSet<(String, bool)>) -> Value {
        let mut all = Map::new();
        for (name, is_required) in used {
            let parameter = if name == TENANT {
                json!({
                    "name": "X-Scope-OrgID",
                    "in": "header",
                    "description": "The tenant; required with `--multitenancy`, and ignored without it.",
                    "required": false,
                    "schema": { "type": "string" },
                })
            } else {
                json!({
                    "name": name,
                    "in": "query",
                    "description": self.0.get(name.as_str()).map_or("", |(_, description)| *description),
                    "required": is_required,
                    "schema": self.schema(name),
                })
            };
            all.insert(component_name(name, *is_required), parameter);
        }
        Value::Object(all)
    }
}

/// Name of a parameter among the components: `match[]` is `match`.
fn component_name(name: &str, is_required: bool) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    if is_required { format!("{plain}-required") } else { plain }
}

/// A path with its operations.
fn path_item(row: &[&str], parameters: &Parameters, used: &mut BTreeSet<(String, bool)>) -> (String, Value) {
    let path = cell(row, 2);
    // A star says that the rest of the path is one parameter, which OpenAPI has no word for.
    let shown = path.replace("{*", "{");
    let operations = cell(row, 1).split(' ').map(|method| {
        let operation = operation(row, method, parameters, used);
        (method.to_owned(), operation)
    });
    (shown, Value::Object(operations.collect()))
}

fn operation(
    row: &[&str],
    method: &str,
    parameters: &Parameters,
    used: &mut BTreeSet<(String, bool)>,
) -> Value {
    let path = cell(row, 2);
    let body = cell(row, 3);
    let names = cell(row, 5);
    let has_body = method != "get" && !body.is_empty();
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut listed: Vec<Value> = in_path
        .map(|name| name.trim_start_matches('*'))
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    for name in names.split(' ').filter(|name| !name.is_empty()) {
        // In a request with a form it may be there instead.
        let is_required = name.ends_with('!') && !(has_body && body == "form");
        let name = name.trim_end_matches('!');
        used.insert((name.to_owned(), is_required));
        listed.push(reference("parameters", &component_name(name, is_required)));
    }
    let mut operation = json!({
        "tags": [cell(row, 0)],
        "summary": cell(row, 6),
        "operationId": operation_id(method, path),
        "responses": schemas::responses(cell(row, 4), cell(row, 0), path),
    });
    if !listed.is_empty() {
        operation["parameters"] = listed.into();
    }
    if has_body {
        let fields = names.split(' ').map(|name| name.trim_end_matches('!'));
        let fields = fields.filter(|name| !name.is_empty() && *name != TENANT);
        let fields: Map<_, _> = fields.map(|name| (name.to_owned(), parameters.schema(name))).collect();
        operation["requestBody"] = schemas::request_body(body, fields);
    }
    operation
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

    #[test]
    fn rows_have_all_cells_and_known_words() {
        let parameters = Parameters::read();
        let tags = TAGS.map(|(name, _)| name);
        let mut paths = BTreeSet::new();
        for row in rows(ROUTES) {
            assert_eq!(row.len(), 7, "{row:?}");
            assert!(tags.contains(&row[0]) && paths.insert(row[2]), "{row:?}");
            assert!(row[1].split(' ').all(|method| ["get", "post", "put"].contains(&method)), "{row:?}");
            assert!(schemas::is_known(cell(&row, 3), cell(&row, 4)), "{row:?}");
            for name in cell(&row, 5).split(' ').filter(|name| !name.is_empty() && *name != TENANT) {
                assert!(parameters.0.contains_key(name.trim_end_matches('!')), "{name} of {row:?}");
            }
        }
        for row in rows(PARAMETERS) {
            let types = ["string", "integer", "number", "boolean", "list", "time", "duration"];
            assert!(row.len() == 3 && types.contains(&row[1]), "{row:?}");
            let is_used =
                |other: &Vec<&str>| cell(other, 5).split(' ').any(|one| one.trim_end_matches('!') == row[0]);
            assert!(rows(ROUTES).any(|other| is_used(&other)), "{row:?} is used");
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        assert_eq!(operation_id("get", "/"), "get");
        assert_eq!(operation_id("get", "/tags/{tag}"), "get-tags-tag");
        assert_eq!(operation_id("post", "/render/"), "post-render-slash");
        assert_eq!(operation_id("get", "/-/ready"), "get-ready");
        let all = rows(ROUTES)
            .flat_map(|row| row[1].split(' ').map(|method| operation_id(method, row[2])).collect::<Vec<_>>());
        let all: Vec<String> = all.collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    }
}
