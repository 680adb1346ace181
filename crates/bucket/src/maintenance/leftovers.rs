//! Leftovers of processes that died: folders and objects that the catalogue does not name.
//!
//! Invariants: nothing younger than the age of [`LeftoverRules`] is a leftover, by the times of the storage;
//! what has no known time is none. A folder is not removed here but marked in the catalogue, where an upload
//! that goes on meanwhile loses against the mark or the mark against it. Blocks of other programs are counted
//! only, unless the caller asks for them. In Thanos's layout all folders without the claim of this writer
//! belong to others, complete or not, and stay in any case.
//! Not here: multipart uploads that were not aborted, which need a lifecycle rule of the storage; temporary
//! files of a local directory (`store::local`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot};
use chronolith_format::bucket::mimir::NO_COMPACT_MARK;
use chronolith_format::bucket::sidecar::SIDECAR_OBJECT;

use super::{META, MaintenanceRun, as_ms, mark};
use crate::BucketError;
use crate::external_labels::ExternalLabels;
use crate::layout::is_later_tombstones;
use crate::layout::{BlockKeys, WRITERS_FOLDER};
use crate::snapshots::Change;
use crate::store::list::{ListOptions, ListedObject};
use crate::store::read::ReadRange;
use crate::upload::claim::claim_of;

/// Age from which an object that nothing names is a leftover, as Mimir's compactor has it for partial blocks.
pub const LEFTOVER_AGE: Duration = Duration::from_secs(48 * 60 * 60);
/// Leftovers of one run; later runs find the others.
const LEFTOVERS_MAX: usize = 10_000;

/// Choice of leftovers.
#[derive(Debug, Clone, Copy)]
pub struct LeftoverRules<'a> {
    /// Age from which unnamed objects are leftovers.
    pub age: Duration,
    /// Blocks that are none: they are being uploaded.
    pub kept: &'a BTreeSet<Ulid>,
    /// True if blocks of other programs that the catalogue does not name are leftovers.
    pub includes_foreign: bool,
}

/// State of a folder that the catalogue does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftoverKind {
    /// No `meta.json`: an upload or a removal that did not end.
    Incomplete,
    /// `meta.json` and a sidecar: the process died before it published the block.
    Unpublished,
    /// `meta.json` and no sidecar: a block of another program. In Thanos's layout a folder that this
    /// writer has not claimed.
    Foreign,
}

/// A folder that the catalogue does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftoverFolder {
    /// Name of the block.
    pub ulid: Ulid,
    /// State of the folder.
    pub kind: LeftoverKind,
    /// Bytes of its objects.
    pub bytes: u64,
}

/// Leftovers of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Folders to be marked.
    pub folders: Vec<LeftoverFolder>,
    /// Tombstones in folders of live blocks that newer ones have replaced for long, or that were never
    /// published.
    pub tombstones: Vec<ListedObject>,
    /// Blocks of other programs that the catalogue does not name, and that stay.
    pub foreign_count: u64,
    /// Bytes of their objects.
    pub foreign_bytes: u64,
}

/// Result of marking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marked {
    /// Folders that were marked.
    pub folder_count: usize,
    /// Tombstones that were removed.
    pub tombstones_count: usize,
}

/// Finds the leftovers of a tenant. Cost: a listing of its folder; on storages whose listings have no times,
/// one request per object of a folder that may be one.
///
/// # Errors
/// As [`MaintenanceRun::catalogue`].
pub async fn find_leftovers(
    run: &MaintenanceRun<'_>,
    rules: &LeftoverRules<'_>,
) -> Result<Leftovers, BucketError> {
    let mut found = Leftovers::default();
    let Some(snapshot) = run.catalogue().await? else { return Ok(found) };
    let others = blocks_of_others(run).await?;
    let scan = Scan::new(run, rules, &snapshot, others);
    let mut options = ListOptions { prefix: scan.keys.prefix().to_owned(), ..ListOptions::default() };
    let mut folder: Option<(Ulid, Vec<ListedObject>)> = None;
    loop {
        let page = run.store.list(run.request, &options).await?;
        for object in page.objects {
            let ulid = scan.keys.split(&object.key).map(|(ulid, _)| ulid);
            match &mut folder {
                Some((current, objects)) if Some(*current) == ulid => objects.push(object),
                _ => {
                    let next = ulid.map(|ulid| (ulid, vec![object]));
                    if let Some((ulid, objects)) = std::mem::replace(&mut folder, next) {
                        scan.visit(ulid, objects, &mut found).await?;
                    }
                }
            }
        }
        options.after = page.next_after;
        if options.after.is_none() {
            break;
        }
    }
    if let Some((ulid, objects)) = folder {
        scan.visit(ulid, objects, &mut found).await?;
    }
    Ok(found)
}

/// Marks the folders of `found` in the catalogue, so that their blocks are removed after the delay of all
/// marks, and removes the tombstones. Cost: one update, one request per object.
///
/// # Errors
/// As other requests; repeat it with the leftovers that are found then.
pub async fn mark_leftovers(run: &MaintenanceRun<'_>, found: &Leftovers) -> Result<Marked, BucketError> {
    let ulids: Vec<Ulid> = found.folders.iter().map(|folder| folder.ulid).collect();
    let mut marked = Vec::new();
    let updated = run.snapshots.update(run.request, |snapshot| {
        // A catalogue without a snapshot would hide the blocks of a listing.
        marked = if snapshot.number == 0 { Vec::new() } else { mark(snapshot, &ulids, run.now_ms) };
        if marked.is_empty() { Change::Keep } else { Change::Write }
    });
    let snapshot = updated.await?.snapshot;
    for ulid in &marked {
        tracing::info!(folder = %run.request.folder, block = %ulid, "unreferenced block folder marked for removal");
    }
    // Read again just now: an upload may have published one of them since the search.
    let named: BTreeSet<String> =
        snapshot.iter().flat_map(|snapshot| named_tombstones(run, snapshot)).collect();
    let unnamed = || found.tombstones.iter().filter(|object| !named.contains(&object.key));
    for object in unnamed() {
        run.store.remove(run.request, &object.key).await?;
        tracing::info!(key = object.key, "unreferenced tombstones removed");
    }
    Ok(Marked { folder_count: marked.len(), tombstones_count: unnamed().count() })
}

fn named_tombstones<'a>(
    run: &'a MaintenanceRun<'_>,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = String> + 'a {
    snapshot.blocks.iter().filter_map(|block| {
        let object = block.tombstones.as_ref()?;
        Some(format!("{}/{}", run.folder(block.ulid), object.name))
    })
}

/// Blocks at the top level that other writers name. Cost: a listing of the writers, three requests for each.
async fn blocks_of_others(run: &MaintenanceRun<'_>) -> Result<BTreeSet<Ulid>, BucketError> {
    let mut blocks = BTreeSet::new();
    let layout = run.store.layout();
    let own = layout.writer().filter(|_| layout.is_flat(&run.request.folder));
    let Some(own) = own else { return Ok(blocks) };
    let prefix = WRITERS_FOLDER.to_owned();
    let options = ListOptions { prefix, is_delimited: true, ..ListOptions::default() };
    let page = run.store.list(run.request, &options).await?;
    let folder = |key: &String| {
        let name = key.strip_prefix(WRITERS_FOLDER)?.trim_matches('/').to_owned();
        ExternalLabels::of_folder(&name).filter(|labels| labels != own)
    };
    for labels in page.prefixes.iter().filter_map(folder) {
        let reader = run.snapshots.reader().of_writer(labels);
        let Some(latest) = reader.read_latest(run.request).await? else { continue };
        blocks.extend(latest.snapshot.blocks.iter().map(|block| block.ulid));
        blocks.extend(latest.snapshot.deletion_marks.iter().map(|mark| mark.ulid));
    }
    Ok(blocks)
}

/// One search for leftovers.
struct Scan<'a> {
    run: &'a MaintenanceRun<'a>,
    keys: BlockKeys,
    rules: &'a LeftoverRules<'a>,
    live: BTreeMap<Ulid, &'a BucketBlock>,
    marked: BTreeSet<Ulid>,
    /// Blocks of other writers.
    others: BTreeSet<Ulid>,
}

impl<'a> Scan<'a> {
    fn new(
        run: &'a MaintenanceRun<'a>,
        rules: &'a LeftoverRules<'a>,
        snapshot: &'a Snapshot,
        others: BTreeSet<Ulid>,
    ) -> Scan<'a> {
        let live = snapshot.blocks.iter().map(|block| (block.ulid, block)).collect();
        let marked = snapshot.deletion_marks.iter().map(|mark| mark.ulid).collect();
        Scan { run, keys: run.keys(), rules, live, marked, others }
    }

    async fn visit(
        &self,
        ulid: Ulid,
        objects: Vec<ListedObject>,
        found: &mut Leftovers,
    ) -> Result<(), BucketError> {
        let is_full = found.folders.len() + found.tombstones.len() >= LEFTOVERS_MAX;
        if is_full || self.marked.contains(&ulid) || self.rules.kept.contains(&ulid) {
            return Ok(());
        }
        if let Some(record) = self.live.get(&ulid) {
            return self.visit_live(record, objects, found).await;
        }
        let folder = self.run.folder(ulid);
        let has = |name: &str| objects.iter().any(|object| object.key == format!("{folder}/{name}"));
        let layout = self.run.store.layout();
        let is_shared = layout.is_flat(&self.run.request.folder);
        let has_claim = is_shared && has(NO_COMPACT_MARK) && self.has_own_claim(ulid).await?;
        let kind = match (has(META), has(SIDECAR_OBJECT)) {
            _ if is_shared && !has_claim => LeftoverKind::Foreign,
            (false, _) => LeftoverKind::Incomplete,
            (true, true) => LeftoverKind::Unpublished,
            (true, false) => LeftoverKind::Foreign,
        };
        let bytes = objects.iter().map(|object| object.object_bytes).sum();
        if kind == LeftoverKind::Foreign && (is_shared || !self.rules.includes_foreign) {
            found.foreign_count += 1;
            found.foreign_bytes += bytes;
            return Ok(());
        }
        for object in &objects {
            if !self.is_old(object).await? {
                return Ok(());
            }
        }
        found.folders.push(LeftoverFolder { ulid, kind, bytes });
        Ok(())
    }

    /// Returns true if the folder of a block at the top level was begun by this server, or one with its
    /// external labels.
    async fn has_own_claim(&self, ulid: Ulid) -> Result<bool, BucketError> {
        let writer = self.run.store.layout().writer().filter(|_| !self.others.contains(&ulid));
        let Some(writer) = writer else { return Ok(false) };
        let key = format!("{}/{NO_COMPACT_MARK}", self.run.folder(ulid));
        match self.run.store.read(self.run.request, &key, ReadRange::Whole, None).await {
            Ok(read) => Ok(read.bytes == claim_of(ulid, writer)),
            Err(BucketError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Finds tombstones that the record does not name. They were replaced when those that it names were
    /// written, so readers of earlier snapshots have had the age of leftovers since then.
    async fn visit_live(
        &self,
        record: &BucketBlock,
        objects: Vec<ListedObject>,
        found: &mut Leftovers,
    ) -> Result<(), BucketError> {
        let folder = format!("{}/", self.run.folder(record.ulid));
        let named = record.tombstones.as_ref().map(|object| format!("{folder}{}", object.name));
        let is_later = |object: &ListedObject| {
            let name = object.key.strip_prefix(&folder).unwrap_or_default();
            Some(&object.key) != named.as_ref() && is_later_tombstones(name)
        };
        if !objects.iter().any(is_later) {
            return Ok(());
        }
        if let Some(named) = &named {
            let named = objects.iter().find(|object| object.key == *named);
            let Some(named) = named else { return Ok(()) };
            if !self.is_old(named).await? {
                return Ok(());
            }
        }
        for object in objects {
            if is_later(&object) && self.is_old(&object).await? {
                found.tombstones.push(object);
            }
        }
        Ok(())
    }

    /// Returns true if the object was written longer ago than the age of leftovers.
    async fn is_old(&self, object: &ListedObject) -> Result<bool, BucketError> {
        let modified_ms = match object.modified_ms {
            Some(modified_ms) => Some(modified_ms),
            None => match self.run.store.head(self.run.request, &object.key).await {
                Ok(head) => head.modified_ms,
                Err(BucketError::NotFound { .. }) => None,
                Err(error) => return Err(error),
            },
        };
        let is_old = |ms: i64| ms.saturating_add(as_ms(self.rules.age)) <= self.run.now_ms;
        Ok(modified_ms.is_some_and(is_old))
    }
}
