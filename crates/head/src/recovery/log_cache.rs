//! Start of a head whose WAL is a cache of the replicated log: the last position that WAL and checkpoint have
//! completely, and removal of the frames after it.
//!
//! Invariant: a head that opens is exactly the records before its position, in their order. If files are
//! damaged so that this cannot be proven, the start fails: the log has everything.
//! Not here: positions while records are applied (`crate::log_cache`).

use std::path::Path;

use chronolith_base::Env;
use chronolith_model::log_position::LogPartition;
use chronolith_wal::{FoundPosition, Recovery, WalError};

use super::files::CheckpointFiles;
use super::log::needed_after;
use super::overflow::LoadedOverflow;
use super::positions::Positions;
use super::progress::ReplayReport;
use super::slices::LoadedSlices;
use crate::checkpoint::SliceState;
use crate::log_cache::LOG_CACHE_FILE;
use crate::options::{HeadError, HeadOptions, wal_dir};
use crate::series::sealed::sealed_dir;
use crate::state::HeadState;

/// Checks that the directory is one of an owner if `options` have a partition, and none of an owner
/// otherwise. Marks a directory without samples as one of an owner.
pub(super) fn check_marker(
    env: &Env,
    options: &HeadOptions,
    files: &CheckpointFiles,
    log: &Recovery,
) -> Result<(), HeadError> {
    let path = files.dir.join(LOG_CACHE_FILE);
    match (options.log, files.is_log_cache) {
        (None, false) | (Some(_), true) => Ok(()),
        (None, true) => {
            let what = "the directory is the cache of an owner of a partition of a replicated log, which has its \
                        samples: start with the log and the partition, or use another directory";
            Err(HeadError::Corrupt { path, what: what.to_owned() })
        }
        (Some(partition), false) if files.is_empty() && log.segments().is_empty() => {
            tracing::info!(%partition, "new data directory, its WAL is a cache of the replicated log");
            let created = env.disk.create(&path).and_then(|file| file.sync_data());
            created.and_then(|()| env.disk.sync_dir(&files.dir)).map_err(HeadError::io(&path))
        }
        (Some(_), false) => {
            let what = "the directory has samples that are not from a replicated log: an owner of a partition \
                        needs an empty directory";
            Err(HeadError::Corrupt { path: files.dir.clone(), what: what.to_owned() })
        }
    }
}

/// Checkpoint as it was loaded.
pub(super) struct Loaded<'a> {
    pub(super) slices: &'a LoadedSlices,
    pub(super) positions: &'a Positions,
    pub(super) overflow: &'a LoadedOverflow,
    /// Note of the first loss in one of its files.
    pub(super) loss: Option<String>,
}

/// Returns the last position that WAL and checkpoint have completely, and removes the frames after it; `None`
/// if nothing was applied yet, or if the WAL is no cache of a `partition`.
pub(super) fn cut_after_position(
    env: &Env,
    partition: Option<LogPartition>,
    log: &mut Recovery,
    loaded: &Loaded<'_>,
    report: &mut ReplayReport,
) -> Result<Option<FoundPosition>, HeadError> {
    let Some(partition) = partition else { return Ok(None) };
    let disk = &*env.disk;
    let found = log.find_position(disk, needed_after(loaded.positions, loaded.overflow))?;
    let newest = newest_of(loaded);
    let Some(found) = found else {
        let is_unused = newest == 0 && !log.had_frames();
        return if is_unused {
            Ok(None)
        } else {
            Err(unusable("the WAL has no position before its first gap"))
        };
    };
    let other = found.frame.next.log_partition();
    if other != partition {
        return Err(HeadError::OtherPartition { found: other, expected: partition });
    }
    if newest > found.sequence {
        let last = found.sequence;
        return Err(unusable(&format!(
            "the checkpoint has frame {newest}, after the last position at {last}"
        )));
    }
    if let Some(loss) = &loaded.loss {
        return Err(unusable(loss));
    }
    if !loaded.slices.slices.values().all(SliceState::is_whole) {
        return Err(unusable("a slice of the checkpoint has no valid copy"));
    }
    log.cut_after(disk, &found)?;
    report.log_position = Some(found.frame.next);
    report.removed_frames = found.later_count;
    Ok(Some(found))
}

/// Returns an error if the replay has left samples out.
pub(super) fn check_replay(report: &ReplayReport, lost_texts: u64) -> Result<(), HeadError> {
    if report.log_position.is_none() {
        return Ok(());
    }
    match (report.samples_unknown, lost_texts) {
        (0, 0) => Ok(()),
        (0, count) => Err(unusable(&format!("the texts of {count} samples are lost"))),
        (count, _) => Err(unusable(&format!("the series of {count} samples are lost"))),
    }
}

/// Makes the first position of this process durable, so that later starts find it after the frames that this
/// one has removed.
pub(super) fn settle(state: &HeadState) -> Result<(), HeadError> {
    match state.settle_position() {
        // Nothing is applied before there is room.
        Err(WalError::DiskFull | WalError::NoFileDescriptor) => Ok(()),
        settled => Ok(settled?),
    }
}

fn unusable(why: &str) -> HeadError {
    HeadError::LogCache(why.to_owned())
}

/// Returns the sequence of the newest frame whose changes the checkpoint may have.
fn newest_of(loaded: &Loaded<'_>) -> u64 {
    let slices = loaded.slices.copied_until.values().copied().max().unwrap_or(0);
    slices.max(loaded.overflow.newest())
}

/// Removes WAL, checkpoint and sealed chunks of an owner, whose samples the replicated log and the bucket
/// have. The marker stays, so only an owner opens the directory. Returns false and removes nothing without
/// the marker. The caller has closed the head.
///
/// # Errors
/// [`HeadError::Io`]; the same call again removes the rest.
pub fn discard_log_cache(env: &Env, data_dir: &Path) -> Result<bool, HeadError> {
    let disk = &*env.disk;
    let dir = wal_dir(data_dir);
    let chunks = sealed_dir(data_dir);
    if !disk.exists(&dir.join(LOG_CACHE_FILE)) {
        return Ok(false);
    }
    if disk.exists(&chunks) {
        disk.remove_dir_all(&chunks).map_err(HeadError::io(&chunks))?;
    }
    // Without the marker, what a failure leaves would look like the samples of a single server.
    for entry in disk.list(&dir).map_err(HeadError::io(&dir))? {
        let path = dir.join(&entry.name);
        if entry.name != LOG_CACHE_FILE {
            disk.remove_file(&path).map_err(HeadError::io(&path))?;
        }
    }
    disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
    Ok(true)
}
