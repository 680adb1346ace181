//! Access control: a principal, the tenants it may name, and the scopes of what it may do.
//!
//! Invariants: a scope or a tenant that a principal was not given is refused; nothing is granted by another
//! scope. The principal of a server without credentials has every scope for every tenant.
//! Not here: credentials and how a request proves them, statuses and texts of refusals (`server`), users and
//! privileges of InfluxDB (`server::http::influx::credentials`).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_model::TenantId;

/// Permission that a call needs. Each route of the HTTP API has exactly one per method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Liveness, versions, documents and files, for every client that reaches the port. Every principal has
    /// it.
    Public,
    /// Samples, series, labels, metadata, events and usage of a tenant.
    ReadMetrics,
    /// Storing samples, exemplars, metadata and events.
    WriteMetrics,
    /// Deleting series or samples.
    DeleteMetrics,
    /// Newest samples of all selected series, as a federating Prometheus asks for them.
    Federate,
    /// Rules, alerts and receivers of alerts.
    ReadRules,
    /// Changing rules, which act on series that others store.
    WriteRules,
    /// State, settings and metrics of the server itself, over all tenants.
    ReadStatus,
    /// Operating the server: reload, kill, snapshot, compaction.
    Admin,
}

impl Scope {
    /// All scopes in the order of declaration.
    pub const ALL: [Scope; 9] = [
        Scope::Public,
        Scope::ReadMetrics,
        Scope::WriteMetrics,
        Scope::DeleteMetrics,
        Scope::Federate,
        Scope::ReadRules,
        Scope::WriteRules,
        Scope::ReadStatus,
        Scope::Admin,
    ];

    /// Name in settings, documents and refusals, `RESOURCE:ACTION` as in access policies of Grafana Cloud.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scope::Public => "public",
            Scope::ReadMetrics => "metrics:read",
            Scope::WriteMetrics => "metrics:write",
            Scope::DeleteMetrics => "metrics:delete",
            Scope::Federate => "metrics:federate",
            Scope::ReadRules => "rules:read",
            Scope::WriteRules => "rules:write",
            Scope::ReadStatus => "status:read",
            Scope::Admin => "admin",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Set of scopes. It always has [`Scope::Public`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u16);

impl Scopes {
    /// Returns the set of all scopes, also of scopes that later versions add.
    #[must_use]
    pub fn all() -> Scopes {
        Scopes(u16::MAX)
    }

    /// Returns the set of these scopes and [`Scope::Public`].
    pub fn of(scopes: impl IntoIterator<Item = Scope>) -> Scopes {
        Scopes(scopes.into_iter().fold(Scope::Public.bit(), |bits, scope| bits | scope.bit()))
    }

    /// Returns true if the set has `scope`.
    #[must_use]
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }
}

/// Tenants whose data a principal may name in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// Every tenant, also one that has no data yet.
    All,
    /// Listed tenants.
    Only(BTreeSet<TenantId>),
}

/// Sender of a call: a user, a token, or the one sender of a server without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    name: Arc<str>,
    tenants: Tenants,
    scopes: Scopes,
}

impl Principal {
    /// Makes a principal; `name` is for logs and refusals.
    pub fn new(name: &str, tenants: Tenants, scopes: Scopes) -> Principal {
        Principal { name: name.into(), tenants, scopes }
    }

    /// Makes the principal of a server without credentials, which may do everything for every tenant.
    #[must_use]
    pub fn unrestricted() -> Principal {
        Principal::new("anyone", Tenants::All, Scopes::all())
    }

    /// Name in logs and refusals.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the principal may do what needs `scope`. Cost: one comparison.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.has(scope)
    }

    /// Returns true if the principal may name every tenant, so that no tenant has to be compared.
    #[must_use]
    pub fn may_name_all_tenants(&self) -> bool {
        self.tenants == Tenants::All
    }

    /// Returns true if the principal may name `tenant` in a call.
    #[must_use]
    pub fn may_name(&self, tenant: &TenantId) -> bool {
        match &self.tenants {
            Tenants::All => true,
            Tenants::Only(tenants) => tenants.contains(tenant),
        }
    }

    /// Checks a call that needs `scope`; `tenant` is the one it names, if any.
    ///
    /// # Errors
    /// [`Denied`]: the scope is compared first.
    pub fn check(&self, scope: Scope, tenant: Option<&TenantId>) -> Result<(), Denied> {
        let principal = || self.name.clone();
        if !self.may(scope) {
            return Err(Denied::Scope { principal: principal(), scope });
        }
        match tenant.filter(|tenant| !self.may_name(tenant)) {
            Some(tenant) => Err(Denied::Tenant { principal: principal(), tenant: tenant.clone() }),
            None => Ok(()),
        }
    }
}

/// Reason why a principal's call is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The scope of the call was not given.
    #[error("{principal:?} may not do this: scope {} is missing", scope.name())]
    Scope {
        /// Name of the principal.
        principal: Arc<str>,
        /// Missing scope.
        scope: Scope,
    },
    /// The tenant of the call was not given.
    #[error("{principal:?} may not name tenant {:?}", tenant.as_str())]
    Tenant {
        /// Name of the principal.
        principal: Arc<str>,
        /// Tenant that the call names.
        tenant: TenantId,
    },
}
