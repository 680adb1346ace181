//! A group as its file describes it.

use crate::rule::Rule;
use crate::yaml::Position;

/// A group of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupEntry {
    /// Name, unique within the file.
    pub name: String,
    /// Start of the group.
    pub position: Position,
    /// `interval` in milliseconds; `None` for the default of the server.
    pub interval_ms: Option<i64>,
    /// `query_offset` in milliseconds; `None` for the default of the server.
    pub query_offset_ms: Option<i64>,
    /// `limit`: series or alerts per rule and round, if it is positive.
    pub limit: Option<usize>,
    /// Rules in the order of the file.
    pub rules: Vec<Rule>,
}
