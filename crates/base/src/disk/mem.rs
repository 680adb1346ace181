//! Disk in memory for tests: can lose power, fill up and fail on request.
//!
//! Invariants: after [`MemDisk::crash`] a file has the bytes of its last `sync_data`, and a name exists only
//! if its directory was synced after the name was created. That is stricter than most real file systems.
//! After [`MemDisk::crash_partly`] any part of the bytes that were not synced may survive, torn anywhere, as
//! on real disks.
//! Not here: bit rot.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{DirEntry, Disk, DiskFile, LockGuard, Mapped, OpenDir};
use crate::Rng;

/// Unit that a disk mostly writes atomically.
const SECTOR_BYTES: usize = 512;
/// One in this many surviving sectors is torn.
const TORN_PART: u64 = 16;

#[derive(Default)]
struct Content {
    live: Vec<u8>,
    synced: Vec<u8>,
    /// Contains all bytes written since the last sync; a sync copies only these.
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

    /// Returns the bytes after a power cut: each sector that was not synced survives with probability `kept`
    /// / 4.
    fn after_power_cut(&self, rng: &Rng, kept: u64) -> Vec<u8> {
        let (short, long) = (self.synced.len().min(self.live.len()), self.synced.len().max(self.live.len()));
        let len = match rng.below(3) {
            _ if short == long || kept == 0 => self.synced.len(),
            0 => self.live.len(),
            1 => self.synced.len(),
            _ => (short + rng.below((long - short + 1) as u64) as usize)
                .next_multiple_of(SECTOR_BYTES)
                .min(long),
        };
        let mut bytes = self.synced.clone();
        bytes.resize(len, 0);
        let end = self.dirty.end.min(len).min(self.live.len());
        let mut at = self.dirty.start - self.dirty.start % SECTOR_BYTES;
        while at < end {
            let sector_end = (at + SECTOR_BYTES).min(end);
            if rng.below(4) < kept {
                let torn = rng.below(TORN_PART) == 0;
                let cut = if torn { at + rng.below((sector_end - at) as u64) as usize } else { sector_end };
                bytes[at..cut].copy_from_slice(&self.live[at..cut]);
            }
            at = sector_end;
        }
        bytes
    }
}

/// One change of a name.
enum NameChange {
    Put(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    /// Changes without an existing target have no effect.
    fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            NameChange::Put(path, entry) => {
                names.insert(path.clone(), entry.clone());
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                let Some(entry) = names.remove(from) else { return };
                if matches!(entry, Entry::Dir) {
                    let moved: Vec<_> = subtree(names, from).map(|(p, _)| p.clone()).collect();
                    for path in moved {
                        let Ok(rest) = path.strip_prefix(from) else { continue };
                        let target = to.join(rest);
                        if let Some(child) = names.remove(&path) {
                            names.insert(target, child);
                        }
                    }
                }
                names.insert(to.clone(), entry);
            }
        }
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
    /// All names at the last sync of a directory, and the changes since: a journaling file system keeps the
    /// order of name changes and makes all of them durable at once.
    journaled: BTreeMap<PathBuf, Entry>,
    changes: Vec<NameChange>,
    /// Names that changed since the last sync of their directory, by directory.
    touched: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    locked: Vec<PathBuf>,
}

impl State {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        match &change {
            NameChange::Put(path, _) | NameChange::Remove(path) => self.touch(path.clone()),
            NameChange::Rename(from, to) => {
                let moved: Vec<_> =
                    self.touched.keys().filter(|dir| dir.starts_with(from)).cloned().collect();
                for dir in moved {
                    let (Ok(rest), Some(names)) = (dir.strip_prefix(from), self.touched.remove(&dir)) else {
                        continue;
                    };
                    let target = to.join(rest);
                    let renamed = names.iter().filter_map(|name| Some(target.join(name.file_name()?)));
                    let renamed: BTreeSet<_> = renamed.collect();
                    self.touched.insert(target, renamed);
                }
                self.touch(from.clone());
                self.touch(to.clone());
            }
        }
        self.changes.push(change);
    }

    fn touch(&mut self, path: PathBuf) {
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        self.touched.entry(dir).or_default().insert(path);
    }

    /// Makes `names` the only names, all durable.
    fn restart_with(&mut self, names: BTreeMap<PathBuf, Entry>) {
        self.changes.clear();
        self.touched.clear();
        self.journaled.clone_from(&names);
        self.synced.clone_from(&names);
        self.live = names;
        self.locked.clear();
    }
}

struct Shared {
    state: Mutex<State>,
    /// Operations (writes, syncs, renames, removals) left before every further one fails; `u64::MAX` = never.
    fuse: AtomicU64,
    /// Operations that fail once the fuse has blown, before the disk works again; `u64::MAX` = all.
    failures_left: AtomicU64,
    op_count: AtomicU64,
    refused_count: AtomicU64,
    /// Files and directories that are opened before the next ones find no descriptor; `u64::MAX` = never.
    opens_left: AtomicU64,
    /// Files and directories that find no descriptor then.
    missing_descriptors: AtomicU64,
    open_count: AtomicU64,
    capacity_bytes: AtomicU64,
    generation: AtomicU64,
    /// Longest pause before an operation, microseconds; 0 = none.
    pause_us_max: AtomicU64,
    /// Set while syncs of files wait.
    are_syncs_held: Mutex<bool>,
    syncs_released: Condvar,
}

impl Shared {
    fn wait_for_syncs(&self) {
        let mut are_held = self.are_syncs_held.lock();
        while *are_held {
            self.syncs_released.wait(&mut are_held);
        }
    }

    fn pause(&self, op_number: u64) {
        let pause_us_max = self.pause_us_max.load(Ordering::Relaxed);
        if pause_us_max == 0 {
            return;
        }
        // Consecutive numbers give delays of all lengths.
        let spread = op_number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if spread.is_multiple_of(4) {
            std::thread::sleep(Duration::from_micros(spread / 4 % pause_us_max));
        } else {
            std::thread::yield_now();
        }
    }
}

/// Syncs of files wait until it is dropped, see [`MemDisk::hold_syncs`].
#[must_use = "syncs go on when it is dropped"]
pub struct HeldSyncs(MemDisk);

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        *self.0.0.are_syncs_held.lock() = false;
        self.0.0.syncs_released.notify_all();
    }
}

/// Disk in memory.
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
            failures_left: AtomicU64::new(u64::MAX),
            op_count: AtomicU64::new(0),
            refused_count: AtomicU64::new(0),
            opens_left: AtomicU64::new(u64::MAX),
            missing_descriptors: AtomicU64::new(0),
            open_count: AtomicU64::new(0),
            capacity_bytes: AtomicU64::new(u64::MAX),
            generation: AtomicU64::new(0),
            pause_us_max: AtomicU64::new(0),
            are_syncs_held: Mutex::new(false),
            syncs_released: Condvar::new(),
        }))
    }

    /// Simulates a power cut: everything not synced is lost, locks are released, and files opened before
    /// fail.
    pub fn crash(&self) {
        let mut state = self.0.state.lock();
        self.end_process();
        let names = state.synced.clone();
        state.restart_with(names);
        for entry in state.live.values() {
            if let Entry::File(node) = entry {
                let mut content = node.lock();
                content.live = content.synced.clone();
                content.dirty = 0..0;
            }
        }
    }

    /// Simulates a power cut as [`MemDisk::crash`] does, but a random part of the unsynced changes survives:
    /// sectors of files, some of them torn, and either the names that `crash` keeps or a prefix of the
    /// changes of names.
    pub fn crash_partly(&self, rng: &Rng) {
        let mut state = self.0.state.lock();
        self.end_process();
        let kept = rng.below(5);
        let names = if rng.below(2) == 0 {
            state.synced.clone()
        } else {
            let mut names = std::mem::take(&mut state.journaled);
            let count = rng.below(state.changes.len() as u64 + 1);
            state.changes.iter().take(count as usize).for_each(|change| change.apply(&mut names));
            names
        };
        state.restart_with(names);
        for entry in state.live.values() {
            if let Entry::File(node) = entry {
                let mut content = node.lock();
                // At a second name of the same file everything is synced already.
                let bytes = content.after_power_cut(rng, kept);
                content.synced.clone_from(&bytes);
                content.live = bytes;
                content.dirty = 0..0;
            }
        }
    }

    /// Process crash: everything written survives, locks are released, and files opened before fail. Bytes
    /// that were not synced may still be lost by a later power cut.
    pub fn kill(&self) {
        let mut state = self.0.state.lock();
        self.end_process();
        state.locked.clear();
    }

    fn end_process(&self) {
        self.0.generation.fetch_add(1, Ordering::SeqCst);
        self.heal();
    }

    /// Fails every changing operation after `op_count` more of them, until [`MemDisk::crash`] or `heal`. Half
    /// of the bytes of a failed write are written.
    pub fn fail_after(&self, op_count: u64) {
        self.fail_some(op_count, u64::MAX);
    }

    /// Fails `failure_count` changing operations after `op_count` more of them.
    pub fn fail_some(&self, op_count: u64, failure_count: u64) {
        self.0.failures_left.store(failure_count, Ordering::SeqCst);
        self.0.fuse.store(op_count, Ordering::SeqCst);
    }

    /// Stops failing.
    pub fn heal(&self) {
        self.0.fuse.store(u64::MAX, Ordering::SeqCst);
        self.0.opens_left.store(u64::MAX, Ordering::SeqCst);
    }

    /// Fails `failure_count` opens of files and directories with `EMFILE`, after `open_count` more of them;
    /// `u64::MAX` of them: until [`MemDisk::heal`].
    pub fn fail_opens(&self, open_count: u64, failure_count: u64) {
        self.0.missing_descriptors.store(failure_count, Ordering::SeqCst);
        self.0.opens_left.store(open_count, Ordering::SeqCst);
    }

    /// Files and directories that were opened so far, those that failed included.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        self.0.open_count.load(Ordering::SeqCst)
    }

    /// Counts an opened file or directory.
    fn opens(&self) -> io::Result<()> {
        self.0.open_count.fetch_add(1, Ordering::SeqCst);
        let less = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(1) };
        if self.0.opens_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Ok(());
        }
        if self.0.missing_descriptors.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
            self.0.opens_left.store(u64::MAX, Ordering::SeqCst);
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::EMFILE))
    }

    /// Operations that failed by injection so far.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.0.refused_count.load(Ordering::SeqCst)
    }

    /// Bytes of all files.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.used_bytes(&self.0.state.lock())
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

    /// Adds delays: every changing operation yields to other threads, and one of four takes up to
    /// `pause_us_max` microseconds, so that thread schedules vary more.
    pub fn slow_down(&self, pause_us_max: u64) {
        self.0.pause_us_max.store(pause_us_max, Ordering::SeqCst);
    }

    /// Simulates a disk that is slow: threads that sync a file wait until the returned value is dropped.
    pub fn hold_syncs(&self) -> HeldSyncs {
        *self.0.are_syncs_held.lock() = true;
        HeldSyncs(self.clone())
    }

    fn op(&self) -> io::Result<()> {
        self.0.pause(self.0.op_count.fetch_add(1, Ordering::SeqCst));
        let burn = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(1) };
        if self.0.fuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, burn).is_ok() {
            return Ok(());
        }
        let fail = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(1) };
        if self.0.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fail).is_err() {
            self.heal();
            return Ok(());
        }
        self.0.refused_count.fetch_add(1, Ordering::SeqCst);
        Err(io::Error::other("injected disk failure"))
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

    /// Makes the names in `dir` durable.
    fn sync_names(&self, dir: &Path) -> io::Result<()> {
        self.op()?;
        let mut state = self.0.state.lock();
        let state = &mut *state;
        let changes = std::mem::take(&mut state.changes);
        changes.iter().for_each(|change| change.apply(&mut state.journaled));
        let touched = state.touched.remove(dir).unwrap_or_default();
        // A renamed directory keeps entries that had a durable name under its old name.
        let mut carried = Vec::new();
        let is_dir = |p: &&PathBuf| matches!(state.live.get(*p), Some(Entry::Dir));
        if touched.iter().any(|path| is_dir(&path)) {
            let named: BTreeSet<usize> = state.synced.values().filter_map(address).collect();
            let had_name = |entry: &Entry| address(entry).is_none_or(|file| named.contains(&file));
            for path in touched.iter().filter(is_dir).filter(|path| !state.synced.contains_key(*path)) {
                let inside = subtree(&state.live, path).filter(|(_, entry)| had_name(entry));
                carried.extend(inside.map(|(path, entry)| (path.clone(), entry.clone())));
            }
        }
        for path in &touched {
            match state.live.get(path) {
                Some(entry) => {
                    state.synced.insert(path.clone(), entry.clone());
                }
                // A removed subdirectory removes its entries.
                None => {
                    let gone: Vec<_> = subtree(&state.synced, path).map(|(p, _)| p.clone()).collect();
                    gone.iter().for_each(|path| {
                        state.synced.remove(path);
                    });
                }
            }
        }
        // Ancestors are durable once an entry in them is, so that a test that never syncs the root does not
        // lose everything.
        for parent in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
            state.synced.entry(parent.to_owned()).or_insert(Entry::Dir);
        }
        state.synced.extend(carried);
        Ok(())
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
            // Bytes that were truncated and not synced since must not reappear.
            content.touch(now..len);
        }
        Ok(())
    }
}

impl DiskFile for MemFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.alive()?;
        let allowed = self.disk.op();
        let bytes = if allowed.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.grow(start + bytes.len())?;
        let mut content = self.node.lock();
        content.live[start..start + bytes.len()].copy_from_slice(bytes);
        content.touch(start..start + bytes.len());
        allowed
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
        self.disk.0.wait_for_syncs();
        self.alive()?;
        self.disk.op()?;
        self.node.lock().sync();
        Ok(())
    }
}

struct MemDir {
    disk: MemDisk,
    path: PathBuf,
}

impl OpenDir for MemDir {
    fn sync(&self) -> io::Result<()> {
        self.disk.sync_names(&self.path)
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
        self.opens()?;
        self.op()?;
        let mut state = self.0.state.lock();
        let parent = path.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() && !matches!(state.live.get(parent), Some(Entry::Dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let node = Node::default();
        state.change(NameChange::Put(path.to_owned(), Entry::File(node.clone())));
        drop(state);
        Ok(self.handle(node))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.opens()?;
        Ok(self.handle(self.file(path)?))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.opens()?;
        Ok(self.file(path)?.lock().live.clone())
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.opens()?;
        Ok(Mapped::from_slice(&self.file(path)?.lock().live))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.opens()?;
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
            subtree(&state.live, dir).filter(|(p, _)| p.parent() == Some(dir)).filter_map(entry).collect();
        out.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.state.lock().live.contains_key(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op()?;
        let mut state = self.0.state.lock();
        if !state.live.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op()?;
        let node = self.file(from)?;
        let mut state = self.0.state.lock();
        if state.live.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change(NameChange::Put(to.to_owned(), Entry::File(node)));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.op()?;
        self.file(path)?;
        self.0.state.lock().change(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.opens()?;
        self.op()?;
        let mut state = self.0.state.lock();
        if !state.live.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // One by one, contents first: a power cut may keep some of them.
        let gone: Vec<_> = subtree(&state.live, path).map(|(p, _)| p.clone()).collect();
        gone.into_iter().rev().for_each(|path| state.change(NameChange::Remove(path)));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.op()?;
        let mut state = self.0.state.lock();
        for dir in path.ancestors().filter(|d| !d.as_os_str().is_empty()) {
            if !state.live.contains_key(dir) {
                state.change(NameChange::Put(dir.to_owned(), Entry::Dir));
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.open_dir(dir)?.sync()
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn OpenDir>> {
        self.opens()?;
        Ok(Box::new(MemDir { disk: self.clone(), path: dir.to_owned() }))
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

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.state.lock().locked.iter().any(|locked| locked == path))
    }
}

/// Returns `dir` and everything below it, which is contiguous: paths are sorted by component.
fn subtree<'a>(
    names: &'a BTreeMap<PathBuf, Entry>,
    dir: &'a Path,
) -> impl Iterator<Item = (&'a PathBuf, &'a Entry)> {
    let from = (Bound::Included(dir), Bound::Unbounded);
    names.range::<Path, _>(from).take_while(move |(path, _)| path.starts_with(dir))
}

/// Identity of a file, independent of its names.
fn address(entry: &Entry) -> Option<usize> {
    match entry {
        Entry::File(node) => Some(Arc::as_ptr(node).addr()),
        Entry::Dir => None,
    }
}

#[cfg(test)]
mod tests;
