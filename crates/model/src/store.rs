//! Ids of stores: the default store of a tenant, and the stores that no client names.
//!
//! Invariants: ids sort as their names do in file and directory names; a tenant from a request can only be a
//! default store.
//! Not here: names of stores (`format::store_name`), owners of numbered stores (`databases`), ids in a bucket
//! (`databases::BucketStoreId`).

use std::cmp::Ordering;

use crate::tenant::{RESERVED_PREFIX, TenantId};
use crate::time::TimeUnit;

/// Id of a store in a data directory; cheap to clone. Numbers are unique among all stores of either kind that
/// were ever created in the data directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreId {
    /// The default store of a tenant, in milliseconds.
    Default(TenantId),
    /// The store of a retention policy of a database, in nanoseconds.
    Database {
        /// Number of the store.
        number: u64,
    },
    /// The store of Graphite clients of a tenant, in milliseconds.
    Graphite {
        /// Number of the store.
        number: u64,
    },
}

impl StoreId {
    /// The default store of [`TenantId::anonymous`].
    #[must_use]
    pub fn anonymous() -> StoreId {
        StoreId::Default(TenantId::anonymous())
    }

    /// Returns the tenant whose default store this is; `None` for others, whose owners are in the catalogue
    /// of databases.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantId> {
        match self {
            StoreId::Default(tenant) => Some(tenant),
            StoreId::Database { .. } | StoreId::Graphite { .. } => None,
        }
    }

    /// Returns true if this is the default store of a tenant.
    #[must_use]
    pub fn is_default(&self) -> bool {
        matches!(self, StoreId::Default(_))
    }

    /// Returns true if this is a store of Graphite clients.
    #[must_use]
    pub fn is_graphite(&self) -> bool {
        matches!(self, StoreId::Graphite { .. })
    }

    /// Unit of the timestamps of its samples in head and blocks.
    #[must_use]
    pub fn time_unit(&self) -> TimeUnit {
        match self {
            StoreId::Default(_) | StoreId::Graphite { .. } => TimeUnit::Milli,
            StoreId::Database { .. } => TimeUnit::Nano,
        }
    }
}

impl From<TenantId> for StoreId {
    fn from(tenant: TenantId) -> StoreId {
        StoreId::Default(tenant)
    }
}

impl From<&TenantId> for StoreId {
    fn from(tenant: &TenantId) -> StoreId {
        StoreId::Default(tenant.clone())
    }
}

impl Ord for StoreId {
    fn cmp(&self, other: &StoreId) -> Ordering {
        // Names of numbered stores begin with a prefix that no tenant has, Graphite's before databases'.
        let against_numbered = |tenant: &TenantId| tenant.as_str().cmp(RESERVED_PREFIX);
        match (self, other) {
            (StoreId::Default(left), StoreId::Default(right)) => left.cmp(right),
            (StoreId::Default(tenant), _) => against_numbered(tenant),
            (_, StoreId::Default(tenant)) => against_numbered(tenant).reverse(),
            (StoreId::Graphite { number: left }, StoreId::Graphite { number: right })
            | (StoreId::Database { number: left }, StoreId::Database { number: right }) => left.cmp(right),
            (StoreId::Graphite { .. }, StoreId::Database { .. }) => Ordering::Less,
            (StoreId::Database { .. }, StoreId::Graphite { .. }) => Ordering::Greater,
        }
    }
}

impl PartialOrd for StoreId {
    fn partial_cmp(&self, other: &StoreId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// A clone of a default store counts a reference, and others copy a number.
const _: () = assert!(size_of::<StoreId>() <= 24, "ids are copied per batch");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_and_tenant_follow_from_the_kind() {
        let a = TenantId::new("a").unwrap();
        let (database, graphite) = (StoreId::Database { number: 7 }, StoreId::Graphite { number: 7 });
        assert_eq!(StoreId::from(&a).tenant(), Some(&a));
        assert_eq!((database.tenant(), graphite.tenant()), (None, None));
        assert_eq!(StoreId::from(&a).time_unit(), TimeUnit::Milli);
        assert_eq!((database.time_unit(), graphite.time_unit()), (TimeUnit::Nano, TimeUnit::Milli));
        assert_eq!((database.is_default(), StoreId::anonymous().is_default()), (false, true));
        assert_eq!((database.is_graphite(), graphite.is_graphite()), (false, true));
        assert_ne!(database, graphite, "numbers are unique over both kinds, ids are unique without that");
    }
}
