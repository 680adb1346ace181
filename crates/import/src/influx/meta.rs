//! `meta.db`: databases, retention policies, continuous queries and users of an InfluxDB, as protobuf.
//!
//! Invariants: unknown fields are skipped; memory is bounded by the file.
//! Not here: the catalogue of databases that they become (`catalog`).

use chronolith_base::{ByteReader, DecodeError};

use super::fault::invalid;

/// Contents of `meta.db`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// In order of creation.
    pub databases: Vec<MetaDatabase>,
    /// In order of creation.
    pub users: Vec<MetaUser>,
}

/// A database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaDatabase {
    /// Name of the database.
    pub name: String,
    /// Name of the default policy; empty if there is none.
    pub default_policy: String,
    /// In order of creation.
    pub policies: Vec<MetaPolicy>,
    /// Names and statements.
    pub continuous_queries: Vec<(String, String)>,
}

/// A retention policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaPolicy {
    /// Name of the policy.
    pub name: String,
    /// Nanoseconds; 0 = infinite.
    pub duration_ns: i64,
    /// Width of shard groups in nanoseconds.
    pub shard_group_ns: i64,
    /// As given.
    pub replica_count: u32,
    /// Ids of the shards of groups that are not deleted.
    pub shards: Vec<u64>,
}

/// A user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaUser {
    /// Name of the user.
    pub name: String,
    /// Set if the user may do everything.
    pub is_admin: bool,
    /// Databases with 0 (none), 1 (read), 2 (write) or 3 (all).
    pub privileges: Vec<(String, u64)>,
}

/// Value of a protobuf field.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Meta {
    /// Reads the file.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Meta, DecodeError> {
        let mut meta = Meta::default();
        for_each_field(bytes, &mut |number, field| {
            match (number, field) {
                (5, Field::Bytes(bytes)) => meta.databases.push(decode_database(bytes)?),
                (6, Field::Bytes(bytes)) => meta.users.push(decode_user(bytes)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(meta)
    }
}

fn decode_database(bytes: &[u8]) -> Result<MetaDatabase, DecodeError> {
    let mut database = MetaDatabase::default();
    for_each_field(bytes, &mut |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => database.name = text(bytes)?,
            (2, Field::Bytes(bytes)) => database.default_policy = text(bytes)?,
            (3, Field::Bytes(bytes)) => database.policies.push(decode_policy(bytes)?),
            (4, Field::Bytes(bytes)) => database.continuous_queries.push(decode_query(bytes)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(database)
}

fn decode_policy(bytes: &[u8]) -> Result<MetaPolicy, DecodeError> {
    let mut policy = MetaPolicy::default();
    for_each_field(bytes, &mut |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => policy.name = text(bytes)?,
            (2, Field::Number(value)) => policy.duration_ns = value as i64,
            (3, Field::Number(value)) => policy.shard_group_ns = value as i64,
            (4, Field::Number(value)) => policy.replica_count = u32::try_from(value).unwrap_or(u32::MAX),
            (5, Field::Bytes(bytes)) => decode_shard_group(bytes, &mut policy.shards)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(policy)
}

/// Appends the shards of a group unless the group is deleted.
fn decode_shard_group(bytes: &[u8], shards: &mut Vec<u64>) -> Result<(), DecodeError> {
    let mut is_deleted = false;
    let count = shards.len();
    for_each_field(bytes, &mut |number, field| {
        match (number, field) {
            (4, Field::Number(deleted_ns)) => is_deleted = deleted_ns != 0,
            (5, Field::Bytes(bytes)) => for_each_field(bytes, &mut |number, field| {
                if let (1, Field::Number(id)) = (number, field) {
                    shards.push(id);
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })?;
    if is_deleted {
        shards.truncate(count);
    }
    Ok(())
}

fn decode_query(bytes: &[u8]) -> Result<(String, String), DecodeError> {
    let mut query = (String::new(), String::new());
    for_each_field(bytes, &mut |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => query.0 = text(bytes)?,
            (2, Field::Bytes(bytes)) => query.1 = text(bytes)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(query)
}

fn decode_user(bytes: &[u8]) -> Result<MetaUser, DecodeError> {
    let mut user = MetaUser::default();
    for_each_field(bytes, &mut |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => user.name = text(bytes)?,
            (3, Field::Number(value)) => user.is_admin = value != 0,
            (4, Field::Bytes(bytes)) => user.privileges.push(decode_privilege(bytes)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(user)
}

fn decode_privilege(bytes: &[u8]) -> Result<(String, u64), DecodeError> {
    let mut privilege = (String::new(), 0);
    for_each_field(bytes, &mut |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => privilege.0 = text(bytes)?,
            (2, Field::Number(value)) => privilege.1 = value,
            _ => {}
        }
        Ok(())
    })?;
    Ok(privilege)
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|error| invalid("name", error.valid_up_to(), "UTF-8", bytes.len() as u64))
}

/// Calls `visit` with the fields of a message.
fn for_each_field(
    message: &[u8],
    visit: &mut dyn FnMut(u64, Field<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut r = ByteReader::new(message);
    while !r.is_empty() {
        let offset = r.offset();
        let tag = r.uvarint("tag of a field")?;
        let field = match tag & 7 {
            0 => Field::Number(r.uvarint("number")?),
            1 => Field::Bytes(r.bytes("64-bit field", 8)?),
            2 => {
                let len = r.length("length of a field")?;
                Field::Bytes(r.bytes("field", len)?)
            }
            5 => Field::Bytes(r.bytes("32-bit field", 4)?),
            other => return Err(invalid("wire type of a field", offset, "0, 1, 2 or 5", other)),
        };
        visit(tag >> 3, field)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
