//! Sources of FROM and targets of INTO.
//!
//! Invariants: an empty database or retention policy means the default one.
//! Not here: printing (`print`).

use super::regex::Regex;
use super::select::Select;

/// One source of FROM.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Measurement, or those whose name matches.
    Measurement(Measurement),
    /// Subquery.
    Select(Box<Select>),
}

/// Measurements of a database and retention policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Measurement {
    /// Empty: the default one.
    pub database: String,
    /// Empty: the default one.
    pub policy: String,
    /// Name or pattern.
    pub name: MeasurementName,
}

/// Name of measurements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MeasurementName {
    /// One measurement.
    Name(String),
    /// All whose name matches.
    Regex(Regex),
}

impl Measurement {
    /// Measurement `name` of the default database and retention policy.
    #[must_use]
    pub fn named(name: &str) -> Measurement {
        let name = MeasurementName::Name(name.to_owned());
        Measurement { database: String::new(), policy: String::new(), name }
    }
}

impl Source {
    /// Calls `visit` for every measurement, those of subqueries included, in order of the text.
    pub fn for_each_measurement<'a>(&'a self, visit: &mut impl FnMut(&'a Measurement)) {
        match self {
            Source::Measurement(measurement) => visit(measurement),
            Source::Select(select) => {
                select.sources.iter().for_each(|source| source.for_each_measurement(visit))
            }
        }
    }

    /// Sets empty databases to `database`, and empty retention policies to `policy_of` their database, in
    /// subqueries too.
    pub fn fill_defaults(&mut self, database: &str, policy_of: &dyn Fn(&str) -> String) {
        match self {
            Source::Measurement(measurement) => {
                if measurement.database.is_empty() {
                    database.clone_into(&mut measurement.database);
                }
                if measurement.policy.is_empty() {
                    measurement.policy = policy_of(&measurement.database);
                }
            }
            Source::Select(select) => select.fill_defaults(database, policy_of),
        }
    }
}

/// Target of INTO.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Empty: the default one.
    pub database: String,
    /// Empty: the default one.
    pub policy: String,
    /// Measurement to write.
    pub name: TargetName,
}

/// Measurement of a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetName {
    /// Named.
    Name(String),
    /// `:MEASUREMENT`: that of the source.
    SameAsSource,
}
