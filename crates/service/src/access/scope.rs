//! Scopes: permissions that calls need and principals have.
//!
//! Invariant: no scope grants another one.
//! Not here: which route needs which scope (`server::http::routes`).

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
