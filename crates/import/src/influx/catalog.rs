//! Changes of the catalogue that bring the databases of an InfluxDB in.
//!
//! Invariants: what the catalogue has stays as it is; differences are notes. Passwords are not taken: hashes
//! of bcrypt cannot be verified here, so an imported user has no password that is right.
//! Not here: applying the changes (the caller).

use chronolith_model::databases::{CatalogChange, PolicyOptions, Privilege, TenantCatalog};

use super::meta::{Meta, MetaDatabase, MetaPolicy, MetaUser};
use super::paths::INTERNAL_DATABASE;

/// Returns a name in double quotes for messages.
fn quoted(name: &str) -> String {
    format!("{name:?}")
}

/// Hash that no password has.
const NO_PASSWORD: &str = "";

impl Meta {
    /// Returns the changes that bring `current` the databases, policies, continuous queries and users that it
    /// lacks, in order, and notes on the parts that are not imported.
    #[must_use]
    pub fn changes(&self, current: &TenantCatalog) -> (Vec<CatalogChange>, Vec<String>) {
        let mut changes = Vec::new();
        let mut notes = Vec::new();
        for database in self.databases.iter().filter(|database| database.name != INTERNAL_DATABASE) {
            add_policies(database, current, &mut changes, &mut notes);
            add_continuous_queries(database, current, &mut changes, &mut notes);
        }
        let mut added = Vec::new();
        for user in self.users.iter().filter(|user| current.user(&user.name).is_none()) {
            add_user(user, self, &mut changes);
            added.push(quoted(&user.name));
        }
        if !added.is_empty() {
            let note = format!(
                "users without their passwords, whose bcrypt hashes cannot be taken: {}; set each with SET \
                 PASSWORD FOR \"user\" = '...' while authentication is off",
                added.join(", ")
            );
            notes.push(note);
        }
        (changes, notes)
    }
}

fn options_of(policy: &MetaPolicy) -> PolicyOptions {
    PolicyOptions {
        duration_ns: Some(policy.duration_ns),
        shard_group_ns: Some(policy.shard_group_ns),
        replica_count: Some(policy.replica_count),
    }
}

fn add_policies(
    database: &MetaDatabase,
    current: &TenantCatalog,
    changes: &mut Vec<CatalogChange>,
    notes: &mut Vec<String>,
) {
    let name = &database.name;
    let found = current.database(name);
    let mut missing: Vec<&MetaPolicy> = database.policies.iter().collect();
    if found.is_none() {
        let default = missing.iter().position(|policy| policy.name == database.default_policy);
        let first = default.or(if missing.is_empty() { None } else { Some(0) });
        let policy = first.map(|idx| missing.remove(idx));
        let policy = policy.map(|policy| (policy.name.clone(), options_of(policy)));
        changes.push(CatalogChange::CreateDatabase { name: name.clone(), policy });
    }
    for policy in missing {
        match found.and_then(|found| found.policies.iter().find(|own| own.name == policy.name)) {
            Some(own) if own.duration_ns != policy.duration_ns => {
                let database = quoted(name);
                let policy = quoted(&policy.name);
                notes
                    .push(format!("policy {policy} of {database} exists with another duration, which stays"));
            }
            Some(_) => {}
            None => changes.push(CatalogChange::CreatePolicy {
                database: name.clone(),
                name: policy.name.clone(),
                options: options_of(policy),
                is_default: false,
            }),
        }
    }
}

fn add_continuous_queries(
    database: &MetaDatabase,
    current: &TenantCatalog,
    changes: &mut Vec<CatalogChange>,
    notes: &mut Vec<String>,
) {
    let own = current.database(&database.name).map_or(&[][..], |database| &database.continuous_queries);
    for (name, text) in &database.continuous_queries {
        match own.iter().find(|query| query.name == *name) {
            Some(found) if !found.text.eq_ignore_ascii_case(text) => {
                let database = quoted(&database.name);
                let name = quoted(name);
                let note =
                    format!("continuous query {name} of {database} exists with another text, which stays");
                notes.push(note);
            }
            Some(_) => {}
            None => changes.push(CatalogChange::CreateContinuousQuery {
                database: database.name.clone(),
                name: name.clone(),
                text: text.clone(),
            }),
        }
    }
}

fn add_user(user: &MetaUser, meta: &Meta, changes: &mut Vec<CatalogChange>) {
    changes.push(CatalogChange::CreateUser {
        name: user.name.clone(),
        password_hash: NO_PASSWORD.to_owned(),
        is_admin: user.is_admin,
    });
    for (database, privilege) in &user.privileges {
        let privilege = match privilege {
            1 => Privilege::Read,
            2 => Privilege::Write,
            3 => Privilege::All,
            _ => continue,
        };
        // InfluxDB keeps privileges on databases that are gone.
        if *database != INTERNAL_DATABASE && meta.databases.iter().any(|known| known.name == *database) {
            changes.push(CatalogChange::SetPrivilege {
                user: user.name.clone(),
                database: database.clone(),
                privilege: Some(privilege),
            });
        }
    }
}

#[cfg(test)]
mod tests;
