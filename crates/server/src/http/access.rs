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
use chronolith_service::audit::AuditSubject;

use super::audit;
use super::audit_notes::AuditPoint;
use super::body;
use super::error::{ApiError, ErrorKind};
use super::influx::reply::InfluxError;
use super::login::{self, Credential};
use super::request::{PeerCertificate, RequestInfo};
use super::routing::{ErrorForm, Shows};
use super::sender::Sender;
use super::tenant::{TenantError, named_tenants};
use crate::web::Web;

/// Set by scripts of pages, by convention.
const REQUESTED_WITH: &str = "x-requested-with";

/// Source of the principals of requests.
#[derive(Clone)]
pub(super) enum Access {
    /// Every request is sent by this principal.
    Open(Arc<Principal>),
    /// Requests have to log in, as soon as there are principals.
    Logins {
        /// Sender of every request before that.
        anyone: Arc<Principal>,
        /// Sender of requests for open routes after that.
        nobody: Arc<Principal>,
    },
}

impl Access {
    /// Every request is sent by `sender`.
    pub(super) fn of(sender: Principal) -> Access {
        Access::Open(Arc::new(sender))
    }

    /// Requests have to log in.
    pub(super) fn logins() -> Access {
        let anyone = Arc::new(Principal::unrestricted());
        Access::Logins { anyone, nobody: Arc::new(Principal::nobody()) }
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
    pub(super) audit: AuditPoint,
    pub(super) web: Arc<Web>,
}

/// Reason why a request does not reach its handler.
enum Refused {
    Login(LoginError),
    Denied(Denied),
}

impl Refused {
    fn text(&self) -> String {
        match self {
            Refused::Login(error) => error.to_string(),
            Refused::Denied(denied) => denied.to_string(),
        }
    }

    /// Name of the principal, if the credentials prove one.
    fn principal(&self) -> Option<String> {
        match self {
            Refused::Login(LoginError::Expired(name)) => Some(name.to_string()),
            Refused::Login(_) => None,
            Refused::Denied(denied) => Some(denied.principal().to_owned()),
        }
    }
}

impl Refused {
    /// Text for the log, with the reason that the answer omits.
    fn log_text(&self) -> String {
        match self {
            Refused::Login(LoginError::Jwt(refusal)) => format!("authentication failed: {refusal}"),
            Refused::Login(LoginError::SignedToken(why)) => format!("authentication failed: {why}"),
            other => other.text(),
        }
    }
}

/// Lets a request through if its principal may send it.
pub(super) async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response<Body> {
    let decided = guard.decide(&request);
    match decided.await {
        Ok(sender) => {
            request.extensions_mut().insert(sender);
            let answered = audit::run(&guard.web, &guard.audit, request, next).await;
            answered.unwrap_or_else(|error| in_form(guard.errors, error))
        }
        Err(refused) => {
            guard.note(&refused, &request);
            let challenges = login_challenges(&request);
            let subject =
                AuditSubject { principal: refused.principal(), ..audit::subject_of_request(&request) };
            let user = guard.known_user(&request);
            audit::refused(&guard.web, subject, user, refused.text()).await;
            body::discard(request.into_body()).await;
            refusal(guard.errors, &refused, challenges)
        }
    }
}

impl Guard {
    /// Counts a refused request, and logs it unless many are refused for the same reason.
    fn note(&self, refused: &Refused, request: &Request) {
        let service = &self.web.service;
        let reason = match refused {
            Refused::Login(error) => {
                service.access.count_refused(error);
                "login_refused"
            }
            Refused::Denied(_) => {
                service.access.count_denied();
                "access_denied"
            }
        };
        let now_ns = service.env.clock.mono_ns();
        let Some(suppressed) = service.writes.reject_log.admit(now_ns, reason, None, 1) else { return };
        let info = RequestInfo::of(request.extensions());
        let path = request.uri().path();
        let certificate = request.extensions().get::<PeerCertificate>().map(ToString::to_string);
        tracing::warn!(request_id = %info.id, remote = info.remote_text(), certificate, path, error = refused.log_text(), suppressed, "request refused by access control");
    }

    /// Name of the user that a request tries to log in as, if the access file has it: another text may be
    /// a token or a password in the wrong place.
    fn known_user(&self, request: &Request) -> Option<String> {
        match login::credential_of(request, self.takes_url_credentials) {
            Ok(Some(Credential::Password { user, .. })) => {
                self.web.service.access.directory().user(&user).map(|_| user)
            }
            _ => None,
        }
    }

    fn decide<'a>(
        &'a self,
        request: &Request,
    ) -> impl Future<Output = Result<Sender, Refused>> + Send + use<'a> {
        let multitenancy = self.web.service.options.multitenancy;
        let named = named_tenants(multitenancy, request.headers());
        let credential = match self.access {
            Access::Open(_) => Ok(None),
            Access::Logins { .. } => login::credential_of(request, self.takes_url_credentials),
        };
        // Not async here: a future must not hold the request, whose body cannot be shared by threads.
        self.sender(named, credential)
    }

    async fn sender(
        &self,
        named: Result<Vec<TenantId>, TenantError>,
        credential: Result<Option<Credential>, LoginError>,
    ) -> Result<Sender, Refused> {
        let (principal, is_logged_in) = match &self.access {
            Access::Open(sender) => (sender.clone(), false),
            Access::Logins { anyone, .. } if !self.web.service.access.is_on() => (anyone.clone(), false),
            // Open routes need no login.
            Access::Logins { nobody, .. } if self.scope == Scope::Public => (nobody.clone(), false),
            Access::Logins { .. } => {
                let credential = credential.map_err(Refused::Login)?;
                let first = named.as_ref().ok().and_then(|tenants| tenants.first());
                (login::principal_of(&self.web, credential, first).await.map_err(Refused::Login)?, true)
            }
        };
        principal.check_scope(self.scope).map_err(Refused::Denied)?;
        // Counters of the server are in InfluxDB's API too, and name all databases.
        let is_beyond = !matches!(self.errors, ErrorForm::Influx) || self.shows == Shows::WholeServer;
        if self.scope != Scope::Public && is_beyond {
            principal.check_beyond_databases().map_err(Refused::Denied)?;
        }
        if matches!(self.shows, Shows::AllSeries | Shows::WholeServer) {
            principal.check_unfiltered().map_err(Refused::Denied)?;
        }
        if self.shows == Shows::WholeServer && self.web.service.options.multitenancy {
            principal.check_all_tenants().map_err(Refused::Denied)?;
        }
        let identity = match named.and_then(|tenants| self.tenants(tenants, &principal)) {
            Ok(tenants) => Ok(Identity::new(principal.clone(), tenants).map_err(Refused::Denied)?),
            Err(error) => Err(error),
        };
        Ok(Sender { principal, identity, is_logged_in })
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

/// Ways to log in that a 401 names. The web interface asks for a token by itself: where Basic is named, the
/// browser would ask first.
fn login_challenges(request: &Request) -> HeaderValue {
    match request.headers().contains_key(REQUESTED_WITH) {
        true => HeaderValue::from_static("Bearer realm=\"chronolith\""),
        false => HeaderValue::from_static("Basic realm=\"chronolith\", Bearer"),
    }
}

/// 401 or 403 in the form of the route's other errors.
fn refusal(form: ErrorForm, refused: &Refused, challenges: HeaderValue) -> Response<Body> {
    let kind = match refused {
        // A client that is asked for credentials again would send wrong ones.
        Refused::Login(LoginError::Busy(_) | LoginError::KeysPending) => ErrorKind::Unavailable,
        Refused::Login(_) => ErrorKind::Unauthorized,
        Refused::Denied(_) => ErrorKind::Forbidden,
    };
    let status = kind.status();
    let mut response = in_form(form, ApiError::new(kind, refused.text()));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenges);
    }
    response
}

/// An error in the form of the route's other errors.
fn in_form(form: ErrorForm, error: ApiError) -> Response<Body> {
    match form {
        ErrorForm::Api => error.into_response(),
        ErrorForm::Text => error.into_text(),
        ErrorForm::Influx => InfluxError::new(error.kind.status(), &error.message).into_response(),
    }
}
