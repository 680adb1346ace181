//! Credentials of a request, and the principal that they prove.
//!
//! Invariants: one form of credentials counts, in this order: parameters of the URL (InfluxDB's API), the
//! header `Authorization`, the client certificate; a wrong one is not made good by another. No log line, no
//! error and no metric has a credential.
//! Not here: principals (`service::access`), users of InfluxDB (`influx::credentials`).

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chronolith_service::access::Principal;
use chronolith_service::access::control::LoginError;

use super::params::Params;
use super::request::PeerCertificate;
use crate::web::Web;

/// Form in which a request names its principal.
pub(super) enum Credential {
    Token(String),
    Password { user: String, password: String },
    Certificate(PeerCertificate),
}

/// Reads the credential of a request; `None` if it has none.
///
/// # Errors
/// [`LoginError::Wrong`] for a form that is not known.
pub(super) fn credential_of(
    request: &Request,
    takes_url_credentials: bool,
) -> Result<Option<Credential>, LoginError> {
    let query = if takes_url_credentials { request.uri().query().unwrap_or("") } else { "" };
    match url_credential(query) {
        Some(credential) => Ok(Some(credential)),
        None => {
            let certificate = || request.extensions().get::<PeerCertificate>().cloned();
            let header = header_credential(request.headers())?;
            Ok(header.or_else(|| certificate().map(Credential::Certificate)))
        }
    }
}

/// Returns the principal that a credential proves.
///
/// # Errors
/// [`LoginError`].
pub(super) async fn principal_of(
    web: &Web,
    credential: Option<Credential>,
) -> Result<Arc<Principal>, LoginError> {
    let control = &web.service.access;
    let now_ms = web.service.env.clock.now_ms();
    let directory = control.directory();
    let found = match credential {
        None => return Err(LoginError::Missing),
        Some(Credential::Token(token)) => directory.find_token(&token).cloned(),
        // A client may have a certificate for its connection alone, and is asked for a password.
        Some(Credential::Certificate(certificate)) => match directory.find_certificate(certificate.sans()) {
            Some(principal) => Some(principal.clone()),
            None => return Err(LoginError::Missing),
        },
        Some(Credential::Password { user, password }) => {
            // Clients that can only send a password send their token as one.
            match directory.find_token(&password) {
                Some(principal) => Some(principal.clone()),
                None => control.verify_password(&user, &password).await?,
            }
        }
    };
    control.admit(found, now_ms)
}

/// Reads `u` and `p` of the URL.
fn url_credential(query: &str) -> Option<Credential> {
    let mut params = Params::default();
    params.parse(query).ok()?;
    let user = params.get("u")?.to_owned();
    let password = params.get("p")?.to_owned();
    Some(Credential::Password { user, password })
}

/// Reads the header `Authorization`: Basic, Bearer, `Token TOKEN`, `Token user:password`.
fn header_credential(headers: &HeaderMap) -> Result<Option<Credential>, LoginError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(LoginError::Wrong);
    }
    credential(value).map(Some).ok_or(LoginError::Wrong)
}

fn credential(value: &HeaderValue) -> Option<Credential> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    let pair = |text: &str| {
        let (user, password) = text.split_once(':')?;
        Some(Credential::Password { user: user.to_owned(), password: password.to_owned() })
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Credential::Token(rest.to_owned()));
    }
    if scheme.eq_ignore_ascii_case("token") {
        return pair(rest).or_else(|| Some(Credential::Token(rest.to_owned())));
    }
    if scheme.eq_ignore_ascii_case("basic") {
        return pair(std::str::from_utf8(&STANDARD.decode(rest).ok()?).ok()?);
    }
    None
}
