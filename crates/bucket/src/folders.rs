//! Folders of a bucket: tenants that have one, removal of the folders of dropped stores and deleted tenants.
//!
//! Invariant: only objects within the folder of the request are removed.
//! Not here: keys of a folder (`folder`), blocks that were replaced (`maintenance`).

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::NumberedSnapshot as _;
use chronolith_format::bucket::catalogue::FOLDER as CATALOGUE_FOLDER;
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::TenantId;
use chronolith_model::databases::{BucketDatabases, BucketStoreId};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::folder::{Folder, STORES_FOLDER};
use crate::layout::BucketLayout;
use crate::store::list::ListOptions;
use crate::{BucketError, RequestContext, Store};

/// Keys that are listed before they are removed.
const PAGE_KEYS: usize = 1000;
/// Objects that are removed at the same time.
const REMOVALS_AT_ONCE: usize = 16;

/// Returns the tenants that have a folder in the bucket, ascending. Blocks in Thanos's layout, which lie at
/// the same level, are left out. In that layout there is one tenant. Cost: two requests.
///
/// # Errors
/// As [`Store::list`].
pub async fn tenants(store: &Store, request: &RequestContext) -> Result<Vec<TenantId>, BucketError> {
    if *store.layout() != BucketLayout::Mimir {
        return Ok(vec![TenantId::anonymous()]);
    }
    let options = ListOptions { is_delimited: true, ..ListOptions::default() };
    let page = store.list_confirmed(request, &options).await?;
    let names = page.prefixes.iter().map(|prefix| prefix.trim_end_matches('/'));
    let names = names.filter(|name| name.parse::<Ulid>().is_err());
    Ok(names.filter_map(|name| TenantId::new(name).ok()).collect())
}

/// Removes all objects in the folder of `request`, which belongs to the store of a retention policy. Returns
/// their number. It can be repeated after it died anywhere.
///
/// # Errors
/// [`BucketError::Refused`] for the folder of a tenant; as other requests.
pub async fn remove_store(store: &Store, request: &RequestContext) -> Result<usize, BucketError> {
    let prefix = store.layout().folder_key(&request.folder);
    if request.folder.store().is_none() {
        let detail = "only stores of retention policies are removed as a whole".to_owned();
        return Err(BucketError::Refused { what: format!("removal of {prefix}"), detail });
    }
    remove_all(store, request, prefix, |_| true).await
}

/// Removes the objects in the folder of a tenant, its databases included. Catalogues with names that a
/// later tenant of this name has again stay: the caller has emptied them, so that readers notice.
/// Returns the number of objects. It can be repeated after it died anywhere.
///
/// # Errors
/// [`BucketError::Refused`] for the folder of a store, and in Thanos's layout, which has no tenants; as other
/// requests.
pub async fn remove_tenant(store: &Store, request: &RequestContext) -> Result<usize, BucketError> {
    let folder = store.layout().folder_key(&request.folder);
    if request.folder.store().is_some() || *store.layout() != BucketLayout::Mimir {
        let detail = "only folders of tenants in Mimir's layout are removed as a whole".to_owned();
        return Err(BucketError::Refused { what: format!("removal of {folder}"), detail });
    }
    let graphite =
        store.layout().folder_key(&Folder::of_store(request.folder.tenant(), BucketStoreId::GRAPHITE));
    let kept = [
        format!("{folder}/{CATALOGUE_FOLDER}"),
        format!("{folder}/{}", DatabasesSnapshot::FOLDER),
        format!("{graphite}/{CATALOGUE_FOLDER}"),
    ];
    remove_all(store, request, folder, |key| kept.iter().all(|kept| !key.starts_with(kept))).await
}

/// Removes all objects in the folder `prefix` for whose key `is_removed` returns true.
async fn remove_all(
    store: &Store,
    request: &RequestContext,
    prefix: String,
    is_removed: impl Fn(&str) -> bool,
) -> Result<usize, BucketError> {
    let mut options = ListOptions { prefix, keys_max: PAGE_KEYS, ..ListOptions::default() };
    let mut removed_count = 0;
    loop {
        let page = store.list(request, &options).await?;
        let keys: Vec<&str> =
            page.objects.iter().map(|object| object.key.as_str()).filter(|key| is_removed(key)).collect();
        removed_count += keys.len();
        assert!(keys.iter().all(|key| key.starts_with(&options.prefix)), "a listing stays within its folder");
        let removals = keys.into_iter().map(|key| store.remove(request, key));
        stream::iter(removals).buffer_unordered(REMOVALS_AT_ONCE).try_collect::<Vec<()>>().await?;
        options.after = page.next_after;
        if options.after.is_none() {
            return Ok(removed_count);
        }
    }
}

/// Returns the stores that have a folder within the folder of `request`, ascending. Cost: two requests.
///
/// # Errors
/// As [`Store::list`].
pub async fn stores(store: &Store, request: &RequestContext) -> Result<Vec<BucketStoreId>, BucketError> {
    let parent = format!("{}/{STORES_FOLDER}", store.layout().folder_key(&request.folder));
    let options = ListOptions { prefix: parent.clone(), is_delimited: true, ..ListOptions::default() };
    let page = store.list_confirmed(request, &options).await?;
    let id = |key: &String| key.strip_prefix(&parent)?.trim_matches('/').parse::<BucketStoreId>().ok();
    Ok(page.prefixes.iter().filter_map(id).collect())
}

/// Returns the members of `stores` that `databases` do not name, dropped ones included.
#[must_use]
pub fn unnamed_stores(stores: &[BucketStoreId], databases: &BucketDatabases) -> Vec<BucketStoreId> {
    let policies = databases.databases.iter().flat_map(|database| &database.policies);
    let mut named: Vec<BucketStoreId> = policies.map(|policy| policy.id).collect();
    named.extend(databases.dropped.iter().map(|dropped| dropped.id));
    named.extend(databases.has_graphite.then_some(BucketStoreId::GRAPHITE));
    stores.iter().filter(|id| !named.contains(id)).copied().collect()
}
