//! A SELECT that has been checked.
//!
//! Not here: the checks (`check`), types and wildcards (`expand`).

use std::collections::HashSet;

use chronolith_model::TimeRange;

use super::function::{is_math, windows_before};
use crate::ast::{DataType, Dimension, Expr, Field, Fill, Measurement, OrderBy, Page, Target, VarRef};
use crate::condition::TimeBounds;
use crate::time::TIME_MIN_NS;

/// A SELECT that has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedSelect {
    /// Fields without `time`; constants are folded.
    pub fields: Vec<Field>,
    /// Name of the column of times: `time`, or the alias of that field.
    pub time_column: String,
    /// INTO.
    pub target: Option<Target>,
    /// FROM.
    pub sources: Vec<CheckedSource>,
    /// Expression of WHERE without time bounds.
    pub condition: Option<Expr>,
    /// Time bounds, without the bounds of outer queries. Windows without an end end at the present.
    pub bounds: TimeBounds,
    /// GROUP BY.
    pub dimensions: Vec<Dimension>,
    /// Windows; the windows of the outer query if there are none.
    pub interval: Option<Interval>,
    /// Value of windows without samples.
    pub fill: Fill,
    /// Order of rows; in a subquery the order of the outer query.
    pub order: OrderBy,
    /// LIMIT and OFFSET.
    pub page: Page,
    /// SLIMIT and SOFFSET.
    pub series_page: Page,
    /// `tz()`.
    pub zone: Option<String>,
}

/// Source of a checked SELECT.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckedSource {
    /// Measurement, or those whose name matches.
    Measurement(Measurement),
    /// Subquery.
    Select(Box<CheckedSelect>),
}

/// Windows of GROUP BY `time()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Nanoseconds, not 0. InfluxDB accepts a negative width; no window has one.
    pub width_ns: i64,
    /// Nanoseconds; its magnitude is below the width.
    pub offset_ns: i64,
    /// True if it is the outer query's.
    pub is_inherited: bool,
}

impl CheckedSelect {
    /// Names of the columns, `time` first. Equal default names get a number.
    #[must_use]
    pub fn column_names(&self) -> Vec<String> {
        let mut names = vec![self.time_column.clone()];
        names.extend(crate::ast::unique_names(&self.column_fields()));
        names
    }

    /// Fields that are columns of the result, those that `top()` and `bottom()` return included.
    #[must_use]
    pub fn column_fields(&self) -> Vec<Field> {
        crate::ast::column_fields(&self.fields, self.target.is_some())
    }

    /// Tags that `top()` and `bottom()` take as arguments, each once. INTO makes them tags of its points.
    #[must_use]
    pub fn point_tags(&self) -> Vec<VarRef> {
        let mut tags: Vec<VarRef> = Vec::new();
        let mut known = HashSet::new();
        if self.target.is_none() {
            return tags;
        }
        let calls = self.fields.iter().filter_map(|field| field.expr.as_call());
        for call in calls.filter(|call| matches!(call.name.as_str(), "top" | "bottom")) {
            for arg in call.args.iter().skip(1) {
                if let Expr::Ref(var) = arg
                    && var.kind == DataType::Tag
                    && known.insert(var)
                {
                    tags.push(var.clone());
                }
            }
        }
        tags
    }

    /// Times whose shard groups decide which types the fields have: the bounds, and the windows that
    /// transformations read before them, or after them in descending order.
    #[must_use]
    pub fn schema_range(&self) -> TimeRange {
        let range = self.bounds.range();
        let width_ns = self.interval.map_or(0, |interval| interval.width_ns.max(0));
        if range.is_empty() {
            return range;
        }
        let window_count = self.fields.iter().map(|field| windows_before(&field.expr)).max().unwrap_or(0);
        let before_ns = width_ns.saturating_mul(window_count);
        match self.order {
            OrderBy::Ascending => {
                TimeRange::new(range.start.saturating_sub(before_ns).max(TIME_MIN_NS), range.end)
            }
            OrderBy::Descending => TimeRange::new(range.start, range.end.saturating_add(before_ns)),
        }
    }

    /// Returns true if no field has a function of samples: each point is a row.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        let is_function = |expr: &Expr| expr.as_call().is_some_and(|call| !is_math(&call.name));
        !self.fields.iter().any(|field| field.expr.any(&mut |expr| is_function(expr)))
    }
}
