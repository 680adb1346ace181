//! A disk in memory that can crash, fill up and fail on command.
//!
//! Holds: after [`MemDisk::crash`] a file has the bytes of its last `sync_data`, and a name exists only if
//! its directory was synced after it was given. That is stricter than most real file systems.
//! Not here: reordering of unsynced writes (all are lost).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{DirEntry, Disk, DiskFile, LockGuard, Mapped};

#[derive(Default)]
struct Content {
    live: Vec<u8>,
    synced: Vec<u8>,
    /// Bytes written since the last sync lie within; a sync copies only these.
    dirty: std::ops::Range<usize>,
}

impl Content {
    fn touch(&mut self, range: std::ops::Range<usize>) {
        let dirty = &mut self.dirty;
        *dirty = if dirty.start >= dirty.end {
            range
        } else {
            dirty.start.min(range.start)..dirty.end.max(range.end)
        };
    }

    fn sync(&mut self) {
        self.synced.resize(self.live.len(), 0);
        let range = self.dirty.start.min(self.live.len())..self.dirty.end.min(self.live.len());
        self.synced[range.clone()].copy_from_slice(&self.live[range]);
        self.dirty = 0..0;
    }
}

type Node = Arc<Mutex<Content>>;

#[derive(Clone)]
enum Entry {
    Dir,
    File(Node),
}

#[derive(Default)]
struct State {
    live: BTreeMap<PathBuf, Entry>,
    synced: BTreeMap<PathBuf, Entry>,
    locked: Vec<PathBuf>,
}

struct Shared {
    state: Mutex<State>,
    /// Operations (writes, syncs, renames, removals) left before every further one fails; `u64::MAX` = never.
    fuse: AtomicU64,
    op_count: AtomicU64,
    capacity_bytes: AtomicU64,
    generation: AtomicU64,
}

/// See the module.
#[derive(Clone)]
pub struct MemDisk(Arc<Shared>);

impl Default for MemDisk {
    fn default() -> Self {
        MemDisk::new()
    }
}

impl MemDisk {
    /// An empty disk without a size limit.
    #[must_use]
    pub fn new() -> MemDisk {
        MemDisk(Arc::new(Shared {
            state: Mutex::default(),
            fuse: AtomicU64::new(u64::MAX),
            op_count: AtomicU64::new(0),
            capacity_bytes: AtomicU64::new(u64::MAX),
            generation: AtomicU64::new(0),
        }))
    }

    /// Loses power: everything not synced is gone, locks are free, files opened before fail from here on.
    pub fn crash(&self) {
        let mut state = self.0.state.lock();
        self.0.generation.fetch_add(1, Ordering::SeqCst);
        self.0.fuse.store(u64::MAX, Ordering::SeqCst);
        state.live = state.synced.clone();
        state.locked.clear();
        for entry in state.live.values() {
            if let Entry::File(node) = entry {
                let mut content = node.lock();
                content.live = content.synced.clone();
                content.dirty = 0..0;
            }
        }
    }

    /// Lets `op_count` more changing operations through, then fails every one until [`MemDisk::crash`] or `heal`.
    pub fn fail_after(&self, op_count: u64) {
        self.0.fuse.store(op_count, Ordering::SeqCst);
    }

    /// Ends failing.
    pub fn heal(&self) {
        self.0.fuse.store(u64::MAX, Ordering::SeqCst);
    }

    /// Sets the size of the disk; writes and allocations beyond it fail with `StorageFull`.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.0.capacity_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Changing operations so far: every number below it is a crash point.
    #[must_use]
    pub fn op_count(&self) -> u64 {
        self.0.op_count.load(Ordering::SeqCst)
    }

    fn op(&self) -> io::Result<()> {
        self.0.op_count.fetch_add(1, Ordering::SeqCst);
        let burn = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(1) };
        match self.0.fuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, burn) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("injected disk failure")),
        }
    }

    fn used_bytes(&self, state: &State) -> u64 {
        let size = |e: &Entry| match e {
            Entry::File(node) => node.lock().live.len() as u64,
            Entry::Dir => 0,
        };
        state.live.values().map(size).sum()
    }

    fn room_for(&self, more: u64) -> io::Result<()> {
        let capacity = self.0.capacity_bytes.load(Ordering::SeqCst);
        if capacity == u64::MAX {
            return Ok(());
        }
        let state = self.0.state.lock();
        if self.used_bytes(&state).saturating_add(more) > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn file(&self, path: &Path) -> io::Result<Node> {
        match self.0.state.lock().live.get(path) {
            Some(Entry::File(node)) => Ok(node.clone()),
            Some(Entry::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn handle(&self, node: Node) -> Box<dyn DiskFile> {
        let generation = self.0.generation.load(Ordering::SeqCst);
        Box::new(MemFile { disk: self.clone(), node, generation })
    }
}

struct MemFile {
    disk: MemDisk,
    node: Node,
    generation: u64,
}

impl MemFile {
    fn alive(&self) -> io::Result<()> {
        if self.generation == self.disk.0.generation.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(io::Error::other("file was opened before the crash"))
        }
    }

    fn grow(&self, len: usize) -> io::Result<()> {
        let now = self.node.lock().live.len();
        if len > now {
            self.disk.room_for((len - now) as u64)?;
            let mut content = self.node.lock();
            content.live.resize(len, 0);
            // What was cut off before and not synced since must not come back.
            content.touch(now..len);
        }
        Ok(())
    }
}

impl DiskFile for MemFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.alive()?;
        self.disk.op()?;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.grow(start + bytes.len())?;
        let mut content = self.node.lock();
        content.live[start..start + bytes.len()].copy_from_slice(bytes);
        content.touch(start..start + bytes.len());
        Ok(())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.alive()?;
        let content = self.node.lock();
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let part = content.live.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.alive()?;
        Ok(self.node.lock().live.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.alive()?;
        self.disk.op()?;
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.grow(len)?;
        self.node.lock().live.truncate(len);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.alive()?;
        self.disk.op()?;
        self.grow(usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.alive()?;
        self.disk.op()?;
        self.node.lock().sync();
        Ok(())
    }
}

struct MemLock {
    disk: MemDisk,
    path: PathBuf,
}

impl LockGuard for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut state = self.disk.0.state.lock();
        state.locked.retain(|p| *p != self.path);
    }
}

impl Disk for MemDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.op()?;
        let mut state = self.0.state.lock();
        let parent = path.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() && !matches!(state.live.get(parent), Some(Entry::Dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let node = Node::default();
        state.live.insert(path.to_owned(), Entry::File(node.clone()));
        drop(state);
        Ok(self.handle(node))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.handle(self.file(path)?))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.file(path)?.lock().live.clone())
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        Ok(Mapped::from_slice(&self.file(path)?.lock().live))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.0.state.lock();
        if !matches!(state.live.get(dir), Some(Entry::Dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let entry = |(path, entry): (&PathBuf, &Entry)| {
            let name = path.file_name()?.to_str()?.to_owned();
            let (is_dir, len) = match entry {
                Entry::Dir => (true, 0),
                Entry::File(node) => (false, node.lock().live.len() as u64),
            };
            Some(DirEntry { name, is_dir, len })
        };
        let mut out: Vec<_> =
            state.live.iter().filter(|(p, _)| p.parent() == Some(dir)).filter_map(entry).collect();
        out.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.state.lock().live.contains_key(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op()?;
        let mut state = self.0.state.lock();
        let entry = state.live.remove(from).ok_or(io::ErrorKind::NotFound)?;
        if matches!(entry, Entry::Dir) {
            let moved: Vec<_> = state.live.keys().filter(|p| p.starts_with(from)).cloned().collect();
            for path in moved {
                let Ok(rest) = path.strip_prefix(from) else { continue };
                let target = to.join(rest);
                if let Some(child) = state.live.remove(&path) {
                    state.live.insert(target, child);
                }
            }
        }
        state.live.insert(to.to_owned(), entry);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op()?;
        let node = self.file(from)?;
        let mut state = self.0.state.lock();
        if state.live.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.live.insert(to.to_owned(), Entry::File(node));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.op()?;
        self.file(path)?;
        self.0.state.lock().live.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.op()?;
        let mut state = self.0.state.lock();
        if !state.live.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.live.retain(|p, _| !p.starts_with(path));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.op()?;
        let mut state = self.0.state.lock();
        for dir in path.ancestors().filter(|d| !d.as_os_str().is_empty()) {
            state.live.entry(dir.to_owned()).or_insert(Entry::Dir);
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.op()?;
        let mut state = self.0.state.lock();
        let state = &mut *state;
        let below = |p: &Path| p.parent() == Some(dir);
        let before = state.synced.clone();
        // A removed subdirectory takes what was below it along.
        let gone: Vec<_> =
            state.synced.keys().filter(|p| below(p) && !state.live.contains_key(*p)).cloned().collect();
        state.synced.retain(|p, _| !gone.iter().any(|g| p.starts_with(g)));
        for (path, entry) in state.live.iter().filter(|(p, _)| below(p)) {
            state.synced.insert(path.clone(), entry.clone());
        }
        // Directories above are durable once something in them is: a test that forgets the root is not helped
        // by losing everything.
        for parent in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
            state.synced.entry(parent.to_owned()).or_insert(Entry::Dir);
        }
        // A renamed directory carries along what had a durable name under its old name.
        let deeper = |p: &Path| p.starts_with(dir) && p.parent() != Some(dir) && p != dir;
        let carried = |entry: &Entry| match entry {
            Entry::Dir => true,
            Entry::File(node) => was_named(&before, node),
        };
        let kept: Vec<_> = state
            .live
            .iter()
            .filter(|(path, entry)| deeper(path) && carried(entry))
            .map(|(path, entry)| (path.clone(), entry.clone()))
            .collect();
        state.synced.extend(kept);
        Ok(())
    }

    fn free_bytes(&self, _path: &Path) -> Option<u64> {
        let capacity = self.0.capacity_bytes.load(Ordering::SeqCst);
        if capacity == u64::MAX {
            return None;
        }
        let state = self.0.state.lock();
        Some(capacity.saturating_sub(self.used_bytes(&state)))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        let mut state = self.0.state.lock();
        if state.locked.iter().any(|p| p == path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked.push(path.to_owned());
        Ok(Box::new(MemLock { disk: self.clone(), path: path.to_owned() }))
    }
}

/// Whether the file had a durable name before (under a directory since renamed).
fn was_named(synced: &BTreeMap<PathBuf, Entry>, node: &Node) -> bool {
    synced.values().any(|e| matches!(e, Entry::File(other) if Arc::ptr_eq(other, node)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_keeps_synced_bytes_under_synced_names_only() {
        let disk = MemDisk::new();
        let dir = Path::new("/d");
        disk.create_dir_all(&dir.join("new.tmp")).unwrap();
        let kept = disk.create(&dir.join("new.tmp/kept")).unwrap();
        kept.write_at(b"abc", 0).unwrap();
        kept.sync_data().unwrap();
        kept.write_at(b"xyz", 3).unwrap();
        let unnamed = disk.create(&dir.join("unnamed")).unwrap();
        unnamed.sync_data().unwrap();
        disk.sync_dir(&dir.join("new.tmp")).unwrap();
        disk.rename(&dir.join("new.tmp"), &dir.join("new")).unwrap();
        disk.remove_file(&dir.join("unnamed")).unwrap();
        disk.sync_dir(dir).unwrap();
        disk.create(&dir.join("late")).unwrap();
        disk.crash();
        assert_eq!(disk.read(&dir.join("new/kept")).unwrap(), b"abc");
        assert!(!disk.exists(&dir.join("late")) && !disk.exists(&dir.join("unnamed")));
        assert!(kept.read_at(&mut [0], 0).is_err(), "handles do not survive a crash");
    }

    #[test]
    fn a_link_is_a_second_name_for_the_same_bytes() {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/a")).unwrap();
        disk.create_dir_all(Path::new("/b")).unwrap();
        let file = disk.create(Path::new("/a/x")).unwrap();
        file.write_at(b"abc", 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/a")).unwrap();
        disk.hard_link(Path::new("/a/x"), Path::new("/b/y")).unwrap();
        assert_eq!(disk.read(Path::new("/b/y")).unwrap(), b"abc");
        let again = disk.hard_link(Path::new("/a/x"), Path::new("/b/y"));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        disk.crash();
        assert!(!disk.exists(Path::new("/b/y")), "its directory was not synced");
        disk.create_dir_all(Path::new("/b")).unwrap();
        disk.hard_link(Path::new("/a/x"), Path::new("/b/y")).unwrap();
        disk.sync_dir(Path::new("/b")).unwrap();
        disk.remove_file(Path::new("/a/x")).unwrap();
        disk.sync_dir(Path::new("/a")).unwrap();
        disk.crash();
        assert_eq!(disk.read(Path::new("/b/y")).unwrap(), b"abc", "one name goes, the other stays");
    }

    #[test]
    fn a_full_disk_and_a_blown_fuse_refuse() {
        let disk = MemDisk::new();
        let file = disk.create(Path::new("f")).unwrap();
        disk.set_capacity_bytes(10);
        assert_eq!(file.allocate(11).unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.write_at(&[1; 10], 0).unwrap();
        disk.fail_after(1);
        file.sync_data().unwrap();
        assert!(file.sync_data().is_err());
        disk.heal();
        file.sync_data().unwrap();
    }
}
