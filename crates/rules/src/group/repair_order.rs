//! Order in which rules of several groups are evaluated again: a rule after the rules that it reads.
//!
//! Invariant: a rule reads another one if one of its selectors may select one of its series, as for batches.
//! Rules that read themselves, or each other in a circle, have no such order: their rounds are evaluated one
//! after the other, in order of time.
//! Not here: which rounds (`repair`), alerting rules, whose states a repair does not change.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use chronolith_model::{METRIC_NAME, MatchOp, Matcher};

use super::Group;
use super::reads::Reads;
use super::series_pattern::Output;
use crate::rule::Rule;

/// Recording rules of a group that may write the same series; most often it is one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairUnit {
    /// Index of the group.
    pub group_idx: usize,
    /// Indices of the rules in the group, ascending.
    pub rules: Vec<usize>,
    /// Units that read a series of this one.
    pub readers: Vec<usize>,
    /// Units of the same group whose results of a round come after this one has been evaluated in it: a round
    /// sees their earlier results alone. A unit that reads itself is among them.
    pub later: Vec<usize>,
}

/// Recording rules of groups in the order of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairOrder {
    /// Units by group, then by their first rule.
    pub units: Vec<RepairUnit>,
    /// Indices of units, each after the units that it reads.
    pub acyclic: Vec<usize>,
    /// Indices of units that read each other in a circle, and those that read them; ascending.
    pub cyclic: Vec<usize>,
}

impl RepairOrder {
    /// Returns the order of all recording rules of `groups`. Cost: a look into a map per selector; selectors
    /// without a name are compared with all rules.
    #[must_use]
    pub fn of(groups: &[Arc<Group>]) -> RepairOrder {
        let mut units: Vec<RepairUnit> =
            groups.iter().enumerate().flat_map(|(idx, group)| units_of(idx, group)).collect();
        let written = WrittenSeries::of(&units, groups);
        let edges: Vec<Edge> =
            (0..units.len()).flat_map(|reader| edges_of(reader, &units, groups, &written)).collect();
        for Edge { written, reader, is_later } in edges {
            units[written].readers.push(reader);
            if is_later {
                units[reader].later.push(written);
            }
        }
        let acyclic = sorted(&units);
        let mut is_sorted = vec![false; units.len()];
        acyclic.iter().for_each(|&idx| is_sorted[idx] = true);
        let cyclic = (0..units.len()).filter(|&idx| !is_sorted[idx]).collect();
        RepairOrder { units, acyclic, cyclic }
    }
}

/// Matchers that select all series of a recording rule, of its name and fixed labels.
#[must_use]
pub fn matchers_of(rule: &Rule) -> Vec<Matcher> {
    let name = Matcher::equal(METRIC_NAME, &rule.name);
    let labels = rule.labels.iter().filter(|(label, _)| *label != METRIC_NAME);
    std::iter::once(name).chain(labels.map(|(label, value)| Matcher::equal(label, value))).collect()
}

struct Edge {
    written: usize,
    reader: usize,
    /// A rule of the reader comes before the rule that it reads, or is the same.
    is_later: bool,
}

fn rules_of<'a>(groups: &'a [Arc<Group>], unit: &'a RepairUnit) -> impl Iterator<Item = (usize, &'a Rule)> {
    let rules = groups[unit.group_idx].rules();
    unit.rules.iter().map(move |&idx| (idx, &rules[idx]))
}

/// Recording rules of a group, those that may write the same series together.
fn units_of(group_idx: usize, group: &Group) -> Vec<RepairUnit> {
    let mut by_name: HashMap<&str, Vec<(usize, Output)>> = HashMap::new();
    let mut units: Vec<RepairUnit> = Vec::new();
    for (idx, rule) in group.rules().iter().enumerate().filter(|(_, rule)| rule.alerting().is_none()) {
        let output = Output::of(rule);
        let earlier = by_name.entry(&rule.name).or_default();
        let found = earlier.iter().find(|(_, other)| other.may_equal(&output)).map(|(unit, _)| *unit);
        let unit_idx = found.unwrap_or(units.len());
        earlier.push((unit_idx, output));
        if found.is_some() {
            units[unit_idx].rules.push(idx);
        } else {
            units.push(RepairUnit { group_idx, rules: vec![idx], readers: Vec::new(), later: Vec::new() });
        }
    }
    units
}

/// Series that units may write.
struct WrittenSeries<'a> {
    /// Units by the name of their rules.
    by_name: HashMap<&'a str, Vec<usize>>,
    /// Rules of each unit, by their indexes in the group, with what they write.
    outputs: Vec<Vec<(usize, Output)>>,
}

impl<'a> WrittenSeries<'a> {
    fn of(units: &[RepairUnit], groups: &'a [Arc<Group>]) -> WrittenSeries<'a> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut outputs = Vec::with_capacity(units.len());
        for (idx, unit) in units.iter().enumerate() {
            let rules = groups[unit.group_idx].rules();
            let name = unit.rules.first().map_or("", |&rule| rules[rule].name.as_str());
            by_name.entry(name).or_default().push(idx);
            outputs.push(unit.rules.iter().map(|&rule| (rule, Output::of(&rules[rule]))).collect());
        }
        WrittenSeries { by_name, outputs }
    }
}

/// Units that a unit reads.
fn edges_of(
    reader: usize,
    units: &[RepairUnit],
    groups: &[Arc<Group>],
    series: &WrittenSeries<'_>,
) -> Vec<Edge> {
    let unit = &units[reader];
    let mut edges: HashMap<usize, bool> = HashMap::new();
    for (own_idx, rule) in rules_of(groups, unit) {
        let reads = Reads::of(rule);
        let mut candidates: Vec<usize> = Vec::new();
        for matchers in reads.selectors() {
            let name = matchers.iter().find(|one| &*one.name == METRIC_NAME && one.op == MatchOp::Equal);
            match name {
                Some(name) => candidates.extend(series.by_name.get(&*name.value).into_iter().flatten()),
                None => candidates.extend(0..units.len()),
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        for written in candidates {
            let other = &units[written];
            for (other_idx, output) in &series.outputs[written] {
                if reads.may_read(output) {
                    let is_later = other.group_idx == unit.group_idx && *other_idx >= own_idx;
                    *edges.entry(written).or_default() |= is_later;
                }
            }
        }
    }
    let mut edges: Vec<Edge> =
        edges.into_iter().map(|(written, is_later)| Edge { written, reader, is_later }).collect();
    edges.sort_by_key(|edge| edge.written);
    edges
}

/// Kahn's topological sort; units in or after a circle are left out. A unit that reads itself alone is not.
fn sorted(units: &[RepairUnit]) -> Vec<usize> {
    let mut unsorted_inputs = vec![0_usize; units.len()];
    let others = |idx: usize| units[idx].readers.iter().copied().filter(move |&reader| reader != idx);
    for idx in 0..units.len() {
        others(idx).for_each(|reader| unsorted_inputs[reader] += 1);
    }
    let mut ready: VecDeque<usize> = (0..units.len()).filter(|&idx| unsorted_inputs[idx] == 0).collect();
    let mut order = Vec::with_capacity(units.len());
    while let Some(idx) = ready.pop_front() {
        order.push(idx);
        for reader in others(idx) {
            unsorted_inputs[reader] -= 1;
            if unsorted_inputs[reader] == 0 {
                ready.push_back(reader);
            }
        }
    }
    order
}
