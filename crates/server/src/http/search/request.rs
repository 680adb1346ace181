//! Parameters of a search, as Prometheus's search API has them.
//!
//! Invariants: every parameter is understood or refused with its name; the range is the last hour by default.

use chronolith_model::{Matcher, TimeRange};

use super::ranking::Order;
use super::terms::{FuzzyAlgorithm, Matching, Terms};
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::series::selectors;
use crate::limits::{SEARCH_LIMIT_MAX, SEARCH_TERM_BYTES_MAX, SEARCH_TERMS_MAX};
use crate::web::Web;

/// Time before now with which a search without `start` begins.
const RANGE_DEFAULT_MS: i64 = 3_600_000;
/// Results, and results of a line, unless they are given.
const LIMIT_DEFAULT: usize = 100;

/// A checked search.
pub(super) struct SearchRequest {
    pub(super) selectors: Vec<Vec<Matcher>>,
    pub(super) range: TimeRange,
    pub(super) matching: Matching,
    pub(super) order: Order,
    pub(super) limit: usize,
    /// Results of one line.
    pub(super) batch_size: usize,
    pub(super) has_scores: bool,
    pub(super) has_metadata: bool,
    terms: Vec<String>,
}

impl SearchRequest {
    pub(super) fn parse(web: &Web, params: &Params) -> Result<SearchRequest, ApiError> {
        params.well_formed()?;
        let terms: Vec<String> = params.all("search[]").map(str::to_owned).collect();
        if terms.len() > SEARCH_TERMS_MAX {
            let why = format!("{} terms are more than the limit of {SEARCH_TERMS_MAX}", terms.len());
            return Err(ApiError::parameter("search[]", why));
        }
        if let Some(long) = terms.iter().find(|term| term.len() > SEARCH_TERM_BYTES_MAX) {
            let why = format!("{} bytes are more than the limit of {SEARCH_TERM_BYTES_MAX}", long.len());
            return Err(ApiError::parameter("search[]", why));
        }
        Ok(SearchRequest {
            selectors: selectors(params)?,
            range: range(web, params)?,
            matching: Matching {
                algorithm: algorithm(params)?,
                threshold: threshold(params)?,
                is_case_sensitive: switch(params, "case_sensitive", true)?,
            },
            order: order(params, !terms.is_empty())?,
            limit: limit(params)?,
            batch_size: batch_size(params)?,
            has_scores: switch(params, "include_score", false)?,
            has_metadata: switch(params, "include_metadata", false)?,
            terms,
        })
    }

    pub(super) fn terms(&self) -> Terms {
        Terms::new(self.terms.iter().map(String::as_str), self.matching)
    }
}

fn range(web: &Web, params: &Params) -> Result<TimeRange, ApiError> {
    let now_ms = web.service.env.clock.now_ms();
    let start_ms = params.time_ms("start", now_ms.saturating_sub(RANGE_DEFAULT_MS))?;
    let end_ms = params.time_ms("end", now_ms)?;
    if end_ms < start_ms {
        return Err(ApiError::parameter("end", "end timestamp must not be before start timestamp"));
    }
    Ok(TimeRange::inclusive(start_ms, end_ms))
}

fn algorithm(params: &Params) -> Result<FuzzyAlgorithm, ApiError> {
    match params.get("fuzz_alg") {
        None | Some("subsequence") => Ok(FuzzyAlgorithm::Subsequence),
        Some("jarowinkler") => Ok(FuzzyAlgorithm::JaroWinkler),
        Some(other) => {
            let why = format!("{other:?} is neither subsequence nor jarowinkler");
            Err(ApiError::parameter("fuzz_alg", why))
        }
    }
}

fn threshold(params: &Params) -> Result<f64, ApiError> {
    match params.number("fuzz_threshold") {
        None => Ok(0.0),
        Some(Ok(percent @ 0..=100)) => Ok(percent as f64 / 100.0),
        Some(_) => Err(ApiError::parameter("fuzz_threshold", "not a whole number from 0 to 100")),
    }
}

fn order(params: &Params, has_terms: bool) -> Result<Order, ApiError> {
    let is_descending = match params.get("sort_dir") {
        None => None,
        Some("asc") => Some(false),
        Some("dsc") => Some(true),
        Some(other) => {
            return Err(ApiError::parameter("sort_dir", format!("{other:?} is neither asc nor dsc")));
        }
    };
    match params.get("sort_by") {
        None if is_descending.is_some() => {
            Err(ApiError::parameter("sort_dir", "only valid with sort_by=alpha"))
        }
        None => Ok(Order::NameAscending),
        Some("alpha") if is_descending == Some(true) => Ok(Order::NameDescending),
        Some("alpha") => Ok(Order::NameAscending),
        Some("score") if is_descending.is_some() => {
            Err(ApiError::parameter("sort_dir", "not supported with sort_by=score"))
        }
        Some("score") if !has_terms => {
            Err(ApiError::parameter("sort_by", "score needs at least one search[]"))
        }
        Some("score") => Ok(Order::ScoreDescending),
        Some(other) => Err(ApiError::parameter("sort_by", format!("{other:?} is neither alpha nor score"))),
    }
}

/// The number of results.
fn limit(params: &Params) -> Result<usize, ApiError> {
    match params.get("limit").map(|_| params.limit("limit")).transpose()? {
        None => Ok(LIMIT_DEFAULT),
        Some(0) => Err(ApiError::parameter("limit", "must be a positive integer")),
        Some(limit) if limit > SEARCH_LIMIT_MAX => {
            Err(ApiError::parameter("limit", format!("must not exceed {SEARCH_LIMIT_MAX}")))
        }
        Some(limit) => Ok(limit),
    }
}

/// Results of a line; 0 = the default.
fn batch_size(params: &Params) -> Result<usize, ApiError> {
    match params.limit("batch_size")? {
        0 => Ok(LIMIT_DEFAULT),
        size => Ok(size.min(SEARCH_LIMIT_MAX)),
    }
}

/// A switch as Go's `ParseBool` reads it.
fn switch(params: &Params, name: &str, default: bool) -> Result<bool, ApiError> {
    match params.get(name) {
        None => Ok(default),
        Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
        Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
        Some(other) => Err(ApiError::parameter(name, format!("{other:?} is neither true nor false"))),
    }
}
