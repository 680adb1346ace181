//! Logins by JWT: issuers with their keys, and principals by claims.
//!
//! Invariants: claims count once the signature is verified by a key of the issuer that the token names. A
//! remembered token belongs to these keys and principals alone: when one of them changes, a new
//! [`JwtLogins`] without remembered tokens takes their place.
//! Not here: syntax of the access file (`file`), files of keys (`key_files`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::Rng;
use hashlink::LruCache;
use parking_lot::Mutex;
use ring::hmac;

use super::principal::Principal;
use key_files::KeyFiles;
use keys::KeySet;
use refusal::Refusal;
use token::{Token, has_value};

pub(super) mod key_files;
mod keys;
pub mod refusal;
mod token;

/// Remembered tokens over all issuers.
const REMEMBERED_COUNT_MAX: usize = 4096;

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issuer {
    /// Claim `iss`, exactly.
    pub(super) name: String,
    /// Accepted values of the claim `aud`.
    pub(super) audiences: Vec<String>,
    /// Key set in JSON.
    pub(super) jwks_file: PathBuf,
    /// Tolerated difference between the clocks of issuer and server, ms.
    pub(super) leeway_ms: i64,
}

/// A principal that logs in with tokens of one issuer.
#[derive(Debug, Clone)]
pub(super) struct ClaimsRule {
    /// Name of the issuer.
    pub(super) issuer: String,
    /// Claims with the value that each must have.
    pub(super) claims: BTreeMap<String, Vec<String>>,
    pub(super) principal: Arc<Principal>,
}

/// Issuers and rules of the access file.
#[derive(Debug, Clone, Default)]
pub(super) struct JwtRules {
    pub(super) issuers: Vec<Issuer>,
    /// In the order of the file.
    pub(super) rules: Vec<ClaimsRule>,
}

/// Issuers with their keys, principals, and tokens that were right.
pub(super) struct JwtLogins {
    issuers: Vec<(Issuer, Arc<KeySet>)>,
    rules: Vec<ClaimsRule>,
    digest_key: hmac::Key,
    remembered: Mutex<LruCache<[u8; 32], Remembered>>,
}

/// A token that was right.
#[derive(Clone)]
struct Remembered {
    principal: Arc<Principal>,
    /// Time from which the token is refused, ms since 1970, with leeway.
    end_ms: i64,
}

/// Makes the key of digests of tokens.
pub(super) fn digest_key(rng: &Rng) -> hmac::Key {
    let mut key = [0u8; 32];
    rng.fill(&mut key);
    hmac::Key::new(hmac::HMAC_SHA256, &key)
}

impl JwtLogins {
    /// Logins by `rules` and the keys that `files` has.
    pub(super) fn new(rules: &JwtRules, files: &KeyFiles, digest_key: &hmac::Key) -> JwtLogins {
        let with_keys = |issuer: &Issuer| (issuer.clone(), files.keys(&issuer.jwks_file));
        JwtLogins {
            issuers: rules.issuers.iter().map(with_keys).collect(),
            rules: rules.rules.clone(),
            digest_key: digest_key.clone(),
            remembered: Mutex::new(LruCache::new(REMEMBERED_COUNT_MAX)),
        }
    }

    /// Returns true if `text` may be a JWT and one could be a login.
    pub(super) fn takes(&self, text: &str) -> bool {
        !self.issuers.is_empty() && token::has_three_parts(text)
    }

    /// Number of keys over all issuers.
    pub(super) fn key_count(&self) -> usize {
        self.issuers.iter().map(|(_, keys)| keys.key_count()).sum()
    }

    /// Returns the principal of a token. Cost: one signature, or one HMAC if the token was right before.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn verify(&self, text: &str, now_ms: i64) -> Result<Arc<Principal>, Refusal> {
        if text.len() > token::TOKEN_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        let digest = self.digest(text);
        let known = self.remembered.lock().get(&digest).cloned();
        if let Some(known) = known {
            return if now_ms < known.end_ms { Ok(known.principal) } else { Err(Refusal::Expired) };
        }
        let accepted = self.verify_unknown(text, now_ms)?;
        let principal = accepted.principal.clone();
        self.remembered.lock().insert(digest, accepted);
        Ok(principal)
    }

    fn verify_unknown(&self, text: &str, now_ms: i64) -> Result<Remembered, Refusal> {
        let token = Token::parse(text)?;
        let named = token.issuer().ok_or(Refusal::Issuer)?;
        let (issuer, keys) =
            self.issuers.iter().find(|(issuer, _)| issuer.name == named).ok_or(Refusal::Issuer)?;
        keys.verify(token.key_id.as_deref(), token.algorithm, token.signed.as_bytes(), &token.signature)?;
        let end_ms = check_times(&token, issuer.leeway_ms, now_ms)?;
        if !token.is_for(&issuer.audiences) {
            return Err(Refusal::Audience);
        }
        let rule = self.rules.iter().find(|rule| rule.issuer == issuer.name && rule.matches(&token));
        let principal = rule.ok_or(Refusal::Claims)?.principal.clone();
        Ok(Remembered { principal, end_ms })
    }

    /// Keyed digest of a token. Lookups by it reveal no byte of a token by their time.
    fn digest(&self, text: &str) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(hmac::sign(&self.digest_key, text.as_bytes()).as_ref());
        digest
    }
}

impl ClaimsRule {
    fn matches(&self, token: &Token<'_>) -> bool {
        let mut wanted = self.claims.iter().flat_map(|(name, values)| values.iter().map(move |v| (name, v)));
        wanted.all(|(name, value)| has_value(&token.claims, name, value))
    }
}

/// Checks `exp`, `nbf` and `iat`; returns the time from which the token is refused.
fn check_times(token: &Token<'_>, leeway_ms: i64, now_ms: i64) -> Result<i64, Refusal> {
    let expires_ms = token.time_ms("exp")?.ok_or(Refusal::Expired)?;
    let end_ms = expires_ms.saturating_add(leeway_ms);
    if now_ms >= end_ms {
        return Err(Refusal::Expired);
    }
    for claim in ["nbf", "iat"] {
        let is_future =
            token.time_ms(claim)?.is_some_and(|time_ms| time_ms > now_ms.saturating_add(leeway_ms));
        if is_future {
            return Err(Refusal::NotYetValid);
        }
    }
    Ok(end_ms)
}

#[cfg(test)]
mod tests;
