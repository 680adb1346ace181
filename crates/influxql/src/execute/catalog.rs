//! Statements on the catalogue: databases, retention policies, users, grants, continuous queries,
//! subscriptions.

use chronolith_model::databases::{
    CatalogChange, DAY_NS, PolicyOptions as StoredOptions, Privilege as StoredPrivilege, RetentionPolicy,
    TenantCatalog,
};

use super::session::{Access, Session, StatementError};
use crate::ast::format_duration_go;
use crate::ast::{
    AlterRetentionPolicy, CreateContinuousQuery, CreateDatabase, CreateRetentionPolicy, Grant, PolicyOptions,
    Privilege, Statement,
};
use crate::result::{Cell, ResultSink, SeriesHeader};

pub(super) fn execute_on_catalog(
    session: &Session<'_>,
    catalog: &TenantCatalog,
    statement: &Statement,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    use Statement as S;
    match statement {
        S::ShowDatabases => show_databases(session, catalog, sink),
        S::ShowRetentionPolicies(database) => show_policies(session, catalog, database, sink),
        S::ShowUsers => show_users(catalog, sink),
        S::ShowGrants(user) => show_grants(catalog, user, sink),
        S::ShowContinuousQueries => show_continuous_queries(catalog, sink),
        // There are none: senders write to both servers.
        S::ShowSubscriptions => Ok(()),
        S::CreateSubscription(_) => {
            Err(StatementError::text("subscriptions are not supported; send to both with Telegraf"))
        }
        S::DropSubscription { .. } => Err(StatementError::text("subscription not found")),
        S::DropShard(_) => {
            Err(StatementError::text("DROP SHARD is not supported; use DELETE or a retention policy"))
        }
        statement => change(session, catalog, statement),
    }
}

/// Applies a statement that changes the catalogue.
fn change(
    session: &Session<'_>,
    catalog: &TenantCatalog,
    statement: &Statement,
) -> Result<(), StatementError> {
    use Statement as S;
    let change = match statement {
        S::CreateDatabase(create) => create_database(create),
        S::DropDatabase(name) => CatalogChange::DropDatabase { name: name.clone() },
        S::CreateRetentionPolicy(create) => create_policy(create),
        S::AlterRetentionPolicy(alter) => alter_policy(alter),
        S::DropRetentionPolicy { name, database } => {
            CatalogChange::DropPolicy { database: database.clone(), name: name.clone() }
        }
        S::CreateUser(create) => CatalogChange::CreateUser {
            name: create.name.clone(),
            password_hash: session.storage.hash_password(&create.password),
            is_admin: create.is_admin,
        },
        S::DropUser(name) => CatalogChange::DropUser { name: name.clone() },
        S::SetPassword { user, password } => CatalogChange::SetPassword {
            name: user.clone(),
            password_hash: session.storage.hash_password(password),
        },
        S::Grant(grant) => {
            let privilege = stored(grant.privilege);
            CatalogChange::SetPrivilege {
                user: grant.user.clone(),
                database: grant.database.clone(),
                privilege,
            }
        }
        S::Revoke(grant) => revoke(catalog, grant)?,
        S::GrantAdmin(user) => CatalogChange::SetAdmin { user: user.clone(), is_admin: true },
        S::RevokeAdmin(user) => CatalogChange::SetAdmin { user: user.clone(), is_admin: false },
        S::CreateContinuousQuery(create) => {
            check_target(catalog, create)?;
            CatalogChange::CreateContinuousQuery {
                database: create.database.clone(),
                name: create.name.clone(),
                text: statement.to_string(),
            }
        }
        S::DropContinuousQuery { name, database } => {
            CatalogChange::DropContinuousQuery { database: database.clone(), name: name.clone() }
        }
        statement => return Err(StatementError::Text(format!("invalid statement: {statement}"))),
    };
    session.storage.change(&change).map_err(StatementError::text)
}

/// Refuses a continuous query that writes to a policy that does not exist.
fn check_target(catalog: &TenantCatalog, create: &CreateContinuousQuery) -> Result<(), StatementError> {
    let Some(target) = create.select.target.as_ref().filter(|target| !target.policy.is_empty()) else {
        return Ok(());
    };
    let name = if target.database.is_empty() { &create.database } else { &target.database };
    match catalog.database(name) {
        Some(database) if database.policy(&target.policy).is_none() => {
            Err(StatementError::Text(format!("retention policy not found: {name}.{}", target.policy)))
        }
        _ => Ok(()),
    }
}

fn show_databases(
    session: &Session<'_>,
    catalog: &TenantCatalog,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let is_visible = |name: &str| match session.access {
        Access::Anyone | Access::BeforeFirstAdmin => true,
        Access::User(user) => user.may(StoredPrivilege::Read, name) || user.may(StoredPrivilege::Write, name),
    };
    let read_only = session.storage.read_only().map(|(name, _)| name);
    let read_only = read_only.filter(|name| catalog.database(name).is_none());
    sink.series(&SeriesHeader::new("databases", &["name"]))?;
    let names = catalog.databases.iter().map(|database| &database.name).chain(&read_only);
    for name in names.filter(|name| is_visible(name)) {
        sink.row(&[Cell::text(name)])?;
    }
    Ok(())
}

fn show_policies(
    session: &Session<'_>,
    catalog: &TenantCatalog,
    database: &str,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    if database.is_empty() {
        return Err(StatementError::text("database name required"));
    }
    let columns = ["name", "duration", "shardGroupDuration", "replicaN", "default"];
    let header = SeriesHeader::new("", &columns);
    let Some(database) = catalog.database(database) else {
        return match session.storage.read_only() {
            Some((own, _)) if own == database => {
                sink.series(&header)?;
                let policy = RetentionPolicy {
                    name: chronolith_model::databases::AUTOGEN.to_owned(),
                    duration_ns: 0,
                    shard_group_ns: 7 * DAY_NS,
                    replica_count: 1,
                    store: chronolith_model::StoreId::anonymous(),
                    bucket_id: None,
                };
                Ok(policy_row(&policy, true, sink)?)
            }
            _ => Err(StatementError::Text(format!("database not found: {database}"))),
        };
    };
    sink.series(&header)?;
    for policy in &database.policies {
        policy_row(policy, policy.name == database.default_policy, sink)?;
    }
    Ok(())
}

fn policy_row(
    policy: &RetentionPolicy,
    is_default: bool,
    sink: &mut dyn ResultSink,
) -> Result<(), crate::result::SinkClosed> {
    sink.row(&[
        Cell::text(&policy.name),
        Cell::text(&format_duration_go(policy.duration_ns)),
        Cell::text(&format_duration_go(policy.shard_group_ns)),
        Cell::Integer(i64::from(policy.replica_count)),
        Cell::Boolean(is_default),
    ])
}

fn show_users(catalog: &TenantCatalog, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    sink.series(&SeriesHeader::new("", &["user", "admin"]))?;
    for user in &catalog.users {
        sink.row(&[Cell::text(&user.name), Cell::Boolean(user.is_admin)])?;
    }
    Ok(())
}

fn show_grants(catalog: &TenantCatalog, name: &str, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    let user = catalog.user(name).ok_or_else(|| StatementError::text("user not found"))?;
    sink.series(&SeriesHeader::new("", &["database", "privilege"]))?;
    for (database, privilege) in &user.privileges {
        sink.row(&[Cell::text(database), Cell::text(privilege.text())])?;
    }
    Ok(())
}

fn show_continuous_queries(catalog: &TenantCatalog, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    for database in &catalog.databases {
        sink.series(&SeriesHeader::new(&database.name, &["name", "query"]))?;
        for query in &database.continuous_queries {
            sink.row(&[Cell::text(&query.name), Cell::text(&query.text)])?;
        }
    }
    Ok(())
}

fn options(options: &PolicyOptions) -> StoredOptions {
    StoredOptions {
        duration_ns: options.duration_ns,
        shard_group_ns: options.shard_duration_ns,
        replica_count: options.replication,
    }
}

fn create_database(create: &CreateDatabase) -> CatalogChange {
    let policy = create.policy.as_ref().map(|own| (own.name.clone().unwrap_or_default(), options(own)));
    CatalogChange::CreateDatabase { name: create.name.clone(), policy }
}

fn create_policy(create: &CreateRetentionPolicy) -> CatalogChange {
    CatalogChange::CreatePolicy {
        database: create.database.clone(),
        name: create.name.clone(),
        options: StoredOptions {
            duration_ns: Some(create.duration_ns),
            shard_group_ns: Some(create.shard_duration_ns),
            replica_count: Some(create.replication),
        },
        is_default: create.is_default,
    }
}

fn alter_policy(alter: &AlterRetentionPolicy) -> CatalogChange {
    CatalogChange::AlterPolicy {
        database: alter.database.clone(),
        name: alter.name.clone(),
        options: options(&alter.options),
        is_default: alter.is_default,
    }
}

fn stored(privilege: Privilege) -> Option<StoredPrivilege> {
    match privilege {
        Privilege::None => None,
        Privilege::Read => Some(StoredPrivilege::Read),
        Privilege::Write => Some(StoredPrivilege::Write),
        Privilege::All => Some(StoredPrivilege::All),
    }
}

/// Takes a privilege away: of ALL, the other one stays.
fn revoke(catalog: &TenantCatalog, grant: &Grant) -> Result<CatalogChange, StatementError> {
    let user = catalog.user(&grant.user).ok_or_else(|| StatementError::text("user not found"))?;
    let own = user.privileges.get(&grant.database).copied();
    let left = match (own, stored(grant.privilege)) {
        (own, None) => own,
        (Some(StoredPrivilege::All), Some(StoredPrivilege::Read)) => Some(StoredPrivilege::Write),
        (Some(StoredPrivilege::All), Some(StoredPrivilege::Write)) => Some(StoredPrivilege::Read),
        (Some(own), Some(taken)) if taken.includes(own) => None,
        (own, Some(_)) => own,
    };
    Ok(CatalogChange::SetPrivilege {
        user: grant.user.clone(),
        database: grant.database.clone(),
        privilege: left,
    })
}
