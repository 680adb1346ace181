//! Sealed files at a start: all are opened, those that a slice names in vain are noted.
//!
//! Holds: no usable file is deleted here. The copies of slices that were read may stand in the kernel's cache only; after a
//! power cut older ones count again, and name files that the newer do not. Rounds of the checkpoint delete files behind
//! slices that are synced.

use chronolith_base::Env;

use super::slices::LoadedSlices;
use crate::options::{HeadError, HeadOptions};
use crate::progress::ReplayReport;
use crate::sealed::{SealedFile, SealedStore, sealed_dir};

/// Files that there are.
pub(super) struct OpenedSealed {
    pub(super) store: SealedStore,
    /// Numbers of those that cannot be opened, and why.
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

/// Deletes files that cannot be opened and that no slice names, and notes those that a slice names in vain.
pub(super) fn finish(
    env: &Env,
    options: &HeadOptions,
    store: &SealedStore,
    unusable: Vec<(u32, String)>,
    slices: &LoadedSlices,
    report: &mut ReplayReport,
) -> Result<(), HeadError> {
    let dir = sealed_dir(&options.dir);
    // A number that a slice still names must not be given to other chunks.
    if let Some(last) = slices.missing_files.last() {
        store.skip_to(last.saturating_add(1));
    }
    for number in &slices.missing_files {
        let path = dir.join(format!("{number:08}.sealed"));
        let why = unusable.iter().find(|(n, _)| n == number).map(|(_, why)| why.as_str());
        let what = match why {
            Some(why) => format!("not usable, its chunks are lost: {why}"),
            None if store.file(*number).is_some() => {
                "chunks behind its end or outside of windows are lost".to_owned()
            }
            None => "is missing, its chunks are lost".to_owned(),
        };
        report.notes.push(format!("{}: {what}", path.display()));
    }
    // A damaged slice does not say which files it needs; they stay for whoever repairs it.
    if slices.damaged_count > 0 || !slices.spots.values().all(crate::checkpoint::Spot::is_whole) {
        return Ok(());
    }
    for (number, _) in unusable {
        let path = dir.join(format!("{number:08}.sealed"));
        env.disk.remove_file(&path).map_err(HeadError::io(&path))?;
    }
    Ok(())
}
