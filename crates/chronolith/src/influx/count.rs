//! Counts of points per series and field, as a server reports them.
//!
//! Invariant: values of a field that has several types are all counted, shard group by shard group, since a
//! statement sees one type per field.

use chronolith_base::hash::{HashMap, HashSet};

use super::line;
use super::msgpack::{Cell, ResponseError, Row, RowSink, SeriesHead};
use super::server::{InfluxServer, PolicyName, TableRow};
use super::statement::quoted;
use super::time::{Period, TIME_MAX_NS, parse_time};

/// Statement that lists shards.
pub(crate) const SHOW_SHARDS: &str = "SHOW SHARDS";
/// Prefix of the column of a count, before the name of its field.
const COUNT_PREFIX: &[u8] = b"count_";

/// Returns a measurement for FROM.
pub(crate) fn source_of(target: &PolicyName, measurement: &str) -> String {
    let policy = if target.policy.is_empty() { String::new() } else { quoted(&target.policy) };
    format!("{}.{policy}.{}", quoted(&target.database), quoted(measurement))
}

/// Returns the condition on the time.
pub(crate) fn condition_of(period: Period) -> String {
    format!("time >= {} AND time <= {}", period.first_ns, period.last_ns)
}

/// Returns the key of a series: measurement and tags as in line protocol, sorted, without empty tags.
pub(crate) fn series_key(head: &SeriesHead) -> Vec<u8> {
    let mut tags: Vec<&(Vec<u8>, Vec<u8>)> =
        head.tags.iter().filter(|(_, value)| !value.is_empty()).collect();
    tags.sort();
    let mut key = Vec::new();
    line::put_measurement(&head.name, &mut key);
    tags.iter().for_each(|(name, value)| line::put_tag(name, value, &mut key));
    key
}

/// Receiver of counts: called with the key of a series, a field and its count.
pub(crate) type CountVisitor<'a> = dyn FnMut(&[u8], &[u8], u64) + 'a;

/// Counts of the fields of a measurement, handed on series by series.
struct CountSink<'a> {
    visit: &'a mut CountVisitor<'a>,
    key: Vec<u8>,
    fields: Vec<Vec<u8>>,
}

impl RowSink for CountSink<'_> {
    fn series(&mut self, head: &SeriesHead) -> anyhow::Result<()> {
        self.key = series_key(head);
        let field = |column: &Vec<u8>| column.strip_prefix(COUNT_PREFIX).unwrap_or(column).to_vec();
        self.fields = head.columns.iter().map(field).collect();
        Ok(())
    }

    fn row(&mut self, row: &Row) -> anyhow::Result<()> {
        // The first column is the time.
        for (field, cell) in self.fields.iter().zip(&row.cells).skip(1) {
            match *cell {
                Cell::Integer(count) if count > 0 => (self.visit)(&self.key, field, count.unsigned_abs()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Counts the points of a measurement in a period once, without repeating after a failure.
pub(crate) fn count_once(
    server: &InfluxServer,
    target: &PolicyName,
    measurement: &str,
    period: Period,
    visit: &mut CountVisitor<'_>,
) -> Result<(), ResponseError> {
    let source = source_of(target, measurement);
    let statement = format!("SELECT count(*::field) FROM {source} WHERE {} GROUP BY *", condition_of(period));
    let mut sink = CountSink { visit, key: Vec::new(), fields: Vec::new() };
    server.rows(&statement, &mut sink)
}

/// Counts per series and field.
pub(crate) type SeriesCounts = HashMap<Vec<u8>, HashMap<Vec<u8>, u64>>;

/// Counts the points of a measurement in a period.
pub(crate) fn count_points(
    server: &InfluxServer,
    target: &PolicyName,
    measurement: &str,
    period: Period,
) -> anyhow::Result<SeriesCounts> {
    let periods = match has_mixed_types(server, target, measurement)? {
        false => vec![period],
        true => shard_periods(&server.table(SHOW_SHARDS)?, target)?
            .into_iter()
            .filter_map(|shard| shard.intersection(period))
            .collect(),
    };
    let mut counts = SeriesCounts::default();
    for period in periods {
        let part = server.repeated(|| {
            let mut part = SeriesCounts::default();
            let mut visit = |key: &[u8], field: &[u8], count: u64| {
                *part.entry(key.to_vec()).or_default().entry(field.to_vec()).or_insert(0) += count;
            };
            count_once(server, target, measurement, period, &mut visit).map(|()| part)
        })?;
        for (key, fields) in part {
            let all = counts.entry(key).or_default();
            fields.into_iter().for_each(|(field, count)| *all.entry(field).or_insert(0) += count);
        }
    }
    Ok(counts)
}

/// Types of the fields of a measurement, by name; a field has several if its type differs between shards.
pub(crate) fn field_types(
    server: &InfluxServer,
    target: &PolicyName,
    measurement: &str,
) -> anyhow::Result<Vec<(String, String)>> {
    let policy =
        if target.policy.is_empty() { String::new() } else { format!("{}.", quoted(&target.policy)) };
    let database = quoted(&target.database);
    let statement = format!("SHOW FIELD KEYS ON {database} FROM {policy}{}", quoted(measurement));
    let rows = server.table(&statement)?;
    Ok(rows.iter().map(|row| (row.get("fieldKey").to_owned(), row.get("fieldType").to_owned())).collect())
}

fn has_mixed_types(server: &InfluxServer, target: &PolicyName, measurement: &str) -> anyhow::Result<bool> {
    let types = field_types(server, target, measurement)?;
    let names: HashSet<&str> = types.iter().map(|(name, _)| name.as_str()).collect();
    Ok(names.len() < types.len())
}

/// Returns the periods of the shard groups of a policy, ascending, from the rows of [`SHOW_SHARDS`].
pub(crate) fn shard_periods(shards: &[TableRow], target: &PolicyName) -> anyhow::Result<Vec<Period>> {
    let mut periods = Vec::new();
    for row in shards {
        if row.get("database") != target.database || row.get("retention_policy") != target.policy {
            continue;
        }
        let first_ns = parse_time(row.get("start_time"))?;
        let end_ns = parse_time(row.get("end_time"))?;
        // The end of the last shard group is cut to its second.
        let is_last = end_ns > TIME_MAX_NS - 1_000_000_000;
        let last_ns = if is_last { TIME_MAX_NS } else { end_ns - 1 };
        periods.push(Period { first_ns, last_ns: last_ns.max(first_ns) });
    }
    periods.sort_by_key(|period| period.first_ns);
    periods.dedup();
    Ok(periods)
}
