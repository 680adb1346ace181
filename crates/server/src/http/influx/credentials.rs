//! Credentials of a request to the InfluxDB API, and what its user may do.
//!
//! Invariants: principals of the access file need no user; without them and without `influx.auth-enabled`
//! everybody may do everything; with it, a tenant without an
//! administrator can only create one. A read-only server knows no users, so it refuses everybody then.
//! Not here: hashes (`service::influx::password`), signatures (`service::influx::signed_token`).

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use chronolith_model::TenantId;
use chronolith_model::databases::{Privilege, User};
use chronolith_service::access::Principal;
use chronolith_service::audit::AuditSubject;
use chronolith_service::evaluation::influxql::databases::Databases;
use chronolith_service::influx::signed_token;

use super::reply::InfluxError;
use crate::http::audit;
use crate::http::authorization::Authorization;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::sender::{identity_of, is_logged_in};
use crate::web::Web;

/// Sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Authentication is off.
    Anyone,
    /// A principal of the access file, which takes the place of InfluxDB's users.
    Principal(Arc<Principal>),
    /// Authentication is on, and the tenant has no administrator yet.
    BeforeFirstAdmin,
    /// A user with a right password or token.
    Known(Box<User>),
}

/// Form in which a request names its user.
enum Credentials {
    Password { user: String, password: String },
    Bearer(String),
}

impl Caller {
    /// Returns the caller of a request with these headers and parameters.
    ///
    /// # Errors
    /// 401 for missing or wrong credentials. Cost: a password hash for a password that was not right before;
    /// to be called on a thread that may take that long.
    pub(crate) fn of(
        web: &Web,
        databases: &Databases,
        tenant: &TenantId,
        headers: &HeaderMap,
        params: &Params,
    ) -> Result<Caller, InfluxError> {
        let Some(own) = databases.local_catalog(tenant).filter(|own| own.has_admin()) else {
            return Ok(Caller::BeforeFirstAdmin);
        };
        let unauthorized = |text: &str| InfluxError::new(StatusCode::UNAUTHORIZED, text);
        let credentials = credentials(headers, params)
            .ok_or_else(|| unauthorized("unable to parse authentication credentials"))?;
        let failed = || unauthorized("authorization failed");
        let user = match credentials {
            Credentials::Password { user, .. } if user.is_empty() => {
                return Err(unauthorized("username required"));
            }
            Credentials::Password { user, password } => {
                let found = own.user(&user).ok_or_else(failed)?;
                if !web.service.influx.passwords.is_right(&found.password_hash, &password) {
                    return Err(failed());
                }
                found
            }
            Credentials::Bearer(token) => {
                let secret = web.service.options.influx.shared_secret.as_str();
                if secret.is_empty() {
                    return Err(unauthorized("bearer auth disabled"));
                }
                let name = signed_token::user_of(&token, secret, web.service.env.clock.now_ms() / 1000);
                own.user(&name.map_err(unauthorized)?).ok_or_else(failed)?
            }
        };
        Ok(Caller::Known(Box::new(user.clone())))
    }

    /// As [`Caller::of`], on a thread that may take long if a password has to be hashed.
    pub(crate) async fn of_request(
        web: &Arc<Web>,
        databases: &Databases,
        parts: &Parts,
        params: &Params,
    ) -> Result<Caller, InfluxError> {
        let identity = identity_of(&parts.extensions).map_err(ApiError::from)?;
        if is_logged_in(&parts.extensions) {
            return Ok(Caller::Principal(identity.principal().clone()));
        }
        if !web.service.options.influx.auth_enabled {
            return Ok(Caller::Anyone);
        }
        let shared = web.clone();
        let tenant = identity.tenant().clone();
        let headers = parts.headers.clone();
        let user = known_user(databases, &tenant, &headers, params);
        let databases = databases.clone();
        let params = params.clone();
        let checked =
            tokio::task::spawn_blocking(move || Caller::of(&shared, &databases, &tenant, &headers, &params));
        let checked = checked.await.unwrap_or_else(|error| {
            tracing::error!(%error, "checking credentials panicked");
            let message = "internal error: checking the credentials panicked, see the server's log";
            Err(InfluxError::new(StatusCode::INTERNAL_SERVER_ERROR, message))
        });
        if let Err(refused) = &checked {
            let subject = AuditSubject { principal: None, ..audit::subject_of(parts) };
            audit::refused(web, subject, user, refused.message.clone()).await;
        }
        checked
    }

    /// User whose privileges on databases hold; `None`: all is allowed.
    pub(crate) fn user(&self) -> Option<&User> {
        match self {
            Caller::Anyone | Caller::BeforeFirstAdmin => None,
            // The check of access has compared scopes.
            Caller::Principal(principal) => principal.user(),
            Caller::Known(user) => Some(user),
        }
    }

    /// Refuses a write to `database` without the privilege.
    pub(crate) fn check_write(&self, database: &str) -> Result<(), InfluxError> {
        let forbidden = |text: String| Err(InfluxError::new(StatusCode::FORBIDDEN, text));
        match (self, self.user()) {
            (Caller::BeforeFirstAdmin, _) => {
                forbidden(format!("user is required to write to database {database:?}"))
            }
            (_, Some(user)) if !user.may(Privilege::Write, database) => {
                forbidden(format!("{:?} user is not authorized to write to database {database:?}", user.name))
            }
            _ => Ok(()),
        }
    }
}

/// Name of the user that a request tries to log in as, if the tenant has one of this name.
fn known_user(
    databases: &Databases,
    tenant: &TenantId,
    headers: &HeaderMap,
    params: &Params,
) -> Option<String> {
    let Some(Credentials::Password { user, .. }) = credentials(headers, params) else { return None };
    databases.local_catalog(tenant)?.user(&user).map(|found| found.name.clone())
}

/// Reads `u` and `p`, or the header `Authorization`: Basic, `Token user:password`, Bearer.
fn credentials(headers: &HeaderMap, params: &Params) -> Option<Credentials> {
    if let (Some(user), Some(password)) = (params.get("u"), params.get("p")) {
        return Some(Credentials::Password { user: user.to_owned(), password: password.to_owned() });
    }
    match Authorization::of(headers).ok()?? {
        Authorization::Password { user, password } => Some(Credentials::Password { user, password }),
        Authorization::Bearer(token) => Some(Credentials::Bearer(token)),
        Authorization::Token(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    #[track_caller]
    fn check(authorization: &str, query: &str, want: Option<(&str, &str)>) {
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(authorization).unwrap());
        }
        let mut params = Params::default();
        params.parse(query).unwrap();
        let found = credentials(&headers, &params).map(|found| match found {
            Credentials::Password { user, password } => (user, password),
            Credentials::Bearer(token) => (String::new(), token),
        });
        assert_eq!(found, want.map(|(user, password)| (user.to_owned(), password.to_owned())));
    }

    #[test]
    fn credentials_have_four_forms() {
        check("", "u=a&p=b%20c", Some(("a", "b c")));
        check("Basic YTpiOmM=", "", Some(("a", "b:c")));
        check("Token a:b", "", Some(("a", "b")));
        check("Bearer abc", "", Some(("", "abc")));
        check("Token a:b", "u=x&p=y", Some(("x", "y")));
        for wrong in ["", "Token ab", "Basic ???", "Digest a:b"] {
            check(wrong, "u=a", None);
        }
    }
}
