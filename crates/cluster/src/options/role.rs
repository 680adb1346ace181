//! Roles of a process: the work that it does for a cluster.
//!
//! Invariant: a list of roles is not empty, has each once, and `all` alone.

use std::str::FromStr;

/// Work of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything, as a server of its own.
    All,
    /// Takes writes and appends them to the log.
    Gateway,
    /// Reads a partition of the log into a store.
    Owner,
    /// Answers queries over owners and the bucket.
    Query,
    /// Maintains the bucket.
    Store,
}

impl Role {
    const NAMES: [(&'static str, Role); 5] = [
        ("all", Role::All),
        ("gateway", Role::Gateway),
        ("owner", Role::Owner),
        ("query", Role::Query),
        ("store", Role::Store),
    ];

    /// Returns the name of the role in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        Role::NAMES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }
}

/// Roles of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(Vec<Role>);

impl Default for Roles {
    fn default() -> Roles {
        Roles(vec![Role::All])
    }
}

impl Roles {
    /// Returns true if the process is a server of its own.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0 == [Role::All]
    }

    /// Returns true if the process has the role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// Roles in the order of the setting.
    #[must_use]
    pub fn list(&self) -> &[Role] {
        &self.0
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Roles, String> {
        let mut roles = Vec::new();
        for name in text.split(',').map(str::trim) {
            let found = Role::NAMES.iter().find(|(known, _)| *known == name);
            let Some((_, role)) = found else {
                return Err(format!(
                    "unknown role {name:?}, expected all, or a list of gateway, owner, query and store"
                ));
            };
            if roles.contains(role) {
                return Err(format!("role {name} is given twice"));
            }
            roles.push(*role);
        }
        if roles.len() > 1 && roles.contains(&Role::All) {
            return Err(
                "all excludes other roles, expected all, or a list of gateway, owner, query and store"
                    .to_owned(),
            );
        }
        Ok(Roles(roles))
    }
}
