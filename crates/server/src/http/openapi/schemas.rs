//! Bodies, answers and schemas of the OpenAPI description.

use serde_json::{Map, Value, json};

use crate::http::routing::{Answer, ErrorForm, RequestBody};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/x-protobuf";

/// Status, media types and schema of an answer.
fn shape(answer: Answer) -> (&'static str, &'static [&'static str], &'static str) {
    match answer {
        Answer::NoContent => ("204", &[], ""),
        Answer::Json => ("200", &[JSON], "Answer"),
        Answer::Query => ("200", &[JSON], "QueryAnswer"),
        Answer::Cost => ("200", &[JSON], "CostAnswer"),
        Answer::String => ("200", &[JSON], "StringAnswer"),
        Answer::Strings => ("200", &[JSON], "StringsAnswer"),
        Answer::Series => ("200", &[JSON], "SeriesAnswer"),
        Answer::PlainJson => ("200", &[JSON], "Json"),
        Answer::Text => ("200", &[TEXT], "Text"),
        Answer::Page => ("200", &["text/html"], "Text"),
        Answer::File => ("200", &["*/*"], "Bytes"),
        Answer::Yaml => ("200", &[YAML], "Text"),
        Answer::JsonLines => ("200", &["application/x-ndjson"], "Text"),
        Answer::Protobuf => ("200", &[PROTOBUF], "Bytes"),
        Answer::Chunks => ("200", &[PROTOBUF, "application/x-streamed-protobuf"], "Bytes"),
        Answer::Exposition => ("200", &[TEXT, "application/openmetrics-text"], "Text"),
        Answer::Federation => {
            ("200", &[TEXT, "application/openmetrics-text", "application/vnd.google.protobuf"], "Bytes")
        }
        Answer::InfluxQl => ("200", &[JSON, "application/csv", "application/x-msgpack"], "Bytes"),
        Answer::Find => ("200", &[JSON, "application/pickle", "application/x-msgpack"], "Bytes"),
        Answer::Render => (
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
        Answer::Refusal => ("400", &[JSON], "Error"),
        Answer::Refused => ("400", &[TEXT], "Text"),
        Answer::Forbidden => ("403", &[JSON], "InfluxError"),
        Answer::NotFound => ("404", &[TEXT], "Text"),
    }
}

pub(super) fn reference(section: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{section}/{name}") })
}

/// Responses of an operation: the answer, and errors if that is none itself.
pub(super) fn responses(answer: Answer, errors: ErrorForm) -> Value {
    let (status, media_types, schema) = shape(answer);
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
    let error = match errors {
        ErrorForm::Api => "ApiError",
        ErrorForm::Influx => "InfluxError",
        ErrorForm::Text => "TextError",
    };
    if status.starts_with('2') {
        responses.insert("default".to_owned(), reference("responses", error));
    }
    Value::Object(responses)
}

/// The body of a request, if it has one; a form has `fields`.
pub(super) fn request_body(body: RequestBody, fields: Map<String, Value>) -> Option<Value> {
    let (media_type, schema) = match body {
        RequestBody::None => return None,
        RequestBody::Form => (FORM, json!({ "type": "object", "properties": fields })),
        RequestBody::Json => (JSON, reference("schemas", "Json")),
        RequestBody::Protobuf => (PROTOBUF, reference("schemas", "Bytes")),
        RequestBody::Text => (TEXT, reference("schemas", "Text")),
        RequestBody::Yaml => (YAML, reference("schemas", "Text")),
    };
    Some(json!({ "content": { media_type: { "schema": schema } } }))
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
