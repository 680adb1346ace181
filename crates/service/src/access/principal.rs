//! Principals: senders of calls, with their tenants, scopes and limits of what they read and write.
//!
//! Not here: credentials that prove a principal (`directory`).

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_ingest::added_labels::AddedLabels;
use chronolith_model::TenantId;
use chronolith_model::databases::User;

use super::scope::{Scope, Scopes};
use super::view::SeriesFilter;

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
    /// Series that it reads; `None`: all.
    filter: Option<SeriesFilter>,
    /// Privileges on databases of InfluxDB's API, which is then its only API; `None`: no limit.
    user: Option<Arc<User>>,
    /// Labels that its samples get.
    added_labels: Arc<AddedLabels>,
    /// Time from which it may do nothing, ms since 1970.
    expires_ms: Option<i64>,
}

impl Principal {
    /// Makes a principal that reads all series of its tenants; `name` is for logs and refusals.
    #[must_use]
    pub fn new(name: &str, tenants: Tenants, scopes: Scopes) -> Principal {
        Principal {
            name: name.into(),
            tenants,
            scopes,
            filter: None,
            user: None,
            added_labels: Arc::default(),
            expires_ms: None,
        }
    }

    /// Makes the principal of a server without credentials, which may do everything for every tenant.
    #[must_use]
    pub fn unrestricted() -> Principal {
        Principal::new("anyone", Tenants::All, Scopes::all())
    }

    /// Makes the principal of a request for what everybody may see, which does not have to log in.
    #[must_use]
    pub fn nobody() -> Principal {
        Principal::new("nobody", Tenants::Only(BTreeSet::new()), Scopes::of([]))
    }

    /// The same principal, which reads series of `filter` alone.
    #[must_use]
    pub fn with_filter(self, filter: SeriesFilter) -> Principal {
        Principal { filter: Some(filter), ..self }
    }

    /// The same principal, which uses InfluxDB's API alone, within the privileges of `user`.
    #[must_use]
    pub fn with_user(self, user: User) -> Principal {
        Principal { user: Some(Arc::new(user)), ..self }
    }

    /// The same principal, whose samples get `labels`; labels of the sender with these names are
    /// replaced.
    #[must_use]
    pub fn with_added_labels(self, labels: impl IntoIterator<Item = (String, String)>) -> Principal {
        let mut labels: Vec<(String, String)> = labels.into_iter().collect();
        labels.sort_unstable();
        let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Principal { added_labels: Arc::new(AddedLabels::new(pairs)), ..self }
    }

    /// The same principal, which may do nothing from `expires_ms` on.
    #[must_use]
    pub fn with_expiry(self, expires_ms: i64) -> Principal {
        Principal { expires_ms: Some(expires_ms), ..self }
    }

    /// Name in logs and refusals.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Series that it reads; `None`: all of its tenants.
    #[must_use]
    pub fn filter(&self) -> Option<&SeriesFilter> {
        self.filter.as_ref()
    }

    /// Privileges on databases; `None`: no limit.
    #[must_use]
    pub fn user(&self) -> Option<&User> {
        self.user.as_deref()
    }

    /// Labels that its samples get.
    #[must_use]
    pub fn added_labels(&self) -> &AddedLabels {
        &self.added_labels
    }

    /// Returns true if it may do nothing at `now_ms`.
    #[must_use]
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| now_ms >= expires_ms)
    }

    /// Returns true if the principal may do what needs `scope`. Cost: one comparison.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.has(scope)
    }

    /// Returns true if the principal may name `tenant` in a call.
    #[must_use]
    pub fn may_name(&self, tenant: &TenantId) -> bool {
        match &self.tenants {
            Tenants::All => true,
            Tenants::Only(tenants) => tenants.contains(tenant),
        }
    }

    /// Tenant of a call that names none: the only one that the principal may name, if it is the only one.
    #[must_use]
    pub fn sole_tenant(&self) -> Option<&TenantId> {
        match &self.tenants {
            Tenants::Only(tenants) if tenants.len() == 1 => tenants.first(),
            Tenants::Only(_) | Tenants::All => None,
        }
    }

    /// Checks a call that needs `scope`.
    ///
    /// # Errors
    /// [`Denied::Scope`].
    pub fn check_scope(&self, scope: Scope) -> Result<(), Denied> {
        if self.may(scope) { Ok(()) } else { Err(Denied::Scope { principal: self.name.clone(), scope }) }
    }

    /// Checks a call that names `tenant`.
    ///
    /// # Errors
    /// [`Denied::Tenant`].
    pub fn check_tenant(&self, tenant: &TenantId) -> Result<(), Denied> {
        if self.may_name(tenant) {
            return Ok(());
        }
        Err(Denied::Tenant { principal: self.name.clone(), tenant: tenant.clone() })
    }

    /// Checks a call that needs `scope`; `tenant` is the one it names, if any.
    ///
    /// # Errors
    /// [`Denied`]: the scope is compared first.
    pub fn check(&self, scope: Scope, tenant: Option<&TenantId>) -> Result<(), Denied> {
        self.check_scope(scope)?;
        tenant.map_or(Ok(()), |tenant| self.check_tenant(tenant))
    }

    /// Checks a call whose answer cannot be limited to some series.
    ///
    /// # Errors
    /// [`Denied::Filtered`] for a principal that reads some series alone.
    pub fn check_unfiltered(&self) -> Result<(), Denied> {
        match &self.filter {
            None => Ok(()),
            Some(_) => Err(Denied::Filtered { principal: self.name.clone() }),
        }
    }

    /// Checks a call of another API than InfluxDB's.
    ///
    /// # Errors
    /// [`Denied::Databases`] for a principal with privileges on databases.
    pub fn check_beyond_databases(&self) -> Result<(), Denied> {
        match &self.user {
            None => Ok(()),
            Some(_) => Err(Denied::Databases { principal: self.name.clone() }),
        }
    }

    /// Checks a call about all tenants at once, or about the server.
    ///
    /// # Errors
    /// [`Denied::SomeTenants`] for a principal that has some tenants alone.
    pub fn check_all_tenants(&self) -> Result<(), Denied> {
        match &self.tenants {
            Tenants::All => Ok(()),
            Tenants::Only(_) => Err(Denied::SomeTenants { principal: self.name.clone() }),
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
    /// The call is about all tenants or the server.
    #[error("{principal:?} may not ask for this: it is about the whole server, which needs tenants: '*'")]
    SomeTenants {
        /// Name of the principal.
        principal: Arc<str>,
    },
    /// The call is one of another API than InfluxDB's.
    #[error(
        "{principal:?} may not ask for this: it has privileges on databases, and InfluxDB's API alone has these"
    )]
    Databases {
        /// Name of the principal.
        principal: Arc<str>,
    },
    /// The answer could have series that the principal may not read.
    #[error("{principal:?} may not ask for this: it reads some series alone, and this answer is about all")]
    Filtered {
        /// Name of the principal.
        principal: Arc<str>,
    },
}

impl Denied {
    /// Name of the principal.
    #[must_use]
    pub fn principal(&self) -> &str {
        match self {
            Denied::Scope { principal, .. }
            | Denied::Tenant { principal, .. }
            | Denied::SomeTenants { principal }
            | Denied::Databases { principal }
            | Denied::Filtered { principal } => principal,
        }
    }
}
