//! Loads the list of all blocks at the start: reads the catalogue and compares it with the names of the
//! directories.
//!
//! Invariants: a block that is missing in the catalogue is read and added, one without a directory is
//! reported as lost; so are missing files and files of a wrong size, within a bounded time.
//! Directories that a crash left incomplete or partly removed are removed. No block is opened.
//! Not here: the file of the catalogue (`catalogue`), damage within blocks (`maintenance::scrub`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_base::disk::DirEntry;
use chronolith_block::{
    BlockEntry, BlockError, FileSizes, block_dir, damaged_record, is_leftover, read_record,
};
use chronolith_format::block::catalogue::BlockRecord;
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::parse_store_name;
use chronolith_model::StoreId;

use super::catalogue::{Catalogue, Loaded, TenantRecords};
use super::tenant::{TENANTS_DIR, TenantBlocks, tenant_dir};
use crate::options::{OpenError, TsdbOptions};

/// Blocks named per kind of note; the number of others is reported.
const NAMED_MAX: usize = 20;
/// Time for comparing files of blocks with the catalogue; the scrub compares the others.
const COMPARE_NS_MAX: u64 = 250_000_000;

/// All blocks of a data directory.
pub(crate) struct LoadedBlocks {
    pub(crate) tenants: BTreeMap<StoreId, Arc<TenantBlocks>>,
    pub(crate) catalogue: Catalogue,
    /// Blocks that the notes report as lost or damaged.
    pub(crate) lost_count: u64,
}

/// Notes of one kind: the first ones, and the number of all.
#[derive(Default)]
struct Named {
    texts: Vec<String>,
    count: usize,
}

impl Named {
    fn push(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.texts.len() < NAMED_MAX {
            self.texts.push(text());
        }
    }

    fn end(self, what: &str, notes: &mut Vec<String>) -> u64 {
        let more = self.count - self.texts.len();
        notes.extend(self.texts);
        if more > 0 {
            notes.push(format!("{more} more {what}"));
        }
        self.count as u64
    }
}

/// Findings about all tenants.
#[derive(Default)]
struct Findings {
    /// Monotonic time until which files are compared with the catalogue.
    compare_end_ns: u64,
    lost: Named,
    damaged: Named,
    kept_as_is: Vec<String>,
    added_count: usize,
    replaced_count: usize,
}

/// Finds all blocks below the data directory.
///
/// # Errors
/// [`OpenError::Io`] if the directory of tenants cannot be listed.
pub(crate) fn load_blocks(
    env: &Env,
    options: &TsdbOptions,
    notes: &mut Vec<String>,
) -> Result<LoadedBlocks, OpenError> {
    let root = options.data_dir.join(TENANTS_DIR);
    let entries = env.disk.list(&root).map_err(|error| OpenError::Io { path: root.clone(), error })?;
    let (catalogue, loaded) = Catalogue::load(env, &options.data_dir);
    let Loaded { tenants: mut records, damage, is_present } = loaded;
    if let Some(damage) = &damage {
        notes.push(format!("{damage}; the block catalogue is rebuilt from the blocks"));
    }
    let compare_end_ns = env.clock.mono_ns() + COMPARE_NS_MAX;
    let mut findings = Findings { compare_end_ns, ..Findings::default() };
    let mut tenants = BTreeMap::new();
    for entry in entries.into_iter().filter(|e| e.is_dir) {
        let path = root.join(&entry.name);
        let tenant = match parse_store_name(&entry.name) {
            Ok(tenant) => tenant,
            Err(e) => {
                notes.push(format!("{}: not a tenant directory, ignored: {e}", path.display()));
                continue;
            }
        };
        let known = records.remove(&entry.name).unwrap_or_default();
        let blocks = load_tenant(env, options, &tenant, known, &catalogue, &mut findings);
        if let Err(error) = blocks {
            findings.kept_as_is.push(format!("{}: {error}", path.display()));
        } else if let Ok(blocks) = blocks {
            tenants.insert(tenant, Arc::new(blocks));
        }
    }
    for (tenant, known) in &records {
        known.keys().for_each(|&ulid| findings.lose(&block_dir(&root.join(tenant), ulid)));
    }
    if findings.added_count > 0 && (is_present || damage.is_some()) {
        tracing::info!(blocks = findings.added_count, "blocks found on disk added to the block catalogue");
    }
    if findings.replaced_count > 0 {
        let blocks = findings.replaced_count;
        tracing::info!(blocks, "removing blocks that a compaction replaced before the last stop");
    }
    notes.append(&mut findings.kept_as_is);
    let lost_count =
        findings.lost.end("blocks are lost", notes) + findings.damaged.end("blocks are damaged", notes);
    Ok(LoadedBlocks { tenants, catalogue, lost_count })
}

impl Findings {
    fn lose(&mut self, dir: &Path) {
        self.lost.push(|| format!("{}: block is missing, but listed in the block catalogue", dir.display()));
    }
}

/// A block that is missing in the catalogue.
struct Added {
    record: BlockRecord,
    meta: BlockMeta,
}

fn load_tenant(
    env: &Env,
    options: &TsdbOptions,
    store: &StoreId,
    mut known: TenantRecords,
    catalogue: &Catalogue,
    findings: &mut Findings,
) -> std::io::Result<TenantBlocks> {
    let dir = tenant_dir(&options.data_dir, store);
    let names = env.disk.list(&dir)?;
    let (mut records, mut added, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    let mut damaged = BTreeSet::new();
    for DirEntry { name, .. } in names.iter().filter(|entry| entry.is_dir) {
        if is_leftover(name) {
            if let Err(error) = env.disk.remove_dir_all(&dir.join(name)) {
                findings.kept_as_is.push(format!("{}: {error}", dir.join(name).display()));
            }
            continue;
        }
        let Ok(ulid) = name.parse::<Ulid>() else { continue };
        match known.remove(&ulid) {
            Some(record) => {
                let known = compare_files(env, &dir.join(name), record, findings);
                if known.is_changed {
                    changed.push(known.record.clone());
                }
                if known.is_damaged {
                    damaged.insert(ulid);
                }
                records.push(known.record);
            }
            None => added.extend(read_added(env, store, &dir.join(name), ulid, findings)),
        }
    }
    let unfinished = drop_unfinished_sets(&mut added, &records);
    // The removal of compacted blocks may be missing in the catalogue: a full disk refuses the record and
    // needs the space.
    let parents: BTreeSet<Ulid> =
        added.iter().map(|one| &one.record).chain(&records).flat_map(parents_of).collect();
    let lost: Vec<Ulid> = known.into_keys().collect();
    for &ulid in lost.iter().filter(|ulid| !parents.contains(ulid)) {
        findings.lose(&block_dir(&dir, ulid));
    }
    findings.added_count += added.len();
    // A record whose block is dropped below does no harm: the removal is recorded after it.
    if !added.is_empty() || !changed.is_empty() || !lost.is_empty() {
        let fresh = added.iter().map(|one| &one.record).chain(&changed);
        catalogue.note(store, lost.into_iter(), fresh);
    }
    records.extend(added.into_iter().map(|one| one.record));
    let replaced = drop_replaced(&mut records);
    findings.replaced_count += replaced.len();
    if !replaced.is_empty() {
        catalogue.note(store, replaced.iter().copied(), std::iter::empty());
    }
    let entries: Vec<_> = records.into_iter().map(BlockEntry::new).collect();
    let is_damaged = |entry: &&Arc<BlockEntry>| damaged.contains(&entry.ulid());
    entries.iter().filter(is_damaged).for_each(|entry| entry.note_damaged_contents());
    let blocks = TenantBlocks::new(&options.data_dir, store, entries);
    blocks.push_removals(unfinished.into_iter().chain(replaced).map(|ulid| blocks.block_dir(ulid)));
    Ok(blocks)
}

/// A block of the catalogue after its files were compared.
struct Compared {
    record: BlockRecord,
    /// The record differs from the catalogue's.
    is_changed: bool,
    is_damaged: bool,
}

/// Compares the files of a block with its record. A record may be older than a deletion or a failed
/// compaction before a kill; then `meta.json` and tombstones are read again. A damaged block stays in the
/// list: queries of its time range fail rather than leave it out.
fn compare_files(env: &Env, dir: &Path, record: BlockRecord, findings: &mut Findings) -> Compared {
    let unchanged = |record| Compared { record, is_changed: false, is_damaged: false };
    if env.clock.mono_ns() > findings.compare_end_ns {
        return unchanged(record);
    }
    let compared = FileSizes::of(env, dir).and_then(|sizes| {
        sizes.compare(dir, &record)?;
        Ok(sizes.has_mutable_bytes_of(&record))
    });
    let reread = match compared {
        Ok(true) => return unchanged(record),
        Ok(false) => read_changed(env, dir, &record),
        Err(error) => Err(error),
    };
    match reread {
        Ok(fresh) => Compared { is_changed: fresh != record, record: fresh, is_damaged: false },
        Err(error) => {
            findings.damaged.push(|| format!("{}: queries that need it fail: {error}", dir.display()));
            Compared { record, is_changed: false, is_damaged: true }
        }
    }
}

/// Reads the record of a block whose `meta.json` or tombstones have changed.
fn read_changed(env: &Env, dir: &Path, record: &BlockRecord) -> Result<BlockRecord, BlockError> {
    let (fresh, _) = read_record(env, dir, record.ulid)?;
    // Only these fields change while a block has its name; the others are checksummed in the catalogue.
    Ok(BlockRecord {
        size_bytes: fresh.size_bytes,
        immutable_bytes: record.immutable_bytes.or(fresh.immutable_bytes),
        sample_count: record.sample_count.or(fresh.sample_count),
        tombstone_count: fresh.tombstone_count,
        compaction_failed: fresh.compaction_failed,
        ..record.clone()
    })
}

fn read_added(env: &Env, store: &StoreId, dir: &Path, ulid: Ulid, findings: &mut Findings) -> Option<Added> {
    match read_record(env, dir, ulid) {
        Ok((_, meta)) if meta.time_unit() != store.time_unit() => {
            let found = meta.time_unit();
            let what = "block left out: its times are not in the unit of the tenant";
            findings.damaged.push(|| format!("{}: {what}: {found:?}seconds", dir.display()));
            None
        }
        Ok((record, meta)) => Some(Added { record, meta }),
        Err(error) => {
            // Queries of its time range fail rather than leave it out, if the range is known.
            let damaged = damaged_record(env, dir, ulid).map(|(record, meta)| Added { record, meta });
            let fate = if damaged.is_some() { "queries of its time fail" } else { "block left out" };
            findings.damaged.push(|| format!("{}: {fate}: {error}", dir.display()));
            damaged
        }
    }
}

/// Removes from `added` the blocks of split sets whose publication was interrupted: one of the set is
/// missing, and all inputs of the compaction are there. Returns their names.
fn drop_unfinished_sets(added: &mut Vec<Added>, records: &[BlockRecord]) -> Vec<Ulid> {
    if added.iter().all(|one| one.meta.compaction.split_blocks.is_empty()) {
        return Vec::new();
    }
    let present: BTreeSet<Ulid> =
        records.iter().map(|record| record.ulid).chain(added.iter().map(|one| one.record.ulid)).collect();
    let is_unfinished = |one: &Added| {
        let compaction = &one.meta.compaction;
        compaction.split_blocks.iter().any(|ulid| !present.contains(ulid))
            && compaction.parents.iter().all(|parent| present.contains(&parent.ulid))
    };
    let (unfinished, kept) = added.drain(..).partition(is_unfinished);
    *added = kept;
    let unfinished: Vec<Added> = unfinished;
    unfinished.into_iter().map(|one| one.record.ulid).collect()
}

fn parents_of(record: &BlockRecord) -> impl Iterator<Item = Ulid> {
    record.parents.iter().copied()
}

/// Removes from `records` the inputs of a later one, and returns their names, oldest first.
fn drop_replaced(records: &mut Vec<BlockRecord>) -> Vec<Ulid> {
    let replaced: BTreeSet<Ulid> = records.iter().flat_map(parents_of).collect();
    if replaced.is_empty() {
        return Vec::new();
    }
    let (gone, kept) = records.drain(..).partition(|record| replaced.contains(&record.ulid));
    *records = kept;
    let gone: Vec<BlockRecord> = gone;
    // Parents of parents go first: after a crash nothing else would hide them.
    gone.into_iter().map(|record| record.ulid).collect::<BTreeSet<_>>().into_iter().collect()
}
