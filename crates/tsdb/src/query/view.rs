//! View of a tenant for PromQL: its default store, its Graphite store, and the stores of its databases under
//! labels of their own.
//!
//! Invariant: while the databases that the bucket has are not known, a query waits for them within its
//! deadline and fails otherwise, so that no answer is without the series of a database; one that allows a
//! partial result names the list in its warnings.
//! Not here: labels of the view (`databases`), reading the databases of the bucket (`upload::adoption`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_model::query::Read;
use chronolith_model::{QueryError, Queryable, ReadContext, TenantId};

use super::TenantQueryable;
use super::databases::{PolicySource, WithDatabases};
use super::deferred::DeferredSource;
use super::fanout::stores_as_one;
use super::unit::in_milliseconds;
use crate::storage::Storage;
use crate::upload::adoption::{ensure_known, is_known};

/// Longest wait for the databases of the bucket.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Returns the view of `tenant`.
pub(crate) fn tenant_view(storage: &Arc<Storage>, tenant: &TenantId) -> Arc<dyn Queryable> {
    if knows_databases(storage, tenant) {
        return known_view(storage, tenant);
    }
    let storage = storage.clone();
    let tenant = tenant.clone();
    Arc::new(DeferredSource::new(move |read, ctx| awaited_view(&storage, &tenant, read, ctx)))
}

/// Returns true if the local catalogue has all databases of `tenant`, also the bucket's.
pub(crate) fn knows_databases(storage: &Storage, tenant: &TenantId) -> bool {
    storage.uploads().is_none_or(|uploads| is_known(storage, uploads, tenant))
}

/// Waits until the databases of `tenant` are known.
///
/// # Errors
/// [`QueryError::Unavailable`] if the bucket does not answer; as [`ReadContext::begin_wait`].
pub(crate) fn await_databases(
    storage: &Storage,
    tenant: &TenantId,
    ctx: &ReadContext,
) -> Result<(), QueryError> {
    let Some(uploads) = storage.uploads() else { return Ok(()) };
    if is_known(storage, uploads, tenant) {
        return Ok(());
    }
    ctx.begin_wait()?;
    let timeout = Duration::from_nanos(ctx.source_remaining_ns()).min(WAIT_MAX);
    ensure_known(storage, uploads, tenant, timeout).map_err(|error| {
        let what =
            format!("the databases of tenant {tenant} in the bucket cannot be read: {error}; try again");
        QueryError::Unavailable { what }
    })
}

fn known_view(storage: &Arc<Storage>, tenant: &TenantId) -> Arc<dyn Queryable> {
    let own: Arc<dyn Queryable> = Arc::new(TenantQueryable::new(storage, &tenant.into()));
    let catalog = storage.databases().catalog();
    let Some(stores) = catalog.of(tenant) else { return own };
    let own = match &stores.graphite {
        Some(graphite) => stores_as_one(vec![
            (tenant.as_str(), own),
            (&graphite.name, Arc::new(TenantQueryable::new(storage, &graphite.store))),
        ]),
        None => own,
    };
    let mut policies = Vec::new();
    for database in &stores.databases {
        policies.extend(database.policies.iter().map(|policy| PolicySource {
            database: database.name.clone(),
            policy: policy.name.clone(),
            source: in_milliseconds(Arc::new(TenantQueryable::new(storage, &policy.store))),
        }));
    }
    if policies.is_empty() {
        return own;
    }
    Arc::new(WithDatabases::new(own, policies, storage.options().field_separator.clone()))
}

/// View of a tenant whose databases in the bucket are read by the first query that needs them.
fn awaited_view(
    storage: &Arc<Storage>,
    tenant: &TenantId,
    read: &Read,
    ctx: &ReadContext,
) -> Result<Arc<dyn Queryable>, QueryError> {
    match await_databases(storage, tenant, ctx) {
        Err(error) if read.request.allows_partial => {
            let url = storage.bucket().map_or("", |bucket| bucket.catalog().bucket_url());
            ctx.warn_partial(&format!("the list of databases in {url}"), error)?;
        }
        known => known?,
    }
    Ok(known_view(storage, tenant))
}
