//! Folder of a store in the bucket: the prefix of the keys of its blocks and of its catalogue.
//!
//! Invariants: the default store of a tenant has the folder `<tenant>`, as in Mimir's layout; the store of a
//! retention policy has `<tenant>/stores/<id>`, which readers of that layout skip. Both have
//! the limits and counters of the tenant.

use std::fmt;

use chronolith_model::TenantId;
use chronolith_model::databases::BucketStoreId;

/// Folder of the stores of retention policies, within the folder of their tenant.
pub const STORES_FOLDER: &str = "stores";

/// Folder of one store. It is displayed as a key without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Folder {
    tenant: TenantId,
    store: Option<BucketStoreId>,
}

impl Folder {
    /// The folder of the default store of `tenant`.
    #[must_use]
    pub fn of_tenant(tenant: &TenantId) -> Folder {
        Folder { tenant: tenant.clone(), store: None }
    }

    /// The folder of the store of a retention policy of `owner`.
    #[must_use]
    pub fn of_store(owner: &TenantId, id: BucketStoreId) -> Folder {
        Folder { tenant: owner.clone(), store: Some(id) }
    }

    /// Tenant whose limits and counters apply.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Id of the store of a retention policy; `None` for a default store.
    #[must_use]
    pub fn store(&self) -> Option<BucketStoreId> {
        self.store
    }
}

impl From<&TenantId> for Folder {
    fn from(tenant: &TenantId) -> Folder {
        Folder::of_tenant(tenant)
    }
}

impl From<TenantId> for Folder {
    fn from(tenant: TenantId) -> Folder {
        Folder::of_tenant(&tenant)
    }
}

impl From<&Folder> for Folder {
    fn from(folder: &Folder) -> Folder {
        folder.clone()
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.store {
            None => self.tenant.fmt(f),
            Some(id) => write!(f, "{}/{STORES_FOLDER}/{id}", self.tenant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_store_lie_within_the_folder_of_its_tenant() {
        let tenant = TenantId::anonymous();
        assert_eq!(Folder::of_tenant(&tenant).to_string(), "anonymous");
        let of_store = Folder::of_store(&tenant, BucketStoreId::from_bytes([7; 16]));
        assert_eq!(of_store.to_string(), "anonymous/stores/07070707070707070707070707070707");
        assert_eq!(of_store.tenant(), &tenant);
    }
}
