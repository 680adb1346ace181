//! Sealed files at startup: opens all of them and notes those that slices reference but that are missing.
//!
//! Invariant: no usable file is deleted here. The slices that were read may be in the page cache only; after
//! a power failure the older ones are used again, and reference files that the newer do not. Checkpoints
//! delete files after syncing slices.

use chronolith_base::Env;

use super::slices::LoadedSlices;
use crate::options::{HeadError, HeadOptions};
use crate::recovery::progress::ReplayReport;
use crate::series::sealed::{SealedFile, SealedStore, sealed_dir};

/// Sealed files found on disk.
pub(super) struct OpenedSealed {
    pub(super) store: SealedStore,
    /// Numbers of those that cannot be opened, with the error.
    pub(super) unusable: Vec<(u32, String)>,
}

/// Opens all sealed files.
pub(super) fn open_all(env: &Env, options: &HeadOptions) -> Result<OpenedSealed, HeadError> {
    let dir = sealed_dir(&options.dir);
    let (mut next, mut kept, mut unusable) = (1, Vec::new(), Vec::new());
    for entry in env.disk.list(&dir).map_err(HeadError::io(&dir))? {
        let Some(number) = entry.name.strip_suffix(".sealed").and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        next = next.max(number.saturating_add(1));
        match SealedFile::open(&*env.disk, &dir, number) {
            Ok(file) => kept.push(file),
            Err(error) => unusable.push((number, error.to_string())),
        }
    }
    let store = SealedStore::new(env, &options.dir, options.sealed_file_bytes, next, kept);
    Ok(OpenedSealed { store, unusable })
}

/// Deletes files that cannot be opened and that no slice references, and notes those that a slice references.
pub(super) fn finish(
    env: &Env,
    options: &HeadOptions,
    store: &SealedStore,
    unusable: Vec<(u32, String)>,
    slices: &LoadedSlices,
    report: &mut ReplayReport,
) -> Result<(), HeadError> {
    let dir = sealed_dir(&options.dir);
    // A number that a slice still references must not be reused for other chunks.
    if let Some(last) = slices.missing_files.last() {
        store.skip_to(last.saturating_add(1));
    }
    for number in &slices.missing_files {
        let path = dir.join(format!("{number:08}.sealed"));
        let why = unusable.iter().find(|(n, _)| n == number).map(|(_, why)| why.as_str());
        let what = match why {
            Some(why) => format!("not usable, its chunks are lost: {why}"),
            None if store.file(*number).is_some() => {
                "chunks after its end or outside of windows are lost".to_owned()
            }
            None => "is missing, its chunks are lost".to_owned(),
        };
        report.notes.push(format!("{}: {what}", path.display()));
    }
    // A damaged slice cannot tell which files it needs; they stay for a repair.
    if slices.damaged_count > 0 || !slices.slices.values().all(crate::checkpoint::SliceState::is_whole) {
        return Ok(());
    }
    for (number, _) in unusable {
        let path = dir.join(format!("{number:08}.sealed"));
        env.disk.remove_file(&path).map_err(HeadError::io(&path))?;
    }
    Ok(())
}
