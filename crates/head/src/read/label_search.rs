//! Search in the sorted values of a label among series that have no other label, and scan of the values of
//! all series.
//!
//! Invariants: the index is locked for a search and a slice of values at a time; series without samples are
//! excluded.
//! Not here: the search in the index (`index::tables`), values of selected series (`label_lists`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_base::sync::RwLockReadGuard;
use chronolith_model::query::{LabelValueScan, LabelValueSearch, SoleLabelValues};
use chronolith_model::{QueryError, ReadContext, StoreId};

use crate::index::tables::ValuePosition;
use crate::index::tenant::TenantHead;
use crate::read::select::HeadReader;

/// Values that are looked at under one lock.
const SLICE_COUNT: usize = 1024;

/// Visits the values of live series, a slice under one lock, with their numbers of series.
pub(super) fn scan_live_values(
    tenant: &TenantHead,
    scan: &LabelValueScan<'_>,
    ctx: &ReadContext,
    visit: &mut dyn FnMut(&str, u64) -> bool,
) -> Result<(), QueryError> {
    let mut position = ValuePosition::new(&tenant.tables.read(), scan.name);
    let mut start = scan.prefix.to_owned();
    loop {
        let tables = tenant.tables.read();
        if !position.is_valid(&tables) {
            position = ValuePosition::new(&tables, scan.name);
        }
        position.seek(&tables, &start);
        for _ in 0..SLICE_COUNT {
            let value = position.value(&tables).filter(|value| value.starts_with(scan.prefix));
            let Some(value) = value else { return Ok(()) };
            let series_count = position.live_count(&tables);
            if series_count > 0 && !visit(value, series_count) {
                return Ok(());
            }
            position.skip();
        }
        let Some(value) = position.value(&tables) else { return Ok(()) };
        value.clone_into(&mut start);
        RwLockReadGuard::unlock_fair(tables);
        ctx.check()?;
    }
}

/// Search in the values of a label in the head. Cost: the distance from the last search.
pub struct HeadValues {
    reader: HeadReader,
    tenant: Arc<TenantHead>,
    name: String,
    ctx: ReadContext,
    position: ValuePosition,
    removed_before: u64,
}

impl HeadValues {
    /// Returns a search in label values; `None` if no samples of the tenant overlap the range.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn new(
        reader: &HeadReader,
        store: &StoreId,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<HeadValues>, QueryError> {
        ctx.check()?;
        let reader = HeadReader { state: reader.state.clone() };
        let Some(store) = reader.state.index.tenant(store) else { return Ok(None) };
        if !reader.has_samples_in(&store, search.range) {
            return Ok(None);
        }
        let tables = store.tables.read();
        let position = ValuePosition::new(&tables, search.name);
        let removed_before = store.removed_count.load(Ordering::Relaxed);
        RwLockReadGuard::unlock_fair(tables);
        let name = search.name.to_owned();
        Ok(Some(HeadValues { reader, tenant: store, name, ctx: ctx.clone(), position, removed_before }))
    }

    /// Returns true once if series have left the head since the last call, or the start: their values are
    /// found in blocks only.
    pub fn take_removed(&mut self) -> bool {
        let removed_count = self.tenant.removed_count.load(Ordering::Relaxed);
        std::mem::replace(&mut self.removed_before, removed_count) != removed_count
    }
}

impl LabelValueSearch for HeadValues {
    fn search(&mut self, start: &str, found: &mut String) -> Result<bool, QueryError> {
        let HeadValues { reader, tenant, name, ctx, position, .. } = self;
        let may_be_empty = !reader.has_no_empty_series(tenant);
        let _ids = may_be_empty.then(|| reader.state.index.ids.use_ids());
        let is_empty = |id| reader.state.series.lock(id).is_empty(id);
        start.clone_into(found);
        loop {
            let tables = tenant.tables.read();
            if !position.is_valid(&tables) {
                *position = ValuePosition::new(&tables, name);
            }
            position.seek(&tables, found);
            for _ in 0..SLICE_COUNT {
                let Some(value) = position.value(&tables) else { return Ok(false) };
                let is_found = match may_be_empty {
                    false => position.is_sole(&tables),
                    true => position.sole_series(&tables).is_some_and(|id| !is_empty(id)),
                };
                if is_found {
                    value.clone_into(found);
                    return Ok(true);
                }
                position.skip();
            }
            let Some(value) = position.value(&tables) else { return Ok(false) };
            value.clone_into(found);
            RwLockReadGuard::unlock_fair(tables);
            ctx.check()?;
        }
    }
}
