//! Origins whose pages may use the API.

use axum::http::HeaderValue;
use chronolith_model::{MatchOp, Matcher};

/// A matcher needs a label name, which is not looked at.
const UNUSED_NAME: &str = "origin";
/// Regex of the default, which allows any origin.
const ANY_PATTERN: &str = ".*";

/// Origins whose pages may use the API: an anchored regular expression, as `--web.cors.origin` of Prometheus.
#[derive(Debug, Clone)]
pub struct CorsOrigin(Matcher);

impl CorsOrigin {
    /// # Errors
    /// If `pattern` is no regular expression.
    pub fn new(pattern: &str) -> Result<CorsOrigin, String> {
        let matcher = Matcher::new(UNUSED_NAME, MatchOp::Regex, pattern);
        matcher.map(CorsOrigin).map_err(|error| error.to_string())
    }

    pub(crate) fn matches(&self, origin: &HeaderValue) -> bool {
        origin.to_str().is_ok_and(|origin| self.0.matches(origin))
    }

    /// The value of `Access-Control-Allow-Origin` for an origin that matches.
    pub(crate) fn allow(&self, origin: &HeaderValue) -> HeaderValue {
        if &*self.0.value == ANY_PATTERN { HeaderValue::from_static("*") } else { origin.clone() }
    }
}
