//! Changes of the catalogue: what each statement does, and why it is refused, as in InfluxDB 1.8.
//!
//! Invariants: a change that is refused changes nothing; one that repeats an earlier one succeeds where
//! InfluxDB's does.
//! Not here: durability (`tsdb::databases`), the statements (`influxql`).

use super::catalog::{
    AUTOGEN, BucketDrop, CONTINUOUS_QUERY_COUNT_MAX, ContinuousQuery, DATABASE_COUNT_MAX, DAY_NS, Database,
    DatabaseCatalog, HOUR_NS, NAME_BYTES_MAX, POLICY_COUNT_MAX, Privilege, RetentionPolicy,
    STORE_NAME_BYTES_MAX, TenantCatalog, USER_COUNT_MAX, User,
};
use crate::{StoreId, TenantId};
use std::sync::Arc;

use chronolith_base::hash::HashSet;

/// Shortest duration of a retention policy and of a shard group.
const DURATION_NS_MIN: i64 = HOUR_NS;

/// Options of a retention policy as a statement gives them; `None` where it gives none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyOptions {
    /// Duration in nanoseconds; 0 = infinite.
    pub duration_ns: Option<i64>,
    /// Width of shard groups in nanoseconds; 0 = chosen by the duration.
    pub shard_group_ns: Option<i64>,
    /// Number of replicas.
    pub replica_count: Option<u32>,
}

/// A change of the catalogue of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogChange {
    /// CREATE DATABASE. With the name or options of a policy, that policy is made instead of `autogen`.
    CreateDatabase {
        /// Database.
        name: String,
        /// Name and options of its policy.
        policy: Option<(String, PolicyOptions)>,
    },
    /// Creation of the store for series of Graphite clients, unless there is one.
    CreateGraphiteStore,
    /// DROP DATABASE
    DropDatabase {
        /// Database.
        name: String,
    },
    /// CREATE RETENTION POLICY
    CreatePolicy {
        /// Database.
        database: String,
        /// Policy.
        name: String,
        /// Options of the policy; the duration is given.
        options: PolicyOptions,
        /// Set if it becomes the default one.
        is_default: bool,
    },
    /// ALTER RETENTION POLICY
    AlterPolicy {
        /// Database.
        database: String,
        /// Policy.
        name: String,
        /// Options that change.
        options: PolicyOptions,
        /// Set if it becomes the default one.
        is_default: bool,
    },
    /// DROP RETENTION POLICY
    DropPolicy {
        /// Database.
        database: String,
        /// Policy.
        name: String,
    },
    /// CREATE CONTINUOUS QUERY
    CreateContinuousQuery {
        /// Database.
        database: String,
        /// Query.
        name: String,
        /// The statement, in canonical form.
        text: String,
    },
    /// DROP CONTINUOUS QUERY
    DropContinuousQuery {
        /// Database.
        database: String,
        /// Query.
        name: String,
    },
    /// A continuous query was computed up to a time.
    SetLastRun {
        /// Database.
        database: String,
        /// Query.
        name: String,
        /// End of the newest interval, in nanoseconds.
        last_run_ns: i64,
    },
    /// CREATE USER
    CreateUser {
        /// User.
        name: String,
        /// Hash of the password.
        password_hash: String,
        /// Set for WITH ALL PRIVILEGES.
        is_admin: bool,
    },
    /// DROP USER
    DropUser {
        /// User.
        name: String,
    },
    /// SET PASSWORD
    SetPassword {
        /// User.
        name: String,
        /// Hash of the password.
        password_hash: String,
    },
    /// GRANT or REVOKE on a database; `None` takes all privileges away.
    SetPrivilege {
        /// User.
        user: String,
        /// Database.
        database: String,
        /// The privilege afterwards.
        privilege: Option<Privilege>,
    },
    /// GRANT or REVOKE ALL PRIVILEGES without a database.
    SetAdmin {
        /// User.
        user: String,
        /// Set if the user becomes an administrator.
        is_admin: bool,
    },
}

/// Reason why a change is refused, in the words of InfluxDB 1.8, which clients match.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// There is no such database.
    #[error("database not found: {0}")]
    DatabaseNotFound(String),
    /// There is no such policy.
    #[error("retention policy not found: {0}")]
    PolicyNotFound(String),
    /// There is a policy of this name with other options.
    #[error("retention policy already exists")]
    PolicyExists,
    /// The database has a policy of this name with other options.
    #[error("retention policy conflicts with an existing policy")]
    PolicyConflict,
    /// The duration is below [`DURATION_NS_MIN`].
    #[error("retention policy duration must be at least 1h0m0s")]
    DurationTooShort,
    /// The duration is shorter than the duration of a shard group.
    #[error("retention policy duration must be greater than the shard duration")]
    IncompatibleDurations,
    /// The name of a database, policy or query cannot be used.
    #[error("invalid name")]
    InvalidName,
    /// The name of a database or policy is longer than [`STORE_NAME_BYTES_MAX`].
    #[error("name too long")]
    NameTooLong,
    /// There is a query of this name with another text.
    #[error("continuous query already exists")]
    ContinuousQueryExists,
    /// There is no such query.
    #[error("continuous query not found")]
    ContinuousQueryNotFound,
    /// There is a user of this name.
    #[error("user already exists")]
    UserExists,
    /// There is no such user.
    #[error("user not found")]
    UserNotFound,
    /// The name is empty.
    #[error("username required")]
    UsernameRequired,
    /// A list is full.
    #[error("limit of {limit} {what} reached")]
    Full {
        /// Entries.
        what: &'static str,
        /// Limit.
        limit: usize,
    },
    /// The change could not be made durable.
    #[error("{0}")]
    Storage(String),
}

impl DatabaseCatalog {
    /// Applies a change to the catalogue of `tenant`. Returns true if anything changed.
    ///
    /// # Errors
    /// [`CatalogError`]; nothing changed then.
    pub fn apply(&mut self, tenant: &TenantId, change: &CatalogChange) -> Result<bool, CatalogError> {
        let before = self.tenants.get(tenant).cloned().unwrap_or_default();
        let mut own = TenantCatalog::clone(&before);
        let mut next_store = self.next_store;
        apply(&mut own, &mut next_store, change)?;
        if own == *before {
            return Ok(false);
        }
        let left: HashSet<&StoreId> = own.policies().map(|policy| &policy.store).collect();
        for policy in before.policies().filter(|policy| !left.contains(&policy.store)) {
            self.dropped.push(policy.store.clone());
            self.bucket_drops.extend(policy.bucket_id.map(|id| BucketDrop { owner: tenant.clone(), id }));
        }
        drop(left);
        self.next_store = next_store;
        if own == TenantCatalog::default() {
            self.tenants.remove(tenant);
        } else {
            self.tenants.insert(tenant.clone(), Arc::new(own));
        }
        Ok(true)
    }
}

fn apply(own: &mut TenantCatalog, next_store: &mut u64, change: &CatalogChange) -> Result<(), CatalogError> {
    match change {
        CatalogChange::CreateDatabase { name, policy } => {
            create_database(own, next_store, name, policy.as_ref())
        }
        CatalogChange::CreateGraphiteStore => {
            own.graphite.get_or_insert_with(|| graphite_policy(next_store));
            Ok(())
        }
        CatalogChange::DropDatabase { name } => {
            own.databases.retain(|database| database.name != *name);
            for user in &mut own.users {
                user.privileges.remove(name);
            }
            Ok(())
        }
        CatalogChange::CreatePolicy { database, name, options, is_default } => {
            // The duration is looked at before the database.
            if options.duration_ns.is_some_and(|ns| ns != 0 && ns < DURATION_NS_MIN) {
                return Err(CatalogError::DurationTooShort);
            }
            let database = find_database(own, database)?;
            create_policy(database, next_store, name, options, *is_default)
        }
        CatalogChange::AlterPolicy { database, name, options, is_default } => {
            alter_policy(find_database(own, database)?, name, options, *is_default)
        }
        CatalogChange::DropPolicy { database, name } => {
            // As in InfluxDB, dropping what does not exist succeeds.
            if let Ok(database) = find_database(own, database) {
                database.policies.retain(|policy| policy.name != *name);
            }
            Ok(())
        }
        CatalogChange::CreateContinuousQuery { database, name, text } => {
            create_continuous_query(find_database(own, database)?, name, text)
        }
        CatalogChange::DropContinuousQuery { database, name } => {
            // As in InfluxDB, dropping what does not exist succeeds.
            if let Ok(database) = find_database(own, database) {
                database.continuous_queries.retain(|query| query.name != *name);
            }
            Ok(())
        }
        CatalogChange::SetLastRun { database, name, last_run_ns } => {
            let queries = &mut find_database(own, database)?.continuous_queries;
            let query = queries.iter_mut().find(|query| query.name == *name);
            query.ok_or(CatalogError::ContinuousQueryNotFound)?.last_run_ns = Some(*last_run_ns);
            Ok(())
        }
        change => apply_to_users(own, change),
    }
}

fn apply_to_users(own: &mut TenantCatalog, change: &CatalogChange) -> Result<(), CatalogError> {
    match change {
        CatalogChange::CreateUser { name, password_hash, is_admin } => {
            if name.is_empty() {
                return Err(CatalogError::UsernameRequired);
            }
            if own.user(name).is_some() {
                return Err(CatalogError::UserExists);
            }
            check_room(own.users.len(), USER_COUNT_MAX, "users")?;
            own.users.push(User {
                name: check_length(name)?,
                password_hash: password_hash.clone(),
                is_admin: *is_admin,
                privileges: std::collections::BTreeMap::new(),
            });
        }
        CatalogChange::DropUser { name } => {
            find_user(own, name)?;
            own.users.retain(|user| user.name != *name);
        }
        CatalogChange::SetPassword { name, password_hash } => {
            find_user(own, name)?.password_hash.clone_from(password_hash);
        }
        CatalogChange::SetPrivilege { user, database, privilege } => {
            find_user(own, user)?;
            find_database(own, database)?;
            let privileges = &mut find_user(own, user)?.privileges;
            match privilege {
                Some(privilege) => privileges.insert(database.clone(), *privilege),
                None => privileges.remove(database),
            };
        }
        CatalogChange::SetAdmin { user, is_admin } => find_user(own, user)?.is_admin = *is_admin,
        change => unreachable!("{change:?} is no change of users"),
    }
    Ok(())
}

fn create_database(
    own: &mut TenantCatalog,
    next_store: &mut u64,
    name: &str,
    policy: Option<&(String, PolicyOptions)>,
) -> Result<(), CatalogError> {
    check_name(name)?;
    let given_name = policy.map(|(policy_name, _)| policy_name.as_str()).filter(|name| !name.is_empty());
    let policy_name = given_name.unwrap_or(AUTOGEN);
    let options = policy.map(|(_, options)| options.clone()).unwrap_or_default();
    if let Some(database) = own.databases.iter_mut().find(|database| database.name == name) {
        if policy.is_none() {
            return Ok(());
        }
        if options.duration_ns.is_some_and(|ns| ns != 0 && ns < DURATION_NS_MIN) {
            return Err(CatalogError::DurationTooShort);
        }
        if database.policies.is_empty() {
            return create_policy(database, next_store, policy_name, &options, true);
        }
        return match database.policy(policy_name) {
            Some(found) if has_options(found, &options) && database.default_policy == policy_name => Ok(()),
            // A policy that the database does not have is none that it could already have been created with:
            // adding it would change the default, and with it where points go and when they expire.
            Some(_) | None => Err(CatalogError::PolicyConflict),
        };
    }
    check_room(own.databases.len(), DATABASE_COUNT_MAX, "databases")?;
    let mut database = Database {
        name: name.to_owned(),
        default_policy: policy_name.to_owned(),
        policies: Vec::new(),
        continuous_queries: Vec::new(),
    };
    create_policy(&mut database, next_store, policy_name, &options, true)?;
    own.databases.push(database);
    Ok(())
}

fn create_policy(
    database: &mut Database,
    next_store: &mut u64,
    name: &str,
    options: &PolicyOptions,
    is_default: bool,
) -> Result<(), CatalogError> {
    let policy = new_policy(name, options, StoreId::Database { number: *next_store })?;
    match database.policies.iter().find(|found| found.name == name) {
        Some(found) if is_same(found, &policy) && (database.default_policy == name) == is_default => Ok(()),
        Some(_) => Err(CatalogError::PolicyExists),
        None => {
            check_room(database.policies.len(), POLICY_COUNT_MAX, "retention policies")?;
            *next_store += 1;
            database.policies.push(policy);
            if is_default {
                name.clone_into(&mut database.default_policy);
            }
            Ok(())
        }
    }
}

/// Returns true if the policy has all options that CREATE DATABASE gives. The width of shard groups is
/// compared even if it is not given: the default follows from the duration of the policy.
fn has_options(policy: &RetentionPolicy, options: &PolicyOptions) -> bool {
    options.duration_ns.is_none_or(|duration_ns| duration_ns == policy.duration_ns)
        && options.replica_count.is_none_or(|count| count == policy.replica_count)
        && shard_group_ns(options.shard_group_ns.unwrap_or(0), policy.duration_ns) == policy.shard_group_ns
}

fn is_same(a: &RetentionPolicy, b: &RetentionPolicy) -> bool {
    (a.duration_ns, a.shard_group_ns, a.replica_count) == (b.duration_ns, b.shard_group_ns, b.replica_count)
}

fn new_policy(name: &str, options: &PolicyOptions, store: StoreId) -> Result<RetentionPolicy, CatalogError> {
    check_name(name)?;
    let duration_ns = options.duration_ns.unwrap_or(0);
    let shard_group_ns = shard_group_ns(options.shard_group_ns.unwrap_or(0), duration_ns);
    check_durations(duration_ns, shard_group_ns)?;
    let replica_count = options.replica_count.unwrap_or(1);
    Ok(RetentionPolicy {
        name: name.to_owned(),
        duration_ns,
        shard_group_ns,
        replica_count,
        store,
        bucket_id: None,
    })
}

/// Policy of the next store as a Graphite store.
pub(super) fn graphite_policy(next_store: &mut u64) -> RetentionPolicy {
    let store = StoreId::Graphite { number: *next_store };
    *next_store += 1;
    RetentionPolicy::of_graphite(store, None)
}

fn alter_policy(
    database: &mut Database,
    name: &str,
    options: &PolicyOptions,
    is_default: bool,
) -> Result<(), CatalogError> {
    let found = database.policies.iter_mut().find(|policy| policy.name == name);
    let policy = found.ok_or_else(|| CatalogError::PolicyNotFound(name.to_owned()))?;
    let duration_ns = options.duration_ns.unwrap_or(policy.duration_ns);
    let shard_ns = match options.shard_group_ns {
        Some(width_ns) => shard_group_ns(width_ns, duration_ns),
        None => policy.shard_group_ns,
    };
    check_durations(duration_ns, shard_ns)?;
    policy.duration_ns = duration_ns;
    policy.shard_group_ns = shard_ns;
    policy.replica_count = options.replica_count.unwrap_or(policy.replica_count);
    if is_default {
        name.clone_into(&mut database.default_policy);
    }
    Ok(())
}

fn check_durations(duration_ns: i64, shard_group_ns: i64) -> Result<(), CatalogError> {
    if duration_ns != 0 && duration_ns < DURATION_NS_MIN {
        return Err(CatalogError::DurationTooShort);
    }
    if duration_ns != 0 && duration_ns < shard_group_ns {
        return Err(CatalogError::IncompatibleDurations);
    }
    Ok(())
}

/// Width of shard groups: as given, at least an hour; by the duration of the policy if none is given.
fn shard_group_ns(given_ns: i64, duration_ns: i64) -> i64 {
    match given_ns {
        0 if duration_ns == 0 || duration_ns >= 180 * DAY_NS => 7 * DAY_NS,
        0 if duration_ns >= 2 * DAY_NS => DAY_NS,
        0 => HOUR_NS,
        given_ns => given_ns.max(DURATION_NS_MIN),
    }
}

fn create_continuous_query(database: &mut Database, name: &str, text: &str) -> Result<(), CatalogError> {
    if let Some(found) = database.continuous_queries.iter().find(|query| query.name == name) {
        let is_same = found.text.eq_ignore_ascii_case(text);
        return if is_same { Ok(()) } else { Err(CatalogError::ContinuousQueryExists) };
    }
    check_room(database.continuous_queries.len(), CONTINUOUS_QUERY_COUNT_MAX, "continuous queries")?;
    let query = ContinuousQuery { name: check_length(name)?, text: text.to_owned(), last_run_ns: None };
    database.continuous_queries.push(query);
    Ok(())
}

fn find_database<'a>(own: &'a mut TenantCatalog, name: &str) -> Result<&'a mut Database, CatalogError> {
    let found = own.databases.iter_mut().find(|database| database.name == name);
    found.ok_or_else(|| CatalogError::DatabaseNotFound(name.to_owned()))
}

fn find_user<'a>(own: &'a mut TenantCatalog, name: &str) -> Result<&'a mut User, CatalogError> {
    own.users.iter_mut().find(|user| user.name == name).ok_or(CatalogError::UserNotFound)
}

fn check_room(count: usize, limit: usize, what: &'static str) -> Result<(), CatalogError> {
    if count < limit { Ok(()) } else { Err(CatalogError::Full { what, limit }) }
}

fn check_length(name: &str) -> Result<String, CatalogError> {
    if name.len() <= NAME_BYTES_MAX { Ok(name.to_owned()) } else { Err(CatalogError::InvalidName) }
}

/// Checks a name of a database or policy, which is the name of a directory in InfluxDB.
fn check_name(name: &str) -> Result<(), CatalogError> {
    let is_legal = |c: char| !c.is_control() && c != '/' && c != '\\';
    if matches!(name, "" | "." | "..") || !name.chars().all(is_legal) {
        return Err(CatalogError::InvalidName);
    }
    if name.len() > STORE_NAME_BYTES_MAX { Err(CatalogError::NameTooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
