//! Types and descriptions of parameters, by the names that rows of the table of routes have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::schemas::reference;
use crate::http::routing::{Parameter, TENANT};

const LINES: &str = include_str!("parameters.txt");

/// Type and description of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Definition {
    pub(in crate::http) name: &'static str,
    pub(in crate::http) kind: &'static str,
    pub(in crate::http) description: &'static str,
}

/// Definitions in the order of the file. A line that is no definition is an error of the tests.
pub(in crate::http) fn definitions() -> impl Iterator<Item = Definition> {
    let lines = LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut cells = line.splitn(3, " | ");
        Some(Definition { name: cells.next()?, kind: cells.next()?, description: cells.next()? })
    })
}

/// Definitions by name.
pub(super) struct Parameters(BTreeMap<&'static str, Definition>);

impl Parameters {
    pub(super) fn read() -> Parameters {
        Parameters(definitions().map(|definition| (definition.name, definition)).collect())
    }

    pub(super) fn schema(&self, name: &str) -> Value {
        match self.0.get(name).map_or("", |definition| definition.kind) {
            "time" => reference("schemas", "Time"),
            "duration" => reference("schemas", "Duration"),
            "list" => json!({ "type": "array", "items": { "type": "string" } }),
            kind => json!({ "type": kind }),
        }
    }

    /// Components of the parameters that `used` names, with whether they are required.
    pub(super) fn components(&self, used: &BTreeSet<(&'static str, bool)>) -> Value {
        let mut all = Map::new();
        for &(name, is_required) in used {
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
                    "description": self.0.get(name).map_or("", |definition| definition.description),
                    "required": is_required,
                    "schema": self.schema(name),
                })
            };
            all.insert(component_name(name, is_required), parameter);
        }
        Value::Object(all)
    }
}

/// Name of a parameter among the components: `match[]` is `match`.
pub(super) fn component_name(name: &str, is_required: bool) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    if is_required { format!("{plain}-required") } else { plain }
}

/// Parameters in a path: `{name}`, and `{*name}` for the rest of it.
pub(super) fn in_path(path: &str) -> impl Iterator<Item = Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| name.trim_start_matches('*'))
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
}

/// Fields of a form: all parameters but the tenant.
pub(super) fn fields(parameters: &Parameters, names: impl Iterator<Item = Parameter>) -> Map<String, Value> {
    names
        .filter(|parameter| parameter.name != TENANT)
        .map(|parameter| (parameter.name.to_owned(), parameters.schema(parameter.name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes;

    #[test]
    fn parameters_of_rows_are_defined_and_definitions_are_used() {
        let lines = LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let defined: BTreeSet<&str> = definitions().map(|definition| definition.name).collect();
        assert_eq!(lines.count(), defined.len(), "each line defines another parameter");
        let types = ["string", "integer", "number", "boolean", "list", "time", "duration"];
        for definition in definitions() {
            assert!(types.contains(&definition.kind), "{definition:?}");
        }
        let rows = routes::table().rows();
        let used = rows.flat_map(|(_, route)| route.parameters()).map(|parameter| parameter.name);
        let used: BTreeSet<&str> = used.filter(|name| *name != TENANT).collect();
        assert_eq!(used, defined);
    }
}
