//! Execution of statements: privileges, defaults, then the statement itself.
//!
//! Invariants: error texts equal InfluxDB 1.8's; a statement that fails has changed nothing, deletions over
//! several stores aside.
//! Not here: responses (`server`), the plan of SELECT (`lower`).

mod cardinality;
mod catalog;
mod cells;
mod condition;
pub mod continuous;
mod delete;
mod explain;
mod into;
mod metadata;
mod schema;
mod select;
mod session;
mod status;
mod typed_schema;

use chronolith_model::databases::User;

use crate::ast::Statement;
use crate::result::ResultSink;
pub use session::{Access, SelectLimits, Session, StatementError};

impl Session<'_> {
    /// Runs a statement and gives its rows to `sink`.
    ///
    /// # Errors
    /// [`StatementError`]; rows may have been given before.
    pub fn execute(&self, statement: &Statement, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
        use Statement as S;
        let mut statement = statement.clone();
        let catalog = self.storage.catalog();
        let default_policy = |database: &str| {
            let found = catalog.database(database).map(|database| database.default_policy.clone());
            match self.policy.is_empty() || database != self.database {
                true => found.unwrap_or_default(),
                false => self.policy.to_owned(),
            }
        };
        statement.fill_defaults(self.database, &default_policy);
        match &statement {
            S::ShowMeasurements(_)
            | S::ShowSeries(_)
            | S::ShowTagKeys(_)
            | S::ShowTagValues(_)
            | S::ShowFieldKeys(_) => metadata::show_schema(self, &statement, sink),
            S::Select(select) => select::select(self, select, sink),
            S::Explain { select, is_analyzed } => explain::explain(self, select, *is_analyzed, sink),
            S::ShowCardinality(cardinality) => cardinality::show_cardinality(self, cardinality, sink),
            S::Delete { sources, condition } => delete::delete(self, sources, condition.as_ref()),
            S::DropSeries { sources, condition } => delete::drop_series(self, sources, condition.as_ref()),
            S::DropMeasurement(name) => delete::drop_measurement(self, name),
            S::ShowQueries
            | S::KillQuery { .. }
            | S::ShowStats(_)
            | S::ShowDiagnostics(_)
            | S::ShowShards
            | S::ShowShardGroups => status::status(self, &statement, sink),
            statement => catalog::execute_on_catalog(self, &catalog, statement, sink),
        }
    }
}

/// Checks that the caller may run all statements of a request; `database` is the default one.
///
/// # Errors
/// The text for the client.
pub fn authorize(access: Access<'_>, statements: &[Statement], database: &str) -> Result<(), String> {
    let user = match access {
        Access::Anyone => return Ok(()),
        Access::BeforeFirstAdmin => {
            let creates_admin = matches!(statements, [Statement::CreateUser(create)] if create.is_admin);
            let why = "create admin user first or disable authentication";
            return if creates_admin { Ok(()) } else { Err(why.to_owned()) };
        }
        Access::User(user) => user,
    };
    for statement in statements.iter().filter(|_| !user.is_admin) {
        for needed in statement.required_privileges() {
            if needed.is_admin {
                let name = &user.name;
                return Err(format!(
                    "{name} not authorized to execute statement '{statement}', requires admin privilege"
                ));
            }
            let own = if needed.database.is_empty() { database } else { &needed.database };
            if !has_privilege(user, needed.privilege, own) {
                let name = &user.name;
                let privilege = needed.privilege.text();
                return Err(format!(
                    "{name} not authorized to execute statement '{statement}', requires {privilege} on {own}"
                ));
            }
        }
    }
    Ok(())
}

fn has_privilege(user: &User, needed: crate::ast::Privilege, database: &str) -> bool {
    use chronolith_model::databases::Privilege as Stored;
    match needed {
        crate::ast::Privilege::None => true,
        crate::ast::Privilege::Read => user.may(Stored::Read, database),
        crate::ast::Privilege::Write => user.may(Stored::Write, database),
        crate::ast::Privilege::All => user.may(Stored::All, database),
    }
}
