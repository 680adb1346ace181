//! Raw selects: columns, filters, merges, limits, memory. Points of equal times are in the order of their
//! tags; InfluxDB's order depends on a heap.

use std::sync::Arc;

use chronolith_model::GoRegex;
use chronolith_model::query::ColumnType;

use super::memory::{MemoryStore, environment};
use super::plans::*;
use crate::rows::error::RowError;
use crate::rows::execution::RowLimits;
use crate::rows::plan::{Expr, Fill, Literal, MathFn, Operator, Order, RowPlan};
use crate::rows::source::RowSource;
use crate::rows::stream::RowStream;

const POINTS: &str = r#"
    m,dc=x,host=a v=1,w=10i,s="p",b=true 1
    m,dc=y,host=b v=2,w=5i,s="q",b=false 1
    m,dc=z,host=c v=0.5 1
    m,dc=x,host=a v=3,w=20i 11
    m,dc=y,host=b v=4,s="q" 12
    m,dc=x,host=a v=7,w=30i 31
    m,dc=y,host=b v=-4,w=7i,b=true 32
"#;

#[test]
fn series_of_a_group_are_merged_by_time() {
    let want = "m{}\n1: 1.0 10i\n1: 2.0 5i\n1: 0.5 null\n11: 3.0 20i\n12: 4.0 null\n31: 7.0 30i\n32: -4.0 7i";
    check(POINTS, from_m().fields(&["v", "w"]), want);
    let mut plan = from_m().fields(&["v"]).column("host", tag("host"));
    plan.order = Order::Descending;
    let want = "m{}\n32: -4.0 \"b\"\n31: 7.0 \"a\"\n12: 4.0 \"b\"\n11: 3.0 \"a\"\n1: 0.5 \"c\"\n1: 2.0 \"b\"\n1: 1.0 \"a\"";
    check(POINTS, plan, want);
}

#[test]
fn rows_without_a_selected_field_are_left_out() {
    let plan = from_m().fields(&["s"]).column("host", tag("host")).column("zone", tag("zone"));
    check(POINTS, plan, "m{}\n1: \"p\" \"a\" null\n1: \"q\" \"b\" null\n12: \"q\" \"b\" null");
    check(POINTS, from_m().column("host", tag("host")), "");
    check(POINTS, from_m().fields(&["nothing"]), "");
}

#[test]
fn groups_are_in_the_order_of_their_tags() {
    let want = "m{host=a}\n1: 1.0\n11: 3.0\n31: 7.0\nm{host=b}\n1: 2.0\n12: 4.0\n32: -4.0\nm{host=c}\n1: 0.5";
    check(POINTS, from_m().fields(&["v"]).by(&["host"]), want);
    let mut plan = from_m().fields(&["v"]).by(&["host"]);
    plan.order = Order::Descending;
    let want = "m{host=c}\n1: 0.5\nm{host=b}\n32: -4.0\n12: 4.0\n1: 2.0\nm{host=a}\n31: 7.0\n11: 3.0\n1: 1.0";
    check(POINTS, plan, want);
    // Keys are sorted, and a missing tag is empty.
    let plan = from_m().fields(&["s"]).by(&["zone", "dc"]);
    check(POINTS, plan, "m{dc=x,zone=}\n1: \"p\"\nm{dc=y,zone=}\n1: \"q\"\n12: \"q\"");
}

#[test]
fn limits_are_per_series_and_per_group() {
    let mut plan = from_m().fields(&["v"]).by(&["host"]);
    plan.slice.limit = 1;
    plan.slice.offset = 1;
    check(POINTS, plan.clone(), "m{host=a}\n11: 3.0\nm{host=b}\n12: 4.0");
    plan.slice.series_limit = 1;
    plan.slice.series_offset = 1;
    check(POINTS, plan, "m{host=b}\n12: 4.0");
    // Groups count even if they have no point of the field.
    let mut plan = from_m().fields(&["w"]).by(&["host"]);
    plan.slice.series_offset = 2;
    check(POINTS, plan, "");
}

#[track_caller]
fn check_filter(filter: Expr, want: &str) {
    let mut plan = from_m().fields(&["v"]);
    plan.filter = Some(filter);
    check(POINTS, plan, want);
}

#[test]
fn conditions_on_fields() {
    let w = || field("w");
    check_filter(binary(Operator::Gt, w(), integer(5)), "m{}\n1: 1.0\n11: 3.0\n31: 7.0\n32: -4.0");
    // Integers are divided as integers in conditions.
    let third = binary(Operator::Div, w(), integer(3));
    check_filter(binary(Operator::Eq, third, integer(3)), "m{}\n1: 1.0");
    let rest = binary(Operator::Mod, w(), integer(3));
    check_filter(binary(Operator::Eq, rest, integer(1)), "m{}\n1: 1.0\n32: -4.0");
    // A null is neither equal nor different.
    check_filter(binary(Operator::Ne, w(), integer(10)), "m{}\n1: 2.0\n11: 3.0\n31: 7.0\n32: -4.0");
    check_filter(binary(Operator::Ne, field("b"), boolean(true)), "m{}\n1: 2.0");
    check_filter(binary(Operator::Eq, field("b"), boolean(false)), "m{}\n1: 2.0");
    let is_p = binary(Operator::Eq, field("s"), text("p"));
    check_filter(
        binary(Operator::Or, is_p, binary(Operator::Gt, field("v"), integer(3))),
        "m{}\n1: 1.0\n12: 4.0\n31: 7.0",
    );
    check_filter(binary(Operator::Lt, field("s"), text("q")), "");
    check_filter(binary(Operator::Eq, field("nothing"), integer(1)), "");
}

#[test]
fn conditions_on_tags() {
    let host = |name| binary(Operator::Eq, tag("host"), text(name));
    check_filter(host("b"), "m{}\n1: 2.0\n12: 4.0\n32: -4.0");
    let not_b = binary(Operator::Ne, tag("host"), text("b"));
    check_filter(not_b, "m{}\n1: 1.0\n1: 0.5\n11: 3.0\n31: 7.0");
    check_filter(
        binary(Operator::Eq, tag("zone"), text("")),
        "m{}\n1: 1.0\n1: 2.0\n1: 0.5\n11: 3.0\n12: 4.0\n31: 7.0\n32: -4.0",
    );
    check_filter(binary(Operator::Ne, tag("zone"), text("")), "");
    let large = binary(Operator::Gt, field("v"), integer(3));
    check_filter(binary(Operator::Or, host("c"), large.clone()), "m{}\n1: 0.5\n12: 4.0\n31: 7.0");
    check_filter(binary(Operator::And, host("a"), large), "m{}\n31: 7.0");
    let regex = Arc::new(GoRegex::new(".*(?-s:^[ab]$).*").expect("a pattern"));
    let matches =
        |operand, negated| Expr::Match { operand: Box::new(operand), regex: regex.clone(), negated };
    check_filter(matches(tag("host"), true), "m{}\n1: 0.5");
    check_filter(matches(field("s"), true), "m{}\n1: 1.0\n1: 2.0\n12: 4.0");
    check_filter(matches(field("w"), true), "");
}

#[test]
fn arithmetic_keeps_or_casts_types() {
    let w = || field("w");
    let plan = from_m()
        .column("a", binary(Operator::Add, field("v"), w()))
        .column("b", binary(Operator::Div, w(), integer(3)))
        .column("c", binary(Operator::Mod, w(), integer(3)))
        .column("d", binary(Operator::BitAnd, w(), integer(6)))
        .column("e", binary(Operator::BitOr, w(), integer(1)))
        .column("f", binary(Operator::BitXor, w(), integer(1)))
        .column("g", binary(Operator::Sub, integer(5), w()))
        .column("h", binary(Operator::Div, w(), integer(0)))
        .column("i", binary(Operator::Div, field("v"), integer(0)))
        .column("j", binary(Operator::Mod, field("v"), integer(0)))
        .column("k", binary(Operator::Mod, w(), integer(0)));
    let want = "m{}
        1: 11.0 3.3333333333333335 1i 2i 11i 11i -5i 0.0 0.0 null 0i
        1: 7.0 1.6666666666666667 2i 4i 5i 4i 0i 0.0 0.0 null 0i
        1: null null null null null null null null 0.0 null null
        11: 23.0 6.666666666666667 2i 4i 21i 21i -15i 0.0 0.0 null 0i
        12: null null null null null null null null 0.0 null null
        31: 37.0 10.0 0i 6i 31i 31i -25i 0.0 0.0 null 0i
        32: 3.0 2.3333333333333335 1i 6i 7i 6i -2i 0.0 0.0 null 0i";
    check(POINTS, plan, want);
}

#[test]
fn unsigned_integers_wrap_and_compare_by_value() {
    let lines = "m a=18446744073709551615u,b=-1i,c=3u 1";
    let plan = from_m()
        .column("add", binary(Operator::Add, field("a"), field("c")))
        .column("div", binary(Operator::Div, field("a"), field("c")))
        .column("less", binary(Operator::Lt, field("b"), field("a")))
        .column("equal", binary(Operator::Eq, field("b"), field("a")))
        .column("float", binary(Operator::Mul, field("c"), float(0.5)));
    check(lines, plan, "m{}\n1: 2u 6148914691236517205u true false 1.5");
}

#[test]
fn math_of_rows() {
    let math = |function, arguments: Vec<Expr>| Expr::Math(function, arguments);
    let one = |function, name| math(function, vec![field(name)]);
    let plan = from_m()
        .column("abs", one(MathFn::Abs, "v"))
        .column("sqrt", one(MathFn::Sqrt, "v"))
        .column("log", math(MathFn::Log, vec![field("v"), integer(2)]))
        .column("pow", math(MathFn::Pow, vec![field("v"), integer(2)]))
        .column("floor", one(MathFn::Floor, "v"))
        .column("round", one(MathFn::Round, "v"))
        .column("asin", one(MathFn::Asin, "v"))
        .column("ceil", one(MathFn::Ceil, "w"))
        .column("text", one(MathFn::Abs, "s"));
    let want = "m{}
        1: 1.0 1.0 0.0 1.0 1.0 1.0 1.5707963267948966 10i null
        1: 2.0 1.4142135623730951 1.0 4.0 2.0 2.0 null 5i null
        1: 0.5 0.7071067811865476 -1.0 0.25 0.0 1.0 0.5235987755982989 null null
        11: 3.0 1.7320508075688772 1.5849625007211563 9.0 3.0 3.0 null 20i null
        12: 4.0 2.0 2.0 16.0 4.0 4.0 null null null
        31: 7.0 2.6457513110645907 2.807354922057604 49.0 7.0 7.0 null 30i null
        32: 4.0 null null 16.0 -4.0 -4.0 null 7i null";
    check(POINTS, plan, want);
}

/// Kinds of one field in different series: floats come first, texts do not convert.
#[test]
fn fields_of_several_kinds_are_cast() {
    let lines = "
        m,h=a v=1i 1
        m,h=b v=2.5 2
        m,h=c v=\"x\" 3
        m,h=a v=3u 4";
    check(lines, from_m().fields(&["v"]), "m{}\n1: 1.0\n2: 2.5\n4: 3.0");
    let plan = from_m().column("v", cast("v", ColumnType::Integer));
    check(lines, plan, "m{}\n1: 1i\n2: 2i\n4: 3i");
    let plan = from_m().column("v", cast("v", ColumnType::Text));
    check(lines, plan, "m{}\n3: \"x\"");
}

#[test]
fn ranges_are_half_open() {
    check(POINTS, from_m().fields(&["v"]).between(11, 31), "m{}\n11: 3.0\n12: 4.0");
    check(POINTS, from_m().fields(&["v"]).between(13, 13), "");
}

#[test]
fn fill_replaces_nulls_of_rows() {
    let mut plan = from_m().fields(&["v", "w"]).between(1, 13);
    plan.fill = Fill::Number(Literal::Integer(9));
    check(POINTS, plan.clone(), "m{}\n1: 1.0 10i\n1: 2.0 5i\n1: 0.5 9i\n11: 3.0 20i\n12: 4.0 9i");
    plan.fill = Fill::Previous;
    check(POINTS, plan, "m{}\n1: 1.0 10i\n1: 2.0 5i\n1: 0.5 5i\n11: 3.0 20i\n12: 4.0 20i");
}

#[test]
fn subqueries_are_read_as_points() {
    let inner = || from_m().column("x", field("v")).column("y", field("w"));
    let want = "m{}\n1: 10i\n1: 5i\n1: null\n11: 20i\n12: null\n31: 30i\n32: 7i";
    check(POINTS, from_subquery(inner()).fields(&["y"]), want);
    let mut plan = from_subquery(inner()).fields(&["x"]).by(&["host"]);
    plan.filter = Some(binary(Operator::Gt, field("y"), integer(9)));
    check(POINTS, plan, "m{host=a}\n1: 1.0\n11: 3.0\n31: 7.0");
    let mut inner = inner().by(&["host"]);
    inner.slice.limit = 1;
    let plan = from_subquery(inner).fields(&["y"]).column("host", tag("host"));
    check(POINTS, plan, "m{}\n1: 10i \"a\"\n1: 5i \"b\"\n1: null \"c\"");
}

/// Tags of the outer grouping were columns, and a condition on a name that the subquery does not have was
/// false. In InfluxDB columns see what the subquery selects or groups by, and in conditions other names are
/// tags, empty if the series has none.
#[test]
fn names_that_a_subquery_does_not_have() {
    let inner = || from_m().column("x", field("v"));
    let plan = from_subquery(inner()).fields(&["x", "host"]).by(&["host"]).between(1, 2);
    check(POINTS, plan, "m{host=a}\n1: 1.0 null\nm{host=b}\n1: 2.0 null\nm{host=c}\n1: 0.5 null");
    // A name with a type has the rows of the subquery, one without has none.
    let plan = from_subquery(inner()).column("host", tag("host")).by(&["host"]).between(1, 2);
    check(POINTS, plan, "m{host=a}\n1: null\nm{host=b}\n1: null\nm{host=c}\n1: null");
    let plan = from_subquery(inner()).fields(&["host"]).by(&["host"]);
    check(POINTS, plan, "");
    let filtered = |name: &str, operator: Operator, value: &str| {
        let mut plan = from_subquery(inner().between(11, 13)).fields(&["x"]);
        plan.filter = Some(binary(operator, tag(name), text(value)));
        plan
    };
    let all = "m{}\n11: 3.0\n12: 4.0";
    check(POINTS, filtered("host", Operator::Ne, "a"), all);
    check(POINTS, filtered("absent", Operator::Eq, ""), all);
    check(POINTS, filtered("host", Operator::Eq, "a"), "");
    check(POINTS, filtered("host", Operator::Ne, "a").by(&["host"]), "m{host=b}\n12: 4.0");
}

/// SLIMIT and SOFFSET had no effect on groups of subqueries.
#[test]
fn groups_of_subqueries_are_limited() {
    let limited = |inner: RowPlan, tags: &[&str]| {
        let mut plan = from_subquery(inner.column("x", field("v")).between(1, 2)).fields(&["x"]).by(tags);
        (plan.slice.series_limit, plan.slice.series_offset) = (1, 1);
        plan
    };
    check(POINTS, limited(from_m(), &["host"]), "m{host=b}\n1: 2.0");
    // Groups of the subquery alone are no groups of the result.
    let mut plan = limited(from_m().by(&["host"]), &[]);
    plan.slice.series_offset = 0;
    check(POINTS, plan, "m{}\n1: 1.0\n1: 2.0\n1: 0.5");
}

fn many_points(series: usize, points: usize) -> MemoryStore {
    let mut store = MemoryStore::default();
    for series in 0..series {
        let host = series.to_string();
        for point in 0..points {
            let time = (point * 10 + series % 10) as i64;
            let value = Literal::Float((series * points + point) as f64);
            store.add("m", &[("host", &host)], "v", time, &value);
            store.add("m", &[("host", &host)], "w", time, &Literal::Integer(point as i64));
        }
    }
    store
}

fn many_rows() -> RowPlan {
    from_m().fields(&["v", "w"]).column("host", tag("host"))
}

/// 1.2 M rows of three columns take 80 MB; a slice of 64 k rows and its batch take a tenth.
#[test]
fn a_raw_select_is_bounded_in_memory() {
    let environment = environment(many_points(20, 60_000), 16 << 20, RowLimits::default());
    let budget = environment.ctx.budget.clone();
    let mut rows = RowStream::open(many_rows(), environment).expect("selected");
    let (mut count, mut last) = (0, i64::MIN);
    while let Some(batch) = rows.next_batch().expect("within the budget") {
        assert!(batch.times.is_sorted() && batch.times[0] >= last);
        last = batch.times[batch.times.len() - 1];
        count += batch.times.len();
    }
    assert_eq!(count, 1_200_000);
    assert!(budget.peak_bytes() > 1 << 20, "slices are counted");
}

/// `ORDER BY time DESC LIMIT 1` over a long series reads its end.
#[test]
fn a_limit_stops_reading() {
    let store = many_points(2, 100_000);
    let read = store.read.clone();
    let mut plan = many_rows();
    plan.order = Order::Descending;
    plan.slice.limit = 1;
    let found = run(plan, environment(store, u64::MAX, RowLimits::default())).expect("rows");
    assert_eq!(found, "m{}\n999991: 199999.0 99999i \"1\"\n");
    let read = read.load(std::sync::atomic::Ordering::Relaxed);
    assert!(read < 10_000, "{read} samples were read");
}

#[test]
fn limits_end_a_query() {
    let run_with = |limits| run(many_rows(), environment(many_points(3, 10), u64::MAX, limits));
    let limits = RowLimits { series_max: 2, ..RowLimits::default() };
    let error = run_with(limits).expect_err("three series");
    assert!(matches!(error, RowError::SeriesLimit { found: 3, limit: 2 }), "{error}");
    let limits = RowLimits { points_max: 20, ..RowLimits::default() };
    let error = run_with(limits).expect_err("30 points");
    assert!(matches!(error, RowError::PointLimit { limit: 20, .. }), "{error}");
    let environment = environment(many_points(3, 10), u64::MAX, RowLimits::default());
    environment.ctx.cancel();
    assert!(matches!(run(many_rows(), environment), Err(RowError::Query(_))));
}
