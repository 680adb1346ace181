//! Databases of a running server: policies, continuous queries, measurements.

use anyhow::Context as _;

use super::report::Findings;
use super::server::{InfluxServer, PolicyName};
use super::statement::{PolicyDefinition, create_database, quoted};
use super::time::parse_duration;

/// Database in which InfluxDB stores its own metrics.
const INTERNAL: &str = "_internal";

/// A database of the source, as its statements describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceDatabase {
    pub(super) name: String,
    pub(super) default_policy: String,
    pub(super) policies: Vec<PolicyDefinition>,
    /// Statements that create its continuous queries.
    pub(super) continuous_queries: Vec<String>,
}

/// Databases that are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct DatabaseSelection {
    /// Names of the databases; empty for all.
    pub(crate) names: Vec<String>,
    /// Set if `_internal` is wanted although nothing names it.
    pub(crate) with_internal: bool,
}

impl DatabaseSelection {
    fn selects(&self, name: &str) -> bool {
        match self.names.is_empty() {
            true => name != INTERNAL || self.with_internal,
            false => self.names.iter().any(|one| one == name),
        }
    }
}

/// Reads the databases of a server.
pub(crate) fn read_databases(
    server: &InfluxServer,
    selection: &DatabaseSelection,
) -> anyhow::Result<Vec<SourceDatabase>> {
    let rows = server.table("SHOW DATABASES")?;
    let queries = server.table("SHOW CONTINUOUS QUERIES")?;
    let mut databases = Vec::new();
    for name in rows.iter().map(|row| row.get("name")).filter(|name| selection.selects(name)) {
        let policies = server.table(&format!("SHOW RETENTION POLICIES ON {}", quoted(name)))?;
        let default = policies.iter().find(|row| row.get("default") == "true");
        let definitions = policies.iter().map(|row| {
            anyhow::Ok(PolicyDefinition {
                name: row.get("name").to_owned(),
                duration_ns: parse_duration(row.get("duration"))?,
                shard_group_ns: parse_duration(row.get("shardGroupDuration"))?,
                replica_count: row.get("replicaN").parse().unwrap_or(1),
            })
        });
        let of_database = queries.iter().filter(|row| row.series == name);
        databases.push(SourceDatabase {
            name: name.to_owned(),
            default_policy: default.map_or("", |row| row.get("name")).to_owned(),
            policies: definitions
                .collect::<anyhow::Result<_>>()
                .with_context(|| format!("database {name:?}"))?,
            continuous_queries: of_database.map(|row| row.get("query").to_owned()).collect(),
        });
    }
    for name in &selection.names {
        let is_found = databases.iter().any(|database| database.name == *name);
        anyhow::ensure!(is_found, "database not found at {}: {name:?}", server.url());
    }
    Ok(databases)
}

/// Creates databases and policies at a server.
pub(crate) fn create_databases(server: &InfluxServer, databases: &[SourceDatabase], refused: &mut Findings) {
    for database in databases {
        let SourceDatabase { name, default_policy, policies, .. } = database;
        run_all(server, &create_database(name, default_policy, policies), refused);
    }
}

/// Creates the continuous queries of databases at a server.
pub(crate) fn create_queries(server: &InfluxServer, databases: &[SourceDatabase], refused: &mut Findings) {
    databases.iter().for_each(|database| run_all(server, &database.continuous_queries, refused));
}

fn run_all(server: &InfluxServer, statements: &[String], refused: &mut Findings) {
    for statement in statements {
        if let Err(error) = server.run(statement) {
            refused.add(1, || format!("{statement}: {error:#}"));
        }
    }
}

/// Returns the measurements of a database.
pub(crate) fn measurements(server: &InfluxServer, database: &str) -> anyhow::Result<Vec<String>> {
    let rows = server.table(&format!("SHOW MEASUREMENTS ON {}", quoted(database)))?;
    Ok(rows.iter().map(|row| row.get("name").to_owned()).collect())
}

/// Returns the policies of databases, with their durations.
pub(crate) fn policies(databases: &[SourceDatabase]) -> impl Iterator<Item = (PolicyName, i64)> {
    databases.iter().flat_map(|database| {
        database.policies.iter().map(|policy| {
            let name = PolicyName { database: database.name.clone(), policy: policy.name.clone() };
            (name, policy.duration_ns)
        })
    })
}
