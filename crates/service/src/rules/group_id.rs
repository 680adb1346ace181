//! Identity of a group among all tenants and sources of rules.

use chronolith_model::TenantId;
use chronolith_rules::group::{GroupKey, Origin};

/// A group of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// Tenant whose series the rules read and write.
    pub tenant: TenantId,
    /// Source of the group.
    pub origin: Origin,
    /// File and name.
    pub key: GroupKey,
}
