//! Points of gauges, sums and summaries: floats.
//!
//! Not here: histograms (`explicit`, `exponential`).

use chronolith_model::Exemplar;
use chronolith_model::sample::STALE_NAN;

use super::exemplars::{read_exemplars, sort_by_time};
use super::points::{Number, NumberPoint, SummaryPoint};
use super::refused::PointReject;
use super::series_names::Extra;
use super::writer::{Pushed, SeriesName, Writer};
use crate::remote_write::DecodeError;
use crate::remote_write::wire::Cursor;

/// Writes a point of a gauge or a sum; gauges have no exemplars in Prometheus.
pub(super) fn write_number<'a>(
    message: Cursor<'a>,
    has_exemplars: bool,
    exemplars: &mut Vec<Exemplar>,
    writer: &mut Writer<'a, '_>,
) -> Result<(), DecodeError> {
    let point = match NumberPoint::read(message) {
        Ok(point) => point,
        Err(error) => {
            writer.malformed(error);
            return Ok(());
        }
    };
    let number = match point.value {
        _ if point.head.is_stale() => Number::Double(STALE_NAN),
        Some(number) => number,
        None => {
            writer.reject(PointReject::NoValue);
            return Ok(());
        }
    };
    let Some(mut state) = writer.begin(&point.head) else { return Ok(()) };
    let name = SeriesName { identity: state.identity, suffix: "", extra: Extra::None };
    match writer.push(&mut state, name, number.as_f64())? {
        Pushed::Stored => writer.refused.rounded_count += u64::from(number.is_rounded()),
        Pushed::Dropped => {}
        Pushed::Rejected(reason) => {
            writer.roll_back(&state, reason, None);
            return Ok(());
        }
    }
    if has_exemplars && point.exemplars.count > 0 {
        exemplars.clear();
        read_exemplars(point.exemplars, point.head.time_ms(), &mut writer.refused, exemplars);
        sort_by_time(exemplars);
        if state.is_stored() {
            writer.push_exemplars(exemplars.drain(..))?;
        }
    }
    writer.finish(&state);
    Ok(())
}

/// Writes a point of a summary: sum, count and quantiles.
pub(super) fn write_summary<'a>(message: Cursor<'a>, writer: &mut Writer<'a, '_>) -> Result<(), DecodeError> {
    let point = match SummaryPoint::read(message) {
        Ok(point) => point,
        Err(error) => {
            writer.malformed(error);
            return Ok(());
        }
    };
    let Some(mut state) = writer.begin(&point.head) else { return Ok(()) };
    let or_stale = |value: f64| if point.head.is_stale() { STALE_NAN } else { value };
    let mut rejected = None;
    let mut push = |suffix: &'static str, extra: Extra, value: f64| -> Result<(), DecodeError> {
        if rejected.is_none() {
            let name = writer.series_name(&state, suffix, extra);
            if let Pushed::Rejected(reason) = writer.push(&mut state, name, or_stale(value))? {
                rejected = Some(reason);
            }
        }
        Ok(())
    };
    push("_sum", Extra::None, point.sum)?;
    push("_count", Extra::None, point.count as f64)?;
    point.for_each_quantile(|quantile| push("", Extra::Quantile(quantile.quantile), quantile.value))?;
    match rejected {
        Some(reason) => writer.roll_back(&state, reason, None),
        None => {
            writer.refused.rounded_count += u64::from(is_rounded(point.count) && state.is_stored());
            writer.finish(&state);
        }
    }
    Ok(())
}

/// Returns true if a float changes the count.
pub(super) fn is_rounded(count: u64) -> bool {
    count as f64 as u128 != u128::from(count)
}
