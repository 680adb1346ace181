//! Sender of a request, as the check of access has found it.
//!
//! Invariant: a request without the check has no sender, and its handler no tenant.
//! Not here: the check (`access`).

use axum::http::Extensions;
use chronolith_service::access::Identity;

use super::tenant::TenantError;

/// Way in which a sender is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// No login is asked for.
    None,
    /// Credentials of the directory of principals.
    Directory,
}

/// Sender of a request, in the extensions of the request and of its answer.
#[derive(Clone)]
pub(super) struct Sender {
    /// The sender with the tenants that it names. A request without a tenant fails where its handler needs
    /// one: some need none.
    pub(super) identity: Result<Identity, TenantError>,
    /// Way in which the sender is known.
    pub(super) proof: Proof,
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

/// Way in which the sender of a request that has passed the check is known.
pub(super) fn proof_of(extensions: &Extensions) -> Proof {
    extensions.get::<Sender>().map_or(Proof::None, |sender| sender.proof)
}
