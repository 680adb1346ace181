//! Types of the catalogue: databases, retention policies, continuous queries and users.
//!
//! Invariants: see the parent module. Not here: the rules of changes (`change`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::BucketStoreId;
use crate::{StoreId, TenantId};

/// Name of the policy of a tenant's Graphite store.
const GRAPHITE: &str = "graphite";
/// Name of the retention policy that CREATE DATABASE makes.
pub const AUTOGEN: &str = "autogen";
/// Nanoseconds per hour.
pub const HOUR_NS: i64 = 3_600_000_000_000;
/// Nanoseconds per day.
pub const DAY_NS: i64 = 24 * HOUR_NS;
/// Databases of a tenant.
pub const DATABASE_COUNT_MAX: usize = 20_000;
/// Retention policies of a database.
pub const POLICY_COUNT_MAX: usize = 1000;
/// Continuous queries of a database.
pub const CONTINUOUS_QUERY_COUNT_MAX: usize = 1000;
/// Users of a tenant.
pub const USER_COUNT_MAX: usize = 10_000;
/// Longest name of a query or user.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest name of a new database or retention policy, as in InfluxDB.
pub const STORE_NAME_BYTES_MAX: usize = 255;

/// Databases of all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatabaseCatalog {
    /// Catalogues of the tenants that have one.
    pub tenants: BTreeMap<TenantId, Arc<TenantCatalog>>,
    /// Number of the next store; no store ever had it or a greater one.
    pub next_store: u64,
    /// Stores that were dropped, with data that may still have to be removed.
    pub dropped: Vec<StoreId>,
    /// Stores that were dropped and that the bucket may still name.
    pub bucket_drops: Vec<BucketDrop>,
}

/// A dropped store that the copy of the catalogue in the bucket may still have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketDrop {
    /// Tenant whose store it was.
    pub owner: TenantId,
    /// Id of the store in the bucket.
    pub id: BucketStoreId,
}

/// Databases and users of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantCatalog {
    /// In order of creation.
    pub databases: Vec<Database>,
    /// In order of creation.
    pub users: Vec<User>,
    /// Store of the series of Graphite clients, in milliseconds; `None` before the first of them.
    pub graphite: Option<RetentionPolicy>,
}

/// A database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Name of the database.
    pub name: String,
    /// Name of the policy that statements without one mean; there may be no such policy.
    pub default_policy: String,
    /// In order of creation.
    pub policies: Vec<RetentionPolicy>,
    /// In order of creation.
    pub continuous_queries: Vec<ContinuousQuery>,
}

/// A retention policy, with the store of its points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Name of the policy.
    pub name: String,
    /// Age in nanoseconds from which points are refused and removed; 0 = none.
    pub duration_ns: i64,
    /// Width of a shard group in nanoseconds: within it, a field has one type.
    pub shard_group_ns: i64,
    /// As given: there is one copy of the data whatever it is.
    pub replica_count: u32,
    /// Store of the points.
    pub store: StoreId,
    /// Id of the store in the bucket; `None` until the first upload that names it.
    pub bucket_id: Option<BucketStoreId>,
}

/// A continuous query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinuousQuery {
    /// Name of the continuous query.
    pub name: String,
    /// The statement that created it, in canonical form.
    pub text: String,
    /// End of the newest interval that was computed, in nanoseconds; `None` before the first run.
    pub last_run_ns: Option<i64>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// Hash of the password in PHC format.
    pub password_hash: String,
    /// Set if the user may do everything.
    pub is_admin: bool,
    /// Privileges by database.
    pub privileges: BTreeMap<String, Privilege>,
}

/// Privilege of a user on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Privilege {
    /// Queries.
    Read,
    /// Writes.
    Write,
    /// Both.
    All,
}

impl Privilege {
    /// Returns true if the privilege includes `other`.
    #[must_use]
    pub fn includes(self, other: Privilege) -> bool {
        self == Privilege::All || self == other
    }

    /// Text in statements.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Privilege::Read => "READ",
            Privilege::Write => "WRITE",
            Privilege::All => "ALL PRIVILEGES",
        }
    }
}

impl DatabaseCatalog {
    /// Returns the catalogue of `tenant`; empty if it has none.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> Option<&Arc<TenantCatalog>> {
        self.tenants.get(tenant)
    }

    /// Returns the tenants with a catalogue of their own.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Arc<TenantCatalog>)> {
        self.tenants.iter()
    }

    /// Returns the policies of all tenants, including the policies of their Graphite stores.
    pub fn policies(&self) -> impl Iterator<Item = (&TenantId, &RetentionPolicy)> {
        self.tenants
            .iter()
            .flat_map(|(tenant, catalog)| catalog.policies().map(move |policy| (tenant, policy)))
    }

    /// Assigns an id in the bucket to each store of `owner` without one; returns true if it assigned one.
    /// `new_id` returns an id that was never used; the Graphite store has its own.
    pub fn assign_bucket_ids(&mut self, owner: &TenantId, mut new_id: impl FnMut() -> BucketStoreId) -> bool {
        let Some(own) = self.tenants.get_mut(owner) else { return false };
        if own.policies().all(|policy| policy.bucket_id.is_some()) {
            return false;
        }
        let TenantCatalog { databases, graphite, .. } = Arc::make_mut(own);
        let policies = databases.iter_mut().flat_map(|database| &mut database.policies);
        for policy in policies.filter(|policy| policy.bucket_id.is_none()) {
            policy.bucket_id = Some(new_id());
        }
        if let Some(graphite) = graphite {
            graphite.bucket_id = Some(BucketStoreId::GRAPHITE);
        }
        true
    }
}

impl TenantCatalog {
    /// Returns the policies of its databases, and the policy of the Graphite store.
    pub fn policies(&self) -> impl Iterator<Item = &RetentionPolicy> {
        self.databases.iter().flat_map(|database| &database.policies).chain(&self.graphite)
    }

    /// Returns true if there is a database, or the Graphite store.
    #[must_use]
    pub fn has_stores(&self) -> bool {
        !self.databases.is_empty() || self.graphite.is_some()
    }

    /// Returns a database by name.
    #[must_use]
    pub fn database(&self, name: &str) -> Option<&Database> {
        self.databases.iter().find(|database| database.name == name)
    }

    /// Returns a user by name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// Returns true if a user may administer the server.
    #[must_use]
    pub fn has_admin(&self) -> bool {
        self.users.iter().any(|user| user.is_admin)
    }
}

impl RetentionPolicy {
    /// The policy of a Graphite store: points stay as long as their schema says.
    #[must_use]
    pub fn of_graphite(store: StoreId, bucket_id: Option<BucketStoreId>) -> RetentionPolicy {
        RetentionPolicy {
            name: GRAPHITE.to_owned(),
            duration_ns: 0,
            shard_group_ns: 0,
            replica_count: 1,
            store,
            bucket_id,
        }
    }
}

impl Database {
    /// Returns a policy by name; the default one for an empty name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&RetentionPolicy> {
        let name = if name.is_empty() { &self.default_policy } else { name };
        self.policies.iter().find(|policy| policy.name == name)
    }
}

impl User {
    /// Returns true if the user has `privilege` on `database`.
    #[must_use]
    pub fn may(&self, privilege: Privilege, database: &str) -> bool {
        self.is_admin || self.privileges.get(database).is_some_and(|own| own.includes(privilege))
    }
}
