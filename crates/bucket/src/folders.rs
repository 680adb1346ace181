//! Folders of a bucket: tenants that have one, removal of the folder of a dropped store.
//!
//! Invariant: only the folder of the store of a retention policy is removed as a whole.
//! Not here: keys of a folder (`folder`), blocks that were replaced (`maintenance`).

use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use chronolith_model::databases::{BucketDatabases, BucketStoreId};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::folder::STORES_FOLDER;
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
