//! Parts of a JWT in compact form (RFC 7519): header, claims, signature.
//!
//! Invariants: nothing here is verified; claims count once the signature has been verified.
//! Not here: keys (`keys`), the principal (`jwt`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys::Algorithm;
use super::refusal::Refusal;

/// Bytes of a token.
pub(super) const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Returns true if `text` has the three parts of a JWT.
pub(super) fn has_three_parts(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// A token that was read and not verified.
pub(super) struct Token<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    pub(super) claims: Map<String, Value>,
    /// Text that is signed.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that a reader has to know; none is known here.
    crit: Option<Value>,
}

impl Token<'_> {
    /// Reads the parts of a token.
    ///
    /// # Errors
    /// [`Refusal::TooLong`], [`Refusal::Malformed`], [`Refusal::Algorithm`].
    pub(super) fn parse(text: &str) -> Result<Token<'_>, Refusal> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        if !has_three_parts(text) {
            return Err(Refusal::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(Refusal::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Refusal::Malformed)?;
        let header: Header = json(header)?;
        if header.crit.is_some() {
            return Err(Refusal::Malformed);
        }
        let algorithm = Algorithm::parse(&header.alg).ok_or(Refusal::Algorithm)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refusal::Malformed)?;
        Ok(Token { algorithm, key_id: header.kid, claims: json(claims)?, signed, signature })
    }

    /// Issuer that the token names.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// Returns true if the token is for one of `audiences`.
    pub(super) fn is_for(&self, audiences: &[String]) -> bool {
        audiences.iter().any(|audience| has_value(&self.claims, "aud", audience))
    }

    /// Returns a time of the claims in ms since 1970; `None` if there is no such claim.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] for a claim that is no number.
    pub(super) fn time_ms(&self, claim: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.claims.get(claim) else { return Ok(None) };
        let seconds = value.as_f64().filter(|seconds| seconds.is_finite()).ok_or(Refusal::Malformed)?;
        // A float beyond the bounds of the integer becomes its nearest bound.
        Ok(Some((seconds * 1000.0) as i64))
    }
}

/// Returns true if the claim `name` is `want`, or a list that contains it. Numbers and bools are compared as
/// JSON writes them.
pub(super) fn has_value(claims: &Map<String, Value>, name: &str, want: &str) -> bool {
    let is_wanted = |value: &Value| match value {
        Value::String(text) => text == want,
        Value::Number(number) => number.to_string() == want,
        Value::Bool(is_true) => want == if *is_true { "true" } else { "false" },
        _ => false,
    };
    match claims.get(name) {
        Some(Value::Array(values)) => values.iter().any(is_wanted),
        Some(value) => is_wanted(value),
        None => false,
    }
}

fn json<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, Refusal> {
    let text = URL_SAFE_NO_PAD.decode(part).map_err(|_| Refusal::Malformed)?;
    serde_json::from_slice(&text).map_err(|_| Refusal::Malformed)
}
