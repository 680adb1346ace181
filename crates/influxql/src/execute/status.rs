//! SHOW QUERIES, KILL QUERY, SHOW STATS, SHOW DIAGNOSTICS, SHOW SHARDS, SHOW SHARD GROUPS.
//!
//! A shard is a shard group of a retention policy: windows of its width in which it has samples.

use std::collections::BTreeSet;

use chronolith_base::utc::rfc3339_seconds;
use chronolith_model::TimeUnit;
use chronolith_model::databases::RetentionPolicy;

use super::session::{Session, StatementError};
use crate::ast::{Statement, format_duration_go};
use crate::result::{Cell, ResultSink, SeriesHeader};

pub(super) fn status(
    session: &Session<'_>,
    statement: &Statement,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    match statement {
        Statement::ShowQueries => show_queries(session, sink),
        Statement::KillQuery { id, .. } => match session.storage.kill(*id) {
            true => Ok(()),
            false => Err(StatementError::Text(format!("no such query id: {id}"))),
        },
        Statement::ShowDiagnostics(module) => show_diagnostics(session, module, sink),
        Statement::ShowStats(module) => show_statistics(session, module, sink),
        Statement::ShowShards => show_shards(session, sink),
        _ => show_shard_groups(session, sink),
    }
}

fn show_queries(session: &Session<'_>, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    sink.series(&SeriesHeader::new("", &["qid", "query", "database", "duration", "status"]))?;
    for query in session.storage.queries() {
        // As InfluxDB, with the unit in which the duration has few digits.
        let duration_ns = i64::try_from(query.duration_ns).unwrap_or(i64::MAX);
        let unit_ns = [1_000_000_000, 1_000_000, 1_000].into_iter().find(|unit| duration_ns >= *unit);
        let unit_ns = unit_ns.unwrap_or(1);
        sink.row(&[
            Cell::Integer(i64::try_from(query.id).unwrap_or(i64::MAX)),
            Cell::text(&query.text),
            Cell::text(&query.database),
            Cell::text(&format_duration_go(duration_ns / unit_ns * unit_ns)),
            Cell::text(if query.is_killed { "killed" } else { "running" }),
        ])?;
    }
    Ok(())
}

fn show_diagnostics(
    session: &Session<'_>,
    module: &str,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    for (name, facts) in session.storage.diagnostics() {
        if !module.is_empty() && module != name {
            continue;
        }
        let columns: Vec<&str> = facts.iter().map(|(name, _)| name.as_str()).collect();
        sink.series(&SeriesHeader::new(&name, &columns))?;
        let cells: Vec<Cell<'_>> = facts.iter().map(|(_, value)| Cell::text(value)).collect();
        sink.row(&cells)?;
    }
    Ok(())
}

fn show_statistics(
    session: &Session<'_>,
    module: &str,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    for stats in session.storage.statistics() {
        if !module.is_empty() && module != stats.module {
            continue;
        }
        let columns: Vec<&str> = stats.values.iter().map(|(name, _)| name.as_str()).collect();
        let header = SeriesHeader::new(&stats.module, &columns);
        sink.series(&SeriesHeader { tags: stats.tags.clone(), ..header })?;
        let cells: Vec<Cell<'_>> = stats.values.iter().map(|(_, value)| Cell::Float(*value)).collect();
        sink.row(&cells)?;
    }
    Ok(())
}

/// Starts of the shard groups of a policy, from the times that its store has samples for.
fn shard_groups(session: &Session<'_>, policy: &RetentionPolicy) -> Result<BTreeSet<i64>, StatementError> {
    let width_ns = policy.shard_group_ns;
    let ranges = session.storage.sample_ranges(&policy.store, session.ctx)?;
    let starts = ranges.into_iter().flat_map(|range| {
        let group_of = move |time| TimeUnit::Nano.shard_group_of(time, width_ns).start;
        let last = group_of((range.end - 1).max(range.start));
        let next = move |start: &i64| start.checked_add(width_ns).map(group_of);
        std::iter::successors(Some(group_of(range.start)), next).take_while(move |start| *start <= last)
    });
    Ok(starts.collect())
}

fn show_shards(session: &Session<'_>, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    let columns = [
        "id",
        "database",
        "retention_policy",
        "shard_group",
        "start_time",
        "end_time",
        "expiry_time",
        "owners",
    ];
    let catalog = session.storage.catalog();
    let mut id = 0;
    for database in &catalog.databases {
        sink.series(&SeriesHeader::new(&database.name, &columns))?;
        for policy in &database.policies {
            for start_ns in shard_groups(session, policy)? {
                id += 1;
                let end_ns = start_ns.saturating_add(policy.shard_group_ns);
                sink.row(&[
                    Cell::Integer(id),
                    Cell::text(&database.name),
                    Cell::text(&policy.name),
                    Cell::Integer(id),
                    Cell::text(&seconds_text(start_ns)),
                    Cell::text(&seconds_text(end_ns)),
                    Cell::text(&expiry_text(policy, end_ns)),
                    Cell::text(""),
                ])?;
            }
        }
    }
    Ok(())
}

fn show_shard_groups(session: &Session<'_>, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    let columns = ["id", "database", "retention_policy", "start_time", "end_time", "expiry_time"];
    let catalog = session.storage.catalog();
    sink.series(&SeriesHeader::new("shard groups", &columns))?;
    let mut id = 0;
    for database in &catalog.databases {
        for policy in &database.policies {
            for start_ns in shard_groups(session, policy)? {
                id += 1;
                let end_ns = start_ns.saturating_add(policy.shard_group_ns);
                sink.row(&[
                    Cell::Integer(id),
                    Cell::text(&database.name),
                    Cell::text(&policy.name),
                    Cell::text(&seconds_text(start_ns)),
                    Cell::text(&seconds_text(end_ns)),
                    Cell::text(&expiry_text(policy, end_ns)),
                ])?;
            }
        }
    }
    Ok(())
}

fn seconds_text(time_ns: i64) -> String {
    rfc3339_seconds(time_ns.div_euclid(1_000_000))
}

fn expiry_text(policy: &RetentionPolicy, end_ns: i64) -> String {
    seconds_text(end_ns.saturating_add(policy.duration_ns))
}
