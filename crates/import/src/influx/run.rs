//! One run of an import from InfluxDB: shard after shard, each with its state.
//!
//! Invariants: a shard is recorded as imported when its blocks are durable; a shard that has grown replaces
//! the blocks that were made of it.
//! Not here: the points of a shard (`shard`).

use chronolith_base::Env;
use chronolith_format::block::imports::HeadState;

use super::error::InfluxError;
use super::paths::{InfluxPaths, StoreTarget};
use super::report::{FieldCounts, InfluxReport};
use super::shard::{self, ShardLimits, ShardTarget};
use super::source::{InfluxSource, ShardFiles, SourceShard};
use crate::Progress;
use crate::write::state::{StateFile, make_dir};

/// Imports the shards of `source`. `target_of` names the target of a shard, the same one for all shards of a
/// policy; `None` leaves it out. `progress` is called after every block of the source.
///
/// # Errors
/// [`InfluxError`]. Damage in the source is not an error: it is listed in the report.
pub fn run(
    env: &Env,
    source: &InfluxSource,
    paths: &InfluxPaths,
    target_of: &dyn Fn(&SourceShard) -> Option<StoreTarget>,
    progress: &mut dyn FnMut(Progress),
) -> Result<InfluxReport, InfluxError> {
    let mut report = InfluxReport { notes: source.notes.clone(), ..InfluxReport::default() };
    let total_bytes = source.shards.iter().map(SourceShard::byte_count).sum();
    let mut current = Progress { done_bytes: 0, total_bytes };
    let policy_of = |shard: &SourceShard| (shard.database.clone(), shard.policy.clone());
    for of_policy in source.shards.chunk_by(|a, b| policy_of(a) == policy_of(b)) {
        let Some(target) = of_policy.first().and_then(target_of) else {
            for shard in of_policy {
                report.damage(&shard.dir, 0, "the shard is left out: its retention policy cannot be created");
            }
            continue;
        };
        let mut store = Store::open(env, target)?;
        for shard in of_policy {
            let start_bytes = current.done_bytes;
            store.import(shard, &mut report, &mut |bytes| {
                current.done_bytes += bytes;
                progress(current);
            })?;
            current.done_bytes = start_bytes + shard.byte_count();
            progress(current);
            check_unchanged(env, shard, paths, &mut report)?;
        }
    }
    Ok(report)
}

/// Store of a retention policy, with the state of earlier imports.
struct Store<'a> {
    env: &'a Env,
    target: StoreTarget,
    state: StateFile,
}

impl<'a> Store<'a> {
    /// Creates the directories and removes what an interrupted import has left.
    fn open(env: &'a Env, target: StoreTarget) -> Result<Store<'a>, InfluxError> {
        make_dir(env, &target.blocks_dir)?;
        if let Some(dir) = target.state_path.parent() {
            make_dir(env, dir)?;
        }
        let mut state = StateFile::open(env, &target.state_path)?;
        state.remove_pending_blocks(env, &target.blocks_dir)?;
        Ok(Store { env, target, state })
    }

    /// Imports a shard unless that was done before.
    fn import(
        &mut self,
        shard: &SourceShard,
        report: &mut InfluxReport,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), InfluxError> {
        let source = shard.dir.display().to_string();
        let fingerprint = shard.files.fingerprint();
        if self.state.has_head(&source, &fingerprint) {
            report.shards_present += 1;
            return Ok(());
        }
        let env = self.env;
        let blocks_dir = &self.target.blocks_dir;
        let shard_target = ShardTarget {
            env,
            blocks_dir,
            newest: crate::import::newest_block(env, blocks_dir)?,
            announce: self.state.pending_writer(env),
            limits: ShardLimits::default(),
        };
        let mapped = shard::map_files(env, &shard.files.tsm, report);
        let (written, counts) = shard::import(shard_target, &shard.files, &mapped, report, progress)?;
        let blocks = written.ulids.clone();
        self.state.replace_head(env, HeadState { source, fingerprint, blocks })?;
        self.state.remove_pending_blocks(env, blocks_dir)?;
        let merged: u64 = counts.values().flat_map(|fields| fields.values()).flatten().sum();
        assert!(merged == written.sample_count, "{merged} points merged, {} written", written.sample_count);
        report.shards += 1;
        report.blocks += written.ulids.len() as u64;
        report.points += written.sample_count;
        add_counts(report, shard, counts);
        Ok(())
    }
}

/// Adds the counts of a shard.
fn add_counts(report: &mut InfluxReport, shard: &SourceShard, counts: FieldCounts) {
    let of_policy = report.counts.entry((shard.database.clone(), shard.policy.clone())).or_default();
    for (measurement, fields) in counts {
        let of_measurement = of_policy.entry(measurement).or_default();
        for (field, of_kinds) in fields {
            let of_field = of_measurement.entry(field).or_default();
            of_field.iter_mut().zip(of_kinds).for_each(|(all, of_shard)| *all += of_shard);
        }
    }
}

/// Reports a shard whose files changed while they were read.
fn check_unchanged(
    env: &Env,
    shard: &SourceShard,
    paths: &InfluxPaths,
    report: &mut InfluxReport,
) -> Result<(), InfluxError> {
    let wal_dir = paths.wal_dir.join(&shard.database).join(&shard.policy).join(shard.id.to_string());
    if ShardFiles::list(env, &shard.dir, &wal_dir)? != shard.files {
        let what = "the files of the shard changed while they were read: is InfluxDB running?";
        report.damage(&shard.dir, 0, what);
    }
    Ok(())
}
