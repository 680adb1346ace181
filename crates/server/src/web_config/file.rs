//! YAML of a web configuration file.
//!
//! Invariants: an unknown key, a key that is set twice and an unknown name are errors with line and column.
//! No error shows a part of the file but names of keys, and values that are names.
//! Not here: content of certificates and keys (`tls`).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use chronolith_service::access::passwords::BcryptHash;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_saphyr::{Error, Spanned};

use super::go_duration;
use super::limiter::RateLimit;
use super::position::fault_at;
use super::tls::{TlsOptions, TlsSection};

/// Content of a web configuration file.
pub(crate) struct WebConfig {
    tls: Option<TlsOptions>,
    http2: bool,
    headers: Vec<(HeaderName, HeaderValue)>,
    users: Vec<(String, BcryptHash)>,
    rate_limit: Option<RateLimit>,
}

impl Default for WebConfig {
    /// Content of an empty file.
    fn default() -> WebConfig {
        WebConfig { tls: None, http2: true, headers: Vec::new(), users: Vec::new(), rate_limit: None }
    }
}

impl WebConfig {
    /// Reads the text of a file. Relative paths in it are relative to `dir`.
    ///
    /// # Errors
    /// Line, column, and the expected form.
    pub(super) fn parse(text: &str, dir: &Path) -> Result<WebConfig, String> {
        let is_empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let file = if is_empty { File::default() } else { read(text)? };
        let http = file.http_server_config.unwrap_or_default();
        let tls = file.tls_server_config.map(|section| TlsOptions::new(section, dir));
        Ok(WebConfig {
            tls: tls.transpose()?.flatten(),
            http2: http.http2.unwrap_or(true),
            headers: headers_of(http.headers.unwrap_or_default())?,
            users: users_of(file.basic_auth_users.unwrap_or_default())?,
            rate_limit: file.rate_limit.map(rate_limit_of).transpose()?.flatten(),
        })
    }

    /// `None`: connections are not encrypted.
    pub(super) fn tls(&self) -> Option<&TlsOptions> {
        self.tls.as_ref()
    }

    /// Returns true if clients may choose HTTP/2.
    pub(crate) fn http2(&self) -> bool {
        self.http2
    }

    /// Headers of each response, with their values.
    pub(crate) fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    /// Users with their password hashes, by name.
    pub(crate) fn users(&self) -> &[(String, BcryptHash)] {
        &self.users
    }

    /// `None`: requests are not limited.
    pub(super) fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit
    }
}

/// Headers that may be set, with their values where only some are allowed.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct File {
    tls_server_config: Option<TlsSection>,
    http_server_config: Option<HttpSection>,
    basic_auth_users: Option<BTreeMap<String, Spanned<Option<String>>>>,
    rate_limit: Option<RateLimitSection>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct HttpSection {
    http2: Option<bool>,
    headers: Option<BTreeMap<String, Spanned<Option<String>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimitSection {
    interval: Option<Spanned<String>>,
    burst: Option<i64>,
}

fn read(text: &str) -> Result<File, String> {
    // A snippet would show secrets.
    let options = serde_saphyr::options! { with_snippet: false };
    let file: Option<File> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location();
        let line = place.map_or(1, |place| place.line());
        let column = place.map_or(1, |place| place.column());
        format!("line {line}, column {column}: {}", fault(&error))
    })?;
    Ok(file.unwrap_or_default())
}

/// Describes a fault without a value of the file.
fn fault(error: &Error) -> String {
    match error.without_snippet() {
        Error::SerdeUnknownField { field, .. } => format!("unknown key {field:?}"),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("{key:?} is set twice"),
        Error::DuplicateMappingKey { key: None, .. } => "a key is set twice".to_owned(),
        Error::MultipleDocuments { .. } => "expected one YAML document, found several".to_owned(),
        _ => "not valid YAML, or not the kind of value that the key has".to_owned(),
    }
}

fn headers_of(
    headers: BTreeMap<String, Spanned<Option<String>>>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut set = Vec::new();
    for (name, value) in headers {
        let Some((name, allowed)) = HEADERS.iter().find(|(known, _)| *known == name) else {
            let known = HEADERS.map(|(known, _)| known).join(", ");
            return Err(fault_at(&value, &format!("`headers`: {name:?} is none of {known}")));
        };
        let text = value.value.as_deref().unwrap_or("");
        if !allowed.is_empty() && !allowed.contains(&text) {
            let why = format!("`headers`: {name} is {text:?}, expected {}", allowed.join(" or "));
            return Err(fault_at(&value, &why));
        }
        let Ok(header) = HeaderValue::from_bytes(text.as_bytes()) else {
            return Err(fault_at(&value, &format!("`headers`: {name} has a control character")));
        };
        if !text.is_empty() {
            set.push((HeaderName::try_from(*name).expect("names of the list are valid"), header));
        }
    }
    Ok(set)
}

fn users_of(users: BTreeMap<String, Spanned<Option<String>>>) -> Result<Vec<(String, BcryptHash)>, String> {
    let hash_of = |(name, hash): (String, Spanned<Option<String>>)| {
        let parsed = BcryptHash::parse(hash.value.as_deref().unwrap_or(""));
        let parsed =
            parsed.map_err(|why| fault_at(&hash, &format!("`basic_auth_users`: {name:?}: {why}")))?;
        Ok((name, parsed))
    };
    users.into_iter().map(hash_of).collect()
}

/// A limit without an interval, or with a negative one, is none.
fn rate_limit_of(section: RateLimitSection) -> Result<Option<RateLimit>, String> {
    let Some(interval) = section.interval else { return Ok(None) };
    let ns = go_duration::parse(&interval.value).ok_or_else(|| {
        fault_at(&interval, &format!("`interval`: {:?} is no duration like 100ms", interval.value))
    })?;
    let burst = u32::try_from(section.burst.unwrap_or(0).max(0)).unwrap_or(u32::MAX);
    let interval = Duration::from_nanos(u64::try_from(ns).unwrap_or(0));
    Ok((!interval.is_zero()).then(|| RateLimit::new(interval, burst)))
}
