//! Check of access in front of each handler: who sends the request, whether its principal has the scope of
//! the route's method, and which tenants it names. Handlers take the [`Identity`] that comes out of it.
//!
//! Invariants: [`check`] is bound to a handler when the router is made, so no path leads around it; no other
//! module of the HTTP side reads the header of the tenant for a handler.
//! Not here: decisions (`service::access`), headers with credentials (`login`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use chronolith_model::TenantId;
use chronolith_service::access::control::LoginError;
use chronolith_service::access::{Denied, Identity, Principal, Scope, SeveralTenants};

use super::body;
use super::error::{ApiError, ErrorKind};
use super::influx::reply::InfluxError;
use super::login::{self, Credential};
use super::routing::{ErrorForm, Shows};
use super::sender::{Proof, Sender};
use super::tenant::{TenantError, named_tenants};
use crate::web::Web;

/// Source of the principals of requests.
#[derive(Clone)]
pub(super) enum Access {
    /// Every request is sent by this principal.
    Open(Arc<Principal>),
    /// Requests have to log in.
    Logins,
}

impl Access {
    /// Every request is sent by `sender`.
    pub(super) fn of(sender: Principal) -> Access {
        Access::Open(Arc::new(sender))
    }
}

/// Needs of one operation.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) access: Access,
    pub(super) scope: Scope,
    pub(super) shows: Shows,
    pub(super) errors: ErrorForm,
    /// Credentials may be parameters of the URL, as in InfluxDB's API.
    pub(super) takes_url_credentials: bool,
    pub(super) web: Arc<Web>,
}

/// Reason why a request does not reach its handler.
enum Refused {
    Login(LoginError),
    Denied(Denied),
}

/// Lets a request through if its principal may send it.
pub(super) async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response<Body> {
    let decided = guard.decide(&request);
    match decided.await {
        Ok(sender) => {
            request.extensions_mut().insert(sender.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(sender);
            response
        }
        Err(refused) => {
            let path = request.uri().path();
            let control = &guard.web.service.access;
            match &refused {
                Refused::Login(error) => {
                    control.count_refused(error);
                    tracing::warn!(path, %error, "login refused");
                }
                Refused::Denied(denied) => {
                    control.count_denied();
                    tracing::warn!(path, %denied, "request refused");
                }
            }
            body::discard(request.into_body()).await;
            refusal(guard.errors, &refused)
        }
    }
}

impl Guard {
    fn decide<'a>(
        &'a self,
        request: &Request,
    ) -> impl Future<Output = Result<Sender, Refused>> + Send + use<'a> {
        let multitenancy = self.web.service.options.multitenancy;
        let named = named_tenants(multitenancy, request.headers());
        let credential = login::credential_of(request, self.takes_url_credentials);
        // Not async here: a future must not hold the request, whose body cannot be shared by threads.
        self.sender(named, credential)
    }

    async fn sender(
        &self,
        named: Result<Vec<TenantId>, TenantError>,
        credential: Result<Option<Credential>, LoginError>,
    ) -> Result<Sender, Refused> {
        let (principal, proof) = match &self.access {
            Access::Open(sender) => (sender.clone(), Proof::None),
            // Open routes need no login.
            Access::Logins if self.scope == Scope::Public => (Arc::new(Principal::nobody()), Proof::None),
            Access::Logins => {
                let credential = credential.map_err(Refused::Login)?;
                login::principal_of(&self.web, credential).await.map_err(Refused::Login)?
            }
        };
        principal.check_scope(self.scope).map_err(Refused::Denied)?;
        if self.shows == Shows::AllSeries {
            principal.check_unfiltered().map_err(Refused::Denied)?;
        }
        let identity = match named.and_then(|tenants| self.tenants(tenants, &principal)) {
            Ok(tenants) => Ok(Identity::new(principal, tenants).map_err(Refused::Denied)?),
            Err(error) => Err(error),
        };
        Ok(Sender { identity, proof })
    }

    /// Returns the tenants of a request that names `named`.
    fn tenants(&self, named: Vec<TenantId>, principal: &Principal) -> Result<Vec<TenantId>, TenantError> {
        // Open routes belong to no tenant, whatever the request names.
        if self.scope == Scope::Public && !named.iter().all(|tenant| principal.may_name(tenant)) {
            return Err(TenantError::Missing);
        }
        if named.len() > 1 && self.shows != Shows::SeriesOfTenants {
            return Err(SeveralTenants.into());
        }
        if named.is_empty() {
            return principal.sole_tenant().map(|tenant| vec![tenant.clone()]).ok_or(TenantError::Missing);
        }
        Ok(named)
    }
}

/// 401 or 403 in the form of the route's other errors.
fn refusal(form: ErrorForm, refused: &Refused) -> Response<Body> {
    let (kind, status, text) = match refused {
        // A client that is asked for credentials again would send wrong ones.
        Refused::Login(error @ LoginError::Busy(_)) => {
            (ErrorKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, error.to_string())
        }
        Refused::Login(error) => (ErrorKind::Unauthorized, StatusCode::UNAUTHORIZED, error.to_string()),
        Refused::Denied(denied) => (ErrorKind::Forbidden, StatusCode::FORBIDDEN, denied.to_string()),
    };
    let error = ApiError::new(kind, &text);
    let mut response = match form {
        ErrorForm::Api => error.into_response(),
        ErrorForm::Text => error.into_text(),
        ErrorForm::Influx => InfluxError::new(status, &text).into_response(),
    };
    if status == StatusCode::UNAUTHORIZED {
        let challenges = HeaderValue::from_static("Basic realm=\"chronolith\", Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenges);
    }
    response
}
