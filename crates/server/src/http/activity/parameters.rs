//! Parameters that all lists have: `limit` and `sort`.

use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::limits::ACTIVITY_LIMIT_MAX;

/// Default of `limit`.
pub(super) const LIMIT_DEFAULT: usize = 100;

/// The parameter `limit`, 1 to [`ACTIVITY_LIMIT_MAX`].
pub(super) fn limit(params: &Params, default: usize) -> Result<usize, ApiError> {
    match params.number("limit").map(|number| number.ok().and_then(|n| usize::try_from(n).ok())) {
        None => Ok(default),
        Some(Some(limit)) if (1..=ACTIVITY_LIMIT_MAX).contains(&limit) => Ok(limit),
        Some(_) => {
            let why = format!("not a whole number from 1 to {ACTIVITY_LIMIT_MAX}");
            Err(ApiError::parameter("limit", why))
        }
    }
}

/// The value of `sort`, one of `names`; the first one by default.
pub(super) fn sort<'a>(params: &Params, names: &[&'a str]) -> Result<&'a str, ApiError> {
    let Some(given) = params.get("sort") else { return Ok(names.first().copied().unwrap_or_default()) };
    names
        .iter()
        .find(|name| **name == given)
        .copied()
        .ok_or_else(|| ApiError::parameter("sort", format!("{given:?} is none of {}", names.join(", "))))
}
