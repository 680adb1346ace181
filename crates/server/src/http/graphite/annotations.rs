//! Meta tags of a tenant for the evaluation of targets.
//!
//! Not here: their requests (`meta_tags`), their store (`tsdb`).

use std::sync::Arc;

use chronolith_graphite::storage::meta_tags::MetaTags;
use chronolith_model::TenantId;

use super::meta_tags;
use crate::app::App;
use crate::http::error::ApiError;

/// Rules of one tenant; none by default.
#[derive(Default)]
pub(super) struct Annotations {
    /// Rules that add tags to series.
    pub(super) meta_tags: Arc<MetaTags>,
}

impl Annotations {
    pub(super) fn of_tenant(app: &App, tenant: &TenantId) -> Result<Annotations, ApiError> {
        Ok(Annotations { meta_tags: meta_tags::of_tenant(app, tenant)? })
    }
}
