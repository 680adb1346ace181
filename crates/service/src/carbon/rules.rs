//! Rules of paths in effect: storage-schemas.conf, storage-aggregation.conf and rewrite rules.
//!
//! Invariants: a batch is handled by one version of the rules; a file that cannot be read or used leaves the
//! rules in use as they are. Patterns are searched once per series and reload: the rule of a wire key is
//! cached, in a bounded table whose hash has a random seed.
//! Not here: syntax and matching (`ingest::carbon`), reorder buffers (`head`), archives of queries
//! (`server::http::graphite`).

use std::hash::BuildHasher as _;
use std::path::Path;
use std::sync::Arc;

use crate::options::RuleFiles;
use chronolith_base::Disk;
use chronolith_base::hash::{FixedState, HashTable};
use chronolith_ingest::carbon::{
    AggregationMethod, AggregationRule, AggregationRules, Archive, ConfigError, Explanation, Note,
    RewriteRules, Rewriter, Schema, Schemas, canonical_path, explain, path_of_labels,
};
use chronolith_model::reorder::Update;
use chronolith_model::rollup::{RollupArchive, RollupMethod, RollupMethods, RollupRules};
use chronolith_model::{Labels, ReorderRule, WriteBatch};
use parking_lot::{Mutex, RwLock};

/// Wire keys whose rule is cached: 16 MiB.
const CACHED_KEYS_MAX: usize = 1 << 20;
/// Rewriters kept for the next batches; each has a cache of its own.
const REWRITERS_MAX: usize = 4;

/// Effect of a schema on the points of a series.
#[derive(Debug, Clone, Copy)]
struct PointRule {
    step_ms: i64,
    /// One more than the index of the rule of its reorder buffer; 0 without one.
    reorder: u16,
}

/// A cached wire key.
#[derive(Debug, Clone, Copy)]
struct CachedRule {
    key_hash: u64,
    /// One more than the index of the schema; 0 if none applies.
    schema: u16,
}

/// All rules, as read from their files.
#[derive(Default)]
pub struct PathRules {
    schemas: Schemas,
    aggregations: AggregationRules,
    rewrites: Arc<RewriteRules>,
    has_rewrites: bool,
    /// Effects of the schemas, in their order.
    point_rules: Vec<PointRule>,
    reorder_rules: Vec<ReorderRule>,
    hasher: FixedState,
    seed: u64,
    cached: RwLock<HashTable<CachedRule>>,
    rewriters: Mutex<Vec<Rewriter>>,
}

impl PathRules {
    /// Reads the files; `seed` is random.
    ///
    /// # Errors
    /// The text for the operator: which file, where, why.
    pub fn read(disk: &dyn Disk, files: &RuleFiles, seed: u64) -> Result<PathRules, String> {
        let schemas = parse(disk, files.schemas.as_deref(), Schemas::parse)?;
        let aggregations = parse(disk, files.aggregation.as_deref(), AggregationRules::parse)?;
        let rewrites = parse(disk, files.rewrites.as_deref(), RewriteRules::parse)?;
        let mut rules = PathRules {
            schemas,
            aggregations,
            rewrites: Arc::new(rewrites),
            has_rewrites: files.rewrites.is_some(),
            hasher: FixedState::with_seed(seed),
            seed,
            ..PathRules::default()
        };
        let shown = files.schemas.as_deref().unwrap_or(Path::new("")).display();
        rules.set_point_rules().map_err(|why| format!("{shown}: {why}"))?;
        Ok(rules)
    }

    fn set_point_rules(&mut self) -> Result<(), String> {
        if self.schemas.rules().len() >= usize::from(u16::MAX) {
            return Err(format!("more than {} sections", u16::MAX - 1));
        }
        for schema in self.schemas.rules() {
            let step_s = schema.archives().first().map_or(1, |archive| archive.step_s);
            let reorder = match reorder_rule(schema, step_s)? {
                Some(rule) => {
                    self.reorder_rules.push(rule);
                    self.reorder_rules.len() as u16
                }
                None => 0,
            };
            self.point_rules.push(PointRule { step_ms: i64::from(step_s) * 1000, reorder });
        }
        Ok(())
    }

    /// Quantises the points of series with a rule: up where a reorder buffer sorts them, else down, as
    /// whisper does.
    pub fn apply(&self, batch: &mut WriteBatch) {
        if self.point_rules.is_empty() {
            return;
        }
        let schemas = self.schemas_of(batch);
        let rule_of =
            |schema: u16| usize::from(schema).checked_sub(1).and_then(|at| self.point_rules.get(at));
        let mut reordered = Vec::with_capacity(schemas.len());
        for (series, schema) in batch.series.iter().zip(schemas) {
            let rule = rule_of(schema);
            let reorder = rule.map_or(0, |rule| rule.reorder);
            reordered.push(reorder);
            if let Some(rule) = rule.filter(|_| reorder == 0) {
                let samples = series.samples.start as usize..series.samples.end as usize;
                for time in batch.times.get_mut(samples).into_iter().flatten() {
                    *time -= time.rem_euclid(rule.step_ms);
                }
            }
        }
        if reordered.iter().any(|reorder| *reorder > 0) {
            batch.reorder_rules.clone_from(&self.reorder_rules);
            batch.reordered = reordered;
        }
    }

    /// Returns, per series of the batch, one more than the index of its schema, or 0.
    fn schemas_of(&self, batch: &WriteBatch) -> Vec<u16> {
        let mut schemas = Vec::with_capacity(batch.series.len());
        let mut unknown: Vec<CachedRule> = Vec::new();
        let mut unknown_idxs = Vec::new();
        let cached = self.cached.read();
        for (idx, series) in batch.series.iter().enumerate() {
            let key_hash = self.hasher.hash_one(batch.raw_of(series));
            let found = cached.find(key_hash, |one| one.key_hash == key_hash);
            if found.is_none() {
                unknown_idxs.push(idx);
                unknown.push(CachedRule { key_hash, schema: 0 });
            }
            schemas.push(found.map_or(0, |one| one.schema));
        }
        drop(cached);
        if unknown.is_empty() {
            return schemas;
        }
        for (idx, one) in unknown_idxs.into_iter().zip(&mut unknown) {
            let Some(series) = batch.series.get(idx) else { continue };
            one.schema = self.match_key(batch.raw_of(series));
            schemas[idx] = one.schema;
        }
        let mut cached = self.cached.write();
        if cached.len() + unknown.len() > CACHED_KEYS_MAX {
            cached.clear();
        }
        for one in unknown.into_iter().take(CACHED_KEYS_MAX) {
            if cached.find(one.key_hash, |other| other.key_hash == one.key_hash).is_none() {
                cached.insert_unique(one.key_hash, one, |other| other.key_hash);
            }
        }
        schemas
    }

    fn match_key(&self, key: &[u8]) -> u16 {
        let Ok(text) = std::str::from_utf8(key) else { return 0 };
        let path = canonical_path(text);
        let Some(found) = self.schemas.match_path(&path) else { return 0 };
        let idx = self.schemas.rules().iter().position(|schema| std::ptr::eq(schema, found));
        idx.and_then(|idx| u16::try_from(idx + 1).ok()).unwrap_or(0)
    }

    /// Calls `decode` with a rewriter if there are rewrite rules.
    pub fn with_rewriter<R>(&self, decode: impl FnOnce(Option<&mut Rewriter>) -> R) -> R {
        if !self.has_rewrites {
            return decode(None);
        }
        let kept = self.rewriters.lock().pop();
        let mut rewriter = kept.unwrap_or_else(|| Rewriter::new(self.rewrites.clone(), self.seed));
        let result = decode(Some(&mut rewriter));
        let mut rewriters = self.rewriters.lock();
        if rewriters.len() < REWRITERS_MAX {
            rewriters.push(rewriter);
        }
        result
    }

    /// Returns the rules that apply to a path, as sent with its prefix.
    pub fn explain(&self, path: &str) -> Explanation {
        explain(path, &self.rewrites, &self.schemas, &self.aggregations)
    }

    /// Seconds per point of the coarsest archive of all schemas.
    pub fn step_max_s(&self) -> i64 {
        let coarsest = self.schemas.rules().iter().filter_map(|schema| schema.archives().last());
        coarsest.map(|archive| i64::from(archive.step_s)).max().unwrap_or(0)
    }

    /// Rules from paths to archives.
    pub fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// Rules from paths to methods.
    pub fn aggregations(&self) -> &AggregationRules {
        &self.aggregations
    }

    /// Number of wire keys whose rule is cached.
    pub fn cached_count(&self) -> usize {
        self.cached.read().len()
    }

    /// Searches that were given up because a pattern took too many steps.
    pub fn exceeded_count(&self) -> u64 {
        self.schemas.exceeded_count() + self.aggregations.exceeded_count() + self.rewrites.exceeded_count()
    }
}

impl RollupRules for PathRules {
    /// Archives of the schema of the path but for the finest, which its samples are.
    fn archives_of(&self, labels: &Labels, out: &mut Vec<RollupArchive>) {
        let path = path_of_labels(labels);
        let Some(schema) = self.schemas.match_path(&path) else { return };
        let Some((finest, coarser)) = schema.archives().split_first().filter(|(_, rest)| !rest.is_empty())
        else {
            return;
        };
        let rule = self.aggregations.match_path(&path);
        let methods =
            rollup_methods(rule.map_or(&[AggregationMethod::Average][..], AggregationRule::methods));
        let ms = |archive: &Archive| i64::from(archive.step_s) * 1000;
        out.extend(coarser.iter().filter_map(|archive| RollupArchive::new(ms(archive), ms(finest), methods)));
    }

    fn retention_ms(&self, labels: &Labels) -> Option<i64> {
        self.schemas.match_path(&path_of_labels(labels)).and_then(longest_retention_ms)
    }

    fn shortest_retention_ms(&self) -> Option<i64> {
        self.schemas.rules().iter().filter_map(longest_retention_ms).min()
    }
}

/// Returns how long the coarsest archive of a schema has points, in milliseconds.
fn longest_retention_ms(schema: &Schema) -> Option<i64> {
    let retention_s = schema.archives().iter().map(Archive::retention_s).max()?;
    Some(i64::try_from(retention_s).unwrap_or(i64::MAX).saturating_mul(1000))
}

/// Returns what windows need for points of these methods.
pub fn rollup_methods(methods: &[AggregationMethod]) -> RollupMethods {
    let made_of = |method: &AggregationMethod| match method {
        AggregationMethod::Average | AggregationMethod::AverageZero | AggregationMethod::Sum => {
            RollupMethod::Sum
        }
        AggregationMethod::Count => RollupMethod::Count,
        AggregationMethod::Min => RollupMethod::Min,
        AggregationMethod::Max => RollupMethod::Max,
        AggregationMethod::First => RollupMethod::First,
        AggregationMethod::Last => RollupMethod::Last,
        AggregationMethod::AbsMax => RollupMethod::AbsMax,
        AggregationMethod::AbsMin => RollupMethod::AbsMin,
    };
    let made_of: Vec<RollupMethod> = methods.iter().map(made_of).collect();
    // The factor of a rule needs the number of points.
    RollupMethods::of(&made_of).union(RollupMethods::of(&[RollupMethod::Count]))
}

/// Returns the rule of the reorder buffer that a schema asks for.
fn reorder_rule(schema: &Schema, step_s: u32) -> Result<Option<ReorderRule>, String> {
    let Some(buffer) = schema.reorder_buffer() else { return Ok(None) };
    let update = if buffer.allows_update { Update::Allow } else { Update::Disallow };
    let rule = ReorderRule::new(u64::from(step_s) * 1000, buffer.point_count as usize, update);
    rule.map(Some).map_err(|why| format!("section [{}]: {why}", schema.name()))
}

/// Reads a file of rules; none is the same as an empty one. Notes go to the log.
fn parse<T: Default>(
    disk: &dyn Disk,
    path: Option<&Path>,
    parse: impl FnOnce(&str) -> Result<(T, Vec<Note>), ConfigError>,
) -> Result<T, String> {
    let Some(path) = path else { return Ok(T::default()) };
    let shown = path.display();
    let bytes = disk.read(path).map_err(|error| format!("reading {shown}: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{shown}: not UTF-8"))?;
    let (rules, notes) = parse(&text).map_err(|error| format!("{shown}: {error}"))?;
    for note in notes {
        tracing::warn!(file = %shown, line = note.line, note.what, "part of a file of Graphite rules has no effect");
    }
    Ok(rules)
}

#[cfg(test)]
mod tests;
