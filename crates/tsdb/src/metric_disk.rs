//! Bytes of metrics in the local blocks of a tenant's default store.
//!
//! Invariant: a block counts once, also if it is replaced meanwhile.
//! Not here: metrics of the head (`TsdbStatistics::scan_metrics`), bytes of a bucket.

use chronolith_base::Reservation;
use chronolith_base::hash::HashMap;
use chronolith_block::{Block, metric_bytes, visit_metric_bytes};
use chronolith_model::{QueryError, ReadContext, StoreId, TimeRange};

use crate::blocks::BlockStore;

/// Memory of a name without its text: its slot in the table at the lowest load, and the header of an
/// allocation.
const NAME_BYTES: u64 = 2 * size_of::<(Box<str>, u64)>() as u64 + 16;

/// Metrics whose bytes are asked for.
#[derive(Debug, Clone, Copy)]
pub enum MetricFilter<'a> {
    /// Metrics with these names.
    Named(&'a [&'a str]),
    /// All.
    All,
}

/// Bytes of chunks by metric name; metrics without any are left out.
pub struct MetricDiskBytes {
    by_name: HashMap<Box<str>, u64>,
    /// Memory of the names.
    _held: Reservation,
}

impl MetricDiskBytes {
    /// Removes a metric. Returns its bytes, 0 for one without any.
    pub fn remove(&mut self, name: &str) -> u64 {
        self.by_name.remove(name).unwrap_or(0)
    }

    /// Metrics and their bytes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_name.iter().map(|(name, bytes)| (&**name, *bytes))
    }
}

/// Sums of the bytes in the blocks of `store`.
///
/// # Errors
/// Errors of blocks that are damaged or cannot be read; as [`ReadContext::check`];
/// [`QueryError::Memory`] without room for the names.
pub(crate) fn read(
    blocks: &BlockStore,
    store: &StoreId,
    filter: MetricFilter<'_>,
    ctx: &ReadContext,
) -> Result<MetricDiskBytes, QueryError> {
    let mut held = ctx.budget.reserve(0)?;
    let by_name = blocks.fold_in_range(store, TimeRange::ALL, HashMap::default, |by_name, block| {
        let mut add = |name: &str, bytes: u64| add(by_name, &mut held, name, bytes);
        match filter {
            MetricFilter::All => visit_metric_bytes(&block, ctx, &mut add),
            MetricFilter::Named(names) => add_named(&block, names, ctx, &mut add),
        }
    })?;
    Ok(MetricDiskBytes { by_name, _held: held })
}

fn add_named(
    block: &Block,
    names: &[&str],
    ctx: &ReadContext,
    add: &mut dyn FnMut(&str, u64) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    names.iter().try_for_each(|name| add(name, metric_bytes(block, name, ctx)?))
}

fn add(
    by_name: &mut HashMap<Box<str>, u64>,
    held: &mut Reservation,
    name: &str,
    bytes: u64,
) -> Result<(), QueryError> {
    if let Some(sum) = by_name.get_mut(name) {
        *sum += bytes;
    } else if bytes > 0 {
        held.grow(NAME_BYTES + name.len() as u64)?;
        by_name.insert(name.into(), bytes);
    }
    Ok(())
}
