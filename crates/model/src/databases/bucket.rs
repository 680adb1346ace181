//! Copy of a tenant's databases in a bucket, with its Graphite store, and the rules by which it and the
//! local catalogue follow each other.
//!
//! Invariants: users and their password hashes never leave the local catalogue; an id in the bucket that was
//! dropped is not adopted again; where both have a policy of the same name with another id, the local one is
//! kept and the conflict is returned by name.
//! Not here: bytes (`format::bucket::databases`), requests (`bucket`), their schedule (`tsdb`).

use super::change::graphite_policy;
use super::{
    BucketStoreId, CatalogChange, CatalogError, ContinuousQuery, Database, DatabaseCatalog, RetentionPolicy,
    TenantCatalog,
};
use crate::{StoreId, TenantId};
use std::sync::Arc;

/// Databases of one tenant, with the ids of their stores in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketDatabases {
    /// In order of creation.
    pub databases: Vec<BucketDatabase>,
    /// Stores that were dropped and whose objects are not removed yet.
    pub dropped: Vec<DroppedStore>,
    /// Set if there is a Graphite store, whose id is [`BucketStoreId::GRAPHITE`].
    pub has_graphite: bool,
}

/// A database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketDatabase {
    /// Name of the database.
    pub name: String,
    /// Name of the policy that statements without one mean.
    pub default_policy: String,
    /// In order of creation.
    pub policies: Vec<BucketPolicy>,
    /// Names and texts of continuous queries, in order of creation.
    pub continuous_queries: Vec<(String, String)>,
}

/// A retention policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPolicy {
    /// Name of the policy.
    pub name: String,
    /// Age in nanoseconds from which points are removed; 0 = none.
    pub duration_ns: i64,
    /// Width of a shard group in nanoseconds.
    pub shard_group_ns: i64,
    /// As given in the statement.
    pub replica_count: u32,
    /// Id of its store.
    pub id: BucketStoreId,
}

/// A store whose objects are to be removed after a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedStore {
    /// Id of the store.
    pub id: BucketStoreId,
    /// Milliseconds since 1970 at which the copy in the bucket recorded the drop.
    pub dropped_ms: i64,
}

/// Result of [`BucketDatabases::record`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Set if the copy differs from the one before.
    pub is_changed: bool,
    /// Policies of the bucket that a local one of the same name with another id displaced: database, policy
    /// and id.
    pub displaced: Vec<(String, String, BucketStoreId)>,
}

/// Result of [`DatabaseCatalog::follow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Followed {
    /// Policies that are new here.
    pub added_count: usize,
    /// Policies that the bucket does not have any more.
    pub dropped_count: usize,
}

/// Result of [`DatabaseCatalog::adopt`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adopted {
    /// Policies that were taken over from the bucket.
    pub policy_count: usize,
    /// Policies of the bucket that were not taken over because a local one has their name.
    pub conflicts: Vec<(String, String, BucketStoreId)>,
}

impl BucketDatabase {
    /// The copy of a database; policies without an id in the bucket are left out.
    #[must_use]
    pub fn of(database: &Database) -> BucketDatabase {
        let policies = database.policies.iter().filter_map(|policy| {
            Some(BucketPolicy {
                name: policy.name.clone(),
                duration_ns: policy.duration_ns,
                shard_group_ns: policy.shard_group_ns,
                replica_count: policy.replica_count,
                id: policy.bucket_id?,
            })
        });
        let queries = database.continuous_queries.iter();
        BucketDatabase {
            name: database.name.clone(),
            default_policy: database.default_policy.clone(),
            policies: policies.collect(),
            continuous_queries: queries.map(|query| (query.name.clone(), query.text.clone())).collect(),
        }
    }
}

impl BucketDatabases {
    /// Makes the copy follow the local catalogue `own`: its databases replace databases of the same name, the
    /// stores in `drops` leave, and databases of the bucket without any policy leave with them. Other
    /// databases and policies of the bucket stay, and a Graphite store.
    pub fn record(&mut self, own: &TenantCatalog, drops: &[BucketStoreId], now_ms: i64) -> Recorded {
        let before = self.clone();
        let mut displaced = Vec::new();
        let mut next: Vec<BucketDatabase> = Vec::new();
        for mut database in std::mem::take(&mut self.databases) {
            database.policies.retain(|policy| !drops.contains(&policy.id));
            let local = own.database(&database.name);
            if let Some(local) = local {
                let mut copy = BucketDatabase::of(local);
                for policy in database.policies {
                    match copy.policies.iter().find(|other| other.name == policy.name) {
                        Some(other) if other.id == policy.id => {}
                        Some(_) => displaced.push((copy.name.clone(), policy.name, policy.id)),
                        None => copy.policies.push(policy),
                    }
                }
                next.push(copy);
            } else if !database.policies.is_empty() {
                next.push(database);
            }
        }
        for local in &own.databases {
            if next.iter().all(|database| database.name != local.name) {
                next.push(BucketDatabase::of(local));
            }
        }
        self.databases = next;
        let live: Vec<BucketStoreId> = self.ids().collect();
        for id in drops {
            if self.dropped.iter().all(|dropped| dropped.id != *id) && !live.contains(id) {
                self.dropped.push(DroppedStore { id: *id, dropped_ms: now_ms });
            }
        }
        self.dropped.retain(|dropped| !live.contains(&dropped.id));
        self.has_graphite |= own.graphite.as_ref().is_some_and(|policy| policy.bucket_id.is_some());
        Recorded { is_changed: *self != before, displaced }
    }

    /// Applies a change of the databases of a cluster, of which these are the original. `new_id` returns an
    /// id that was never used. Returns true if anything changed.
    ///
    /// # Errors
    /// [`CatalogError`], as from a local catalogue; nothing changed then.
    pub fn apply(
        &mut self,
        change: &CatalogChange,
        new_id: impl FnMut() -> BucketStoreId,
        now_ms: i64,
    ) -> Result<bool, CatalogError> {
        // A catalogue of one tenant, whose name does not matter.
        let owner = TenantId::anonymous();
        let mut catalog = DatabaseCatalog::default();
        catalog.adopt(&owner, self);
        if !catalog.apply(&owner, change)? {
            return Ok(false);
        }
        catalog.assign_bucket_ids(&owner, new_id);
        let drops: Vec<BucketStoreId> = catalog.bucket_drops.iter().map(|drop| drop.id).collect();
        let own = catalog.of(&owner).cloned().unwrap_or_default();
        Ok(self.record(&own, &drops, now_ms).is_changed)
    }

    /// Ids of the stores of all policies, and of the Graphite store.
    pub fn ids(&self) -> impl Iterator<Item = BucketStoreId> + '_ {
        let of_policies = self.databases.iter().flat_map(|database| &database.policies);
        of_policies.map(|policy| policy.id).chain(self.has_graphite.then_some(BucketStoreId::GRAPHITE))
    }
}

impl DatabaseCatalog {
    /// Takes over the databases and policies of `copy` that `owner` does not have. Stores that were dropped
    /// here and that the bucket still names are left out. A local Graphite store becomes the Graphite store
    /// of the bucket.
    pub fn adopt(&mut self, owner: &TenantId, copy: &BucketDatabases) -> Adopted {
        let mut adopted = Adopted::default();
        let mut own = self.tenants.get(owner).map(|own| TenantCatalog::clone(own)).unwrap_or_default();
        let drops: Vec<BucketStoreId> = self.bucket_drops.iter().map(|drop| drop.id).collect();
        for database in &copy.databases {
            let policies = database.policies.iter().filter(|policy| !drops.contains(&policy.id));
            let policies: Vec<&BucketPolicy> = policies.collect();
            if policies.is_empty() && !database.policies.is_empty() {
                continue;
            }
            let idx = own.databases.iter().position(|other| other.name == database.name);
            let target = match idx.and_then(|idx| own.databases.get_mut(idx)) {
                Some(target) => target,
                None => own.databases.push_mut(Database {
                    name: database.name.clone(),
                    default_policy: database.default_policy.clone(),
                    policies: Vec::new(),
                    continuous_queries: database.continuous_queries.iter().map(not_run).collect(),
                }),
            };
            for policy in policies {
                match target.policies.iter().find(|other| other.name == policy.name) {
                    Some(other) if other.bucket_id == Some(policy.id) => {}
                    Some(_) => {
                        adopted.conflicts.push((database.name.clone(), policy.name.clone(), policy.id));
                    }
                    None => {
                        let store = StoreId::Database { number: self.next_store };
                        self.next_store += 1;
                        target.policies.push(local_policy(policy, store));
                        adopted.policy_count += 1;
                    }
                }
            }
        }
        if copy.has_graphite {
            if own.graphite.is_none() {
                adopted.policy_count += 1;
            }
            let graphite = own.graphite.get_or_insert_with(|| graphite_policy(&mut self.next_store));
            graphite.bucket_id = Some(BucketStoreId::GRAPHITE);
        }
        if own != TenantCatalog::default() {
            self.tenants.insert(owner.clone(), Arc::new(own));
        }
        adopted
    }
}

impl DatabaseCatalog {
    /// Makes the databases of `owner` equal to `copy`, the original in a cluster. Stores in both keep their
    /// numbers, others are dropped here. Users stay, and so do last runs of continuous queries.
    pub fn follow(&mut self, owner: &TenantId, copy: &BucketDatabases) -> Followed {
        let mut followed = Followed::default();
        let before = self.tenants.get(owner).cloned().unwrap_or_default();
        let mut store_of = |policy: &BucketPolicy| {
            let store = match before.policies().find(|own| own.bucket_id == Some(policy.id)) {
                Some(same) => same.store.clone(),
                None => {
                    followed.added_count += 1;
                    self.next_store += 1;
                    StoreId::Database { number: self.next_store - 1 }
                }
            };
            local_policy(policy, store)
        };
        let databases = copy.databases.iter().map(|database| Database {
            name: database.name.clone(),
            default_policy: database.default_policy.clone(),
            policies: database.policies.iter().map(&mut store_of).collect(),
            continuous_queries: queries_of(database, before.database(&database.name)),
        });
        let databases = databases.collect();
        let mut graphite = before.graphite.clone();
        if copy.has_graphite {
            followed.added_count += usize::from(graphite.is_none());
            let policy = graphite.get_or_insert_with(|| graphite_policy(&mut self.next_store));
            policy.bucket_id = Some(BucketStoreId::GRAPHITE);
        }
        let own = TenantCatalog { databases, users: before.users.clone(), graphite };
        let left: Vec<&StoreId> = own.policies().map(|policy| &policy.store).collect();
        let gone = before.policies().filter(|policy| !left.contains(&&policy.store));
        let gone: Vec<StoreId> = gone.map(|policy| policy.store.clone()).collect();
        followed.dropped_count = gone.len();
        self.dropped.extend(gone);
        // The bucket lists drops, not this catalogue.
        self.bucket_drops.retain(|drop| drop.owner != *owner);
        if own == TenantCatalog::default() {
            self.tenants.remove(owner);
        } else if own != *before {
            self.tenants.insert(owner.clone(), Arc::new(own));
        }
        followed
    }
}

/// Continuous queries of a database, with the last runs that `before` has.
fn queries_of(database: &BucketDatabase, before: Option<&Database>) -> Vec<ContinuousQuery> {
    let known = |query: &ContinuousQuery| {
        let queries = before.map_or(&[][..], |before| &before.continuous_queries);
        queries.iter().find(|own| own.name == query.name && own.text == query.text).cloned()
    };
    let queries = database.continuous_queries.iter().map(not_run);
    queries.map(|query| known(&query).unwrap_or(query)).collect()
}

fn local_policy(policy: &BucketPolicy, store: StoreId) -> RetentionPolicy {
    RetentionPolicy {
        name: policy.name.clone(),
        duration_ns: policy.duration_ns,
        shard_group_ns: policy.shard_group_ns,
        replica_count: policy.replica_count,
        store,
        bucket_id: Some(policy.id),
    }
}

/// A continuous query whose last run is not known.
fn not_run(query: &(String, String)) -> ContinuousQuery {
    ContinuousQuery { name: query.0.clone(), text: query.1.clone(), last_run_ns: None }
}

#[cfg(test)]
mod tests;
