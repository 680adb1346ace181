//! Plain formats: raw and CSV.
//!
//! Invariant: values are Python's `repr`; CSV times are in the zone of the request.
//! Not here: JSON.

use jiff::tz::TimeZone;

use crate::error::EvalError;
use crate::format_number::repr;
use crate::series::Series;

fn value_text(series: &Series, value: f64) -> String {
    if series.is_integral && value.fract() == 0.0 { format!("{value:.0}") } else { repr(value) }
}

/// Appends `format=raw`: `name,start,end,step|values`.
/// # Errors
/// [`EvalError::Parameter`] if the consolidation is unknown.
pub fn render_raw(list: &[Series], out: &mut String) -> Result<(), EvalError> {
    for series in list {
        out.push_str(&format!("{},{},{},{}|", series.name, series.start, series.end, series.step));
        for (idx, value) in series.points()?.iter().enumerate() {
            if idx > 0 {
                out.push(',');
            }
            out.push_str(&if value.is_nan() { "None".to_owned() } else { value_text(series, *value) });
        }
        out.push('\n');
    }
    Ok(())
}

/// Appends `format=csv`: `name,time,value` with CR LF.
/// # Errors
/// [`EvalError::Parameter`] if a time is out of range.
pub fn render_csv(list: &[Series], zone: &TimeZone, out: &mut String) -> Result<(), EvalError> {
    for series in list {
        let name = csv_field(&series.name);
        let mut time = series.start;
        for value in series.points()?.iter() {
            let timestamp = jiff::Timestamp::from_second(time)
                .map_err(|error| EvalError::Parameter(error.to_string()))?;
            let wall = zone.to_datetime(timestamp);
            let text = if value.is_nan() { String::new() } else { value_text(series, *value) };
            out.push_str(&format!("{name},{},{text}\r\n", wall.strftime("%Y-%m-%d %H:%M:%S")));
            time += series.step;
        }
    }
    Ok(())
}

/// A field in quotes if it has a separator, a quote or a line break.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
