//! The database catalogue: databases, retention policies, continuous queries, users and the Graphite store of
//! all tenants, as one file that is replaced as a whole (`docs/databases.md`).
//!
//! Invariants: a checksum covers every byte; readers take untrusted bytes, never panic and allocate no more
//! than the file is long.
//! Not here: rules of changes (`model::databases`), the two copies of the file (`tsdb`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::databases::{
    BucketDrop, BucketStoreId, ContinuousQuery, Database, DatabaseCatalog, Privilege, RetentionPolicy,
    TenantCatalog, User,
};
use chronolith_model::{StoreId, TenantId};

use crate::lists::{put_list, put_text, read_text};
use crate::{parse_store_name, store_name};

const MAGIC: [u8; 4] = *b"CLDB";
const VERSION: u16 = 3;
/// Version without Graphite stores.
const VERSION_WITHOUT_GRAPHITE: u16 = 2;
/// Version without ids in a bucket.
const VERSION_WITHOUT_IDS: u16 = 1;
/// Last run of a continuous query that has not run.
const NEVER: u64 = u64::MAX;

/// A version of the catalogue, numbered: of two files the one with the greater number is the later one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogFile {
    /// Number of changes since the first version.
    pub sequence: u64,
    /// Content of the file.
    pub catalog: DatabaseCatalog,
}

impl CatalogFile {
    /// Appends the file's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.catalog.next_store.to_le_bytes());
        put_list(out, &self.catalog.dropped, |out, store| put_text(out, &store_name(store)));
        put_list(out, &self.catalog.bucket_drops, |out, drop| {
            put_text(out, drop.owner.as_str());
            out.extend_from_slice(&drop.id.to_bytes());
        });
        put_list(out, &self.catalog.tenants, |out, (tenant, own)| {
            put_text(out, tenant.as_str());
            put_list(out, &own.databases, put_database);
            put_list(out, &own.users, put_user);
            put_list(out, &own.graphite, put_store);
        });
        let crc = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// [`DecodeError`]: another magic or version, a checksum that does not match, or contents that no version
    /// of this program writes.
    pub fn decode(bytes: &[u8]) -> Result<CatalogFile, DecodeError> {
        let end = bytes.len().saturating_sub(4);
        let mut tail = ByteReader::new(bytes.get(end..).unwrap_or_default());
        let bytes_read = ByteReader::new(bytes.get(..end).unwrap_or_default());
        let mut r = Reader { bytes: bytes_read, version: VERSION };
        let magic = r.bytes.bytes("magic", 4)?;
        if magic != MAGIC {
            return Err(r.invalid("magic", "CLDB", u64::from(magic.first().copied().unwrap_or(0))));
        }
        let version = r.bytes.le_u16("version")?;
        if !(VERSION_WITHOUT_IDS..=VERSION).contains(&version) {
            return Err(r.invalid("version", "1, 2 or 3", u64::from(version)));
        }
        r.version = version;
        let found = tail.le_u32("checksum")?;
        let expected = crc32c(bytes.get(..end).unwrap_or_default());
        if found != expected {
            return Err(DecodeError::Checksum { what: "database catalogue", offset: end, expected, found });
        }
        let sequence = r.bytes.le_u64("sequence")?;
        let next_store = r.bytes.le_u64("next store")?;
        let dropped = r.list(|r| r.store())?;
        let bucket_drops = match r.has_ids() {
            true => r.list(|r| Ok(BucketDrop { owner: r.tenant()?, id: r.store_id()? }))?,
            false => Vec::new(),
        };
        let tenants = r.list(|r| {
            let tenant = r.tenant()?;
            let databases = r.list(Reader::database)?;
            let users = r.list(Reader::user)?;
            let graphite = r.graphite()?;
            Ok((tenant, Arc::new(TenantCatalog { databases, users, graphite })))
        })?;
        if !r.bytes.is_empty() {
            return Err(r.invalid("length", "the checksum", r.bytes.remaining() as u64));
        }
        let tenants = tenants.into_iter().collect();
        Ok(CatalogFile { sequence, catalog: DatabaseCatalog { tenants, next_store, dropped, bucket_drops } })
    }
}

fn put_database(out: &mut Vec<u8>, database: &Database) {
    put_text(out, &database.name);
    put_text(out, &database.default_policy);
    put_list(out, &database.policies, |out, policy| {
        put_text(out, &policy.name);
        put_uvarint(out, policy.duration_ns.unsigned_abs());
        put_uvarint(out, policy.shard_group_ns.unsigned_abs());
        put_uvarint(out, u64::from(policy.replica_count));
        put_store(out, policy);
    });
    put_list(out, &database.continuous_queries, |out, query| {
        put_text(out, &query.name);
        put_text(out, &query.text);
        out.extend_from_slice(&query.last_run_ns.map_or(NEVER, i64::cast_unsigned).to_le_bytes());
    });
}

fn put_store(out: &mut Vec<u8>, policy: &RetentionPolicy) {
    put_text(out, &store_name(&policy.store));
    out.push(u8::from(policy.bucket_id.is_some()));
    policy.bucket_id.iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
}

fn put_user(out: &mut Vec<u8>, user: &User) {
    put_text(out, &user.name);
    put_text(out, &user.password_hash);
    out.push(u8::from(user.is_admin));
    put_list(out, &user.privileges, |out, (database, privilege)| {
        put_text(out, database);
        out.push(match privilege {
            Privilege::Read => 1,
            Privilege::Write => 2,
            Privilege::All => 3,
        });
    });
}

struct Reader<'a> {
    bytes: ByteReader<'a>,
    version: u16,
}

impl Reader<'_> {
    /// Returns true if stores have ids in a bucket.
    fn has_ids(&self) -> bool {
        self.version > VERSION_WITHOUT_IDS
    }

    fn invalid(&self, what: &'static str, expected: &'static str, found: u64) -> DecodeError {
        DecodeError::Invalid { what, offset: self.bytes.offset(), expected, found }
    }

    fn text(&mut self, what: &'static str) -> Result<String, DecodeError> {
        read_text(&mut self.bytes, what)
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.bytes.uvarint("number of items")?;
        let mut list = Vec::new();
        // The vector grows with the items that are there, whatever the number claims.
        for _ in 0..count {
            list.push(item(self)?);
        }
        Ok(list)
    }

    fn store(&mut self) -> Result<StoreId, DecodeError> {
        let id = self.text("store")?;
        let store = parse_store_name(&id).ok().filter(|store| !store.is_default());
        store.ok_or_else(|| self.invalid("store", "the id of a store", 0))
    }

    fn tenant(&mut self) -> Result<TenantId, DecodeError> {
        let tenant = self.text("tenant")?;
        TenantId::new(&tenant).map_err(|_| self.invalid("tenant", "a tenant id", 0))
    }

    fn store_id(&mut self) -> Result<BucketStoreId, DecodeError> {
        let bytes = self.bytes.bytes("id in the bucket", 16)?;
        let bytes = bytes.try_into().map_err(|_| self.invalid("id in the bucket", "16 bytes", 0))?;
        Ok(BucketStoreId::from_bytes(bytes))
    }

    fn duration(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        let ns = self.bytes.uvarint(what)?;
        i64::try_from(ns).map_err(|_| self.invalid(what, "nanoseconds below 2^63", ns))
    }

    fn database(&mut self) -> Result<Database, DecodeError> {
        Ok(Database {
            name: self.text("database")?,
            default_policy: self.text("default retention policy")?,
            policies: self.list(Reader::policy)?,
            continuous_queries: self.list(|r| {
                let name = r.text("continuous query")?;
                let text = r.text("text of a continuous query")?;
                let last_run_ns = r.bytes.le_u64("last run")?;
                let last_run_ns = (last_run_ns != NEVER).then_some(last_run_ns.cast_signed());
                Ok(ContinuousQuery { name, text, last_run_ns })
            })?,
        })
    }

    fn policy(&mut self) -> Result<RetentionPolicy, DecodeError> {
        let name = self.text("retention policy")?;
        let duration_ns = self.duration("duration")?;
        let shard_group_ns = self.duration("shard duration")?;
        let replica_count = self.bytes.uvarint("replicas")?;
        let replica_count = u32::try_from(replica_count)
            .map_err(|_| self.invalid("replicas", "below 2^32", replica_count))?;
        let (store, bucket_id) = self.store_with_id()?;
        if !matches!(store, StoreId::Database { .. }) || shard_group_ns == 0 {
            return Err(self.invalid("retention policy", "a store in nanoseconds with shard groups", 0));
        }
        Ok(RetentionPolicy { name, duration_ns, shard_group_ns, replica_count, store, bucket_id })
    }

    /// A store, and its id in the bucket if it has one.
    fn store_with_id(&mut self) -> Result<(StoreId, Option<BucketStoreId>), DecodeError> {
        let store = self.store()?;
        let has_id = self.has_ids() && self.bytes.u8("id in the bucket")? != 0;
        let bucket_id = if has_id { Some(self.store_id()?) } else { None };
        Ok((store, bucket_id))
    }

    /// Policy of the Graphite store: a list of at most one.
    fn graphite(&mut self) -> Result<Option<RetentionPolicy>, DecodeError> {
        if self.version <= VERSION_WITHOUT_GRAPHITE {
            return Ok(None);
        }
        let mut stores = self.list(Reader::store_with_id)?;
        let Some((store, bucket_id)) = stores.pop() else { return Ok(None) };
        if !stores.is_empty() || !store.is_graphite() {
            return Err(self.invalid("Graphite store", "one store in milliseconds", stores.len() as u64));
        }
        Ok(Some(RetentionPolicy::of_graphite(store, bucket_id)))
    }

    fn user(&mut self) -> Result<User, DecodeError> {
        let name = self.text("user")?;
        let password_hash = self.text("password hash")?;
        let is_admin = self.bytes.u8("administrator")? != 0;
        let privileges = self.list(|r| {
            let database = r.text("database")?;
            let privilege = match r.bytes.u8("privilege")? {
                1 => Privilege::Read,
                2 => Privilege::Write,
                3 => Privilege::All,
                other => return Err(r.invalid("privilege", "1, 2 or 3", u64::from(other))),
            };
            Ok((database, privilege))
        })?;
        let privileges: BTreeMap<_, _> = privileges.into_iter().collect();
        Ok(User { name, password_hash, is_admin, privileges })
    }
}

#[cfg(test)]
mod tests;
