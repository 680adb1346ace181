//! Folder of a store in the bucket: the prefix of the keys of its blocks and of its catalogue.
//!
//! Invariants: the default store of a tenant has the folder `<tenant>`, as in Mimir's layout; the store of a
//! retention policy has `<tenant>/stores/<id>`, which readers of that layout skip. Limits and counters are
//! those of the tenant in both.

use std::fmt;

use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use chronolith_model::databases::StoreId;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::store::list::ListOptions;
use crate::{BucketError, RequestContext, Store};

/// Folder of the stores of retention policies, within that of their tenant.
pub const STORES_FOLDER: &str = "stores";
/// Keys that are listed before they are removed.
const PAGE_KEYS: usize = 1000;
/// Objects that are removed at the same time.
const REMOVALS_AT_ONCE: usize = 16;

/// Folder of one store. It is displayed as a key without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Folder {
    tenant: TenantId,
    store: Option<StoreId>,
}

impl Folder {
    /// The folder of the default store of `tenant`.
    #[must_use]
    pub fn of_tenant(tenant: &TenantId) -> Folder {
        debug_assert!(!tenant.is_store(), "a store has the folder of its owner and id");
        Folder { tenant: tenant.clone(), store: None }
    }

    /// The folder of the store of a retention policy of `owner`.
    #[must_use]
    pub fn of_store(owner: &TenantId, id: StoreId) -> Folder {
        Folder { tenant: owner.clone(), store: Some(id) }
    }

    /// Tenant whose limits and counters apply.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Id of the store of a retention policy; `None` for a default store.
    #[must_use]
    pub fn store(&self) -> Option<StoreId> {
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

/// Returns the tenants that have a folder in the bucket, ascending. Blocks in Thanos's layout, which lie at
/// the same level, are left out. Cost: one request per 1000 of them.
///
/// # Errors
/// As [`Store::list`].
pub async fn tenants(store: &Store, request: &RequestContext) -> Result<Vec<TenantId>, BucketError> {
    let options = ListOptions { is_delimited: true, ..ListOptions::default() };
    let page = store.list(request, &options).await?;
    let names = page.prefixes.iter().map(|prefix| prefix.trim_end_matches('/'));
    let names = names.filter(|name| name.parse::<Ulid>().is_err());
    Ok(names.filter_map(|name| TenantId::new(name).ok()).collect())
}

/// Removes all objects in the folder of `request`, which is that of the store of a retention policy. Returns
/// their number. It can be repeated after it died anywhere.
///
/// # Errors
/// [`BucketError::Refused`] for the folder of a tenant; as other requests.
pub async fn remove_store(store: &Store, request: &RequestContext) -> Result<usize, BucketError> {
    let prefix = request.folder.to_string();
    if request.folder.store().is_none() {
        let detail = "only stores of retention policies are removed as a whole".to_owned();
        return Err(BucketError::Refused { what: format!("removal of {prefix}"), detail });
    }
    let mut options = ListOptions { prefix, keys_max: PAGE_KEYS, ..ListOptions::default() };
    let mut removed_count = 0;
    loop {
        let page = store.list(request, &options).await?;
        removed_count += page.objects.len();
        let removals = page.objects.iter().map(|object| store.remove(request, &object.key));
        stream::iter(removals).buffer_unordered(REMOVALS_AT_ONCE).try_collect::<Vec<()>>().await?;
        options.after = page.next_after;
        if options.after.is_none() {
            return Ok(removed_count);
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
        let of_store = Folder::of_store(&tenant, StoreId::from_bytes([7; 16]));
        assert_eq!(of_store.to_string(), "anonymous/stores/07070707070707070707070707070707");
        assert_eq!(of_store.tenant(), &tenant);
    }
}
