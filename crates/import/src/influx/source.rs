//! Directory listing of an InfluxDB: databases and policies with their shards, and the files of each shard.
//!
//! Invariants: files are in the order in which InfluxDB reads them; only directories and `meta.db` are read.
//! A shard that `meta.db` does not name is left out, as InfluxDB leaves it out of queries.
//! Not here: reading the files of shards (`shard`).

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::crc::Crc32c;
use chronolith_base::disk::DirEntry;

use super::error::InfluxError;
use super::meta::{Meta, MetaDatabase, MetaPolicy};
use super::paths::{INTERNAL_DATABASE, InfluxPaths};

/// Bytes of `meta.db` at most.
const META_BYTES_MAX: u64 = 1 << 30;

/// A data directory of InfluxDB.
#[derive(Debug, Default)]
pub struct InfluxSource {
    /// Databases, policies, continuous queries and users.
    pub meta: Meta,
    /// Shards with files.
    pub shards: Vec<SourceShard>,
    /// Findings that an operator should see.
    pub notes: Vec<String>,
}

/// A shard with its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceShard {
    /// Database of the shard.
    pub database: String,
    /// Retention policy of the shard.
    pub policy: String,
    /// Number of the shard, the name of its directory.
    pub id: u64,
    /// Directory of its TSM files.
    pub dir: PathBuf,
    pub(super) files: ShardFiles,
}

/// Files of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShardFiles {
    /// Ascending: at equal times the point of the later file wins.
    pub(super) tsm: Vec<SourceFile>,
    pub(super) tombstones: Vec<SourceFile>,
    /// Segments in order of writing.
    pub(super) wal: Vec<SourceFile>,
    /// Names of TSM files that InfluxDB has renamed because they are damaged.
    pub(super) set_aside: Vec<String>,
}

/// A file with its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
}

impl SourceShard {
    /// Bytes of its files.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.files.all().map(|file| file.len).sum()
    }
}

impl ShardFiles {
    fn all(&self) -> impl Iterator<Item = &SourceFile> {
        self.tsm.iter().chain(&self.tombstones).chain(&self.wal)
    }

    /// Hash of the names and lengths of the files, by which a repeated import finds a shard unchanged.
    pub(crate) fn fingerprint(&self) -> String {
        let mut sum = Crc32c::new();
        let mut total = 0;
        for file in self.all() {
            sum.update(file.path.as_os_str().as_encoded_bytes());
            sum.update(&file.len.to_le_bytes());
            total += file.len;
        }
        format!("{:08x}-{total}", sum.finish())
    }

    /// Lists the files of a shard.
    pub(crate) fn list(env: &Env, dir: &Path, wal_dir: &Path) -> Result<ShardFiles, InfluxError> {
        let mut files = ShardFiles::default();
        for entry in list_entries(env, dir)?.into_iter().filter(|entry| !entry.is_dir) {
            let file = SourceFile { path: dir.join(&entry.name), len: entry.len };
            if entry.name.ends_with(".tsm") {
                files.tsm.push(file);
            } else if entry.name.ends_with(".tombstone") {
                files.tombstones.push(file);
            } else if entry.name.ends_with(".tsm.bad") {
                files.set_aside.push(entry.name);
            }
        }
        for entry in list_entries(env, wal_dir)?.into_iter().filter(|entry| !entry.is_dir) {
            if entry.name.starts_with('_') && entry.name.ends_with(".wal") {
                files.wal.push(SourceFile { path: wal_dir.join(entry.name), len: entry.len });
            }
        }
        // Generation, sequence and number of a segment are padded with zeros.
        files.tsm.sort_by(|a, b| a.path.cmp(&b.path));
        files.tombstones.sort_by(|a, b| a.path.cmp(&b.path));
        files.wal.sort_by_key(|file| segment_number(&file.path));
        Ok(files)
    }
}

fn segment_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix('_')?.strip_suffix(".wal")?.parse().ok()
}

impl InfluxSource {
    /// Lists the directories and reads `meta.db`.
    ///
    /// # Errors
    /// [`InfluxError`] if a directory cannot be listed, `meta.db` is damaged, or there is neither.
    pub fn list(env: &Env, paths: &InfluxPaths) -> Result<InfluxSource, InfluxError> {
        let mut source = InfluxSource::default();
        let meta_path = paths.meta_dir.join("meta.db");
        let has_meta = env.disk.exists(&meta_path);
        if has_meta {
            source.meta = read_meta(env, &meta_path)?;
        }
        source.list_shards(env, paths, has_meta)?;
        if !has_meta {
            let path = meta_path.display();
            let note = format!(
                "{path} is missing: databases and policies are named by their directories, policies keep all \
                 data, and the policy \"autogen\" or the first one is the default"
            );
            source.notes.push(note);
        }
        if !has_meta && source.shards.is_empty() {
            return Err(InfluxError::Empty(paths.data_dir.clone()));
        }
        Ok(source)
    }

    fn list_shards(&mut self, env: &Env, paths: &InfluxPaths, has_meta: bool) -> Result<(), InfluxError> {
        let data_dir = &paths.data_dir;
        let wal_dir = &paths.wal_dir;
        for database in names_of_both(env, data_dir, wal_dir)? {
            if database == INTERNAL_DATABASE {
                self.notes.push(format!("{database}: metrics of InfluxDB itself are left out"));
                continue;
            }
            for policy in names_of_both(env, &data_dir.join(&database), &wal_dir.join(&database))? {
                // Files of the index of series of the database.
                if policy == "_series" {
                    continue;
                }
                let part = Path::new(&database).join(&policy);
                let shards = names_of_both(env, &data_dir.join(&part), &wal_dir.join(&part))?;
                for id in shards.iter().filter_map(|name| name.parse::<u64>().ok()) {
                    let dir = data_dir.join(&part).join(id.to_string());
                    let files = ShardFiles::list(env, &dir, &wal_dir.join(&part).join(id.to_string()))?;
                    let database = database.clone();
                    let policy = policy.clone();
                    self.add_shard(SourceShard { database, policy, id, dir, files }, has_meta);
                }
            }
        }
        self.shards.sort_by(|a, b| {
            let key = |shard: &SourceShard| (shard.database.clone(), shard.policy.clone(), shard.id);
            key(a).cmp(&key(b))
        });
        Ok(())
    }

    fn add_shard(&mut self, shard: SourceShard, has_meta: bool) {
        if has_meta && !self.meta.has_shard(&shard) {
            if shard.byte_count() > 0 {
                let dir = shard.dir.display();
                self.notes.push(format!("{dir}: meta.db does not name this shard, it is left out"));
            }
            return;
        }
        if !has_meta {
            self.meta.add_names(&shard);
        }
        if shard.byte_count() > 0 || !shard.files.set_aside.is_empty() {
            self.shards.push(shard);
        }
    }
}

impl Meta {
    fn has_shard(&self, shard: &SourceShard) -> bool {
        let database = self.databases.iter().find(|database| database.name == shard.database);
        let policies = database.map_or(&[][..], |database| &database.policies);
        policies.iter().any(|policy| policy.name == shard.policy && policy.shards.contains(&shard.id))
    }

    /// Adds database and policy of a shard that directories name.
    fn add_names(&mut self, shard: &SourceShard) {
        let found = self.databases.iter().position(|database| database.name == shard.database);
        let idx = found.unwrap_or_else(|| {
            let name = shard.database.clone();
            let default_policy = shard.policy.clone();
            self.databases.push(MetaDatabase { name, default_policy, ..MetaDatabase::default() });
            self.databases.len() - 1
        });
        let Some(database) = self.databases.get_mut(idx) else { return };
        if database.policies.iter().all(|policy| policy.name != shard.policy) {
            if shard.policy == "autogen" {
                database.default_policy.clone_from(&shard.policy);
            }
            let name = shard.policy.clone();
            database.policies.push(MetaPolicy { name, replica_count: 1, ..MetaPolicy::default() });
        }
    }
}

fn read_meta(env: &Env, path: &Path) -> Result<Meta, InfluxError> {
    let io = |error| InfluxError::Io { path: path.to_owned(), error };
    let len = env.disk.open_read(path).and_then(|file| file.len()).map_err(io)?;
    if len > META_BYTES_MAX {
        return Err(InfluxError::Meta { path: path.to_owned(), what: format!("{len} bytes long") });
    }
    let bytes = env.disk.read(path).map_err(io)?;
    Meta::decode(&bytes).map_err(|error| InfluxError::Meta { path: path.to_owned(), what: error.to_string() })
}

/// Returns the names of the directories in both directories, ascending, each once.
fn names_of_both(env: &Env, dir: &Path, other: &Path) -> Result<Vec<String>, InfluxError> {
    let mut names: Vec<String> = list_entries(env, dir)?
        .into_iter()
        .chain(list_entries(env, other)?)
        .filter(|entry| entry.is_dir)
        .map(|entry| entry.name)
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Lists a directory; a missing one is empty.
fn list_entries(env: &Env, dir: &Path) -> Result<Vec<DirEntry>, InfluxError> {
    if !env.disk.exists(dir) {
        return Ok(Vec::new());
    }
    env.disk.list(dir).map_err(|error| InfluxError::Io { path: dir.to_owned(), error })
}
