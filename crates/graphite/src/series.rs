//! A series while a request is evaluated: name, tags, grid and values.
//!
//! Invariants: value i belongs to `start + i * step`; NaN means "no value" and is never a value. Values are
//! shared until they are changed. `values_per_point` above 1 makes [`Series::points`] consolidate, as
//! graphite-web's iteration does, and leaves `values` as they are.
//! Not here: functions over series.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::consolidation::Consolidation;
use crate::error::EvalError;
use crate::tagged_name::TaggedName;

/// Tags of a series, `name` among them.
pub type Tags = BTreeMap<String, String>;

/// A drawing property that a function of the group Graph sets.
#[derive(Debug, Clone, PartialEq)]
pub enum DrawOption {
    /// Filled from the series below.
    Stacked,
    /// Lower edge of an area.
    Invisible,
    /// Transparency, 0 to 1.
    Alpha(f64),
    /// Colour name or hex digits.
    Color(String),
    /// Drawn against the right axis.
    SecondYAxis,
    /// Vertical lines instead of points.
    DrawAsInfinite,
    /// Pixels.
    LineWidth(f64),
    /// Pixels of a dash.
    Dashed(f64),
}

/// Bytes that the allocator adds to a short text, about.
const TEXT_BYTES: usize = 32;
/// Tags in a node of their tree, at least, but for the first ones.
const TAGS_PER_NODE: usize = 6;
/// Bytes of a node.
const TAG_NODE_BYTES: usize = 560;

/// One series of a list.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend, rebuilt by each function.
    pub name: String,
    /// Expression that names of aggregates repeat.
    pub path_expression: String,
    /// Tags of the path and those that functions add.
    pub tags: Tags,
    /// Time of the first value, seconds.
    pub start: i64,
    /// Time after the last value, seconds.
    pub end: i64,
    /// Seconds between values.
    pub step: i64,
    /// NaN is "no value".
    pub values: Arc<Vec<f64>>,
    /// Consolidation of values to the points of a coarser grid.
    pub consolidation: Consolidation,
    /// Values that [`Self::points`] joins to one point.
    pub values_per_point: usize,
    /// Share of values that a consolidated point needs.
    pub x_files_factor: f64,
    /// Properties for drawing, in the order in which functions set them.
    pub options: Vec<DrawOption>,
    /// Values are counts and print without a fraction.
    pub is_integral: bool,
}

impl Series {
    /// A series whose path expression is its name and whose tags are read from it.
    #[must_use]
    pub fn new(name: String, grid: Grid, values: Vec<f64>, x_files_factor: f64) -> Self {
        Series {
            path_expression: name.clone(),
            tags: tags_of_name(&name),
            name,
            start: grid.start,
            end: grid.end,
            step: grid.step,
            values: Arc::new(values),
            consolidation: Consolidation::Average,
            values_per_point: 1,
            x_files_factor,
            options: Vec::new(),
            is_integral: false,
        }
    }

    /// A series derived from this one under another name: grid, tags, consolidation and factor stay; the path
    /// expression is the name, and drawing properties go.
    #[must_use]
    pub fn derived(&self, name: String, values: Vec<f64>) -> Self {
        Series {
            path_expression: name.clone(),
            name,
            tags: self.tags.clone(),
            values: Arc::new(values),
            consolidation: self.consolidation.clone(),
            options: Vec::new(),
            values_per_point: 1,
            is_integral: false,
            ..*self
        }
    }

    /// Sets a tag.
    pub fn tag(&mut self, key: &str, value: impl ToString) {
        self.tags.insert(key.to_owned(), value.to_string());
    }

    /// Renames the series and makes the name its path expression.
    pub fn rename(&mut self, name: String) {
        self.path_expression.clone_from(&name);
        self.name = name;
    }

    /// Values for changes in place; copied first if they are shared.
    pub fn values_mut(&mut self) -> &mut Vec<f64> {
        Arc::make_mut(&mut self.values)
    }

    /// Replaces each value that is there.
    pub fn map_present(&mut self, change: impl Fn(f64) -> f64) {
        self.is_integral = false;
        for value in self.values_mut() {
            if !value.is_nan() {
                *value = change(*value);
            }
        }
    }

    /// Bytes of memory apart from the values, about.
    #[must_use]
    pub(crate) fn label_bytes(&self) -> u64 {
        let tags = self.tags.iter().map(|(key, value)| key.len() + value.len() + TEXT_BYTES).sum::<usize>();
        let nodes = self.tags.len().div_ceil(TAGS_PER_NODE) * TAG_NODE_BYTES;
        let options = self.options.iter().map(|option| match option {
            DrawOption::Color(color) => color.len() + TEXT_BYTES,
            _ => size_of::<DrawOption>(),
        });
        let texts = self.name.len() + self.path_expression.len() + options.sum::<usize>();
        (size_of::<Series>() + texts + tags + nodes) as u64
    }

    /// Bytes of memory of the values if no other series shares them.
    #[must_use]
    pub(crate) fn own_value_bytes(&self) -> u64 {
        let capacity = self.values.capacity() * size_of::<f64>();
        if Arc::strong_count(&self.values) > 1 { 0 } else { capacity as u64 }
    }

    /// Bytes of the values if other series share them: a change copies them.
    #[must_use]
    pub(crate) fn shared_value_bytes(&self) -> u64 {
        if Arc::strong_count(&self.values) > 1 { self.value_bytes() } else { 0 }
    }

    /// Bytes of the values.
    #[must_use]
    pub(crate) fn value_bytes(&self) -> u64 {
        (self.values.len() * size_of::<f64>()) as u64
    }

    /// Points: the values, consolidated if `values_per_point` is above 1.
    /// # Errors
    /// [`EvalError::Parameter`] if the consolidation function is unknown.
    pub fn points(&self) -> Result<Cow<'_, [f64]>, EvalError> {
        if self.values_per_point <= 1 {
            return Ok(Cow::Borrowed(&self.values));
        }
        let points = self.consolidation.points(&self.values, self.values_per_point, self.x_files_factor)?;
        Ok(Cow::Owned(points))
    }
}

/// Grid of a series, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// First time.
    pub start: i64,
    /// Time after the last.
    pub end: i64,
    /// Distance.
    pub step: i64,
}

/// Tags of a name: those that it carries, or itself if it is a call or malformed.
#[must_use]
pub(crate) fn tags_of_name(name: &str) -> Tags {
    if !is_call(name)
        && let Ok(parsed) = TaggedName::parse(name)
    {
        return parsed.tags;
    }
    Tags::from([("name".to_owned(), name.to_owned())])
}

/// Returns true if the name has the form of a call: letters, then something in parentheses.
fn is_call(name: &str) -> bool {
    let Some(open) = name.find('(') else { return false };
    let name = name.strip_suffix('\n').unwrap_or(name);
    open > 0
        && name.bytes().take(open).all(|b| b.is_ascii_alphabetic())
        && name.ends_with(')')
        && name.len() > open + 2
        && !name.contains('\n')
}
