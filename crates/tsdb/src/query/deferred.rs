//! Source that is looked up when it is read: what it consists of is known only then.
//!
//! Invariant: the lookup runs within the deadline of the read, and its error is the error of the read.
//! Not here: which sources a tenant has (`view`, `remote`).

use std::sync::Arc;

use chronolith_model::query::{Opened, Read, Source};
use chronolith_model::{QueryError, Queryable, ReadContext};

/// Source that `look_up` returns for each read.
pub(super) struct DeferredSource<F> {
    look_up: F,
}

impl<F> DeferredSource<F>
where
    F: Fn(&Read, &ReadContext) -> Result<Arc<dyn Queryable>, QueryError> + Send + Sync,
{
    pub(super) fn new(look_up: F) -> DeferredSource<F> {
        DeferredSource { look_up }
    }
}

impl<F> Source for DeferredSource<F>
where
    F: Fn(&Read, &ReadContext) -> Result<Arc<dyn Queryable>, QueryError> + Send + Sync,
{
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        (self.look_up)(&read, ctx)?.open(read, ctx)
    }
}
