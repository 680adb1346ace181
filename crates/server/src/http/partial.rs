//! Parameter `partial_response`: a read leaves out blocks of the bucket that fail instead of failing with
//! them.
//!
//! Invariants: without the parameter nothing is left out; each part that is left out is named in `warnings`.
//! Not here: which parts may be left out (`tsdb`), the result cache, which keeps no result with warnings.

use chronolith_service::evaluation::call_context::CallContext;

use super::error::ApiError;
use super::params::Params;
use crate::web::Web;

/// Treatment of sources that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartialResponse {
    /// The read fails with them.
    Refused,
    /// Failed sources are left out and named.
    Allowed,
}

impl PartialResponse {
    pub(super) fn parse(params: &Params) -> Result<PartialResponse, ApiError> {
        match params.get("partial_response") {
            None | Some("0" | "false") => Ok(PartialResponse::Refused),
            Some("1" | "true") => Ok(PartialResponse::Allowed),
            Some(other) => {
                let why = format_args!("{other:?} is neither true nor false");
                Err(ApiError::parameter("partial_response", why))
            }
        }
    }

    /// Runs a read; counts it if parts are missing in its result.
    pub(super) fn run<T>(
        self,
        web: &Web,
        ctx: &CallContext,
        read: impl FnOnce(&CallContext) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if self == PartialResponse::Refused {
            return read(ctx);
        }
        let ctx = ctx.with_partial_response();
        let result = read(&ctx);
        if result.is_ok() && ctx.warnings().is_partial() {
            web.service.queries.metrics.partial.add(1);
        }
        result
    }
}
