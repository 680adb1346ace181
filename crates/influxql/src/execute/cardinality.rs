//! SHOW ... CARDINALITY: numbers of measurements, series, tag keys, tag values, field keys.
//!
//! Invariants: all numbers are exact. Without EXACT, measurements and series are counted over the database
//! and have InfluxDB's column for estimates; the others are counted per measurement in both forms.

use chronolith_model::{METRIC_NAME, Matcher};

use super::metadata::{key_selector, refuse_time, split_time};
use super::schema::Schema;
use super::session::{Session, StatementError};
use crate::ast::{Cardinality, CardinalityOf, Measurement, Page, Source};
use crate::result::{Cell, ResultSink, SeriesHeader};

const ESTIMATE: &str = "cardinality estimation";
const COUNT: &str = "count";

pub(super) fn show_cardinality(
    session: &Session<'_>,
    show: &Cardinality,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let is_estimate = !show.is_exact
        && show.sources.is_empty()
        && show.condition.is_none()
        && show.dimensions.is_empty()
        && show.page == Page::default();
    let statement = match &show.of {
        CardinalityOf::Measurements => Some("SHOW MEASUREMENT EXACT CARDINALITY"),
        CardinalityOf::Series => Some("SHOW SERIES EXACT CARDINALITY"),
        CardinalityOf::TagKeys => Some("SHOW TAG KEY EXACT CARDINALITY"),
        CardinalityOf::FieldKeys => Some("SHOW FIELD KEY CARDINALITY"),
        CardinalityOf::TagValues(_) => None,
    };
    if let Some(statement) = statement {
        refuse_time(split_time(session, show.condition.as_ref())?.0, statement)?;
    }
    let schema = super::metadata::schema(session, &show.database, show.condition.as_ref())?;
    match &show.of {
        CardinalityOf::Measurements => {
            let column = if is_estimate { ESTIMATE } else { COUNT };
            let count = schema.measurements(&show.sources)?.len();
            if count == 0 && !is_estimate { Ok(()) } else { one(sink, "", column, count) }
        }
        CardinalityOf::Series if is_estimate => {
            one(sink, "", ESTIMATE, schema.series_keys(&show.sources)?.len())
        }
        of => {
            for measurement in schema.measurements(&show.sources)? {
                let count = count_of(&schema, of, &measurement)?;
                if count > 0 {
                    one(sink, &measurement, COUNT, count)?;
                }
            }
            Ok(())
        }
    }
}

fn count_of(schema: &Schema<'_>, of: &CardinalityOf, measurement: &str) -> Result<usize, StatementError> {
    Ok(match of {
        CardinalityOf::Measurements => 1,
        CardinalityOf::Series => {
            let source = Source::Measurement(Measurement::named(measurement));
            schema.series_keys(std::slice::from_ref(&source))?.len()
        }
        CardinalityOf::FieldKeys => schema.fields(&[measurement])?.len(),
        CardinalityOf::TagKeys => schema.tag_keys(measurement)?.len(),
        CardinalityOf::TagValues(keys) => {
            let selects = key_selector(keys)?;
            let mut count = 0;
            for key in schema.tag_keys(measurement)?.iter().filter(|key| selects(key)) {
                count += schema.values(key, vec![Matcher::equal(METRIC_NAME, measurement)])?.len();
            }
            count
        }
    })
}

fn one(sink: &mut dyn ResultSink, name: &str, column: &str, count: usize) -> Result<(), StatementError> {
    sink.series(&SeriesHeader::new(name, &[column]))?;
    Ok(sink.row(&[Cell::Integer(i64::try_from(count).unwrap_or(i64::MAX))])?)
}
