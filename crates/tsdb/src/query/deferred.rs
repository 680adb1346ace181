//! Source that is looked up when it is read: what it consists of is known only then.
//!
//! Invariant: the lookup runs within the deadline of the read, and its error is the error of the read.
//! Not here: which sources a tenant has (`view`, `remote`).

use std::sync::Arc;

use chronolith_model::query::{LabelValueCursor, LabelValueScan, SelectHints, SoleLabelValues};
use chronolith_model::{QueryError, Queryable, ReadContext, Selector, SeriesBatches};

/// Source that `look_up` returns for each read.
pub(super) struct DeferredSource<F> {
    look_up: F,
}

impl<F> DeferredSource<F>
where
    F: Fn(&ReadContext) -> Result<Arc<dyn Queryable>, QueryError> + Send + Sync,
{
    pub(super) fn new(look_up: F) -> DeferredSource<F> {
        DeferredSource { look_up }
    }
}

impl<F> Queryable for DeferredSource<F>
where
    F: Fn(&ReadContext) -> Result<Arc<dyn Queryable>, QueryError> + Send + Sync,
{
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        (self.look_up)(ctx)?.select(selector, ctx)
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        (self.look_up)(ctx)?.select_with(selector, hints, ctx)
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        (self.look_up)(ctx)?.label_names(selector, limit, ctx)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        (self.look_up)(ctx)?.label_values(name, selector, limit, ctx)
    }

    fn scan_label_values(
        &self,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        (self.look_up)(ctx)?.scan_label_values(scan, ctx, visit)
    }

    fn sole_label_values(
        &self,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn LabelValueCursor>>, QueryError> {
        (self.look_up)(ctx)?.sole_label_values(search, ctx)
    }
}
