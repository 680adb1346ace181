//! Repair of the snapshots of a bucket: each newest snapshot and hint of a bucket with all kinds of stores is
//! damaged in seven ways, made again, and a read-only server answers as before. Damage that cannot be
//! repaired is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Disk, Rng};
use chronolith_bucket::snapshots::{SnapshotReader, Snapshots};
use chronolith_bucket::{
    Folder, Purpose, RequestContext, Store, StoreConfig, Uploader, stores, unnamed_stores,
};
use chronolith_format::bucket::databases::DatabasesSnapshot;

use crate::bucket_damage::{BUCKET, anonymous, ask, fill};
use crate::damage::{Files, WAYS, collect, damage};
use crate::upload::World;

/// A bucket that is repaired.
struct Repair<'w> {
    world: &'w World,
    store: Arc<Store>,
    uploader: Uploader,
}

impl Repair<'_> {
    fn new(world: &World) -> Repair<'_> {
        let handle = world.runtime.handle().clone();
        let config = StoreConfig::new("file:///bucket");
        let store = Arc::new(Store::open(&config, &world.machine.env, handle.clone()).expect("opens"));
        let uploader = Uploader::new(store.clone(), &world.machine.env, handle);
        Repair { world, store, uploader }
    }

    fn request(&self, folder: Folder) -> RequestContext {
        let timeout = Duration::from_mins(1);
        RequestContext::with_timeout(&*self.world.machine.env.clock, folder, timeout, Purpose::Tool)
    }

    /// Repairs the catalogue of a folder. Returns true if something was written.
    async fn catalogue(&self, folder: Folder) -> bool {
        let request = self.request(folder);
        let publisher = self.uploader.publisher();
        let state = publisher.snapshots().reader().state(&request).await.expect("a state");
        if state.is_refused() {
            let readable = state.readable.as_deref();
            let rebuilt = publisher.rebuild_catalogue(&request, readable).await.expect("rebuilt");
            publisher.snapshots().continue_after(&request, &state, &rebuilt.snapshot).await.expect("written");
        } else if state.damaged_hint.is_some() {
            publisher.snapshots().repair_hint(&request, state.newest_number).await.expect("written");
        }
        state.is_refused() || state.damaged_hint.is_some()
    }

    /// Repairs the databases, if a snapshot that names all stores can be read.
    async fn databases(&self) -> bool {
        let request = self.request(Folder::of_tenant(&anonymous()));
        let snapshots: Snapshots<DatabasesSnapshot> =
            Snapshots::of_kind(self.store.clone(), &self.world.machine.env);
        let reader: &SnapshotReader<DatabasesSnapshot> = snapshots.reader();
        let state = reader.state(&request).await.expect("a state");
        let stores = stores(&self.store, &request).await.expect("a listing");
        let is_usable = |readable: &Arc<DatabasesSnapshot>| {
            state.is_refused() && unnamed_stores(&stores, &readable.content).is_empty()
        };
        if let Some(readable) = state.readable.clone().filter(is_usable) {
            snapshots.continue_after(&request, &state, &readable).await.expect("written");
        } else if state.damaged_hint.is_some() && !state.is_refused() {
            snapshots.repair_hint(&request, state.newest_number).await.expect("written");
        }
        state.is_refused() || state.damaged_hint.is_some()
    }
}

/// The folder of a snapshot or hint.
fn folder_of(path: &Path) -> Option<Folder> {
    let key = path.strip_prefix(BUCKET).ok()?.display().to_string();
    let (folder, _) = key.split_once("/catalog/").or_else(|| key.split_once("/databases/"))?;
    match folder.split_once("/stores/") {
        None => Some(Folder::of_tenant(&anonymous())),
        Some((_, id)) => Some(Folder::of_store(&anonymous(), id.parse().ok()?)),
    }
}

/// Puts the files of the bucket back, and removes others.
fn restore(world: &World, files: &Files) {
    let disk = &world.machine.disk;
    let mut now = Files::new();
    collect(disk, Path::new(BUCKET), &mut now);
    for path in now.keys().filter(|path| !files.contains_key(*path)) {
        disk.remove_file(path).expect("removed");
    }
    for (path, bytes) in files.iter().filter(|(path, bytes)| now.get(*path) != Some(*bytes)) {
        let file = disk.create(path).expect("made");
        file.write_at(bytes, 0).expect("written");
    }
}

/// Returns true for a snapshot that is the newest of its folder, and for a hint.
fn is_newest(files: &Files, path: &Path) -> bool {
    let is_hint = path.file_name().is_some_and(|name| name == "latest");
    let is_number = |path: &Path| path.file_name().is_some_and(|name| name != "latest");
    let in_folder = |other: &&PathBuf| other.parent() == path.parent() && is_number(other);
    is_hint || files.keys().filter(in_folder).max().is_some_and(|newest| newest == path)
}

#[test]
fn a_damaged_bucket_answers_as_before_once_it_is_repaired() {
    let world = World::new(43);
    fill(&world);
    let mut files = Files::new();
    collect(&world.machine.disk, Path::new(BUCKET), &mut files);
    let want = ask(&world, &world.open_read_only()).expect("an answer");
    let repair = Repair::new(&world);
    let rng = Rng::from_seed(43);
    let targets: Vec<_> =
        files.keys().filter(|path| folder_of(path).is_some() && is_newest(&files, path)).collect();
    assert!(targets.len() >= 8, "{targets:?}");
    let mut repaired = 0;
    for path in targets {
        let is_database = path.display().to_string().contains("/databases/");
        for way in WAYS {
            let mut damaged = files.clone();
            damage(&rng, &mut damaged, path, way);
            restore(&world, &damaged);
            let folder = folder_of(path).expect("a folder");
            let is_written = world.runtime.block_on(async {
                if is_database { repair.databases().await } else { repair.catalogue(folder).await }
            });
            repaired += usize::from(is_written);
            let answers = ask(&world, &world.open_read_only());
            match answers {
                Ok(answers) => assert!(answers == want, "{} {way:?}", path.display()),
                // The only snapshot of the databases has no copy.
                Err(error) => assert!(is_database, "{} {way:?}: {error}", path.display()),
            }
            let again = world.runtime.block_on(async {
                is_database || !repair.catalogue(folder_of(path).expect("a folder")).await
            });
            assert!(again, "{} {way:?}: a second run has nothing to do", path.display());
        }
    }
    restore(&world, &files);
    assert!(repaired > 40, "{repaired}");
}

/// All snapshots of each catalogue are lost, and the snapshots of the databases are not.
#[test]
fn a_catalogue_is_made_of_the_folders_of_blocks_alone() {
    let world = World::new(44);
    fill(&world);
    let mut files = Files::new();
    collect(&world.machine.disk, Path::new(BUCKET), &mut files);
    let want = ask(&world, &world.open_read_only()).expect("an answer");
    let repair = Repair::new(&world);
    let rng = Rng::from_seed(44);
    let mut folders: Vec<Folder> = files.keys().filter_map(|path| folder_of(path)).collect();
    folders.sort_unstable();
    folders.dedup();
    for way in WAYS {
        let mut damaged = files.clone();
        let is_catalogue = |path: &Path| path.display().to_string().contains("/catalog/");
        let is_snapshot =
            |path: &Path| is_catalogue(path) && path.file_name().is_some_and(|name| name != "latest");
        for path in files.keys().filter(|path| is_snapshot(path)) {
            damage(&rng, &mut damaged, path, way);
        }
        restore(&world, &damaged);
        assert!(ask(&world, &world.open_read_only()).is_err(), "{way:?}: refused before");
        for folder in &folders {
            assert!(world.runtime.block_on(repair.catalogue(folder.clone())), "{way:?}: {folder}");
        }
        let answers = ask(&world, &world.open_read_only()).expect("an answer");
        assert!(answers == want, "{way:?}: {} lines instead of {}", answers.len(), want.len());
    }
}
