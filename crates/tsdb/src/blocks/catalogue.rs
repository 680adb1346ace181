//! Block catalogue: a file with one record per block, so that a start opens no block.
//!
//! Invariants: a removal is durable before the files go, an addition only after the block is: a directory
//! without a record is a block to be added, a record without a directory is a lost block. After a failure the
//! file is replaced, never appended to.
//! Not here: bytes (`format::block::catalogue`), comparison with the directories (`load`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use chronolith_base::{AppendFile, Env};
use chronolith_format::block::catalogue::{
    BlockRecord, Change, FILE_HEADER_BYTES, encode_header, put_add, put_frame, put_remove, put_tenant, read,
};
use chronolith_format::block::meta::Ulid;
use chronolith_format::store_name;
use chronolith_model::StoreId;
use parking_lot::Mutex;

/// Name in the data directory.
pub(crate) const FILE_NAME: &str = "blocks.catalogue";
/// Size at which a payload ends.
const PAYLOAD_BYTES: usize = 1 << 20;
/// Size of pending changes above which they should be written soon.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// Records of one tenant, by name of the block.
pub(crate) type TenantRecords = BTreeMap<Ulid, BlockRecord>;

/// Contents of the file at the start.
pub(crate) struct Loaded {
    /// By name of the tenant.
    pub(crate) tenants: BTreeMap<String, TenantRecords>,
    /// Damage of the file: blocks are read one by one then.
    pub(crate) damage: Option<String>,
    /// There was a file.
    pub(crate) is_present: bool,
}

struct State {
    key: u128,
    sequence: u64,
    /// Frames that are not in the file yet; empty while the file is not open, as the next write has all
    /// blocks.
    pending: Vec<u8>,
    file: AppendFile,
    /// The next commit has something to write.
    is_dirty: bool,
}

/// The file, and changes to be written to it.
pub(crate) struct Catalogue {
    state: Mutex<State>,
}

impl Catalogue {
    /// Reads the file below `data_dir`. A file that cannot be read is replaced by the next commit.
    pub(crate) fn load(env: &Env, data_dir: &Path) -> (Catalogue, Loaded) {
        let path = data_dir.join(FILE_NAME);
        let key = u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
        let file = AppendFile::new(env.disk.clone(), vec![path.clone()]);
        let mut state = State { key, sequence: 0, pending: Vec::new(), file, is_dirty: false };
        let mut loaded =
            Loaded { tenants: BTreeMap::new(), damage: None, is_present: env.disk.exists(&path) };
        if loaded.is_present
            && let Err(damage) = load_file(env, &path, &mut state, &mut loaded.tenants)
        {
            state.is_dirty = true;
            if damage.is_torn_end {
                // Blocks whose records a kill cut off are found by the names of their directories.
                tracing::info!(path = %path.display(), damage.what, "torn end of the block catalogue");
            } else {
                loaded.tenants.clear();
                loaded.damage = Some(format!("{}: {}", path.display(), damage.what));
            }
        }
        (Catalogue { state: Mutex::new(state) }, loaded)
    }

    /// Records that blocks of `store` were removed and added; durable after the next [`Catalogue::commit`].
    pub(crate) fn note<'a>(
        &self,
        store: &StoreId,
        removed: impl Iterator<Item = Ulid>,
        added: impl Iterator<Item = &'a BlockRecord>,
    ) {
        let mut payload = Vec::new();
        put_tenant(&store_name(store), &mut payload);
        removed.for_each(|ulid| put_remove(ulid, &mut payload));
        added.for_each(|record| put_add(record, &mut payload));
        let mut state = self.state.lock();
        state.is_dirty = true;
        // The replacement of a file that is not open has all blocks, these as well.
        if state.file.is_open() {
            state.sequence += 1;
            let State { key, sequence, pending, .. } = &mut *state;
            put_frame(*key, *sequence, &payload, pending);
        }
    }

    /// Returns true if pending changes should be written soon.
    pub(crate) fn is_overdue(&self) -> bool {
        self.state.lock().pending.len() > PENDING_BYTES_MAX
    }

    /// Writes and syncs pending changes; replaces the file by the blocks of `all` if it has grown too much or
    /// a write has failed.
    ///
    /// # Errors
    /// As the disk reports; the next commit replaces the file then.
    pub(crate) fn commit<T: AsRef<BlockRecord>>(
        &self,
        all: impl FnOnce() -> Vec<(StoreId, Vec<T>)>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.is_dirty {
            return Ok(());
        }
        let pending = std::mem::take(&mut state.pending);
        // Appended later, they would precede the frames of the file that replaced this one.
        assert!(state.file.is_open() || pending.is_empty(), "frames are queued for an open file");
        if state.file.must_be_replaced(pending.len()) {
            let bytes = state.encode_all(all());
            state.file.replace(&bytes)?;
        } else {
            state.file.append(&pending)?;
            state.file.sync()?;
        }
        state.is_dirty = false;
        Ok(())
    }
}

impl State {
    /// Returns a file with the blocks of all tenants, and restarts the sequence of frames.
    fn encode_all<T: AsRef<BlockRecord>>(&mut self, all: Vec<(StoreId, Vec<T>)>) -> Vec<u8> {
        let mut bytes = encode_header(self.key).to_vec();
        self.sequence = 0;
        let mut end_frame = |payload: &mut Vec<u8>, bytes: &mut Vec<u8>| {
            self.sequence += 1;
            put_frame(self.key, self.sequence, payload, bytes);
            payload.clear();
        };
        let mut payload = Vec::new();
        for (tenant, records) in &all {
            for record in records {
                if payload.is_empty() {
                    put_tenant(&store_name(tenant), &mut payload);
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
        bytes
    }
}

/// Reason why the file is not continued.
struct FileDamage {
    what: String,
    /// The records that were read are good; the records written last are missing.
    is_torn_end: bool,
}

/// Reads all records. Opens the file to be appended to, unless it is of an earlier version, which is
/// replaced.
fn load_file(
    env: &Env,
    path: &Path,
    state: &mut State,
    tenants: &mut BTreeMap<String, TenantRecords>,
) -> Result<(), FileDamage> {
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
    if contents.is_earlier_version {
        state.is_dirty = true;
        return Ok(());
    }
    // Zeros after the last frame are overwritten.
    state.file.open(contents.end as u64).map_err(|error| whole(error.to_string()))?;
    (state.key, state.sequence) = (contents.key, contents.sequence);
    Ok(())
}
