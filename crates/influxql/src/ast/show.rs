//! SHOW statements with clauses.
//!
//! Not here: printing (`print`).

use super::expr::Expr;
use super::regex::Regex;
use super::select::Source;
use super::select::{Dimension, SortField};

/// Clauses of most SHOW statements, in order of the text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShowSeries {
    /// ON; empty: the default one.
    pub database: String,
    /// FROM; WITH MEASUREMENT of SHOW MEASUREMENTS.
    pub sources: Vec<Source>,
    /// Expression of WHERE.
    pub condition: Option<Expr>,
    /// ORDER BY.
    pub sort: Vec<SortField>,
    /// Rows.
    pub page: Page,
    /// Series; SHOW TAG KEYS only.
    pub series_page: Page,
}

/// LIMIT and OFFSET; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Page {
    /// At most this many; 0 is no limit.
    pub limit: u64,
    /// To skip.
    pub offset: u64,
}

/// SHOW TAG VALUES.
#[derive(Debug, Clone, PartialEq)]
pub struct ShowTagValues {
    /// All other clauses.
    pub clauses: ShowSeries,
    /// WITH KEY.
    pub keys: KeyMatch,
}

/// WITH KEY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyMatch {
    /// `= key`.
    Equal(String),
    /// `!= key`.
    NotEqual(String),
    /// `=~ /pattern/`.
    Matches(Regex),
    /// `!~ /pattern/`.
    NotMatches(Regex),
    /// `IN (key, ..)`.
    In(Vec<String>),
}

/// SHOW ... CARDINALITY.
#[derive(Debug, Clone, PartialEq)]
pub struct Cardinality {
    /// Counted items.
    pub of: CardinalityOf,
    /// EXACT.
    pub is_exact: bool,
    /// ON; empty: the default one.
    pub database: String,
    /// FROM.
    pub sources: Vec<Source>,
    /// Expression of WHERE.
    pub condition: Option<Expr>,
    /// GROUP BY.
    pub dimensions: Vec<Dimension>,
    /// LIMIT and OFFSET.
    pub page: Page,
}

/// Items that SHOW ... CARDINALITY counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardinalityOf {
    /// Measurements.
    Measurements,
    /// Series.
    Series,
    /// Field keys.
    FieldKeys,
    /// Tag keys.
    TagKeys,
    /// Tag values of keys.
    TagValues(KeyMatch),
}
