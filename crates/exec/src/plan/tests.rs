//! Plans built by hand: merged nodes, common subexpressions that are computed once, and properties.

use chronolith_model::{METRIC_NAME, MatchOp, Matcher};

use super::node::{FunctionNode, GroupLabels, NameEffect, NodeKind, Selection};
use super::properties::{NameRules, Names, Reference};
use super::sharing::UseCounts;
use super::{OccurrenceId, Plan};
use crate::aggregate::Aggregation;
use crate::arith::{BinaryOp, ElementOp, FilterSide};
use crate::grid::{Grid, TimeShift, Windows};
use crate::join::ScalarSide;
use crate::join::matching::Matching;
use crate::position::Position;
use crate::samples::SampleParts;
use crate::select::InstantField;

const GRID: Grid = Grid { start_ms: 0, step_ms: 10, count: 4, end_ms: 30 };

struct TestPlan {
    plan: Plan,
    /// The last position.
    place: u64,
}

impl TestPlan {
    fn new() -> TestPlan {
        TestPlan { plan: Plan::new(NameRules::default()), place: 0 }
    }

    fn push(&mut self, kind: NodeKind, inputs: &[OccurrenceId]) -> OccurrenceId {
        self.place += 1;
        let positions = vec![Position(self.place)];
        self.plan.push(kind, inputs.to_vec(), GRID, positions, "op")
    }

    fn select(&mut self, matchers: &[Matcher], shift: TimeShift) -> OccurrenceId {
        let selection = Selection::new(matchers, Windows::new(GRID, shift, 100), SampleParts::default());
        self.push(NodeKind::Latest(selection, InstantField::Value), &[])
    }

    fn metric(&mut self, name: &str) -> OccurrenceId {
        self.select(&[Matcher::equal(METRIC_NAME, name)], shift(None, 0))
    }

    fn sum(&mut self, vector: OccurrenceId, by: &[&str]) -> OccurrenceId {
        let labels = GroupLabels::new(by.iter().map(|&label| label.to_owned()).collect(), false);
        self.push(NodeKind::Aggregate(Aggregation::Sum, labels), &[vector])
    }

    fn add(&mut self, left: OccurrenceId, right: OccurrenceId) -> OccurrenceId {
        let op = ElementOp::new(BinaryOp::Add, false, FilterSide::Left);
        self.push(NodeKind::Join(op, Matching::default()), &[left, right])
    }

    fn names(&self, id: OccurrenceId) -> (&Names, bool, bool) {
        let properties = self.plan.properties(id);
        (&properties.names, properties.merges, properties.collides)
    }
}

fn shift(fixed_ms: Option<i64>, offset_ms: i64) -> TimeShift {
    TimeShift { fixed_ms, offset_ms }
}

#[test]
fn equal_operators_are_one_node() {
    let mut test = TestPlan::new();
    let [name, label] = [Matcher::equal(METRIC_NAME, "m"), Matcher::equal("a", "1")];
    let left = test.select(&[name.clone(), label.clone()], shift(None, 0));
    let left = test.sum(left, &["x", "y"]);
    let right = test.select(&[label, name], shift(None, 0));
    let right = test.sum(right, &["y", "x"]);
    let other = test.metric("m");
    let other = test.sum(other, &["x", "y"]);
    let both = test.add(left, right);
    test.add(both, other);
    let node = |id| test.plan.occurrence(id).node;
    assert_eq!(node(left), node(right), "whatever the order of matchers and labels");
    assert_ne!(node(left), node(other));
    let uses = UseCounts::of(&test.plan, &[test.plan.root()]);
    assert_eq!(uses.repeated(node(left)), Some(2));
    assert_eq!(uses.repeated(node(other)), None);
    let selected = test.plan.inputs(left)[0];
    assert_eq!(uses.repeated(node(selected)), None, "what is below a shared node is read once");
    let moved = test.plan.positions(left, right);
    let place = |id| test.plan.origin(id, 0).position;
    assert_eq!(moved.get(&place(left)), Some(&place(right)));
    assert_eq!(moved.get(&place(selected)), Some(&place(test.plan.inputs(right)[0])));
}

#[test]
fn operators_that_do_not_depend_on_the_step_are_computed_for_one() {
    let mut test = TestPlan::new();
    let fixed = test.select(&[Matcher::equal(METRIC_NAME, "m")], shift(Some(20), 0));
    assert_eq!(test.plan.node(fixed).repeat, Some(4));
    let sum = test.sum(fixed, &[]);
    let number = test.plan.push_constant(2.0);
    let op = ElementOp::new(BinaryOp::Mul, false, FilterSide::Left);
    let product = test.push(NodeKind::VectorScalar(op, ScalarSide::Right), &[sum, number]);
    let repeats = |test: &TestPlan, id| test.plan.node(id).repeat;
    assert_eq!([fixed, sum, product].map(|id| repeats(&test, id)), [None, None, Some(4)]);
    let moving = test.metric("m");
    let both = test.add(product, moving);
    assert_eq!([product, moving, both].map(|id| repeats(&test, id)), [Some(4), None, None]);
    let by_time = FunctionNode { depends_on_time: true, ..FunctionNode::new("f", NameEffect::Removes) };
    let at_time = test.push(NodeKind::Function(by_time), &[product]);
    assert_eq!(repeats(&test, at_time), None);
    assert!(test.plan.lookback().is_none(), "samples of a fixed time decide every step");
}

#[test]
fn series_are_merged_where_only_their_names_were_different() {
    let mut test = TestPlan::new();
    let one = test.metric("m");
    let any = test.select(&[Matcher::equal("job", "x")], shift(None, 0));
    assert_eq!(test.names(one).0, &Names::One("m".into()));
    assert_eq!(test.names(any), (&Names::Many, false, false));
    let removed = |test: &mut TestPlan, id| {
        test.push(NodeKind::Function(FunctionNode::new("f", NameEffect::Removes)), &[id])
    };
    let (of_one, of_any) = (removed(&mut test, one), removed(&mut test, any));
    assert_eq!(test.names(of_one), (&Names::None, false, false));
    assert_eq!(test.names(of_any), (&Names::None, true, true));
    let sum = test.sum(of_any, &[]);
    assert_eq!(test.names(sum), (&Names::None, false, true), "an error below ends the query, too");
    let other = test.metric("n");
    let union = test.push(NodeKind::Set(BinaryOp::Or, Matching::default()), &[one, other]);
    assert_eq!(test.names(union), (&Names::Many, false, false));
    let pattern = Matcher::new(METRIC_NAME, MatchOp::Regex, "m|n").expect("a regex");
    let several = test.select(&[pattern], shift(None, 0));
    assert_eq!(test.names(several).0, &Names::Many);
}

#[test]
fn offsets_of_subqueries_add_up() {
    let mut test = TestPlan::new();
    let inner = test.select(&[Matcher::equal(METRIC_NAME, "m")], shift(None, 7));
    let windows = Windows::new(GRID, shift(None, 1000), 60);
    let range = test.push(NodeKind::Subquery(windows, Some(GRID)), &[inner]);
    let absent = test.push(NodeKind::Absent(chronolith_model::Labels::empty()), &[range]);
    let properties = test.plan.properties(absent);
    let needs = properties.needs.map(|needs| (needs.earliest_ms, needs.latest_ms));
    assert_eq!(needs, Some((-1167, -1007)), "the windows of both, offsets of both");
    assert_eq!(properties.reference, Reference::Shared(shift(None, 1007)));
    assert_eq!(properties.depth, 3);
    let lookback = test.plan.lookback().expect("steps are independent");
    assert_eq!((lookback.past_ms, lookback.future_ms, lookback.joins), (1167, 0, true));
    let other = test.metric("m");
    let both = test.add(absent, other);
    assert_eq!(test.plan.properties(both).reference, Reference::Mixed);
}
