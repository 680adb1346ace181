//! Remote write into a database of InfluxDB: a series is the field `value` of the measurement that its metric
//! name is, its other labels are the tags.
//!
//! Invariants: the wire keys are slices of the request, so that nothing is copied; samples that InfluxDB
//! cannot store (NaN, staleness markers, infinities) are left out and counted.
//! Not here: the opposite view of a store (`tsdb::query::metrics`).

use chronolith_model::batch::LabelSource;
use chronolith_model::kind::is_reserved;
use chronolith_model::{FIELD_LABEL, LabelsBuilder, METRIC_NAME, Reject, SeriesKey, TimeUnit, WriteBatch};

use super::labels;

/// Number of the protocol in [`LabelSource::protocol`].
const PROTOCOL: u8 = 3;
/// Field of all series, as InfluxDB 1.8 names it.
const FIELD: &str = "value";
/// Measurement of series without a metric name, as InfluxDB 1.8 names it.
const UNNAMED: &str = "prom_metric_not_specified";
/// Tag key that InfluxDB refuses.
const TIME: &str = "time";

fn parse_labels(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    labels::parse_labels(key.raw, out)?;
    let mut is_named = false;
    for (name, value) in out.iter() {
        if name == TIME || (name.starts_with('_') && is_reserved(name)) {
            return Err(Reject::ReservedLabel);
        }
        is_named |= name == METRIC_NAME && !value.is_empty();
    }
    if !is_named {
        out.push(METRIC_NAME, UNNAMED);
    }
    out.push(FIELD_LABEL, FIELD);
    Ok(())
}

/// Protocol of batches that [`into_measurements`] made.
pub const MEASUREMENTS: LabelSource = LabelSource { protocol: PROTOCOL, parse: parse_labels, is_typed: true };

/// Turns a batch of [`super::decode`] into one for the store of a database, whose times are nanoseconds.
/// Histograms, exemplars, metadata and start timestamps are left out. Returns the number of samples that are.
pub fn into_measurements(batch: &mut WriteBatch) -> u64 {
    batch.source = MEASUREMENTS;
    let before = batch.times.len();
    let mut histograms = batch.histograms.iter().map(|(idx, _)| *idx as usize).peekable();
    let mut kept = 0;
    for series in &mut batch.series {
        let start = kept;
        for at in series.samples.start as usize..series.samples.end as usize {
            let is_histogram = histograms.next_if_eq(&at).is_some();
            let (Some(&time_ms), Some(&value)) = (batch.times.get(at), batch.values.get(at)) else { break };
            if is_histogram || !value.is_finite() {
                continue;
            }
            if let (Some(time), Some(kept_value)) = (batch.times.get_mut(kept), batch.values.get_mut(kept)) {
                *time = TimeUnit::Nano.from_ms(time_ms);
                *kept_value = value;
                kept += 1;
            }
        }
        series.samples = index(start)..index(kept);
    }
    batch.times.truncate(kept);
    batch.values.truncate(kept);
    batch.series.retain(|series| !series.samples.is_empty());
    batch.histograms.clear();
    batch.exemplars.clear();
    batch.metadata.clear();
    batch.start_times.clear();
    (before - kept) as u64
}

/// Index of a sample of the batch as `u32`, which always fits.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use chronolith_base::MemoryBudget;

    use super::super::encode::RequestEncoder;
    use super::super::{decode, new_batch};
    use super::*;

    #[test]
    fn series_become_fields_and_what_is_not_finite_is_left_out() {
        let mut encoder = RequestEncoder::new();
        let samples = [(1, 1.0), (2, f64::NAN), (3, 3.0)];
        encoder.push_series([(METRIC_NAME, "up"), ("job", "a")], &samples);
        encoder.push_series([(METRIC_NAME, "gone")], &[(1, f64::INFINITY)]);
        encoder.push_series([("job", "b")], &[(i64::MAX, 4.0)]);
        encoder.push_series([(METRIC_NAME, "m"), ("time", "x")], &[(1, 1.0)]);
        let body = encoder.compressed();
        let mut held = MemoryBudget::new("test", 1 << 20).reserve(0).expect("room");
        let mut batch = new_batch();
        decode(&body, 1 << 20, &mut held, &mut batch).expect("is decoded");
        assert_eq!(into_measurements(&mut batch), 2);
        assert_eq!(
            (&*batch.times, &*batch.values),
            (&[1_000_000, 3_000_000, i64::MAX, 1_000_000][..], &[1.0, 3.0, 4.0, 1.0][..])
        );
        let mut names = Vec::new();
        for idx in 0..batch.series.len() {
            let mut builder = LabelsBuilder::new();
            let parsed = (batch.source.parse)(batch.key_of(idx), &mut builder);
            builder.sort();
            let labels = parsed.map(|()| builder.finish().to_string());
            names.push(format!("{labels:?} {:?}", batch.series[idx].samples));
        }
        assert_eq!(
            names,
            [
                r#"Ok("up{__field__=\"value\", job=\"a\"}") 0..2"#,
                r#"Ok("prom_metric_not_specified{__field__=\"value\", job=\"b\"}") 2..3"#,
                "Err(ReservedLabel) 3..4",
            ]
        );
    }
}
