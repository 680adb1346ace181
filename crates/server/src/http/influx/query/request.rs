//! A request with statements: parameters of URL, form or file, the format of the response, the statements.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, header};
use chronolith_influxql::ast::Statement;
use chronolith_influxql::{Parameters, parse_query_with};
use chronolith_model::TenantId;
use chronolith_service::access::Identity;

use super::super::printer::{Epoch, Printer};
use super::super::reply::InfluxError;
use super::format::Format;
use super::parameters;
use crate::http::body;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::origin;
use crate::http::params::Params;
use crate::http::sender::identity_of;
use crate::limits::FORM_BYTES_MAX;
use crate::web::Web;

/// Rows of a chunk if the request names none.
const CHUNK_ROWS: usize = 10_000;

/// A request whose statements have been parsed.
pub(super) struct QueryRequest {
    pub(super) identity: Identity,
    pub(super) tenant: TenantId,
    pub(super) parts: Parts,
    pub(super) params: Params,
    pub(super) text: String,
    pub(super) statements: Vec<Statement>,
    pub(super) database: String,
    pub(super) policy: String,
    pub(super) format: Format,
    epoch: Epoch,
    is_pretty: bool,
    /// Rows of a chunk; `None` for one response.
    pub(super) chunk_rows: Option<usize>,
    pub(super) is_get: bool,
    /// The client does not wait for the results.
    pub(super) is_async: bool,
    /// A GET that a page of another origin asked for.
    pub(super) is_foreign_get: bool,
}

impl QueryRequest {
    pub(super) async fn read(web: &Web, request: Request) -> Result<QueryRequest, InfluxError> {
        let (parts, request_body) = request.into_parts();
        let identity = identity_of(&parts.extensions).map_err(ApiError::from)?;
        let tenant = identity.tenant().clone();
        let memory_max = web.service.limits_of(&tenant).queries.memory_bytes_max;
        let memory = web.service.admission.query_memory.of(&tenant, memory_max);
        let mut params = Params::default();
        let is_get = parts.method != Method::POST;
        let mut file = None;
        if !is_get {
            let body = body::read_query(request_body, FORM_BYTES_MAX, &memory.budget).await?;
            let kind =
                parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
            if kind.starts_with("multipart/form-data") {
                file = statements_of_file(kind, body.bytes).await?;
            } else if kind.starts_with("application/x-www-form-urlencoded") {
                let text = std::str::from_utf8(&body.bytes);
                let text = text.map_err(|_| InfluxError::bad_request("form body is not UTF-8"))?;
                params.parse(text)?;
            } else if kind.starts_with("application/vnd.influxql") {
                file = String::from_utf8(body.bytes).ok();
            }
        }
        // After the parameters of the form: the first one of a name counts, as in InfluxDB.
        params.parse(parts.uri.query().unwrap_or(""))?;
        let trimmed = params.get("q").map(str::trim).filter(|text| !text.is_empty());
        let text = file.or_else(|| trimmed.map(str::to_owned));
        let text = text.ok_or_else(|| InfluxError::bad_request("missing required parameter \"q\""))?;
        let failed = |error: &dyn std::fmt::Display| {
            InfluxError::bad_request(format_args!("error parsing query: {error}"))
        };
        let parameters = match params.get("params") {
            None => Parameters::default(),
            Some(json) => parameters::of_json(json).map_err(|error| {
                InfluxError::bad_request(format_args!("error parsing query parameters: {error}"))
            })?,
        };
        let statements = parse_query_with(&text, parameters).map_err(|error| failed(&error))?;
        let is_chunked = params.get("chunked") == Some("true");
        let chunk_size = params.get("chunk_size").and_then(|text| text.parse::<usize>().ok());
        Ok(QueryRequest {
            identity,
            tenant,
            text,
            statements,
            database: params.get("db").unwrap_or("").to_owned(),
            policy: params.get("rp").unwrap_or("").to_owned(),
            format: Format::of(&parts.headers),
            epoch: Epoch::of(params.get("epoch")),
            is_pretty: params.get("pretty") == Some("true"),
            chunk_rows: is_chunked.then(|| chunk_size.filter(|rows| *rows > 0).unwrap_or(CHUNK_ROWS)),
            is_get,
            is_async: params.get("async") == Some("true"),
            is_foreign_get: is_get && origin::is_foreign_and_not_allowed(web, &parts.headers),
            parts,
            params,
        })
    }

    pub(super) fn printer(&self) -> Box<dyn Printer> {
        self.format.printer(self.epoch, self.is_pretty)
    }
}

/// Returns the part `q` of a multipart form.
async fn statements_of_file(kind: &str, bytes: Vec<u8>) -> Result<Option<String>, InfluxError> {
    let wrong = |error: multer::Error| InfluxError::from(ApiError::new(ErrorKind::BadRequest, error));
    let boundary = multer::parse_boundary(kind).map_err(wrong)?;
    let body = futures_util::stream::once(async { Ok::<_, std::io::Error>(Bytes::from(bytes)) });
    let mut form = multer::Multipart::new(body, boundary);
    while let Some(field) = form.next_field().await.map_err(wrong)? {
        if field.name() == Some("q") {
            return Ok(Some(field.text().await.map_err(wrong)?));
        }
    }
    Ok(None)
}
