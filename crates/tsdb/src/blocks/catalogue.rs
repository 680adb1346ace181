//! Block catalogue: a file with one record per block, so that a start opens no block.
//!
//! Invariants: a removal is durable before the files go, an addition only after the block is: a directory without a
//! record is a block to be added, a record without a directory is a lost block. After a failure the file is
//! replaced, never appended to.
//! Not here: bytes (`format::block::catalogue`), comparison with the directories (`load`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{DiskFile, Env};
use chronolith_format::block::catalogue::{
    BlockRecord, Change, FILE_HEADER_BYTES, encode_header, put_add, put_frame, put_remove, put_tenant, read,
};
use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use parking_lot::Mutex;

/// Name in the data directory.
pub(crate) const FILE_NAME: &str = "blocks.catalogue";
/// A payload ends when it has as many bytes.
const PAYLOAD_BYTES: usize = 1 << 20;
/// Changes that wait for a write; beyond, the next one writes them.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// A file may grow by this much over twice its bytes when it was written anew.
const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// Records of one tenant, by name of the block.
pub(crate) type TenantRecords = BTreeMap<Ulid, BlockRecord>;

/// What a start finds.
pub(crate) struct Loaded {
    /// By name of the tenant.
    pub(crate) tenants: BTreeMap<String, TenantRecords>,
    /// Why the file cannot be relied on; blocks are read one by one then.
    pub(crate) damage: Option<String>,
    /// Returns true if there was a file.
    pub(crate) is_present: bool,
}

struct State {
    key: u128,
    sequence: u64,
    /// Frames that are not in the file.
    pending: Vec<u8>,
    /// Open to be appended to; without it the file is written anew.
    file: Option<Box<dyn DiskFile>>,
    len: u64,
    len_max: u64,
    /// Something is to be written, be it that all is.
    is_dirty: bool,
}

/// The file, and what is to be written to it.
pub(crate) struct Catalogue {
    env: Env,
    path: PathBuf,
    state: Mutex<State>,
}

impl Catalogue {
    /// Reads the file below `data_dir`. One that cannot be read is as good as none.
    pub(crate) fn load(env: &Env, data_dir: &Path) -> (Catalogue, Loaded) {
        let path = data_dir.join(FILE_NAME);
        let key = u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
        let mut state =
            State { key, sequence: 0, pending: Vec::new(), file: None, len: 0, len_max: 0, is_dirty: false };
        let mut loaded =
            Loaded { tenants: BTreeMap::new(), damage: None, is_present: env.disk.exists(&path) };
        if loaded.is_present {
            match load_file(env, &path, &mut loaded.tenants) {
                // Not appended to, but written anew.
                Ok((_, contents)) if contents.is_earlier_version => state.is_dirty = true,
                Ok((file, contents)) => {
                    (state.key, state.sequence, state.len) = (contents.key, contents.sequence, contents.len);
                    state.len_max = 2 * state.len + GROWTH_BYTES_MIN;
                    state.file = Some(file);
                }
                Err(damage) if damage.is_torn_end => {
                    // What a kill cut off is found by the names of the directories.
                    tracing::info!(path = %path.display(), damage.what, "torn end of the block catalogue");
                    state.is_dirty = true;
                }
                Err(damage) => {
                    loaded.tenants.clear();
                    loaded.damage = Some(format!("{}: {}", path.display(), damage.what));
                    state.is_dirty = true;
                }
            }
        }
        (Catalogue { env: env.clone(), path, state: Mutex::new(state) }, loaded)
    }

    /// Records that blocks of `tenant` were removed and added; durable after the next [`Catalogue::commit`].
    pub(crate) fn note<'a>(
        &self,
        tenant: &TenantId,
        removed: impl Iterator<Item = Ulid>,
        added: impl Iterator<Item = &'a BlockRecord>,
    ) {
        let mut payload = Vec::new();
        put_tenant(tenant.as_str(), &mut payload);
        removed.for_each(|ulid| put_remove(ulid, &mut payload));
        added.for_each(|record| put_add(record, &mut payload));
        let mut state = self.state.lock();
        state.is_dirty = true;
        // Without a file all blocks are written by the next commit, these as well.
        if state.file.is_some() {
            state.sequence += 1;
            let State { key, sequence, pending, .. } = &mut *state;
            put_frame(*key, *sequence, &payload, pending);
        }
    }

    /// Returns true if so much waits that it should be written soon.
    pub(crate) fn is_overdue(&self) -> bool {
        self.state.lock().pending.len() > PENDING_BYTES_MAX
    }

    /// Writes and syncs what was noted; writes the whole file if it has grown or failed, with the blocks that
    /// `all` gives.
    ///
    /// # Errors
    /// As the disk reports; the next commit writes the whole file then.
    pub(crate) fn commit<T: AsRef<BlockRecord>>(
        &self,
        all: impl FnOnce() -> Vec<(TenantId, Vec<T>)>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.is_dirty {
            return Ok(());
        }
        let pending = std::mem::take(&mut state.pending);
        let written = match state.file.take() {
            Some(file) if state.len + pending.len() as u64 <= state.len_max => {
                append(file, state.len, &pending).map(|file| (file, state.len + pending.len() as u64))
            }
            _ => self.write_whole(&mut state, all()),
        };
        let (file, len) = written?;
        (state.file, state.len, state.is_dirty) = (Some(file), len, false);
        Ok(())
    }

    fn write_whole<T: AsRef<BlockRecord>>(
        &self,
        state: &mut State,
        all: Vec<(TenantId, Vec<T>)>,
    ) -> io::Result<(Box<dyn DiskFile>, u64)> {
        let mut bytes = encode_header(state.key).to_vec();
        state.sequence = 0;
        let mut end_frame = |payload: &mut Vec<u8>, bytes: &mut Vec<u8>| {
            state.sequence += 1;
            put_frame(state.key, state.sequence, payload, bytes);
            payload.clear();
        };
        let mut payload = Vec::new();
        for (tenant, records) in &all {
            for record in records {
                if payload.is_empty() {
                    put_tenant(tenant.as_str(), &mut payload);
                }
                put_add(record.as_ref(), &mut payload);
                if payload.len() >= PAYLOAD_BYTES {
                    end_frame(&mut payload, &mut bytes);
                }
            }
            if !payload.is_empty() {
                end_frame(&mut payload, &mut bytes);
            }
        }
        self.env.disk.write_atomic(&self.path, &bytes)?;
        let len = bytes.len() as u64;
        state.len_max = 2 * len + GROWTH_BYTES_MIN;
        Ok((self.env.disk.open(&self.path)?, len))
    }
}

fn append(file: Box<dyn DiskFile>, offset: u64, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
    file.write_at(bytes, offset)?;
    file.sync_data()?;
    Ok(file)
}

struct FileState {
    key: u128,
    sequence: u64,
    len: u64,
    is_earlier_version: bool,
}

/// Why a file is not gone on with.
struct FileDamage {
    what: String,
    /// What was read is good; what is missing is what was written last.
    is_torn_end: bool,
}

fn load_file(
    env: &Env,
    path: &Path,
    tenants: &mut BTreeMap<String, TenantRecords>,
) -> Result<(Box<dyn DiskFile>, FileState), FileDamage> {
    let whole = |what: String| FileDamage { what, is_torn_end: false };
    let bytes = env.disk.read(path).map_err(|error| whole(error.to_string()))?;
    let contents = read(&bytes, &mut |tenant, change| {
        if !tenants.contains_key(tenant) {
            tenants.insert(tenant.to_owned(), TenantRecords::new());
        }
        let Some(records) = tenants.get_mut(tenant) else { return };
        match change {
            Change::Add(record) => drop(records.insert(record.ulid, record)),
            Change::Remove(ulid) => drop(records.remove(&ulid)),
        }
    });
    let contents = contents.map_err(|error| whole(error.to_string()))?;
    debug_assert!(contents.end >= FILE_HEADER_BYTES, "the header was read");
    if let Some(damage) = contents.damages.first() {
        let what = format!("damaged at offset {}: {} bytes", damage.offset, damage.len);
        return Err(FileDamage { what, is_torn_end: !damage.followed });
    }
    let file = env.disk.open(path).map_err(|error| whole(error.to_string()))?;
    // Zeros behind the last frame are overwritten.
    let state = FileState {
        key: contents.key,
        sequence: contents.sequence,
        len: contents.end as u64,
        is_earlier_version: contents.is_earlier_version,
    };
    Ok((file, state))
}
