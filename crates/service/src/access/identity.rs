//! Identity of a call: its principal, the tenants it names and the records that its reads have to see; the
//! only way from it to series.
//!
//! Invariants: each named tenant was checked against the principal; the first call of a view adds the
//! matchers of the principal, whatever the caller adds.
//! Not here: headers that name tenants (`server::http::access`).

use std::sync::Arc;

use chronolith_model::min_offsets::ReadConsistency;
use chronolith_model::query::{Queryable, TenantSources};
use chronolith_model::{QueryLimits, TenantId};

use super::principal::{Denied, Principal};
use super::union::TenantUnion;
use super::view::Filtered;

/// Sender of a call and the tenants that it names. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Identity {
    principal: Arc<Principal>,
    /// At least one, ascending, each once.
    tenants: Arc<[TenantId]>,
    /// `None` = reads wait for no record of the replicated log.
    consistency: Option<Arc<ReadConsistency>>,
}

/// A call names several tenants where it may name one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("multiple org IDs present: this call is for one tenant, and only reads of series take several")]
pub struct SeveralTenants;

impl Identity {
    /// A call of `principal` that names `tenants`, which are not checked against the scope.
    ///
    /// # Errors
    /// [`Denied::Tenant`] for the first tenant that the principal may not name.
    ///
    /// # Panics
    /// If there is no tenant.
    pub fn new(
        principal: Arc<Principal>,
        tenants: impl IntoIterator<Item = TenantId>,
    ) -> Result<Identity, Denied> {
        let mut tenants: Vec<TenantId> = tenants.into_iter().collect();
        tenants.sort_unstable();
        tenants.dedup();
        assert!(!tenants.is_empty(), "a call names a tenant");
        tenants.iter().try_for_each(|tenant| principal.check_tenant(tenant))?;
        Ok(Identity { principal, tenants: tenants.into(), consistency: None })
    }

    /// A call of the server itself for `tenant`: a continuous query, a rule.
    #[must_use]
    pub fn internal(tenant: &TenantId) -> Identity {
        let principal = Arc::new(Principal::unrestricted());
        Identity { principal, tenants: [tenant.clone()].into(), consistency: None }
    }

    /// The same call, whose reads have to see records of the replicated log.
    #[must_use]
    pub fn with_consistency(self, consistency: ReadConsistency) -> Identity {
        let consistency = (!consistency.is_eventual()).then(|| Arc::new(consistency));
        Identity { consistency, ..self }
    }

    /// Records that the reads of the call have to see; `None` = they wait for none.
    #[must_use]
    pub fn consistency(&self) -> Option<&Arc<ReadConsistency>> {
        self.consistency.as_ref()
    }

    /// Sender of the call.
    #[must_use]
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Named tenants, ascending; at least one.
    #[must_use]
    pub fn tenants(&self) -> &[TenantId] {
        &self.tenants
    }

    /// The first tenant, whose shares of memory and permits the call uses.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenants[0]
    }

    /// The only tenant of a call.
    ///
    /// # Errors
    /// [`SeveralTenants`].
    pub fn sole_tenant(&self) -> Result<&TenantId, SeveralTenants> {
        if self.tenants.len() == 1 { Ok(&self.tenants[0]) } else { Err(SeveralTenants) }
    }

    /// Returns true if the principal reads all series of the tenants.
    #[must_use]
    pub fn sees_all_series(&self) -> bool {
        self.principal.filter().is_none()
    }

    /// Series of the tenants that the principal may read. Series of several tenants have the label
    /// `__tenant_id__`.
    #[must_use]
    pub fn view(&self, sources: &dyn TenantSources) -> Arc<dyn Queryable> {
        match &*self.tenants {
            [tenant] => self.filtered(sources.queryable(tenant)),
            tenants => {
                let parts = tenants.iter().map(|tenant| {
                    let source = self.filtered(sources.queryable(tenant));
                    (tenant.clone(), source)
                });
                Arc::new(TenantUnion::new(parts.collect()))
            }
        }
    }

    /// The part of `source` that the principal may read.
    #[must_use]
    pub fn filtered(&self, source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
        match self.principal.filter() {
            None => source,
            Some(filter) => Arc::new(Filtered::new(filter.clone(), source)),
        }
    }

    /// The smallest of each limit of the tenants' queries.
    #[must_use]
    pub fn query_limits(&self, limits_of: impl Fn(&TenantId) -> QueryLimits) -> QueryLimits {
        let mut limits = limits_of(self.tenant());
        for tenant in &self.tenants[1..] {
            limits = limits.smaller(&limits_of(tenant));
        }
        limits
    }
}
