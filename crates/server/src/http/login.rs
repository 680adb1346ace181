//! Credentials of a request, and the principal that they prove.
//!
//! Invariants: one form of credentials counts, in this order: parameters of the URL (InfluxDB's API), the
//! header `Authorization`, the client certificate; a wrong one is not made good by another. No log line, no
//! error and no metric has a credential.
//! Not here: principals (`service::access`), users of InfluxDB (`service::evaluation::influxql::logins`, and
//! without access control `influx::credentials`), the header `Authorization` (`authorization`).

use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderMap;
use chronolith_model::TenantId;
use chronolith_service::access::Principal;
use chronolith_service::access::control::{AccessControl, LoginError};
use chronolith_service::evaluation::influxql::logins;

use super::authorization::Authorization;
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

/// Returns the principal that a credential proves; `tenant` is the first that the request names.
///
/// # Errors
/// [`LoginError`].
pub(super) async fn principal_of(
    web: &Web,
    credential: Option<Credential>,
    tenant: Option<&TenantId>,
) -> Result<Arc<Principal>, LoginError> {
    let control = &web.service.access;
    let now_ms = web.service.env.clock.now_ms();
    let directory = control.directory();
    let found = match credential {
        None => return Err(LoginError::Missing),
        Some(Credential::Token(token)) => match directory.find_token(&token) {
            Some(principal) => Some(principal.clone()),
            None => match logins::find_signed_token(&web.service, &token, tenant)? {
                Some(principal) => Some(principal),
                None => control.find_jwt(&token, now_ms)?,
            },
        },
        // A client may have a certificate for its connection alone, and is asked for a password.
        Some(Credential::Certificate(certificate)) => match directory.find_certificate(certificate.sans()) {
            Some(principal) => Some(principal.clone()),
            None => return Err(LoginError::Missing),
        },
        Some(Credential::Password { user, password }) => {
            // Clients that can only send a password send their token as one.
            match directory.find_token(&password) {
                Some(principal) => Some(principal.clone()),
                None => match password_jwt(control, &password, now_ms)? {
                    Some(principal) => Some(principal),
                    None => logins::find_user(&web.service, &user, &password, tenant).await?,
                },
            }
        }
    };
    control.admit(found, now_ms)
}

/// Start of each JWT: `{"` in base64.
const JWT_START: &str = "eyJ";

/// Returns the principal of a JWT that is sent as a password; `None` if `password` is none. The password
/// alone decides, so that the time of an answer does not depend on the user.
fn password_jwt(
    control: &AccessControl,
    password: &str,
    now_ms: i64,
) -> Result<Option<Arc<Principal>>, LoginError> {
    if password.starts_with(JWT_START) { control.find_jwt(password, now_ms) } else { Ok(None) }
}

/// Reads `u` and `p` of the URL.
fn url_credential(query: &str) -> Option<Credential> {
    let mut params = Params::default();
    params.parse(query).ok()?;
    let user = params.get("u")?.to_owned();
    let password = params.get("p")?.to_owned();
    Some(Credential::Password { user, password })
}

/// Reads the header `Authorization`.
fn header_credential(headers: &HeaderMap) -> Result<Option<Credential>, LoginError> {
    let found = Authorization::of(headers).map_err(|_| LoginError::Wrong)?;
    Ok(found.map(|found| match found {
        Authorization::Bearer(token) | Authorization::Token(token) => Credential::Token(token),
        Authorization::Password { user, password } => Credential::Password { user, password },
    }))
}
