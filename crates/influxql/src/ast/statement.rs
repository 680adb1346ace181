//! Statements.
//!
//! Not here: their parts (`select`, `show`, `schema`), printing (`print`), privileges (`privilege`).

use std::fmt;

use super::expr::Expr;
use super::schema::{
    AlterRetentionPolicy, CreateContinuousQuery, CreateDatabase, CreateRetentionPolicy, CreateSubscription,
    CreateUser, Grant,
};
use super::select::Select;
use super::select::Source;
use super::show::{Cardinality, ShowSeries, ShowTagValues};

/// One statement.
#[derive(Clone, PartialEq)]
pub enum Statement {
    /// SELECT.
    Select(Box<Select>),
    /// EXPLAIN; `is_analyzed` with ANALYZE.
    Explain {
        /// Query.
        select: Box<Select>,
        /// Returns true if the query is run.
        is_analyzed: bool,
    },
    /// DELETE.
    Delete {
        /// FROM; empty: all measurements.
        sources: Vec<Source>,
        /// Expression of WHERE.
        condition: Option<Expr>,
    },
    /// DROP SERIES.
    DropSeries {
        /// FROM; empty: all measurements.
        sources: Vec<Source>,
        /// Expression of WHERE.
        condition: Option<Expr>,
    },
    /// DROP MEASUREMENT.
    DropMeasurement(String),
    /// DROP SHARD.
    DropShard(u64),
    /// CREATE DATABASE.
    CreateDatabase(CreateDatabase),
    /// DROP DATABASE.
    DropDatabase(String),
    /// CREATE RETENTION POLICY.
    CreateRetentionPolicy(CreateRetentionPolicy),
    /// ALTER RETENTION POLICY.
    AlterRetentionPolicy(AlterRetentionPolicy),
    /// DROP RETENTION POLICY.
    DropRetentionPolicy {
        /// Retention policy.
        name: String,
        /// Database.
        database: String,
    },
    /// CREATE USER.
    CreateUser(CreateUser),
    /// DROP USER.
    DropUser(String),
    /// SET PASSWORD.
    SetPassword {
        /// User.
        user: String,
        /// Never printed.
        password: String,
    },
    /// GRANT on a database.
    Grant(Grant),
    /// GRANT ALL PRIVILEGES TO.
    GrantAdmin(String),
    /// REVOKE on a database.
    Revoke(Grant),
    /// REVOKE ALL PRIVILEGES FROM.
    RevokeAdmin(String),
    /// CREATE CONTINUOUS QUERY.
    CreateContinuousQuery(Box<CreateContinuousQuery>),
    /// DROP CONTINUOUS QUERY.
    DropContinuousQuery {
        /// Continuous query.
        name: String,
        /// Database.
        database: String,
    },
    /// CREATE SUBSCRIPTION.
    CreateSubscription(CreateSubscription),
    /// DROP SUBSCRIPTION.
    DropSubscription {
        /// Subscription.
        name: String,
        /// Database.
        database: String,
        /// Retention policy.
        policy: String,
    },
    /// KILL QUERY.
    KillQuery {
        /// Number of SHOW QUERIES.
        id: u64,
        /// ON; empty: this server.
        host: String,
    },
    /// SHOW DATABASES.
    ShowDatabases,
    /// SHOW RETENTION POLICIES; an empty database is the default one.
    ShowRetentionPolicies(String),
    /// SHOW MEASUREMENTS; `sources` has at most one, of WITH MEASUREMENT.
    ShowMeasurements(ShowSeries),
    /// SHOW SERIES.
    ShowSeries(ShowSeries),
    /// SHOW TAG KEYS.
    ShowTagKeys(ShowSeries),
    /// SHOW TAG VALUES.
    ShowTagValues(ShowTagValues),
    /// SHOW FIELD KEYS; without a condition.
    ShowFieldKeys(ShowSeries),
    /// SHOW ... CARDINALITY.
    ShowCardinality(Cardinality),
    /// SHOW SHARDS.
    ShowShards,
    /// SHOW SHARD GROUPS.
    ShowShardGroups,
    /// SHOW STATS; empty: all modules.
    ShowStats(String),
    /// SHOW DIAGNOSTICS; empty: all modules.
    ShowDiagnostics(String),
    /// SHOW QUERIES.
    ShowQueries,
    /// SHOW USERS.
    ShowUsers,
    /// SHOW GRANTS FOR a user.
    ShowGrants(String),
    /// SHOW CONTINUOUS QUERIES.
    ShowContinuousQueries,
    /// SHOW SUBSCRIPTIONS.
    ShowSubscriptions,
}

/// Passwords stay out of logs: the printed form has none.
impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Select(select) => select.fmt(f),
            statement => write!(f, "`{statement}`"),
        }
    }
}

/// Kind of permission that a statement needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Reads series, or names of databases and retention policies.
    Reads,
    /// Stores points.
    Writes,
    /// Deletes points or series.
    Deletes,
    /// Changes databases, users or queries, or shows the state of the server.
    Administers,
}

impl Statement {
    /// Kind of permission that the statement needs.
    #[must_use]
    pub fn need(&self) -> Need {
        use Statement as S;
        match self {
            S::Select(select) | S::Explain { select, .. } if select.target.is_some() => Need::Writes,
            S::Select(_)
            | S::Explain { .. }
            | S::ShowDatabases
            | S::ShowRetentionPolicies(_)
            | S::ShowMeasurements(_)
            | S::ShowSeries(_)
            | S::ShowTagKeys(_)
            | S::ShowTagValues(_)
            | S::ShowFieldKeys(_)
            | S::ShowCardinality(_) => Need::Reads,
            S::Delete { .. } | S::DropSeries { .. } | S::DropMeasurement(_) => Need::Deletes,
            _ => Need::Administers,
        }
    }

    /// Returns true if the statement changes something. A GET request with one is answered, with a message
    /// that POST is to be used.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        use Statement as S;
        match self {
            S::Explain { .. } => false,
            S::ShowShards
            | S::ShowShardGroups
            | S::ShowStats(_)
            | S::ShowDiagnostics(_)
            | S::ShowQueries
            | S::ShowUsers
            | S::ShowGrants(_)
            | S::ShowContinuousQueries
            | S::ShowSubscriptions => false,
            _ => self.need() != Need::Reads,
        }
    }

    /// Returns true if the statement reads and changes names of databases, retention policies and continuous
    /// queries alone, and no samples.
    #[must_use]
    pub fn is_on_catalog(&self) -> bool {
        use Statement as S;
        matches!(
            self,
            S::CreateDatabase(_)
                | S::DropDatabase(_)
                | S::CreateRetentionPolicy(_)
                | S::AlterRetentionPolicy(_)
                | S::DropRetentionPolicy { .. }
                | S::CreateContinuousQuery(_)
                | S::DropContinuousQuery { .. }
                | S::ShowDatabases
                | S::ShowRetentionPolicies(_)
                | S::ShowContinuousQueries
        )
    }

    /// Database that the statement names for itself, without databases of sources; `None` if it has no place
    /// for one, empty if the client's default is meant.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        use Statement as S;
        match self {
            S::ShowRetentionPolicies(database) => Some(database),
            S::ShowMeasurements(show)
            | S::ShowSeries(show)
            | S::ShowTagKeys(show)
            | S::ShowFieldKeys(show) => Some(&show.database),
            S::ShowTagValues(show) => Some(&show.clauses.database),
            S::ShowCardinality(show) => Some(&show.database),
            _ => None,
        }
    }

    /// Sets `database` where the statement leaves it open, and empty retention policies of sources and
    /// targets to `policy_of` their database.
    pub fn fill_defaults(&mut self, database: &str, policy_of: &dyn Fn(&str) -> String) {
        use Statement as S;
        let set = |own: &mut String| {
            if own.is_empty() {
                database.clone_into(own);
            }
        };
        match self {
            S::Select(select) | S::Explain { select, .. } => select.fill_defaults(database, policy_of),
            S::CreateContinuousQuery(create) => create.select.fill_defaults(&create.database, policy_of),
            S::ShowRetentionPolicies(own) => set(own),
            S::ShowMeasurements(show)
            | S::ShowSeries(show)
            | S::ShowTagKeys(show)
            | S::ShowFieldKeys(show) => {
                set(&mut show.database);
            }
            S::ShowTagValues(show) => set(&mut show.clauses.database),
            S::ShowCardinality(show) => set(&mut show.database),
            _ => {}
        }
    }
}
