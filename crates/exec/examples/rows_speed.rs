//! Speed of row plans over samples in memory: windowed means per host, and raw rows. Run with
//! `cargo run --release -p chronolith-exec --example rows_speed [threads]`.

use std::sync::Arc;
use std::time::Instant;

use chronolith_base::{SpareThreads, SystemClock};
use chronolith_exec::rows::execution::{RowEnvironment, RowLimits};
use chronolith_exec::rows::plan::{
    Aggregate, Call, Column, Expr, Function, Input, RowPlan, Source, Variable, Windows,
};
use chronolith_exec::rows::source::RowSource;
use chronolith_exec::rows::stream::RowStream;
use chronolith_model::query::{Opened, Read, SampleSource, VecBatches, Wanted};
use chronolith_model::{
    Columns, FIELD_LABEL, Labels, METRIC_NAME, QueryError, Queryable, ReadContext, SeriesRead, TimeRange,
};

const HOSTS: usize = 100;
const SECOND: i64 = 1_000_000_000;
const DAYS: i64 = 7;

struct Memory(Vec<(Labels, Arc<Columns>)>);

struct Samples(Arc<Columns>);

impl SampleSource for Samples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let from = self.0.times.partition_point(|time| *time < range.start);
        let to = self.0.times.partition_point(|time| *time < range.end);
        out.times.extend_from_slice(&self.0.times[from..to]);
        out.values.extend_from_slice(&self.0.values[from..to]);
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        Some((*self.0.times.first()?, *self.0.times.last()?))
    }
}

impl chronolith_model::query::Source for Memory {
    fn open(&self, read: Read, _ctx: &ReadContext) -> Result<Opened, QueryError> {
        assert_eq!(read.wanted, Wanted::Series);
        let matchers = &read.request.matchers;
        let selected =
            self.0.iter().filter(|(labels, _)| matchers.iter().all(|matcher| matcher.matches_labels(labels)));
        let read = |(labels, columns): &(Labels, Arc<Columns>)| SeriesRead {
            labels: labels.clone(),
            samples: Box::new(Samples(columns.clone())),
        };
        Ok(Opened::Series(Box::new(VecBatches::new(selected.map(read).collect()))))
    }
}

fn memory() -> Memory {
    let mut series: Vec<(Labels, Arc<Columns>)> = (0..HOSTS)
        .map(|host| {
            let host_name = format!("host_{host}");
            let pairs = [(METRIC_NAME, "m"), (FIELD_LABEL, "v"), ("host", host_name.as_str())];
            let mut columns = Columns::default();
            (0..DAYS * 8640).for_each(|at| columns.push(at * 10 * SECOND, (at % 997) as f64 * 0.25));
            (Labels::from_pairs(pairs), Arc::new(columns))
        })
        .collect();
    series.sort_by(|a, b| a.0.cmp(&b.0));
    Memory(series)
}

fn plan() -> RowPlan {
    let mut plan = RowPlan::new(vec![Source::Measurement { store: 0, name: "m".into() }]);
    plan.range = TimeRange::new(0, DAYS * 86_400 * SECOND);
    plan
}

fn windows_of(function: Aggregate, by: &[&str]) -> RowPlan {
    let mut plan = plan();
    let variable = Variable::Field { name: "v".into(), cast: None };
    plan.calls.push(Call { function: Function::Aggregate(function), input: Input::Points(variable) });
    plan.columns.push(Column { name: "x".into(), expr: Expr::Call(0) });
    plan.windows = Some(Windows { width: 60 * SECOND, offset: 0, zone: None });
    plan.group_tags = by.iter().map(|tag| Arc::from(*tag)).collect();
    plan
}

fn raw(by: &[&str]) -> RowPlan {
    let mut plan = plan();
    let variable = Variable::Field { name: "v".into(), cast: None };
    plan.columns.push(Column { name: "v".into(), expr: Expr::Variable(variable) });
    plan.group_tags = by.iter().map(|tag| Arc::from(*tag)).collect();
    plan
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn main() {
    let threads = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2_usize);
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    let ctx = ctx.with_spare_threads(Arc::new(SpareThreads::new(threads - 1)), threads);
    let stores: Vec<Arc<dyn Queryable>> = vec![Arc::new(memory())];
    let environment = RowEnvironment { stores, ctx, limits: RowLimits::default(), seed: 1 };
    let cases = [
        ("mean by host", windows_of(Aggregate::Mean, &["host"])),
        ("mean of all", windows_of(Aggregate::Mean, &[])),
        ("max by host", windows_of(Aggregate::Max, &["host"])),
        ("median by host", windows_of(Aggregate::Median, &["host"])),
        ("raw by host", raw(&["host"])),
        ("raw of all", raw(&[])),
    ];
    for (name, plan) in cases {
        let mut best = f64::INFINITY;
        let mut rows = 0;
        for _ in 0..5 {
            let start = Instant::now();
            rows = 0;
            let mut stream = RowStream::open(plan.clone(), environment.clone()).expect("selected");
            while let Some(batch) = stream.next_batch().expect("rows") {
                rows += batch.times.len();
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        let samples = HOSTS as f64 * DAYS as f64 * 8640.0;
        println!("{name}: {rows} rows, {best:.3} s, {:.1} ns per sample", best * 1e9 / samples);
    }
}
