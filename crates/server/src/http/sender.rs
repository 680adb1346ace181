//! Sender of a request, as the check of access has found it.
//!
//! Invariant: a request without the check has no sender, and its handler no tenant.
//! Not here: the check (`access`).

use std::sync::Arc;

use axum::http::Extensions;
use chronolith_service::access::{Identity, Principal};

use super::tenant::TenantError;

/// Sender of a request, in its extensions.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) principal: Arc<Principal>,
    /// The sender with the tenants that it names. A request without a tenant fails where its handler needs
    /// one: some need none.
    pub(super) identity: Result<Identity, TenantError>,
    /// True if the sender has logged in as a principal of the access file.
    pub(super) is_logged_in: bool,
}

/// Returns the identity of a request that has passed the check.
///
/// # Errors
/// The request names no tenant, a wrong one, or several where one is needed.
pub(super) fn identity_of(extensions: &Extensions) -> Result<Identity, TenantError> {
    match extensions.get::<Sender>() {
        Some(sender) => sender.identity.clone(),
        None => Err(TenantError::Missing),
    }
}

/// Returns true if the sender of a request has logged in as a principal of the access file.
pub(super) fn is_logged_in(extensions: &Extensions) -> bool {
    extensions.get::<Sender>().is_some_and(|sender| sender.is_logged_in)
}
