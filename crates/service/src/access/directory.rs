//! Principals by the credentials that prove them.
//!
//! Invariants: a token and a password are known as hashes alone; a token, a user name and a name of a
//! certificate each belong to one principal.
//! Not here: the file that lists principals (`file`), headers (`server`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::hash::HashMap;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use super::jwt::{ClaimsRule, Issuer, JwtRules, KeySource};
use super::passwords::BcryptHash;
use super::principal::{Principal, Tenants};
use super::scope::Scopes;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// Returns the hash under which a token is known.
#[must_use]
pub fn hash_of_token(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// Returns the fingerprint of a certificate in DER.
#[must_use]
pub fn hash_of_certificate(der: &[u8]) -> [u8; 32] {
    Sha256::digest(der).into()
}

/// Bytes of a token's random part.
const TOKEN_BYTES: usize = 32;

/// Makes a token of random bytes of the operating system, as text for a header.
///
/// # Errors
/// The operating system has no random bytes.
pub fn new_token() -> Result<String, String> {
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "no random bytes of the operating system".to_owned())?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("clt_{digits}"))
}

/// All principals of a server.
#[derive(Default, Clone)]
pub struct Directory {
    tokens: HashMap<TokenHash, Arc<Principal>>,
    users: HashMap<Box<str>, User>,
    /// By alternative name.
    certificates: HashMap<Box<str>, Arc<Principal>>,
    jwt: JwtRules,
    principal_count: usize,
}

/// A principal that logs in with a password.
#[derive(Clone)]
pub struct User {
    /// Hash of the password.
    pub password_hash: BcryptHash,
    /// The principal.
    pub principal: Arc<Principal>,
}

/// Credentials of one principal.
#[derive(Default)]
pub struct Credentials {
    /// Hashes of tokens.
    pub tokens: Vec<TokenHash>,
    /// User name and hash of the password.
    pub user: Option<(String, BcryptHash)>,
    /// Alternative names of certificates of clients.
    pub sans: Vec<String>,
    /// Issuer of tokens, and claims that they must have.
    pub claims: Option<ClaimsOfIssuer>,
}

/// Name of an issuer of JWTs, and claims with the values that each must have.
pub type ClaimsOfIssuer = (String, BTreeMap<String, Vec<String>>);

impl Directory {
    /// Adds a principal with its credentials.
    ///
    /// # Errors
    /// Text that names a credential that another principal has.
    pub fn add(&mut self, principal: Principal, credentials: Credentials) -> Result<(), String> {
        let principal = Arc::new(principal);
        let taken = |what: &str, other: &Principal| {
            format!("{what} of {:?} is one of {:?} as well", principal.name(), other.name())
        };
        for hash in credentials.tokens {
            if let Some(other) = self.tokens.insert(hash, principal.clone()) {
                return Err(taken("a token", &other));
            }
        }
        if let Some((name, password_hash)) = credentials.user {
            let user = User { password_hash, principal: principal.clone() };
            if let Some(other) = self.users.insert(name.clone().into(), user) {
                return Err(taken(&format!("user {name:?}"), &other.principal));
            }
        }
        for san in credentials.sans {
            if let Some(other) = self.certificates.insert(san.clone().into(), principal.clone()) {
                return Err(taken(&format!("certificate name {san:?}"), &other));
            }
        }
        if let Some((issuer, claims)) = credentials.claims {
            self.jwt.rules.push(ClaimsRule { issuer, claims, principal });
        }
        self.principal_count += 1;
        Ok(())
    }

    /// Adds a principal that may do everything for every tenant and logs in as `user`, unless a user has this
    /// name.
    pub(super) fn add_unrestricted(&mut self, user: &str, password_hash: BcryptHash) {
        if self.users.contains_key(user) {
            return;
        }
        let principal = Arc::new(Principal::new(user, Tenants::All, Scopes::all()));
        self.users.insert(user.into(), User { password_hash, principal });
        self.principal_count += 1;
    }

    /// Adds an issuer of JWTs.
    pub(super) fn add_issuer(&mut self, issuer: Issuer) {
        self.jwt.issuers.push(issuer);
    }

    /// Makes relative paths of files of keys relative to `folder`.
    pub(super) fn resolve_key_files(&mut self, folder: Option<&Path>) {
        let Some(folder) = folder else { return };
        for issuer in &mut self.jwt.issuers {
            if let KeySource::File(path) = &mut issuer.keys {
                *path = folder.join(&*path);
            }
        }
    }

    /// Issuers of JWTs, and principals by claims.
    pub(super) fn jwt(&self) -> &JwtRules {
        &self.jwt
    }

    /// Number of principals.
    #[must_use]
    pub fn principal_count(&self) -> usize {
        self.principal_count
    }

    /// Returns the principal of a token. Cost: one SHA-256 of the token.
    #[must_use]
    pub fn find_token(&self, token: &str) -> Option<&Arc<Principal>> {
        self.tokens.get(&hash_of_token(token))
    }

    /// Returns the principal of the first of these names that one has.
    #[must_use]
    pub fn find_certificate(&self, sans: &[String]) -> Option<&Arc<Principal>> {
        sans.iter().find_map(|san| self.certificates.get(san.as_str()))
    }

    /// Hashes of the passwords of all users.
    pub fn password_hashes(&self) -> impl Iterator<Item = &BcryptHash> {
        self.users.values().map(|user| &user.password_hash)
    }

    /// Returns the user of this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }
}
