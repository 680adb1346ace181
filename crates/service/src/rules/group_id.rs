//! Identity of a group among all tenants and sources of rules.

use chronolith_model::TenantId;
use chronolith_rules::group::GroupKey;

/// Source of groups. Each one replaces its own groups alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Rule files of the server.
    Files,
    /// Groups that clients have stored by the API.
    Configured,
}

impl Origin {
    /// Name of the directory with the states of its groups.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Origin::Files => "files",
            Origin::Configured => "configured",
        }
    }
}

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
