//! Privileges that a statement needs.
//!
//! Not here: users and their grants.

use super::privilege::Privilege;
use super::select::{Measurement, Select, Source};
use super::statement::Statement;

/// One privilege that a user needs to execute a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionPrivilege {
    /// Returns true if only an administrator may execute it.
    pub is_admin: bool,
    /// Empty: the default one.
    pub database: String,
    /// Privilege on the database.
    pub privilege: Privilege,
}

impl ExecutionPrivilege {
    fn admin() -> Vec<ExecutionPrivilege> {
        vec![ExecutionPrivilege { is_admin: true, database: String::new(), privilege: Privilege::All }]
    }

    fn on(database: &str, privilege: Privilege) -> ExecutionPrivilege {
        ExecutionPrivilege { is_admin: false, database: database.to_owned(), privilege }
    }
}

impl Select {
    /// Privileges: READ per source, WRITE on the target.
    #[must_use]
    pub fn required_privileges(&self) -> Vec<ExecutionPrivilege> {
        let mut needed = Vec::new();
        for source in &self.sources {
            match source {
                Source::Measurement(measurement) => needed.push(read_of(measurement)),
                Source::Select(select) => needed.extend(select.required_privileges()),
            }
        }
        if let Some(target) = &self.target {
            needed.push(ExecutionPrivilege::on(&target.database, Privilege::Write));
        }
        needed
    }
}

fn read_of(measurement: &Measurement) -> ExecutionPrivilege {
    ExecutionPrivilege::on(&measurement.database, Privilege::Read)
}

impl Statement {
    /// Privileges that a user needs to execute the statement; all of them.
    #[must_use]
    pub fn required_privileges(&self) -> Vec<ExecutionPrivilege> {
        use Statement as S;
        let on = |database: &str, privilege| vec![ExecutionPrivilege::on(database, privilege)];
        match self {
            S::Select(select) | S::Explain { select, .. } => select.required_privileges(),
            S::Delete { .. } | S::DropSeries { .. } => on("", Privilege::Write),
            S::DropRetentionPolicy { database, .. } | S::DropContinuousQuery { database, .. } => {
                on(database, Privilege::Write)
            }
            S::CreateContinuousQuery(create) => {
                let mut needed = on(&create.database, Privilege::Read);
                if let Some(target) = &create.select.target
                    && !target.database.is_empty()
                {
                    needed.push(ExecutionPrivilege::on(&target.database, Privilege::Write));
                }
                needed
            }
            S::ShowDatabases => on("", Privilege::None),
            S::ShowRetentionPolicies(database) => on(database, Privilege::Read),
            S::ShowMeasurements(show)
            | S::ShowSeries(show)
            | S::ShowTagKeys(show)
            | S::ShowFieldKeys(show) => on(&show.database, Privilege::Read),
            S::ShowTagValues(show) => on(&show.clauses.database, Privilege::Read),
            S::ShowCardinality(show) => on(&show.database, Privilege::Read),
            S::ShowQueries | S::ShowContinuousQueries => on("", Privilege::Read),
            _ => ExecutionPrivilege::admin(),
        }
    }
}
