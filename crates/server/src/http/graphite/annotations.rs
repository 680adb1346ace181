//! Events and meta tags of a tenant for the evaluation of targets.
//!
//! Not here: their requests (`events`, `meta_tags`), their store (`tsdb`).

use std::sync::Arc;

use chronolith_graphite::storage::meta_tags::MetaTags;
use chronolith_model::TenantId;
use chronolith_tsdb::{EventTags, Tsdb};

use super::meta_tags;
use crate::app::App;
use crate::http::error::ApiError;

/// Events and rules of one tenant; none by default.
#[derive(Default)]
pub(super) struct Annotations {
    /// `None` on a server without a store.
    store: Option<(Arc<Tsdb>, TenantId)>,
    /// Rules that add tags to series.
    pub(super) meta_tags: Arc<MetaTags>,
}

impl Annotations {
    pub(super) fn of_tenant(app: &App, tenant: &TenantId) -> Result<Annotations, ApiError> {
        let store = app.service.lifecycle.store().ok().map(|store| (store.clone(), tenant.clone()));
        Ok(Annotations { store, meta_tags: meta_tags::of_tenant(app, tenant)? })
    }

    /// Times of the events that have all of `tags` that any event has; of all events without tags.
    pub(super) fn event_times(&self, tags: &[String], from_s: i64, until_s: i64) -> Vec<i64> {
        let Some((store, tenant)) = &self.store else { return Vec::new() };
        let selection = if tags.is_empty() { EventTags::Any } else { EventTags::KnownOf(tags) };
        store.graphite().event_times(tenant, from_s..=until_s, selection)
    }
}
