//! Check of access in front of each handler: the principal of the request needs the scope of the route's
//! method, and has to be allowed to name the tenant that it names.
//!
//! Invariant: [`check`] is bound to a handler when the router is made, so no path leads around it.
//! Not here: decisions (`service::access`); credentials, of which there are none: one principal sends all
//! requests.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use chronolith_service::access::{Denied, Principal, Scope};

use super::body;
use super::error::{ApiError, ErrorKind};
use super::influx::reply::InfluxError;
use super::routing::ErrorForm;
use super::tenant::tenant_of;

/// Principals of requests.
#[derive(Clone)]
pub(super) struct Access {
    sender: Arc<Principal>,
}

impl Access {
    /// Every request is sent by `sender`.
    pub(super) fn of(sender: Principal) -> Access {
        Access { sender: Arc::new(sender) }
    }
}

/// Needs of one operation.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) access: Access,
    pub(super) scope: Scope,
    pub(super) multitenancy: bool,
    pub(super) errors: ErrorForm,
}

/// Lets a request through if its principal may send it.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response<Body> {
    match guard.decide(&request) {
        Ok(()) => next.run(request).await,
        Err(denied) => {
            tracing::warn!(path = request.uri().path(), %denied, "request refused");
            body::discard(request.into_body()).await;
            refusal(guard.errors, &denied)
        }
    }
}

impl Guard {
    fn decide(&self, request: &Request) -> Result<(), Denied> {
        let sender = &self.access.sender;
        if self.scope == Scope::Public || sender.may_name_all_tenants() {
            return sender.check(self.scope, None);
        }
        // A missing or invalid tenant is left to the handler: some need none. A valid one counts for every
        // handler, so that none of them can forget it.
        let tenant = tenant_of(self.multitenancy, request.headers()).ok();
        sender.check(self.scope, tenant.as_ref())
    }
}

/// 403 in the form of the route's other errors.
fn refusal(form: ErrorForm, denied: &Denied) -> Response<Body> {
    let error = ApiError::new(ErrorKind::Forbidden, denied);
    match form {
        ErrorForm::Api => error.into_response(),
        ErrorForm::Text => error.into_text(),
        ErrorForm::Influx => InfluxError::new(StatusCode::FORBIDDEN, denied).into_response(),
    }
}
