//! Credentials of a request, and the principal that they prove.
//!
//! Invariants: one form of credentials counts, in this order: parameters of the URL (InfluxDB's API), the
//! header `Authorization`, the client certificate; a wrong one is not made good by another. No log line, no
//! error and no metric has a credential.
//! Not here: principals (`service::access`), users of InfluxDB without access control
//! (`influx::credentials`), the header `Authorization` (`authorization`).

use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderMap;
use chronolith_model::TenantId;
use chronolith_model::databases::User;
use chronolith_service::access::control::{AccessControl, LoginError};
use chronolith_service::access::{Principal, Scope, Scopes, Tenants};
use chronolith_service::evaluation::influxql::databases::Databases;

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
            None => control.find_jwt(&token, now_ms)?,
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
                    None => find_user(web, &user, &password, tenant).await?,
                },
            }
        }
    };
    control.admit(found, now_ms)
}

/// Returns the principal of a user with the right password: of the access file, of the web configuration
/// file, or of InfluxDB's users if these log in. The time does not depend on which users exist.
async fn find_user(
    web: &Web,
    user: &str,
    password: &str,
    tenant: Option<&TenantId>,
) -> Result<Option<Arc<Principal>>, LoginError> {
    let service = &web.service;
    if !service.options.influx.auth_enabled {
        return service.access.verify_password(user, password).await;
    }
    let tenant = match (tenant, service.options.multitenancy) {
        (Some(tenant), _) => Some(tenant.clone()),
        (None, false) => Some(TenantId::anonymous()),
        (None, true) => None,
    };
    let databases = Databases::of(service).ok();
    let catalog = tenant.as_ref().and_then(|tenant| databases?.local_catalog(tenant));
    let is_in_file = service.access.directory().user(user).is_some();
    let found = catalog.as_deref().and_then(|own| own.user(user)).filter(|_| !is_in_file);
    let passwords = &service.influx.passwords;
    let stored = found.map(|user| user.password_hash.as_str());
    let is_known = stored.is_some_and(|stored| passwords.is_known(stored, password));
    let of_file = if is_known { None } else { service.access.verify_password(user, password).await? };
    if of_file.is_some() {
        return Ok(of_file);
    }
    let is_right = is_known || {
        let is_known = || stored.is_some_and(|stored| passwords.is_known(stored, password));
        let owned = (passwords.clone(), stored.map(str::to_owned), password.to_owned());
        let verify = move || {
            let (passwords, stored, password) = owned;
            passwords.verify_user(stored.as_deref(), &password)
        };
        service.access.verify_in_turn(is_known, verify).await?
    };
    Ok(found.zip(tenant).filter(|_| is_right).map(|(user, tenant)| Arc::new(influx_principal(user, tenant))))
}

/// The principal of a user of InfluxDB: its own tenant, and what its privileges allow.
fn influx_principal(user: &User, tenant: TenantId) -> Principal {
    let tenants = Tenants::Only([tenant].into());
    let scopes = [Scope::ReadMetrics, Scope::WriteMetrics, Scope::DeleteMetrics];
    if user.is_admin {
        let admin = [Scope::Federate, Scope::ReadRules, Scope::WriteRules, Scope::Admin, Scope::ReadStatus];
        return Principal::new(&user.name, tenants, Scopes::of(scopes.into_iter().chain(admin)));
    }
    Principal::new(&user.name, tenants, Scopes::of(scopes)).with_user(user.clone())
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
