//! Queries over blocks in a bucket alone: no head, no local blocks.
//!
//! Invariants: all blocks of a query are fetched at the same time; a block that cannot be read fails the
//! query, never shortens its answer.
//! Not here: which blocks a tenant has, and reading them (`bucket`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_bucket::store::meter::MeterSnapshot;
use chronolith_bucket::{BlockCatalog, BucketError, CatalogOptions, Store, StoreConfig};
use chronolith_model::change::{ChangeWatch, Changed};
use chronolith_model::query::{SelectHints, TenantSources, VecBatches};
use chronolith_model::{
    DuplicatePolicy, KIND_LABEL, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches,
    TenantId, TimeRange,
};

use tokio::runtime::Handle;

use super::kinds;
use super::merged::{MergedBatches, merged};

/// A bucket whose blocks are read.
#[derive(Debug, Clone)]
pub struct BucketOptions {
    /// Where it is.
    pub store: StoreConfig,
    /// List of its blocks, and memory of their headers.
    pub catalog: CatalogOptions,
    /// Whether its blocks are served alone, without a store and without writes.
    pub is_read_only: bool,
}

impl BucketOptions {
    /// The bucket at `url`, everything else at its default.
    #[must_use]
    pub fn new(url: &str) -> BucketOptions {
        BucketOptions {
            store: StoreConfig::new(url),
            catalog: CatalogOptions::default(),
            is_read_only: false,
        }
    }
}

/// Blocks in a bucket as the source of all tenants.
pub struct BucketSources {
    catalog: Arc<BlockCatalog>,
    store: Arc<Store>,
}

impl BucketSources {
    /// The blocks in the bucket; requests run on the runtime of `handle`. Sends no request.
    ///
    /// # Errors
    /// [`BucketError::Config`].
    pub fn open(options: &BucketOptions, env: &Env, handle: &Handle) -> Result<BucketSources, BucketError> {
        let store = Arc::new(Store::open(&options.store, env, handle.clone())?);
        let catalog = BlockCatalog::new(store.clone(), env.clock.clone(), handle.clone(), &options.catalog);
        Ok(BucketSources { catalog, store })
    }

    /// Counters of requests to the bucket.
    #[must_use]
    pub fn requests(&self) -> MeterSnapshot {
        self.store.counters()
    }

    /// Index headers in memory, and their bytes.
    #[must_use]
    pub fn headers(&self) -> (usize, u64) {
        self.catalog.headers()
    }
}

impl ChangeWatch for BucketSources {
    fn generation(&self, tenant: &TenantId) -> u64 {
        self.catalog.generation(tenant)
    }

    fn changed_since(&self, tenant: &TenantId, generation: u64) -> Changed {
        // A query that waits for the first listing sees the blocks of generation 1.
        let is_same = generation > 0 && self.catalog.generation(tenant) == generation;
        if is_same { Changed::NOTHING } else { Changed::EVERYTHING }
    }
}

impl TenantSources for BucketSources {
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        Arc::new(TenantBucket { catalog: self.catalog.clone(), tenant: tenant.clone() })
    }
}

/// Blocks of one tenant in the bucket.
struct TenantBucket {
    catalog: Arc<BlockCatalog>,
    tenant: TenantId,
}

/// A question for labels, owned by the threads that answer it.
struct LabelQuestion {
    matchers: Vec<Matcher>,
    range: TimeRange,
    /// 0 = all.
    limit: usize,
    ctx: ReadContext,
}

impl LabelQuestion {
    /// Text series are no numbers, so that PromQL reads no labels of theirs.
    fn new(matchers: &[Matcher], range: TimeRange, limit: usize, ctx: &ReadContext) -> LabelQuestion {
        let matchers = kinds::without_texts(matchers, true).into_owned();
        LabelQuestion { matchers, range, limit, ctx: ctx.clone() }
    }

    fn selector(&self) -> Selector<'_> {
        Selector { matchers: &self.matchers, range: self.range }
    }
}

impl TenantBucket {
    /// Returns the union of the lists of all blocks, sorted, at most `limit` entries (0 = all).
    fn union(
        &self,
        question: LabelQuestion,
        list: impl Fn(&dyn Queryable, &LabelQuestion) -> Result<Vec<String>, QueryError> + Clone + Send + 'static,
    ) -> Result<Vec<String>, QueryError> {
        let blocks = self.catalog.blocks_in(&self.tenant, question.range, &question.ctx)?;
        let limit = question.limit;
        let ctx = question.ctx.clone();
        let question = Arc::new(question);
        let lists = self.catalog.for_each_opened(&blocks, &ctx, move |block| list(block, &question))?;
        let mut all = lists.into_iter().fold(Vec::new(), merged);
        if limit > 0 {
            all.truncate(limit);
        }
        Ok(all)
    }
}

impl Queryable for TenantBucket {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select_with(selector, &SelectHints::default(), ctx)
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let none = || Box::new(VecBatches::new(Vec::new()));
        let Some(matchers) = kinds::visible(selector.matchers) else { return Ok(none()) };
        let range = selector.range;
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        // Each selection starts to fetch at once; only the merge waits.
        for block in self.catalog.blocks_in(&self.tenant, range, ctx)? {
            for kind in kinds::kinds_in(block.may_have_label_name(KIND_LABEL), hints.column_type) {
                let matchers = kinds::with_kind(&matchers, kind);
                let batches = block.select(&Selector { matchers: &matchers, range }, ctx);
                sources.push(kinds::without_label(kind, hints.column_type, batches));
            }
        }
        let batches: Box<dyn SeriesBatches> = match sources.len() {
            0 => none(),
            1 => sources.remove(0),
            _ => Box::new(MergedBatches::new(sources, DuplicatePolicy::default(), ctx.clone())?),
        };
        Ok(hints.filter(batches))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Some(matchers) = kinds::visible(selector.matchers) else { return Ok(Vec::new()) };
        // One more name in case that one of them is hidden.
        let limit_each = if limit == 0 { 0 } else { limit.saturating_add(1) };
        let question = LabelQuestion::new(&matchers, selector.range, limit_each, ctx);
        let names =
            |block: &dyn Queryable, q: &LabelQuestion| block.label_names(&q.selector(), q.limit, &q.ctx);
        let mut all = self.union(question, names)?;
        all.retain(|name| name != KIND_LABEL);
        all.truncate(if limit == 0 { usize::MAX } else { limit });
        Ok(all)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let matchers = kinds::visible(selector.matchers).filter(|_| name != KIND_LABEL);
        let Some(matchers) = matchers else { return Ok(Vec::new()) };
        let question = LabelQuestion::new(&matchers, selector.range, limit, ctx);
        let name = name.to_owned();
        self.union(question, move |block, q| block.label_values(&name, &q.selector(), q.limit, &q.ctx))
    }
}
