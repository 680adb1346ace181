//! Memory of nested plans: copies of the plans below, and tables of names per level.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_model::query::{Opened, Read, Source};
use chronolith_model::{QueryError, ReadContext};

use super::memory::{MemoryStore, environment};
use super::plans::*;
use crate::rows::execution::RowLimits;
use crate::rows::plan::{Aggregate, Column, RowPlan, Transform};

/// Counts the copies of a name when series are selected.
struct CopyCounter {
    store: MemoryStore,
    name: Arc<str>,
    /// The most copies that there were, and selections.
    most: Arc<AtomicUsize>,
    selections: Arc<AtomicUsize>,
}

impl Source for CopyCounter {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        self.most.fetch_max(Arc::strong_count(&self.name), Ordering::Relaxed);
        self.selections.fetch_add(1, Ordering::Relaxed);
        self.store.open(read, ctx)
    }
}

/// The most copies of the name of the innermost column of a plan that there are while series are selected,
/// and the number of selections.
fn copies(levels: usize, outer: impl Fn(RowPlan) -> RowPlan) -> (usize, usize) {
    let name: Arc<str> = Arc::from("v");
    let mut plan = from_m();
    plan.columns.push(Column { name: name.clone(), expr: field("v") });
    for _ in 1..levels {
        plan = outer(plan);
    }
    let counter = CopyCounter {
        store: MemoryStore::of_lines("m v=1 10\nm v=2 20"),
        name,
        most: Arc::default(),
        selections: Arc::default(),
    };
    let (most, selections) = (counter.most.clone(), counter.selections.clone());
    let mut environment = environment(MemoryStore::default(), 1 << 30, RowLimits::default());
    environment.stores = vec![Arc::new(counter)];
    run(plan, environment).expect("rows");
    (most.load(Ordering::Relaxed), selections.load(Ordering::Relaxed))
}

/// Each level copied the plans below it, and kept the copy while they ran: 40 levels over 20,000 fields had
/// 820 copies of the columns. A plan that is run once is moved.
#[test]
fn plans_below_a_plan_are_not_copied() {
    let (flat, _) = copies(1, |inner| from_subquery(inner).fields(&["v"]));
    for levels in [2, 3, 5, 10, 20, 40, 60] {
        let (most, selections) = copies(levels, |inner| from_subquery(inner).fields(&["v"]));
        assert_eq!(selections, 1, "{levels} levels");
        // The level around has a list of the names.
        assert_eq!(most, flat + 1, "{levels} levels");
    }
}

/// A plan that is run for several ranges is copied for each but the last one, without the plans below it.
#[test]
fn plans_for_several_ranges_share_those_below_them() {
    let outer = |inner| {
        let difference = over(Transform::Difference { non_negative: false }, aggregate(Aggregate::Sum, "v"));
        let plan = from_subquery(inner).call("v", aggregate(Aggregate::Sum, "v")).call("d", difference);
        plan.between(0, 100).every(10)
    };
    let (two, _) = copies(2, outer);
    for levels in [3, 4, 6, 8] {
        let (most, selections) = copies(levels, outer);
        assert_eq!(selections, 1 << (levels - 1), "{levels} levels");
        assert!(most <= two + 1, "{levels} levels: {most} copies, {two} of two levels");
    }
}

/// Tables of names and variables of all levels were in memory at the same time.
#[test]
fn tables_of_names_are_those_of_two_levels() {
    let names: Vec<String> = (0..300).map(|idx| format!("f{idx}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let line: Vec<String> = names.iter().map(|name| format!("{name}=1")).collect();
    let line = format!("m {} 10", line.join(","));
    let peak = |levels: usize| {
        let plan = (1..levels).fold(from_m().fields(&names), |plan, _| from_subquery(plan).fields(&names));
        let environment = environment(MemoryStore::of_lines(&line), 1 << 30, RowLimits::default());
        let budget = environment.ctx.budget.clone();
        let rows = run(plan, environment).expect("rows");
        assert_eq!(rows.lines().count(), 2, "{levels} levels: {rows}");
        budget.peak_bytes()
    };
    let three = peak(3);
    for levels in [4, 10, 40] {
        let found = peak(levels);
        assert!(found <= three + three / 8, "{levels} levels: {found} bytes, {three} of three levels");
    }
}
