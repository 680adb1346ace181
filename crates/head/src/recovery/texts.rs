//! Restores texts: texts of files at the start, texts of WAL frames during replay.
//!
//! Invariant: a text is added unless its id is known, so order and repetition do not matter.
//! Not here: samples that name them, freeing those that no sample names (`text_cleanup::unused`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::head::text_file;
use chronolith_format::head::wal::TextsRef;
use chronolith_format::parse_store_name;
use chronolith_model::StoreId;

use super::files::CheckpointFiles;
use crate::index::tenant::Tenants;
use crate::options::HeadError;
use crate::recovery::progress::ReplayReport;
use crate::texts::file::{SUFFIXES, TextFile};
use crate::texts::{TextBudget, TextStore};

/// Reads the files of texts; `tenants` are the tenants of the checkpoint.
pub(super) fn load(
    env: &Env,
    files: &CheckpointFiles,
    bytes_max: u64,
    tenants: &mut Tenants,
    report: &mut ReplayReport,
) -> Result<TextStore, HeadError> {
    let mut paths = Vec::new();
    let mut all_bytes = 0;
    let generation = files.texts.keys().last().copied().unwrap_or(0);
    let mut store = TextStore::new(bytes_max, files.key, TextFile::default());
    for copies in files.texts.values() {
        for path in copies {
            // A process that was killed may not have synced it.
            env.disk.open(path).and_then(|file| file.sync_data()).map_err(HeadError::io(path))?;
            let bytes = env.disk.map_or_copy(path, u64::MAX).map_err(HeadError::io(path))?;
            all_bytes += bytes.len() as u64 / SUFFIXES.len() as u64;
            for payload in text_file::frames(&bytes, files.key) {
                let texts = TextsRef::decode(payload).map_err(|error| error.to_string());
                if let Err(what) = texts.and_then(|texts| {
                    restore(texts, &store.budget, true, |id| tenants.get_or_create(id, env.rng.next_u64()))
                }) {
                    report.notes.push(format!("{}: texts: {what}", path.display()));
                }
            }
            paths.push(path.clone());
        }
    }
    if !paths.is_empty() {
        env.disk.sync_dir(&files.dir).map_err(HeadError::io(&files.dir))?;
    }
    report.bytes += all_bytes;
    store.file = TextFile::found(paths, generation, all_bytes).into();
    Ok(store)
}

/// Adds the texts of a payload to their dictionary.
pub(super) fn restore(
    mut texts: TextsRef<'_>,
    budget: &Arc<TextBudget>,
    is_saved: bool,
    tenant: impl FnOnce(&StoreId) -> Option<Arc<crate::index::tenant::TenantHead>>,
) -> Result<(), String> {
    let id = parse_store_name(texts.tenant).map_err(|_| format!("tenant {:?} is not valid", texts.tenant))?;
    let tenant = tenant(&id).ok_or("too many tenants")?;
    let dictionary = tenant.texts.get_or_create(texts.window_start, budget);
    while let Some((id, text)) = texts.next_text().map_err(|error| error.to_string())? {
        dictionary.restore(id, text, is_saved);
    }
    Ok(())
}
