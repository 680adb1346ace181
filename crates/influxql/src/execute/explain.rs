//! EXPLAIN and EXPLAIN ANALYZE.
//!
//! The lines of EXPLAIN are InfluxDB's, with estimates from postings: there are no shards, so the number of
//! stores stands for the number of shards.

use chronolith_exec::rows::source::RowSource as _;
use chronolith_model::query::Selector;
use chronolith_model::{METRIC_NAME, Matcher};

use super::session::{Session, StatementError};
use super::typed_schema::{StoreSchema, reserve_select};
use crate::ast::{Select, format_duration_go};
use crate::lowering::{LoweredSelect, lower_select};
use crate::result::{Cell, ResultSink, SeriesHeader};
use crate::semantics::{check_select, expand_select};

pub(super) fn explain(
    session: &Session<'_>,
    select: &Select,
    is_analyzed: bool,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    if is_analyzed { analyze(session, select, sink) } else { plan(session, select, sink) }
}

fn plan(session: &Session<'_>, select: &Select, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    let memory = reserve_select(session, select)?;
    let checked = check_select(select.clone(), session.now_ns).map_err(StatementError::text)?;
    let range = checked.bounds.range();
    let schema = StoreSchema::new(session, checked.schema_range(), memory);
    let expanded = expand_select(checked, &schema)?;
    let LoweredSelect { plan, stores, .. } =
        lower_select(&expanded, &schema, chronolith_model::TimeUnit::Nano)?;
    let mut series = 0;
    let mut samples = 0;
    for source in &plan.sources {
        let chronolith_exec::rows::plan::Source::Measurement { store, name } = source else { continue };
        let Some(store) = stores.get(*store) else { continue };
        let matchers = [Matcher::equal(METRIC_NAME, name)];
        let source = session.policy_source(&store.database, &store.policy)?;
        let estimate = source.estimate(&Selector { matchers: &matchers, range }, session.ctx)?;
        series += estimate.unwrap_or_default().series;
        samples += estimate.unwrap_or_default().samples;
    }
    sink.series(&SeriesHeader::new("", &["QUERY PLAN"]))?;
    for field in &expanded.fields {
        sink.row(&[Cell::text(&format!("EXPRESSION: {}", field.expr))])?;
    }
    for (name, value) in [
        ("NUMBER OF SHARDS", stores.len() as u64),
        ("NUMBER OF SERIES", series),
        ("CACHED VALUES", samples),
        ("NUMBER OF FILES", 0),
        ("NUMBER OF BLOCKS", 0),
        ("SIZE OF BLOCKS", 0),
    ] {
        sink.row(&[Cell::text(&format!("{name}: {value}"))])?;
    }
    Ok(())
}

fn analyze(session: &Session<'_>, select: &Select, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    let start_ns = session.storage.mono_ns();
    let mut open = super::select::open_select(session, select)?;
    let planned_ns = session.storage.mono_ns();
    let mut series_count = 0u64;
    let mut row_count = 0u64;
    let mut last = None;
    while let Some(batch) = open.stream.next_batch().map_err(super::select::row_error)? {
        row_count += batch.times.len() as u64;
        if last.as_ref() != Some(&batch.series) {
            series_count += 1;
            last = Some(batch.series.clone());
        }
    }
    let end_ns = session.storage.mono_ns();
    let time =
        |from: u64, to: u64| format_duration_go(i64::try_from(to.saturating_sub(from)).unwrap_or(i64::MAX));
    sink.series(&SeriesHeader::new("", &["EXPLAIN ANALYZE"]))?;
    for line in [
        ".".to_owned(),
        "└── select".to_owned(),
        format!("    ├── execution_time: {}", time(planned_ns, end_ns)),
        format!("    ├── planning_time: {}", time(start_ns, planned_ns)),
        format!("    ├── total_time: {}", time(start_ns, end_ns)),
        format!("    ├── series: {series_count}"),
        format!("    └── rows: {row_count}"),
    ] {
        sink.row(&[Cell::text(&line)])?;
    }
    Ok(())
}
