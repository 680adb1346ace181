//! The SELECT statement, with sources of FROM and targets of INTO.
//!
//! Invariants: an empty database or retention policy means the default one.
//! Not here: meaning and limits of clauses (`semantics`), result columns (`columns`).

use super::expr::{Call, Expr};
use super::regex::Regex;

/// `SELECT ... FROM ...`.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// Fields, in order of the text.
    pub fields: Vec<Field>,
    /// INTO.
    pub target: Option<Target>,
    /// FROM.
    pub sources: Vec<Source>,
    /// Expression of WHERE.
    pub condition: Option<Expr>,
    /// GROUP BY.
    pub dimensions: Vec<Dimension>,
    /// Value of windows without samples.
    pub fill: Fill,
    /// ORDER BY; only `time` is possible.
    pub sort: Vec<SortField>,
    /// Rows per series and their offset; 0 is no limit.
    pub limit: u64,
    /// Rows to skip per series.
    pub offset: u64,
    /// Series; 0 is no limit.
    pub series_limit: u64,
    /// Series to skip.
    pub series_offset: u64,
    /// `tz()`: an IANA name.
    pub zone: Option<String>,
}

/// One field of SELECT.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Expression of the column.
    pub expr: Expr,
    /// AS.
    pub alias: Option<String>,
}

/// One expression of GROUP BY.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// Tag, wildcard, regex or `time()`.
    pub expr: Expr,
}

impl Dimension {
    /// Returns the call of `time()`, if it is one.
    #[must_use]
    pub fn as_time_call(&self) -> Option<&Call> {
        self.expr.as_call().filter(|call| call.name == "time")
    }
}

/// Value of windows without samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Fill {
    /// `null`, the default.
    #[default]
    Null,
    /// `none`: no row.
    None,
    /// A number.
    Number(FillNumber),
    /// The value of the window before.
    Previous,
    /// Linear interpolation.
    Linear,
}

/// Number of `fill()`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FillNumber {
    /// Integer.
    Integer(i64),
    /// Float.
    Float(f64),
}

/// Direction of ORDER BY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OrderBy {
    /// Oldest first.
    #[default]
    Ascending,
    /// Newest first.
    Descending,
}

/// One field of ORDER BY.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SortField {
    /// `time`; absent in `ORDER BY DESC`.
    pub name: Option<String>,
    /// Direction.
    pub order: OrderBy,
}

impl Select {
    /// SELECT of `fields` from `sources`, without any other clause.
    #[must_use]
    pub fn new(fields: Vec<Field>, sources: Vec<Source>) -> Select {
        Select {
            fields,
            target: None,
            sources,
            condition: None,
            dimensions: Vec::new(),
            fill: Fill::Null,
            sort: Vec::new(),
            limit: 0,
            offset: 0,
            series_limit: 0,
            series_offset: 0,
            zone: None,
        }
    }

    /// Direction of rows.
    #[must_use]
    pub fn order(&self) -> OrderBy {
        self.sort.first().map_or(OrderBy::Ascending, |sort| sort.order)
    }

    /// Returns the first `time()` of GROUP BY.
    #[must_use]
    pub fn time_dimension(&self) -> Option<&Call> {
        self.dimensions.iter().find_map(Dimension::as_time_call)
    }

    /// Width of the windows of GROUP BY, in nanoseconds; `None` without `time()`.
    ///
    /// # Errors
    /// The text about arguments that `time()` cannot have.
    pub fn interval_ns(&self) -> Result<Option<i64>, &'static str> {
        let Some(call) = self.time_dimension() else { return Ok(None) };
        match call.args.as_slice() {
            [Expr::Duration(ns)] | [Expr::Duration(ns), _] => Ok(Some(*ns)),
            [_] | [_, _] => Err("time dimension must have duration argument"),
            _ => Err("time dimension expected 1 or 2 arguments"),
        }
    }

    /// Returns true if no field has a function.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.fields.iter().all(|field| !field.expr.any(&mut |expr| matches!(expr, Expr::Call(_))))
    }

    /// Sets empty databases of sources and target to `database`, and empty retention policies to `policy_of`
    /// their database.
    pub fn fill_defaults(&mut self, database: &str, policy_of: &dyn Fn(&str) -> String) {
        self.sources.iter_mut().for_each(|source| source.fill_defaults(database, policy_of));
        if let Some(target) = &mut self.target {
            if target.database.is_empty() {
                database.clone_into(&mut target.database);
            }
            if target.policy.is_empty() {
                target.policy = policy_of(&target.database);
            }
        }
    }
}

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
    /// Calls `visit` for every measurement, including measurements of subqueries, in order of the text.
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
    /// `:MEASUREMENT`: the measurement of the source.
    SameAsSource,
}
