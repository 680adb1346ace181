//! Kinds of fields in blocks, for the head's check of types.
//!
//! Invariant: a block that cannot be read has no field, so that damage refuses no write.
//! Not here: the check (`head`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::store_name;
use chronolith_head::{FieldHistory, KindsOfName};
use chronolith_model::{
    Columns, FIELD_LABEL, KIND_LABEL, Matcher, QueryError, Queryable, ReadContext, Selector, StoreId,
    TimeRange, WordKind,
};

use crate::blocks::BlockStore;

/// Blocks of all tenants as the history of their fields.
pub(crate) struct BlockFields {
    pub(crate) blocks: Arc<BlockStore>,
    pub(crate) env: Env,
}

impl BlockFields {
    fn find(
        &self,
        store: &StoreId,
        field: [Matcher; 2],
        range: TimeRange,
    ) -> Result<Option<WordKind>, QueryError> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        for block in self.blocks.open_in_range(store, range)? {
            for kind in WordKind::ALL {
                let [name, field] = field.clone();
                let matchers = [name, field, kind_matcher(kind)];
                let selector = Selector { matchers: &matchers, range };
                if has_samples(&*block, &selector, &ctx)? {
                    return Ok(Some(kind));
                }
            }
        }
        Ok(None)
    }

    /// Returns the values of a label of the series that `matchers` select in blocks of a range.
    fn values(
        &self,
        store: &StoreId,
        name: &str,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<BTreeSet<String>, QueryError> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let selector = Selector { matchers, range };
        self.blocks.fold_in_range(store, range, BTreeSet::new, |values, block| {
            values.extend(block.label_values(name, &selector, 0, &ctx)?);
            Ok(())
        })
    }
}

/// Selects series of a kind; floats have an empty value.
fn kind_matcher(kind: WordKind) -> Matcher {
    Matcher::equal(KIND_LABEL, kind.label_value())
}

/// Returns true if one of the series has samples that are not deleted. Reads series until one has.
fn has_samples(
    source: &dyn Queryable,
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<bool, QueryError> {
    let mut batches = source.select(selector, ctx)?;
    let mut series = Vec::new();
    let mut columns = Columns::default();
    let mut has_more = true;
    while has_more {
        has_more = batches.next_batch(&mut series)?;
        for one in series.drain(..) {
            columns.clear();
            one.samples.read(selector.range, &mut columns)?;
            if !columns.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl FieldHistory for BlockFields {
    fn kind_in(&self, store: &StoreId, measurement: &str, field: &str, range: TimeRange) -> Option<WordKind> {
        let matchers = [Matcher::equal("__name__", measurement), Matcher::equal(FIELD_LABEL, field)];
        self.find(store, matchers, range).unwrap_or_else(|error| {
            tracing::warn!(tenant = %store_name(store), measurement, field, %error, "blocks could not be asked for the type of a field");
            None
        })
    }

    fn kinds_by_name(&self, store: &StoreId, range: TimeRange) -> Vec<KindsOfName> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let fresh = BTreeMap::<String, Vec<WordKind>>::new;
        let by_name = self.blocks.fold_in_range(store, range, fresh, |by_name, block| {
            for kind in WordKind::ALL {
                let matchers = [kind_matcher(kind)];
                let selector = Selector { matchers: &matchers, range };
                for name in block.label_values(FIELD_LABEL, &selector, 0, &ctx)? {
                    let kinds = by_name.entry(name).or_default();
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
            }
            Ok(())
        });
        let by_name = by_name.unwrap_or_else(|error| {
            tracing::warn!(tenant = %store_name(store), %error, "reading types of fields from blocks failed, assuming none");
            BTreeMap::new()
        });
        by_name.into_iter().collect()
    }

    fn measurements_of(&self, store: &StoreId, field: &str, kind: WordKind, range: TimeRange) -> Vec<String> {
        let matchers = [Matcher::equal(FIELD_LABEL, field), kind_matcher(kind)];
        let names = self.values(store, "__name__", &matchers, range).unwrap_or_else(|error| {
            tracing::warn!(tenant = %store_name(store), field, %error, "reading measurements of a field from blocks failed, assuming none");
            BTreeSet::new()
        });
        names.into_iter().collect()
    }
}
