//! Retention of blocks of Graphite stores by the schemas of their series.
//!
//! Invariants: a block expires when the longest retention of its series has passed since its end; one whose
//! labels cannot be read is kept. The retention of a block is looked up once per version of the rules.
//! Not here: which schema a series has (`server`), local blocks (`maintenance::retention`), blocks that only
//! the bucket has (`bucket_maintenance`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_format::block::meta::Ulid;
use chronolith_model::Labels;
use chronolith_model::rollup::RollupRules;

/// Blocks whose labels one search reads at most.
const READS_MAX: usize = 4;
/// Retention of a block of which a series is kept for ever.
const FOR_EVER: i64 = i64::MAX;

/// Retentions of blocks, by the rules in effect.
#[derive(Default)]
pub(crate) struct SchemaRetentions {
    rules: Option<Arc<dyn RollupRules>>,
    /// Longest retention of the series of a block in milliseconds.
    longest_ms: BTreeMap<Ulid, i64>,
}

/// A block that is older than the shortest retention.
pub(crate) struct OldBlock {
    pub(crate) ulid: Ulid,
    pub(crate) end_ms: i64,
}

impl SchemaRetentions {
    /// Sets the rules in effect; forgets retentions by other rules.
    pub(crate) fn set_rules(&mut self, rules: &Arc<dyn RollupRules>) {
        if !self.rules.as_ref().is_some_and(|known| Arc::ptr_eq(known, rules)) {
            self.rules = Some(rules.clone());
            self.longest_ms.clear();
        }
    }

    /// Forgets the blocks that `is_kept` refuses.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(Ulid) -> bool) {
        self.longest_ms.retain(|ulid, _| is_kept(*ulid));
    }

    /// Returns the blocks of `old` that have expired at `now_ms`. `visit_labels` calls its argument with the
    /// labels of each series of a block until that returns false. Cost: the labels of some blocks; further
    /// ones are looked at by the next call.
    pub(crate) fn expired(
        &mut self,
        old: impl IntoIterator<Item = OldBlock>,
        now_ms: i64,
        mut visit_labels: impl FnMut(Ulid, &mut dyn FnMut(&Labels) -> bool) -> Result<(), String>,
    ) -> Vec<Ulid> {
        let Some(rules) = self.rules.clone() else { return Vec::new() };
        let mut reads_left = READS_MAX;
        let mut expired = Vec::new();
        for OldBlock { ulid, end_ms } in old {
            let longest_ms = match self.longest_ms.get(&ulid) {
                Some(known_ms) => *known_ms,
                None if reads_left == 0 => continue,
                None => {
                    reads_left -= 1;
                    let longest_ms = longest_retention_ms(ulid, &*rules, &mut visit_labels);
                    self.longest_ms.insert(ulid, longest_ms);
                    longest_ms
                }
            };
            if end_ms <= now_ms.saturating_sub(longest_ms) {
                expired.push(ulid);
            }
        }
        expired
    }
}

fn longest_retention_ms(
    ulid: Ulid,
    rules: &dyn RollupRules,
    visit_labels: &mut impl FnMut(Ulid, &mut dyn FnMut(&Labels) -> bool) -> Result<(), String>,
) -> i64 {
    let mut longest_ms = 0;
    let visited = visit_labels(ulid, &mut |labels| {
        longest_ms = longest_ms.max(rules.retention_ms(labels).unwrap_or(FOR_EVER));
        longest_ms < FOR_EVER
    });
    match visited {
        Ok(()) => longest_ms,
        Err(error) => {
            tracing::warn!(block = %ulid, error, "reading the labels of a block failed, retention keeps it");
            FOR_EVER
        }
    }
}
