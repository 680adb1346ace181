//! Logins by JWT: issuers with their keys, and principals by claims.
//!
//! Invariants: claims count once the signature is verified by a key of the issuer that the token names. A
//! remembered token belongs to these keys and principals alone: when one of them changes, a new
//! [`JwtLogins`] without remembered tokens takes their place.
//! Not here: syntax of the access file (`file`), files of keys (`key_files`), times of fetches (`providers`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Rng;
use hashlink::LruCache;
use parking_lot::Mutex;
use ring::hmac;

use super::principal::Principal;
use key_files::KeyFiles;
use keys::KeySet;
use providers::{Provider, Providers};
use refusal::Refusal;
use token::{Token, has_value};

pub(super) mod discovery;
pub(super) mod key_files;
mod keys;
pub mod providers;
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
    pub(super) keys: KeySource,
    /// Tolerated difference between the clocks of issuer and server, ms.
    pub(super) leeway_ms: i64,
}

/// Source of an issuer's public keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeySource {
    /// File with a key set in JSON.
    File(PathBuf),
    /// The provider at the address that is the issuer's name.
    Discovery,
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

impl JwtRules {
    /// Files of keys.
    pub(super) fn key_files(&self) -> impl Iterator<Item = &Path> + Clone {
        self.issuers.iter().filter_map(|issuer| match &issuer.keys {
            KeySource::File(path) => Some(path.as_path()),
            KeySource::Discovery => None,
        })
    }

    /// Names of issuers whose keys are fetched.
    pub(super) fn discovered(&self) -> impl Iterator<Item = &str> {
        let is_discovered = |issuer: &&Issuer| issuer.keys == KeySource::Discovery;
        self.issuers.iter().filter(is_discovered).map(|issuer| issuer.name.as_str())
    }
}

/// Issuers with their keys, principals, and tokens that were right.
pub(super) struct JwtLogins {
    issuers: Vec<KnownIssuer>,
    rules: Vec<ClaimsRule>,
    digest_key: hmac::Key,
    remembered: Mutex<LruCache<[u8; 32], Remembered>>,
}

/// An issuer with the keys in use.
struct KnownIssuer {
    issuer: Issuer,
    keys: Arc<KeySet>,
    /// Set if the keys are fetched.
    provider: Option<Arc<Provider>>,
}

/// Reason why a token is no login, or not yet.
pub(super) enum Unverified {
    Refused(Refusal),
    /// The key of the token is unknown, and the keys of its issuer are being fetched.
    KeysPending,
}

impl From<Refusal> for Unverified {
    fn from(refusal: Refusal) -> Unverified {
        Unverified::Refused(refusal)
    }
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
    /// Logins by `rules` and the keys that `files` and `providers` have.
    pub(super) fn new(
        rules: &JwtRules,
        files: &KeyFiles,
        providers: &Providers,
        digest_key: &hmac::Key,
    ) -> JwtLogins {
        let with_keys = |issuer: &Issuer| {
            let provider = providers.get(&issuer.name);
            let keys = match &issuer.keys {
                KeySource::File(path) => files.keys(path),
                KeySource::Discovery => provider.as_ref().map(|provider| provider.keys()).unwrap_or_default(),
            };
            KnownIssuer { issuer: issuer.clone(), keys, provider }
        };
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
        self.issuers.iter().map(|known| known.keys.key_count()).sum()
    }

    /// Returns the principal of a token. Cost: one signature, or one HMAC if the token was right before.
    ///
    /// # Errors
    /// [`Unverified`].
    pub(super) fn verify(&self, text: &str, now_ms: i64) -> Result<Arc<Principal>, Unverified> {
        if text.len() > token::TOKEN_BYTES_MAX {
            return Err(Refusal::TooLong.into());
        }
        let digest = self.digest(text);
        let known = self.remembered.lock().get(&digest).cloned();
        if let Some(known) = known {
            return if now_ms < known.end_ms { Ok(known.principal) } else { Err(Refusal::Expired.into()) };
        }
        let accepted = self.verify_unknown(text, now_ms)?;
        let principal = accepted.principal.clone();
        self.remembered.lock().insert(digest, accepted);
        Ok(principal)
    }

    fn verify_unknown(&self, text: &str, now_ms: i64) -> Result<Remembered, Unverified> {
        let token = Token::parse(text)?;
        let named = token.issuer().ok_or(Refusal::Issuer)?;
        let known = self.issuers.iter().find(|known| known.issuer.name == named).ok_or(Refusal::Issuer)?;
        let KnownIssuer { issuer, keys, provider } = known;
        let is_pending =
            |provider: &Arc<Provider>| !keys.has_key(token.key_id.as_deref()) && provider.want_keys();
        if provider.as_ref().is_some_and(is_pending) {
            return Err(Unverified::KeysPending);
        }
        keys.verify(token.key_id.as_deref(), token.algorithm, token.signed.as_bytes(), &token.signature)?;
        let end_ms = check_times(&token, issuer.leeway_ms, now_ms)?;
        if !token.is_for(&issuer.audiences) {
            return Err(Refusal::Audience.into());
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
