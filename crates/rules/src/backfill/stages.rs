//! Stages of a backfill: rules that are evaluated over the whole range before the rules that read them.
//!
//! Invariants: each recording rule is in one stage; the stages of equal groups are equal, so that a backfill
//! that was interrupted finds its stage again.
//! Not here: which rules read each other (`group::repair_order`).

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh64::xxh64;

use crate::group::Group;
use crate::group::repair_order::RepairOrder;
use crate::repair::rule_hash;
use crate::rule::Rule;

/// Units of the order that are evaluated together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Units of one group that read no unit of this stage: many rounds are one query.
    Ranges {
        /// Index of the group.
        group_idx: usize,
        /// Indices of units, ascending.
        units: Vec<usize>,
    },
    /// Units whose rounds are evaluated one after the other, in order of time: they read themselves or each
    /// other, or a round does not depend on its time alone.
    Rounds {
        /// Indices of units, ascending.
        units: Vec<usize>,
    },
}

impl Stage {
    /// Indices of its units, ascending.
    #[must_use]
    pub fn units(&self) -> &[usize] {
        match self {
            Stage::Ranges { units, .. } | Stage::Rounds { units } => units,
        }
    }
}

/// Rules of a backfill in the order of their evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct BackfillPlan {
    groups: Vec<Arc<Group>>,
    order: RepairOrder,
    stages: Vec<Stage>,
}

impl BackfillPlan {
    /// Plans all recording rules of `groups`. `is_range` returns true if many rounds of a rule may be one
    /// query.
    #[must_use]
    pub fn of(groups: Vec<Arc<Group>>, is_range: impl Fn(&Group, &Rule) -> bool) -> BackfillPlan {
        let order = RepairOrder::of(&groups);
        let mut levels = vec![0_usize; order.units.len()];
        let mut ranges: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        let mut stages: Vec<((usize, usize), Stage)> = Vec::new();
        for &idx in &order.acyclic {
            let unit = &order.units[idx];
            for &reader in unit.readers.iter().filter(|reader| **reader != idx) {
                levels[reader] = levels[reader].max(levels[idx] + 1);
            }
            let group = &groups[unit.group_idx];
            let key = (levels[idx], unit.group_idx);
            let is_stepped = !unit.later.is_empty()
                || unit.rules.iter().any(|&rule| !is_range(group, &group.rules()[rule]));
            match is_stepped {
                true => stages.push((key, Stage::Rounds { units: vec![idx] })),
                false => ranges.entry(key).or_default().push(idx),
            }
        }
        for (key, mut units) in ranges {
            units.sort_unstable();
            stages.push((key, Stage::Ranges { group_idx: key.1, units }));
        }
        stages.sort_by_key(|(key, stage)| (*key, stage.units().first().copied()));
        let mut stages: Vec<Stage> = stages.into_iter().map(|(_, stage)| stage).collect();
        if !order.cyclic.is_empty() {
            stages.push(Stage::Rounds { units: order.cyclic.clone() });
        }
        BackfillPlan { groups, order, stages }
    }

    /// The groups as they were given.
    #[must_use]
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Units, which stages name by index.
    #[must_use]
    pub fn order(&self) -> &RepairOrder {
        &self.order
    }

    /// Stages in their order.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The group of a unit.
    #[must_use]
    pub fn group_of(&self, unit: usize) -> &Arc<Group> {
        &self.groups[self.order.units[unit].group_idx]
    }

    /// The rules of a unit in the order of their group.
    pub fn rules_of(&self, unit: usize) -> impl Iterator<Item = &Rule> {
        let rules = self.group_of(unit).rules();
        self.order.units[unit].rules.iter().map(|&idx| &rules[idx])
    }

    /// Returns true if a rule reads the results of another one, or its own.
    #[must_use]
    pub fn has_dependent_rules(&self) -> bool {
        self.order.units.iter().any(|unit| !unit.readers.is_empty())
    }

    /// Hash of all that decides the results of the rules, and of `range`: a backfill with an equal one has
    /// the same stages and rounds.
    #[must_use]
    pub fn hash(&self, range: (i64, i64)) -> u64 {
        let mut bytes = Vec::new();
        for group in &self.groups {
            for text in [&group.key.file, &group.key.name] {
                bytes.extend((text.len() as u64).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            let recording = group.rules().iter().filter(|rule| rule.alerting().is_none());
            recording.for_each(|rule| bytes.extend(rule_hash(group, rule).to_le_bytes()));
        }
        bytes.extend(range.0.to_le_bytes());
        bytes.extend(range.1.to_le_bytes());
        xxh64(&bytes, 0)
    }
}
