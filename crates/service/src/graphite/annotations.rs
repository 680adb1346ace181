//! Events and meta tags of a tenant for the evaluation of targets.
//!
//! Not here: their requests (`events`, `meta_tags`), their store (`tsdb`).

use std::sync::Arc;

use chronolith_graphite::EvalError;
use chronolith_graphite::storage::meta_tags::MetaTags;
use chronolith_model::TenantId;
use chronolith_tsdb::{EventTags, StoredMetaTags, Tsdb};

use super::error::GraphiteError;
use crate::lifecycle::Lifecycle;
use crate::refusal::Refusal;

/// Events and rules of one tenant; none by default.
#[derive(Default)]
pub struct Annotations {
    /// `None` on a server without a store.
    store: Option<(Arc<Tsdb>, TenantId)>,
    /// Rules that add tags to series.
    pub meta_tags: Arc<MetaTags>,
}

impl Annotations {
    /// Events and rules of `tenant`; a server without a store has none.
    ///
    /// # Errors
    /// While the store is not open, and for rules that an earlier version stored and this one refuses.
    pub fn of_tenant(lifecycle: &Lifecycle, tenant: &TenantId) -> Result<Annotations, GraphiteError> {
        let store = lifecycle.readable_store().ok().map(|store| (store.clone(), tenant.clone()));
        Ok(Annotations { store, meta_tags: meta_tags_of(lifecycle, tenant)? })
    }

    /// Times of the events that have all of `tags` that any event has; of all events without tags.
    pub fn event_times(&self, tags: &[String], from_s: i64, until_s: i64) -> Vec<i64> {
        let Some((store, tenant)) = &self.store else { return Vec::new() };
        let selection = if tags.is_empty() { EventTags::Any } else { EventTags::KnownOf(tags) };
        store.graphite().event_times(tenant, from_s..=until_s, selection)
    }
}

/// Rules of a tenant that add tags; none on a server without a store.
///
/// # Errors
/// As [`Annotations::of_tenant`].
pub fn meta_tags_of(lifecycle: &Lifecycle, tenant: &TenantId) -> Result<Arc<MetaTags>, GraphiteError> {
    let stored = match lifecycle.readable_store() {
        Ok(store) => store.graphite().meta_tags(tenant),
        Err(Refusal::ReadOnly | Refusal::NoStore | Refusal::QueryNode) => Arc::default(),
        Err(refusal) => return Err(refusal.into()),
    };
    parsed_meta_tags(&stored).map(Arc::new).map_err(GraphiteError::Invalid)
}

/// Parses the expressions of rules.
///
/// # Errors
/// The first expression that is wrong.
pub fn parsed_meta_tags(rules: &[StoredMetaTags]) -> Result<MetaTags, EvalError> {
    let mut meta = MetaTags::default();
    for rule in rules {
        meta.add(&rule.tags, &rule.expressions)?;
    }
    Ok(meta)
}
