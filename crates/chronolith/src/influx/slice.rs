//! Copy and comparison of one slice: the points of a measurement within a part of a shard group.
//!
//! Invariants: within a slice every field has one type, so a statement without casts returns exact values;
//! a slice that is copied twice is the same as one that is copied once.

use anyhow::Context as _;
use chronolith_base::hash::{HashSet, hash_bytes};

use super::count::{condition_of, count_once, series_key, source_of};
use super::line;
use super::msgpack::{Cell, Row, RowSink, SeriesHead};
use super::report::Findings;
use super::server::{InfluxServer, PolicyName};
use super::time::Period;

/// Bytes of lines that are sent at a time, about.
const BATCH_BYTES: usize = 1 << 20;

/// Points of a slice that were copied.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(super) stored_points: u64,
    pub(super) expired_points: u64,
    pub(super) refused: Findings,
}

/// Measurement of a retention policy.
pub(crate) struct SliceSource<'a> {
    pub(super) target: &'a PolicyName,
    pub(super) measurement: &'a str,
    /// Fields whose integers are unsigned.
    pub(super) unsigned_fields: &'a HashSet<Vec<u8>>,
}

/// Copies the points of a slice.
pub(crate) fn copy(
    from: &InfluxServer,
    to: &InfluxServer,
    slice: &SliceSource<'_>,
    period: Period,
) -> anyhow::Result<Copied> {
    let source = source_of(slice.target, slice.measurement);
    let statement = format!("SELECT *::field FROM {source} WHERE {} GROUP BY *", condition_of(period));
    from.repeated(|| {
        let mut sink = LineSink {
            to,
            slice,
            key: Vec::new(),
            fields: Vec::new(),
            lines: Vec::new(),
            point_count: 0,
            copied: Copied::default(),
        };
        from.rows(&statement, &mut sink)?;
        sink.send().map_err(super::msgpack::ResponseError::Sink)?;
        Ok(sink.copied)
    })
}

/// Rows as lines, sent in batches.
struct LineSink<'a> {
    to: &'a InfluxServer,
    slice: &'a SliceSource<'a>,
    key: Vec<u8>,
    /// Per column the field key with the equals sign, and whether its integers are unsigned.
    fields: Vec<(Vec<u8>, bool)>,
    lines: Vec<u8>,
    point_count: u64,
    copied: Copied,
}

impl LineSink<'_> {
    fn send(&mut self) -> anyhow::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let refused = self.to.write(self.slice.target, &self.lines)?;
        let count = refused.count.min(self.point_count);
        self.copied.stored_points += self.point_count - count;
        if refused.is_expired {
            self.copied.expired_points += count;
        } else {
            let PolicyName { database, policy } = self.slice.target;
            let measurement = self.slice.measurement;
            self.copied
                .refused
                .add(count, || format!("{database}.{policy} {measurement}: {}", refused.message));
        }
        self.lines.clear();
        self.point_count = 0;
        Ok(())
    }
}

impl RowSink for LineSink<'_> {
    fn series(&mut self, head: &SeriesHead) -> anyhow::Result<()> {
        self.key = series_key(head);
        let field = |column: &Vec<u8>| {
            let mut key = Vec::new();
            line::put_field_key(column, &mut key);
            key.push(b'=');
            (key, self.slice.unsigned_fields.contains(column))
        };
        self.fields = head.columns.iter().map(field).collect();
        Ok(())
    }

    fn row(&mut self, row: &Row) -> anyhow::Result<()> {
        let Some(&Cell::Integer(time_ns)) = row.cells.first() else {
            anyhow::bail!("the first column of a row is no time");
        };
        let out = &mut self.lines;
        let start = out.len();
        out.extend_from_slice(&self.key);
        let mut separator = b' ';
        for ((field, is_unsigned), cell) in self.fields.iter().zip(&row.cells).skip(1) {
            if *cell == Cell::Null {
                continue;
            }
            out.push(separator);
            separator = b',';
            out.extend_from_slice(field);
            match *cell {
                Cell::Integer(value) if *is_unsigned => line::put_unsigned(value.unsigned_abs(), out),
                Cell::Integer(value) => line::put_integer(value, out),
                Cell::Unsigned(value) => line::put_unsigned(value, out),
                Cell::Float(value) => line::put_float(value, out),
                Cell::Boolean(value) => line::put_boolean(value, out),
                text => line::put_text(row.text(text), out),
            }
        }
        if separator == b' ' {
            out.truncate(start);
            return Ok(());
        }
        line::put_time(time_ns, out);
        self.point_count += 1;
        if self.lines.len() >= BATCH_BYTES { self.send() } else { Ok(()) }
    }
}

/// Sum over the counts of a slice: equal for equal counts, whatever their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CountDigest {
    sum: u64,
    /// Fields of series.
    pub(super) field_count: u64,
    point_count: u64,
}

/// Returns the digest of the counts of a slice at a server. Cost: no memory per series.
pub(crate) fn digest(
    server: &InfluxServer,
    target: &PolicyName,
    measurement: &str,
    period: Period,
) -> anyhow::Result<CountDigest> {
    let count = || {
        let mut digest = CountDigest::default();
        let mut bytes = Vec::new();
        let mut visit = |key: &[u8], field: &[u8], count: u64| {
            bytes.clear();
            bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(field);
            bytes.extend_from_slice(&count.to_le_bytes());
            digest.sum = digest.sum.wrapping_add(hash_bytes(&bytes));
            digest.field_count += 1;
            digest.point_count += count;
        };
        count_once(server, target, measurement, period, &mut visit)?;
        Ok(digest)
    };
    server.repeated(count).with_context(|| format!("counting the points of {measurement:?}"))
}
