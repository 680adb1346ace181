//! Statements that create or change databases, retention policies, users, continuous queries and
//! subscriptions.
//!
//! Not here: SHOW (`show`), printing (`print`).

use std::fmt;

use super::privilege::Privilege;
use super::select::Select;

/// CREATE DATABASE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateDatabase {
    /// Name.
    pub name: String,
    /// WITH; `None` without that word.
    pub policy: Option<PolicyOptions>,
}

/// WITH of CREATE DATABASE, and the options of ALTER RETENTION POLICY. `None` is not given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyOptions {
    /// Nanoseconds; 0 is infinite.
    pub duration_ns: Option<i64>,
    /// At least 1.
    pub replication: Option<u32>,
    /// Width of shard groups in nanoseconds; 0 leaves it to the server.
    pub shard_duration_ns: Option<i64>,
    /// NAME of CREATE DATABASE.
    pub name: Option<String>,
}

/// CREATE RETENTION POLICY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRetentionPolicy {
    /// Name.
    pub name: String,
    /// Database.
    pub database: String,
    /// Nanoseconds; 0 is infinite.
    pub duration_ns: i64,
    /// At least 1.
    pub replication: u32,
    /// Width of shard groups in nanoseconds; 0 leaves it to the server.
    pub shard_duration_ns: i64,
    /// DEFAULT.
    pub is_default: bool,
}

/// ALTER RETENTION POLICY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterRetentionPolicy {
    /// Name.
    pub name: String,
    /// Database.
    pub database: String,
    /// Options to change; the name is absent.
    pub options: PolicyOptions,
    /// DEFAULT.
    pub is_default: bool,
}

/// CREATE USER.
#[derive(Clone, PartialEq, Eq)]
pub struct CreateUser {
    /// Name.
    pub name: String,
    /// Never printed.
    pub password: String,
    /// WITH ALL PRIVILEGES.
    pub is_admin: bool,
}

impl fmt::Debug for CreateUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateUser").field("name", &self.name).field("is_admin", &self.is_admin).finish()
    }
}

/// GRANT and REVOKE of a privilege on a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Privilege.
    pub privilege: Privilege,
    /// Database.
    pub database: String,
    /// User.
    pub user: String,
}

/// CREATE CONTINUOUS QUERY.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateContinuousQuery {
    /// Name.
    pub name: String,
    /// Database.
    pub database: String,
    /// RESAMPLE.
    pub resample: Resample,
    /// Query, with a target.
    pub select: Select,
}

/// RESAMPLE of a continuous query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resample {
    /// EVERY, in nanoseconds.
    pub every_ns: Option<i64>,
    /// FOR, in nanoseconds.
    pub for_ns: Option<i64>,
}

/// CREATE SUBSCRIPTION.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSubscription {
    /// Name.
    pub name: String,
    /// Database.
    pub database: String,
    /// Retention policy.
    pub policy: String,
    /// ALL or ANY.
    pub mode: SubscriptionMode,
    /// URLs.
    pub destinations: Vec<String>,
}

/// Destinations that get each point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubscriptionMode {
    /// All.
    All,
    /// One, in turn.
    Any,
}
