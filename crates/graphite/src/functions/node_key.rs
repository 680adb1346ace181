//! Keys of series by nodes of the path and by tags.
//!
//! Invariant: a name that ends with `)` is a call; its first path expression is the path.
//! Not here: grouping (`group`).

use crate::error::EvalError;
use crate::series::Series;
use crate::syntax::{self, Node};
use crate::value::Value;

/// Element `idx` of a list; negative ones count from the end.
pub(super) fn at<'a>(elements: &[&'a str], idx: i64) -> Option<&'a str> {
    let len = i64::try_from(elements.len()).ok()?;
    let idx = if idx < 0 { idx.checked_add(len)? } else { idx };
    elements.get(usize::try_from(idx).ok()?).copied()
}

/// Range of a Python slice `[start:stop]` over `len` elements.
pub(super) fn slice_range(len: usize, start: Option<i64>, stop: Option<i64>) -> std::ops::Range<usize> {
    let clamp = |idx: i64| {
        let signed = i64::try_from(len).unwrap_or(i64::MAX);
        let idx = if idx < 0 { idx.saturating_add(signed) } else { idx };
        usize::try_from(idx.clamp(0, signed)).unwrap_or(0)
    };
    let start = start.map_or(0, clamp);
    start..stop.map_or(len, clamp).max(start)
}

/// First path expression of a name that is a target.
fn first_path(name: &str) -> Result<Option<String>, EvalError> {
    let mut node = syntax::parse(name)?;
    loop {
        node = match node {
            Node::Path(path) => return Ok(Some(path)),
            Node::Call(call) => match call.args.into_iter().next() {
                Some(first) => first,
                None => return Err(EvalError::Parameter(format!("name '{name}' has no path"))),
            },
            _ => return Ok(None),
        };
    }
}

/// Bytes of a key of `count` nodes and tags, at most.
pub(super) fn key_bytes_max(series: &Series, count: usize) -> u64 {
    let longest_tag = series.tags.values().map(String::len).max().unwrap_or(0);
    (count as u64).saturating_mul((series.name.len().max(longest_tag) + 1) as u64)
}

fn node_or_tag(series: &Series, path: &str, key: &Value) -> Result<String, EvalError> {
    let invalid = || EvalError::Parameter(format!("'{}' is neither a node nor a tag", key.text()));
    let tag = || series.tags.get(&key.text()).cloned().unwrap_or_default();
    match key {
        Value::Int(_) | Value::Bool(_) => {
            let nodes: Vec<&str> = path.split(';').next().unwrap_or("").split('.').collect();
            Ok(key.whole().and_then(|idx| at(&nodes, idx)).map_or_else(tag, str::to_owned))
        }
        Value::Float(value) if value.fract() != 0.0 => Ok(tag()),
        Value::Text(_) => Ok(tag()),
        _ => Err(invalid()),
    }
}

/// Values of the nodes and tags `keys`, joined by dots.
/// # Errors
/// [`EvalError::Parameter`] if the name is empty or a key is neither.
pub(super) fn key_of(series: &Series, keys: &[Value]) -> Result<String, EvalError> {
    if series.name.is_empty() {
        return Err(EvalError::Parameter("a series has an empty name".to_owned()));
    }
    let path = if series.name.ends_with(')') { first_path(&series.name)? } else { None };
    let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| series.name.clone());
    let parts: Vec<String> =
        keys.iter().map(|key| node_or_tag(series, &path, key)).collect::<Result<_, _>>()?;
    Ok(parts.join("."))
}

/// Series by key, in the order in which keys appear.
pub(super) fn group_by(
    list: Vec<Series>,
    key: impl Fn(&Series) -> Result<String, EvalError>,
) -> Result<Vec<(String, Vec<Series>)>, EvalError> {
    let series_count = list.len();
    let mut groups: Vec<(String, Vec<Series>)> = Vec::new();
    let mut idx_of = chronolith_base::hash::HashMap::default();
    for series in list {
        let key = key(&series)?;
        let idx = *idx_of.entry(key.clone()).or_insert(groups.len());
        if idx == groups.len() {
            groups.push((key, Vec::new()));
        }
        if let Some((_, members)) = groups.get_mut(idx) {
            members.push(series);
        }
    }
    let member_count: usize = groups.iter().map(|(_, members)| members.len()).sum();
    assert_eq!(member_count, series_count, "each series is in one group");
    Ok(groups)
}
