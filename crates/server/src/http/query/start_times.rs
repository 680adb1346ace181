//! The header `X-Prometheus-Use-Start-Timestamps`, which overrides the feature `use-start-timestamps` for one
//! query.
//!
//! Invariant: values and texts of errors are Prometheus's, which reads booleans as Go does.

use axum::extract::Request;
use chronolith_model::quote::write_quoted;
use chronolith_promql::engine::Engine;

use crate::http::error::ApiError;
use crate::web::Web;

const NAME: &str = "X-Prometheus-Use-Start-Timestamps";

/// Value of the header; empty if it is absent.
pub(super) struct StartTimesHeader(String);

impl StartTimesHeader {
    pub(super) fn of(request: &Request) -> StartTimesHeader {
        let value = request.headers().get(NAME).map(|value| String::from_utf8_lossy(value.as_bytes()));
        StartTimesHeader(value.unwrap_or_default().into_owned())
    }

    /// The engine for this query.
    pub(super) fn engine(&self, web: &Web) -> Result<Engine, ApiError> {
        let engine = &web.service.queries.engine;
        let is_on = match self.0.as_str() {
            "" => return Ok(engine.clone()),
            "1" | "t" | "T" | "TRUE" | "true" | "True" => true,
            "0" | "f" | "F" | "FALSE" | "false" | "False" => false,
            other => {
                let mut text = format!("error parsing {NAME} header: strconv.ParseBool: parsing ");
                // Writing to a string does not fail.
                let _ = write_quoted(&mut text, other);
                return Err(ApiError::bad_request(text + ": invalid syntax"));
            }
        };
        Ok(engine.with_start_times(is_on))
    }
}
