//! Bodies, answers and schemas of the OpenAPI description, by the words of its table.

use serde_json::{Map, Value, json};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const PROTOBUF: &str = "application/x-protobuf";

/// Answers by their words: status, media types, schema.
const ANSWERS: [(&str, &str, &[&str], &str); 24] = [
    ("no-content", "204", &[], ""),
    ("json", "200", &[JSON], "Answer"),
    ("query", "200", &[JSON], "QueryAnswer"),
    ("cost", "200", &[JSON], "CostAnswer"),
    ("string", "200", &[JSON], "StringAnswer"),
    ("strings", "200", &[JSON], "StringsAnswer"),
    ("series", "200", &[JSON], "SeriesAnswer"),
    ("plain-json", "200", &[JSON], "Json"),
    ("text", "200", &[TEXT], "Text"),
    ("page", "200", &["text/html"], "Text"),
    ("file", "200", &["*/*"], "Bytes"),
    ("yaml", "200", &["application/yaml"], "Text"),
    ("json-lines", "200", &["application/x-ndjson"], "Text"),
    ("protobuf", "200", &[PROTOBUF], "Bytes"),
    ("chunks", "200", &[PROTOBUF, "application/x-streamed-protobuf"], "Bytes"),
    ("exposition", "200", &[TEXT, "application/openmetrics-text"], "Text"),
    (
        "federation",
        "200",
        &[TEXT, "application/openmetrics-text", "application/vnd.google.protobuf"],
        "Bytes",
    ),
    ("influx-ql", "200", &[JSON, "application/csv", "application/x-msgpack"], "Bytes"),
    ("find", "200", &[JSON, "application/pickle", "application/x-msgpack"], "Bytes"),
    (
        "render",
        "200",
        &[
            "image/png",
            "image/svg+xml",
            JSON,
            "text/csv",
            TEXT,
            "application/pickle",
            "application/x-msgpack",
        ],
        "Bytes",
    ),
    ("refusal", "400", &[JSON], "Error"),
    ("refused", "400", &[TEXT], "Text"),
    ("forbidden", "403", &[JSON], "InfluxError"),
    ("not-found", "404", &[TEXT], "Text"),
];

/// Media types of bodies by their words.
const BODIES: [(&str, &str); 4] =
    [("form", "application/x-www-form-urlencoded"), ("text", TEXT), ("json", JSON), ("protobuf", PROTOBUF)];

pub(super) fn reference(section: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{section}/{name}") })
}

/// Returns true if the table may have these words; an empty body is none.
#[cfg(test)]
pub(super) fn is_known(body: &str, answer: &str) -> bool {
    let has_body = body.is_empty() || BODIES.iter().any(|(word, _)| *word == body);
    has_body && ANSWERS.iter().any(|(word, ..)| *word == answer)
}

/// Responses of an operation: the answer, and errors if that is none itself.
pub(super) fn responses(answer: &str, tag: &str, path: &str) -> Value {
    let found = ANSWERS.iter().find(|(word, ..)| *word == answer);
    let (_, status, media_types, schema) = found.copied().unwrap_or(("", "200", &[], ""));
    let description = match status {
        "200" => "Success",
        "204" => "Success, without a body",
        _ => "Every request is refused",
    };
    let mut response = json!({ "description": description });
    if !media_types.is_empty() {
        let one =
            |media_type: &&str| ((*media_type).to_owned(), json!({ "schema": reference("schemas", schema) }));
        response["content"] = Value::Object(media_types.iter().map(one).collect());
    }
    let mut responses = Map::new();
    responses.insert(status.to_owned(), response);
    let is_plain =
        path.starts_with("/-/") || matches!(path, "/api/v1/write" | "/api/v1/push" | "/api/v1/read");
    let error = match tag {
        "influxdb" => "InfluxError",
        "graphite" => "TextError",
        _ if is_plain => "TextError",
        _ => "ApiError",
    };
    if status.starts_with('2') {
        responses.insert("default".to_owned(), reference("responses", error));
    }
    Value::Object(responses)
}

/// The body of a request; a form has `fields`.
pub(super) fn request_body(body: &str, fields: Map<String, Value>) -> Value {
    let schema = match body {
        "form" => json!({ "type": "object", "properties": fields }),
        "json" => reference("schemas", "Json"),
        "text" => reference("schemas", "Text"),
        _ => reference("schemas", "Bytes"),
    };
    let media_type =
        BODIES.iter().find(|(word, _)| *word == body).map_or(TEXT, |(_, media_type)| *media_type);
    json!({ "content": { media_type: { "schema": schema } } })
}

/// Errors by protocol.
pub(super) fn errors() -> Value {
    let error = |media_type: &str, schema: &str| {
        let content = json!({ media_type: { "schema": reference("schemas", schema) } });
        json!({ "description": "The request failed", "content": content })
    };
    json!({
        "ApiError": error(JSON, "Error"),
        "InfluxError": error(JSON, "InfluxError"),
        "TextError": error(TEXT, "Text"),
    })
}

/// An answer of Prometheus's API with this schema of its data.
fn answer_with(data: &Value) -> Value {
    let data = json!({ "type": "object", "properties": { "data": data } });
    json!({ "allOf": [reference("schemas", "Answer"), data] })
}

pub(super) fn schemas() -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let count = json!({ "type": "integer" });
    let cost = json!({
        "type": "object",
        "required": ["seriesTouched", "samplesRead"],
        "properties": { "seriesTouched": count, "samplesRead": count },
    });
    let query = json!({
        "type": "object",
        "required": ["resultType", "result"],
        "properties": {
            "resultType": { "enum": ["vector", "matrix", "scalar", "string"] },
            "result": { "type": "array" },
            "stats": { "type": "object" },
            "explain": {},
        },
    });
    json!({
        "Time": { "description": "Seconds since 1970, or RFC 3339.", "type": "string" },
        "Duration": { "description": "Seconds, or a number with a unit such as `5m`.", "type": "string" },
        "Text": { "type": "string" },
        "Bytes": { "description": "Content of the media type.", "type": "string", "format": "binary" },
        "Json": {},
        "Labels": { "type": "object", "additionalProperties": { "type": "string" } },
        "Answer": {
            "type": "object",
            "required": ["status", "data"],
            "properties": { "status": { "const": "success" }, "data": {}, "warnings": texts, "infos": texts },
        },
        "StringAnswer": answer_with(&json!({ "type": "string" })),
        "StringsAnswer": answer_with(&texts),
        "SeriesAnswer": answer_with(&json!({ "type": "array", "items": reference("schemas", "Labels") })),
        "CostAnswer":
            answer_with(&json!({ "type": "object", "required": ["estimate"], "properties": { "estimate": cost } })),
        "QueryAnswer": answer_with(&query),
        "Error": {
            "type": "object",
            "required": ["status", "errorType", "error"],
            "properties": {
                "status": { "const": "error" },
                "errorType": { "type": "string" },
                "error": { "type": "string" },
            },
        },
        "InfluxError": {
            "type": "object",
            "required": ["error"],
            "properties": { "error": { "type": "string" } },
        },
    })
}
