//! Tests of the lowering: SELECT in, plan out, as text.

use std::fmt::Write;

use chronolith_exec::rows::plan::{
    Expr, Fill, Input, OPEN_END, OPEN_START, Order, RowPlan, Slice, Source, Variable,
};
use chronolith_model::time::TimeUnit;

use crate::ast::Statement;
use crate::parse_statement;
use crate::semantics::tests::TwoMeasurements;
use crate::semantics::{check_select, expand_select};

use super::{LoweredSelect, lower_select};

fn lower(text: &str, unit: TimeUnit) -> Result<LoweredSelect, String> {
    let statement = parse_statement(text).map_err(|error| error.to_string())?;
    let Statement::Select(select) = statement else { panic!("{text} is no SELECT") };
    let checked = check_select(*select, 1_000_000_000_000).map_err(|error| error.to_string())?;
    let expanded = expand_select(checked, &TwoMeasurements).map_err(|error| error.to_string())?;
    lower_select(&expanded, &TwoMeasurements, unit).map_err(|error| error.to_string())
}

fn variable(variable: &Variable) -> String {
    match variable {
        Variable::Field { name, cast: Some(cast) } => format!("{name}:{cast:?}"),
        Variable::Field { name, cast: None } => name.to_string(),
        Variable::Tag { name } => format!("tag {name}"),
    }
}

fn expr(operand: &Expr) -> String {
    match operand {
        Expr::Variable(of) => variable(of),
        Expr::Call(idx) => format!("#{idx}"),
        Expr::Literal(literal) => format!("{literal:?}"),
        Expr::Binary(op, left, right) => format!("({} {op:?} {})", expr(left), expr(right)),
        Expr::Match { operand, negated, .. } => format!("({} matches, negated {negated})", expr(operand)),
        Expr::Math(function, args) => {
            format!("{function:?}({})", args.iter().map(expr).collect::<Vec<_>>().join(", "))
        }
    }
}

fn input(of: &Input) -> String {
    match of {
        Input::Points(of) => variable(of),
        Input::Call(call) => format!("{:?} of {}", call.function, input(&call.input)),
    }
}

/// Everything of a plan that is not the default.
fn render(plan: &RowPlan) -> String {
    let mut text = String::new();
    for source in &plan.sources {
        match source {
            Source::Measurement { store, name } => write!(text, "{store}/{name} ").unwrap(),
            Source::Subquery(inner) => write!(text, "[{}] ", render(inner)).unwrap(),
        }
    }
    for column in &plan.columns {
        write!(text, "{}={} ", column.name, expr(&column.expr)).unwrap();
    }
    for (idx, call) in plan.calls.iter().enumerate() {
        write!(text, "#{idx} {:?} of {} ", call.function, input(&call.input)).unwrap();
    }
    if let Some(filter) = &plan.filter {
        write!(text, "where {} ", expr(filter)).unwrap();
    }
    if (plan.range.start, plan.range.end) != (OPEN_START, OPEN_END) {
        let end = if plan.range.end == OPEN_END { "open".to_owned() } else { plan.range.end.to_string() };
        let start =
            if plan.range.start == OPEN_START { "open".to_owned() } else { plan.range.start.to_string() };
        write!(text, "times {start}..{end} ").unwrap();
    }
    if !plan.group_tags.is_empty() {
        write!(text, "by {} ", plan.group_tags.join(",")).unwrap();
    }
    if let Some(windows) = &plan.windows {
        let zone = windows.zone.as_ref().and_then(|zone| zone.iana_name()).unwrap_or("UTC");
        write!(text, "windows {}+{} {zone} ", windows.width, windows.offset).unwrap();
    }
    if plan.fill != Fill::default() {
        write!(text, "fill {:?} ", plan.fill).unwrap();
    }
    if plan.order != Order::default() {
        text += "descending ";
    }
    if plan.slice != Slice::default() {
        let slice = plan.slice;
        let [limit, offset] = [slice.limit, slice.offset];
        write!(text, "rows {limit}@{offset} series {}@{} ", slice.series_limit, slice.series_offset).unwrap();
    }
    text.trim_end().to_owned()
}

#[track_caller]
fn check(text: &str, want: &str) {
    let got = match lower(text, TimeUnit::Nano) {
        Ok(lowered) => render(&lowered.plan),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(got, want, "{text}");
}

#[test]
fn raw_selects() {
    check("SELECT f FROM cpu", "0/cpu f=f:Float");
    check("SELECT f, host AS h FROM cpu", "0/cpu f=f:Float h=tag host");
    check("SELECT i + 1 * u, abs(f) FROM mem", "0/mem i_u=(i:Float Add (Integer(1) Mul u)) abs=Abs(f)");
    check("SELECT i FROM cpu, mem", "0/cpu 0/mem i=i:Float");
    check("SELECT i FROM /m/", "0/mem i=i:Float");
    check(
        "SELECT f::integer, s FROM cpu GROUP BY host, host, region LIMIT 2 OFFSET 1 SLIMIT 4 SOFFSET 3",
        "0/cpu f=f:Integer s=s:Text by host,region rows 2@1 series 4@3",
    );
    check("SELECT * FROM mem GROUP BY *", "0/mem free=free:Integer i=i:Float by dc,host");
    check("SELECT nope FROM cpu", "0/cpu nope=nope");
}

#[test]
fn conditions() {
    let check = |condition: &str, want: &str| {
        check(&format!("SELECT f FROM cpu WHERE {condition}"), &format!("0/cpu f=f:Float {want}"));
    };
    check("time >= 5 AND time < 10", "times 5..10");
    check("time > 5", "times 6..open");
    check("time <= 5", "times open..6");
    check("host = 'a' AND f > 1", r#"where ((tag host Eq Text([97])) And (f:Float Gt Integer(1)))"#);
    check(
        "host =~ /a/ OR s !~ /b/",
        "where ((tag host matches, negated false) Or (s:Text matches, negated true))",
    );
    check("nope = ''", "where (tag nope Eq Text([]))");
    check(
        "f = 1 OR f = 2 OR f = 3 AND b = true",
        "where (((f:Float Eq Integer(1)) Or (f:Float Eq Integer(2))) Or ((f:Float Eq Integer(3)) And (b:Boolean Eq Boolean(true))))",
    );
    check(
        "f = 1 AND f = 2 AND f = 3 AND f = 4",
        "where (((f:Float Eq Integer(1)) And (f:Float Eq Integer(2))) And ((f:Float Eq Integer(3)) And (f:Float Eq Integer(4))))",
    );
    check("f * 2 + i > 3", "where (((f:Float Mul Integer(2)) Add i:Integer) Gt Integer(3))");
    check("f < 10s", "where Boolean(false)");
    check("now() > f OR f = 1", "where (Boolean(false) Or (f:Float Eq Integer(1)))");
    check("pow(f, 2) > 4", "where (Pow(f:Float, Integer(2)) Gt Integer(4))");
    check("false", "where Boolean(false)");
}

#[test]
fn calls_and_windows() {
    check(
        "SELECT mean(f), max(i) FROM cpu",
        "0/cpu mean=#0 max=#1 #0 Aggregate(Mean) of f:Float #1 Aggregate(Max) of i:Integer",
    );
    check(
        "SELECT mean(f) / 2 + mean(f) FROM cpu",
        "0/cpu mean_mean=((#0 Div Integer(2)) Add #0) #0 Aggregate(Mean) of f:Float",
    );
    check(
        "SELECT count(DISTINCT s) FROM cpu",
        "0/cpu count=#0 #0 Aggregate(Count) of Aggregate(Distinct) of s:Text",
    );
    check(
        "SELECT sum(i) FROM cpu WHERE time >= 0 AND time < 1m GROUP BY time(10s, 3s), host fill(linear) ORDER BY time DESC tz('Europe/Berlin')",
        "0/cpu sum=#0 #0 Aggregate(Sum) of i:Integer times 0..60000000000 by host windows 10000000000+3000000000 Europe/Berlin fill Linear descending",
    );
    check(
        "SELECT sum(i) FROM cpu GROUP BY time(1m) fill(7)",
        "0/cpu sum=#0 #0 Aggregate(Sum) of i:Integer times open..1000000000001 windows 60000000000+0 UTC fill Number(Integer(7))",
    );
    check(
        "SELECT sum(i) FROM cpu fill(7)",
        "0/cpu sum=#0 #0 Aggregate(Sum) of i:Integer fill Number(Integer(7))",
    );
    check(
        "SELECT max(f), host, s FROM cpu",
        "0/cpu max=#0 host=tag host s=s:Text #0 Aggregate(Max) of f:Float",
    );
    check(
        "SELECT percentile(f, 99.5), sample(i, 3) FROM cpu",
        "0/cpu percentile=#0 sample=#1 #0 Aggregate(Percentile(99.5)) of f:Float #1 Aggregate(Sample(3)) of i:Integer",
    );
    check(
        "SELECT top(f, host, region, 2) FROM cpu",
        r#"0/cpu top=#0 host=tag host region=tag region #0 Aggregate(Top(Extremes { count: 2, distinct_tags: ["host", "region"] })) of f:Float"#,
    );
    check(
        "SELECT mean(*) FROM mem",
        "0/mem mean_free=#0 mean_i=#1 #0 Aggregate(Mean) of free:Integer #1 Aggregate(Mean) of i:Float",
    );
    check(
        "SELECT mean(f) FROM cpu WHERE time < 5 GROUP BY time(-1s)",
        "0/cpu mean=#0 #0 Aggregate(Mean) of f:Float times open..5",
    );
}

/// A tag that top() takes was lost with INTO, and points of one time became one.
#[test]
fn tags_of_top_are_last_with_into() {
    let lowered = lower("SELECT top(f, host, i, 2), s INTO tops FROM cpu", TimeUnit::Nano).expect("a plan");
    let want = r#"0/cpu top=#0 s=s:Text host=tag host #0 "#;
    assert!(render(&lowered.plan).starts_with(want), "{}", render(&lowered.plan));
    assert_eq!(lowered.point_tag_count, 1);
    let without = lower("SELECT top(f, host, 2) FROM cpu", TimeUnit::Nano).expect("a plan");
    assert_eq!(without.point_tag_count, 0);
}

#[test]
fn transformations() {
    check(
        "SELECT derivative(f) FROM cpu",
        "0/cpu derivative=#0 #0 Transform(Derivative { unit: 1000000000, non_negative: false }) of f:Float",
    );
    check(
        "SELECT non_negative_derivative(mean(f)) FROM cpu WHERE time < 5 GROUP BY time(1m)",
        "0/cpu non_negative_derivative=#0 #0 Transform(Derivative { unit: 60000000000, non_negative: true }) of Aggregate(Mean) of f:Float times open..5 windows 60000000000+0 UTC",
    );
    check(
        "SELECT elapsed(s, 1ms), moving_average(f, 3) FROM cpu",
        "0/cpu elapsed=#0 moving_average=#1 #0 Transform(Elapsed { unit: 1000000 }) of s:Text #1 Transform(MovingAverage { count: 3 }) of f:Float",
    );
    check(
        "SELECT relative_strength_index(f, 3), chande_momentum_oscillator(f, 4, 2, 'simple') FROM cpu",
        "0/cpu relative_strength_index=#0 chande_momentum_oscillator=#1 \
         #0 Transform(Indicator(Indicator { kind: RelativeStrengthIndex, period: 3, hold: None, warmup: Some(Exponential) })) of f:Float \
         #1 Transform(Indicator(Indicator { kind: ChandeMomentumOscillator, period: 4, hold: Some(2), warmup: Some(Simple) })) of f:Float",
    );
    check(
        "SELECT holt_winters_with_fit(first(f), 5, 2) FROM cpu WHERE time < 5 GROUP BY time(1m)",
        "0/cpu holt_winters_with_fit=#0 #0 Transform(HoltWinters(HoltWinters { horizon: 5, season: 2, with_fit: true })) of Aggregate(First) of f:Float times open..5 windows 60000000000+0 UTC",
    );
}

#[test]
fn subqueries() {
    check(
        "SELECT mean(m) FROM (SELECT max(f) AS m FROM cpu WHERE time < 9 GROUP BY time(1m), host) WHERE time >= 3 GROUP BY time(5m)",
        "[0/cpu m=#0 #0 Aggregate(Max) of f:Float times open..9 by host windows 60000000000+0 UTC fill None] mean=#0 \
         #0 Aggregate(Mean) of m:Float times 3..1000000000001 windows 300000000000+0 UTC",
    );
    // A tag that the subquery selects is a field of the outer query; one that it groups by is a tag.
    check(
        "SELECT count(host) FROM (SELECT f, host FROM cpu)",
        "[0/cpu f=f:Float host=tag host] count=#0 #0 Aggregate(Count) of host",
    );
    check(
        "SELECT f, host FROM (SELECT f FROM cpu GROUP BY host)",
        "[0/cpu f=f:Float by host] f=f:Float host=tag host",
    );
    check(
        "SELECT f FROM (SELECT f, host FROM cpu) WHERE host = 'a'",
        "[0/cpu f=f:Float host=tag host] f=f:Float where (host Eq Text([97]))",
    );
    check(
        "SELECT max(m) FROM (SELECT mean(f) AS m FROM cpu) WHERE time < 9 GROUP BY time(1m)",
        "[0/cpu m=#0 #0 Aggregate(Mean) of f:Float windows 60000000000+0 UTC fill None] max=#0 \
         #0 Aggregate(Max) of m:Float times open..9 windows 60000000000+0 UTC",
    );
    check("SELECT f FROM (SELECT f FROM cpu), mem", "[0/cpu f=f:Float] 0/mem f=f:Float");
}

/// A tag is no field: `host::field` over a subquery with the tag gave the value of the tag.
#[test]
fn a_tag_cast_to_a_field_is_no_variable_of_the_source() {
    check("SELECT host::field FROM (SELECT f FROM cpu GROUP BY host)", "[0/cpu f=f:Float by host] host=\0");
    check("SELECT host::field FROM (SELECT f, host FROM cpu)", "[0/cpu f=f:Float host=tag host] host=\0");
}

/// A column without a type gave rows of nulls.
#[test]
fn a_column_without_a_type_is_no_variable() {
    let text = "SELECT b FROM (SELECT f ^ f AS b, f FROM cpu)";
    check(text, "[0/cpu b=(f:Float BitXor f:Float) f=f:Float] b=\0");
}

/// The column was null next to a column with a type, too, where InfluxDB has its values.
#[test]
fn a_column_without_a_type_has_values_but_no_points() {
    let inner = "[0/cpu b=(f:Float BitXor f:Float) f=f:Float]";
    let over = |columns: &str| format!("SELECT {columns} FROM (SELECT f ^ f AS b, f FROM cpu)");
    check(&over("b, f"), &format!("{inner} b=b f=f:Float"));
    check(&format!("{} WHERE b = true", over("f")), &format!("{inner} f=f:Float where (b Eq Boolean(true))"));
    check(&over("last(f), b"), &format!("{inner} last=#0 b=b #0 Aggregate(Last) of f:Float"));
    check(
        &over("last(b), last(f)"),
        &format!("{inner} last=#0 last_1=#1 #0 Aggregate(Last) of \0 #1 Aggregate(Last) of f:Float"),
    );
}

#[test]
fn fields_of_a_type_that_a_function_does_not_take() {
    check("SELECT mean(s) FROM cpu", "error: unsupported mean iterator type: *query.stringInterruptIterator");
    check(
        "SELECT non_negative_derivative(b) FROM cpu",
        "error: unsupported derivative iterator type: *query.booleanInterruptIterator",
    );
    check(
        "SELECT cumulative_sum(s) FROM cpu",
        "error: unsupported cumulative sum iterator type: *query.stringInterruptIterator",
    );
    check("SELECT min(b) FROM cpu", "0/cpu min=#0 #0 Aggregate(Min) of b:Boolean");
    check("SELECT f + 10s FROM cpu", "error: 10s is no value of a field or tag");
}

#[test]
fn stores_are_listed_once() {
    let lowered = lower("SELECT f FROM d.r.cpu, d.q.cpu, d.r.mem", TimeUnit::Nano).unwrap();
    assert_eq!(render(&lowered.plan), "0/cpu 1/cpu 0/mem f=f:Float");
    let names: Vec<String> =
        lowered.stores.iter().map(|store| format!("{}.{}", store.database, store.policy)).collect();
    assert_eq!(names, ["d.r", "d.q"]);
}

#[test]
fn stores_in_milliseconds_have_times_in_milliseconds() {
    let text = "SELECT mean(f) FROM cpu WHERE time >= 1500000 AND time <= 3s GROUP BY time(1s, 10ms)";
    let lowered = lower(text, TimeUnit::Milli).unwrap();
    let want = "0/cpu mean=#0 #0 Aggregate(Mean) of f:Float times 2..3001 windows 1000+10 UTC";
    assert_eq!(render(&lowered.plan), want);
}

#[test]
fn long_conditions_are_shallow() {
    let text = format!("SELECT f FROM cpu WHERE f = 1{}", " OR f = 1".repeat(50_000));
    let plan = lower(&text, TimeUnit::Nano).unwrap().plan;
    let mut depth = 0;
    let mut operand = plan.filter.as_ref().unwrap();
    while let Expr::Binary(_, left, _) = operand {
        operand = left;
        depth += 1;
    }
    assert_eq!(depth, 17);
    let long = format!("SELECT f{} FROM cpu", " + f".repeat(1_001));
    assert_eq!(lower(&long, TimeUnit::Nano).unwrap_err(), "expression of 1001 operators, at most 1000");
}

#[test]
fn the_deepest_statements_fit_a_small_stack() {
    let run = || {
        let subqueries = format!("SELECT f FROM {}cpu{}", "(SELECT f FROM ".repeat(126), ")".repeat(126));
        lower(&subqueries, TimeUnit::Nano).unwrap();
        let parens = format!("SELECT {}f{} FROM cpu", "(1 + ".repeat(126), ")".repeat(126));
        lower(&parens, TimeUnit::Nano).unwrap();
        let calls = format!("SELECT {}f{} FROM cpu", "abs(".repeat(126), ")".repeat(126));
        lower(&calls, TimeUnit::Nano).unwrap();
        let condition =
            format!("SELECT f FROM cpu WHERE {}f = 1{}", "(f = 2 OR ".repeat(126), ")".repeat(126));
        lower(&condition, TimeUnit::Nano).unwrap();
    };
    let small = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
    small.join().unwrap();
}
