//! A source in memory, for tests and for the differential against graphite-web.
//!
//! Invariants: values lie on the grid of their series; a fetched range begins one step after the step that
//! holds `from` and ends with the step that holds `until`, as whisper does.
//! Not here: anything for production.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::glob::PathPattern;
use super::{FetchRequest, FetchedSeries, Node, Selector, Source};
use crate::absent::ABSENT;
use crate::consolidation::Consolidation;
use crate::error::EvalError;
use crate::series::tags_of_name;
use crate::tagged_name::TaggedName;

/// Points of one series.
#[derive(Debug, Clone)]
pub struct StoredSeries {
    /// Time of the first value, seconds.
    pub start: i64,
    /// Seconds between values, above 0.
    pub step: i64,
    /// NaN is "no value".
    pub values: Vec<f64>,
}

/// Series by canonical name.
#[derive(Debug, Clone, Default)]
pub struct MemorySource {
    series: BTreeMap<String, StoredSeries>,
}

impl MemorySource {
    /// Adds a series; tags of its name are sorted.
    pub fn insert(&mut self, name: &str, stored: StoredSeries) {
        let name = match TaggedName::parse(name) {
            Ok(parsed) if name.contains(';') => parsed.canonical(),
            _ => name.to_owned(),
        };
        self.series.insert(name, stored);
    }

    fn select(&self, selector: &Selector) -> Result<Vec<&String>, EvalError> {
        let mut names = Vec::new();
        let path_pattern = match selector {
            Selector::Path(pattern) if !pattern.contains(';') => Some(PathPattern::new(pattern)),
            _ => None,
        };
        for name in self.series.keys() {
            let is_selected = match (selector, &path_pattern) {
                (Selector::Path(_), Some(pattern)) => !name.contains(';') && pattern.matches(name),
                (Selector::Path(path), None) => name == path,
                (Selector::Tags(expressions), _) => {
                    let tags = tags_of_name(name);
                    let mut holds = name.contains(';');
                    for expression in expressions {
                        holds = holds && expression.matches(&tags)?;
                    }
                    holds
                }
            };
            if is_selected {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Values of one answer.
const VALUES_MAX: i64 = 50_000_000;

fn read(name: &str, stored: &StoredSeries, from: i64, until: i64) -> Result<FetchedSeries, EvalError> {
    let step = stored.step;
    let start = from - from.rem_euclid(step) + step;
    let mut end = until - until.rem_euclid(step) + step;
    if start == end {
        end += step;
    }
    let count = (end - start) / step;
    if count > VALUES_MAX {
        return Err(EvalError::Limit {
            what: "values of one series",
            found: count.unsigned_abs(),
            limit: VALUES_MAX.unsigned_abs(),
        });
    }
    let count = usize::try_from(count).unwrap_or(0);
    let mut values = Vec::with_capacity(count);
    let mut time = start;
    for _ in 0..count {
        let offset = time - stored.start;
        let idx = usize::try_from(offset.div_euclid(step)).ok().filter(|_| offset % step == 0);
        values.push(idx.and_then(|idx| stored.values.get(idx).copied()).unwrap_or(ABSENT));
        time += step;
    }
    let consolidation = Consolidation::Average;
    let values = Arc::new(values);
    Ok(FetchedSeries {
        name: name.to_owned(),
        tags: tags_of_name(name),
        start,
        end,
        step,
        values,
        consolidation,
        x_files_factor: None,
    })
}

impl Source for MemorySource {
    fn fetch(&self, requests: &[FetchRequest]) -> Result<Vec<Vec<FetchedSeries>>, EvalError> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let mut answer = Vec::new();
            for name in self.select(&request.selector)? {
                if let Some(stored) = self.series.get(name) {
                    answer.push(read(name, stored, request.from, request.until)?);
                }
            }
            answers.push(answer);
        }
        assert_eq!(answers.len(), requests.len(), "each request is answered, in their order");
        Ok(answers)
    }

    fn find(&self, pattern: &str, _from: Option<i64>, _until: Option<i64>) -> Result<Vec<Node>, EvalError> {
        let pattern = PathPattern::new(pattern);
        let mut nodes = BTreeMap::new();
        for (path, stored) in self.series.iter().filter(|(path, _)| !path.contains(';')) {
            let end = stored.start + stored.step * i64::try_from(stored.values.len()).unwrap_or(0);
            let branch_ends = path.match_indices('.').map(|(at, _)| at);
            for node in branch_ends.chain([path.len()]).filter_map(|end| path.get(..end)) {
                if pattern.matches(node) {
                    let is_leaf = node.len() == path.len();
                    let intervals = if is_leaf { vec![(stored.start, end)] } else { Vec::new() };
                    nodes.entry((node.to_owned(), is_leaf)).or_insert(intervals);
                }
            }
        }
        Ok(nodes.into_iter().map(|((path, is_leaf), intervals)| Node { path, is_leaf, intervals }).collect())
    }
}
