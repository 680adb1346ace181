//! INTO: rows become points of the target.
//!
//! Invariants: a null writes nothing; a row with an infinite value is left out, as in InfluxDB; tags of the
//! group are tags of the point; points are written in batches of [`BATCH_VALUES`] values.

use std::borrow::Cow;

use chronolith_exec::rows::column::{RowBatch, RowColumn};
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::{FIELD_LABEL, KIND_LABEL, LabelsBuilder, METRIC_NAME, StoreId, WordKind, WriteBatch};

use super::cells::cell;
use super::session::{Session, StatementError};
use crate::ast::{Target, TargetName};
use crate::result::Cell;

/// Values of a batch.
const BATCH_VALUES: usize = 10_000;
/// Bytes of the names, tags and texts of a batch.
const BATCH_BYTES: usize = 4 << 20;

/// Writes rows as points.
pub(super) struct PointWriter<'a> {
    session: &'a Session<'a>,
    /// Store of the policy, or why there is none: an error once there is something to write.
    store: Result<StoreId, String>,
    /// Target measurement; `None`: the measurement of the source.
    measurement: Option<String>,
    /// Last columns of the rows that are tags of their points.
    point_tag_count: usize,
    batch: WriteBatch,
    /// Bytes of the names, tags and texts of the batch.
    batch_bytes: usize,
    written: u64,
}

impl<'a> PointWriter<'a> {
    pub(super) fn new(
        session: &'a Session<'a>,
        target: &Target,
        point_tag_count: usize,
    ) -> Result<PointWriter<'a>, StatementError> {
        let catalog = session.storage.catalog();
        let database = session.writable(&catalog, &target.database)?;
        let policy = database.policy(&target.policy);
        let store = policy.map(|policy| policy.store.clone());
        let store = store.ok_or_else(|| format!("retention policy not found: {}", target.policy));
        let measurement = match &target.name {
            TargetName::Name(name) => Some(name.clone()),
            TargetName::SameAsSource => None,
        };
        let batch = WriteBatch::from_labels();
        Ok(PointWriter { session, store, measurement, point_tag_count, batch, batch_bytes: 0, written: 0 })
    }

    /// Adds the rows of a batch; `columns` are their names, `time` first.
    pub(super) fn add(&mut self, rows: &RowBatch, columns: &[String]) -> Result<(), StatementError> {
        let name = self.measurement.clone().unwrap_or_else(|| rows.series.name.to_string());
        let mut is_written = vec![false; rows.times.len()];
        let columns: Vec<(&RowColumn, &String)> = rows.columns.iter().zip(columns.iter().skip(1)).collect();
        let (fields, point_tags) = columns.split_at(columns.len().saturating_sub(self.point_tag_count));
        let is_infinite =
            |column, row| matches!(cell(column, row), Cell::Float(value) if value.is_infinite());
        let has_infinite: Vec<bool> = (0..rows.times.len())
            .map(|row| fields.iter().any(|(column, _)| is_infinite(column, row)))
            .collect();
        for &(column, field) in fields {
            let mut builder = LabelsBuilder::new();
            let labels = |builder: &mut LabelsBuilder, kind: WordKind, row: usize| {
                builder.clear();
                builder.push(FIELD_LABEL, field);
                if kind != WordKind::Float {
                    builder.push(KIND_LABEL, kind.label_value());
                }
                builder.push(METRIC_NAME, &name);
                let tags = rows.series.tags.iter().filter(|(_, value)| !value.is_empty());
                tags.for_each(|(tag, value)| builder.push(tag, value));
                for (tag, value) in tags_of_row(rows, point_tags, row) {
                    builder.push(tag, &value);
                }
                builder.sort();
                builder.finish()
            };
            for (row, &time) in rows.times.iter().enumerate().filter(|(row, _)| !has_infinite[*row]) {
                let (kind, bits, text): (WordKind, u64, Option<&[u8]>) = match cell(column, row) {
                    Cell::Null | Cell::Time(_) => continue,
                    Cell::Float(value) => (WordKind::Float, value.to_bits(), None),
                    Cell::Integer(value) => (WordKind::Integer, word_of_integer(value), None),
                    Cell::Unsigned(value) => (WordKind::Unsigned, word_of_unsigned(value), None),
                    Cell::Boolean(value) => (WordKind::Boolean, f64::from(u8::from(value)).to_bits(), None),
                    Cell::Text(text) => (WordKind::Text, 0, Some(text)),
                };
                is_written[row] = true;
                let of_kind = labels(&mut builder, kind, row);
                match text {
                    Some(text) => {
                        let untyped = of_kind.filtered(|label| label != KIND_LABEL);
                        self.batch.push_texts(&untyped, &[(time, text)]);
                    }
                    None => self.batch.push_labels(&of_kind, &[(time, f64::from_bits(bits))]),
                }
                self.batch_bytes += of_kind.heap_bytes() + text.map_or(0, <[u8]>::len);
                if self.batch.times.len() >= BATCH_VALUES || self.batch_bytes >= BATCH_BYTES {
                    self.flush()?;
                }
            }
        }
        self.written += is_written.into_iter().filter(|is_written| *is_written).count() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StatementError> {
        if !self.batch.times.is_empty() {
            self.session.ctx.check()?;
            let store = self.store.clone().map_err(StatementError::Text)?;
            self.session.storage.write(&store, &mut self.batch).map_err(StatementError::Text)?;
            self.batch.clear();
            self.batch_bytes = 0;
        }
        Ok(())
    }

    /// Writes the rest; returns the number of points.
    pub(super) fn finish(mut self) -> Result<u64, StatementError> {
        self.flush()?;
        Ok(self.written)
    }
}

/// Returns the tags that a row has of its own: columns of tags that have a value and are not in GROUP BY.
fn tags_of_row<'r>(
    rows: &'r RowBatch,
    point_tags: &'r [(&RowColumn, &String)],
    row: usize,
) -> impl Iterator<Item = (&'r str, Cow<'r, str>)> {
    let is_grouped =
        |tag: &str| rows.series.tags.iter().any(|(name, value)| **name == *tag && !value.is_empty());
    point_tags.iter().filter_map(move |(column, tag)| match cell(column, row) {
        Cell::Text(value) if !value.is_empty() && !is_grouped(tag) => {
            Some((tag.as_str(), String::from_utf8_lossy(value)))
        }
        _ => None,
    })
}
