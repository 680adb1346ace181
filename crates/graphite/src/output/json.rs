//! JSON: series with datapoints, dygraph, rickshaw.
//!
//! Invariants: separators equal Python's `json`; characters outside of ASCII are escaped.
//! Not here: lists of nodes (`find`), the table of functions (`functions`).

use super::RenderOptions;
use crate::error::EvalError;
use crate::format_number::push_repr;
use crate::series::Series;

/// Usual length of a point.
const POINT_BYTES: usize = 24;
/// Whole numbers below it are exact, and fit into 64 bits.
const INTEGERS_END: f64 = 9_007_199_254_740_992.0;

/// Appends a string with quotes, as ASCII.
pub(super) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

/// Appends a value; infinities overflow any reader's double.
pub(super) fn push_value(out: &mut String, value: f64, is_integral: bool) {
    if value.is_nan() {
        out.push_str("null");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "1e9999" } else { "-1e9999" });
    } else if is_integral && value.fract() == 0.0 && value.abs() < INTEGERS_END && value != 0.0 {
        out.push_str(itoa::Buffer::new().format(value as i64));
    } else if is_integral && value.fract() == 0.0 {
        out.push_str(&format!("{value:.0}"));
    } else {
        push_repr(value, out);
    }
}

/// Writes `body` within the call that `options` asks for.
fn wrapped(
    out: &mut String,
    options: &RenderOptions,
    body: impl FnOnce(&mut String) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    if let Some(function) = &options.jsonp {
        out.push_str(function);
        out.push('(');
    }
    body(out)?;
    if options.jsonp.is_some() {
        out.push(')');
    }
    Ok(())
}

fn separate(out: &mut String, idx: usize) {
    if idx > 0 {
        out.push_str(", ");
    }
}

/// Times of the points of a series, the end included.
fn times(series: &Series) -> Result<impl Iterator<Item = i64>, EvalError> {
    let step = i64::try_from(series.values_per_point)
        .ok()
        .and_then(|count| series.step.checked_mul(count))
        .filter(|step| *step > 0);
    let step = step.ok_or_else(|| EvalError::Parameter(format!("series {} has no step", series.name)))?;
    let start = series.start;
    let end = series.end;
    Ok((0..).map(move |idx: i64| start + idx * step).take_while(move |time| *time <= end))
}

/// Appends `format=json`.
/// # Errors
/// [`EvalError::Parameter`] if a series has no step or an unknown consolidation.
pub fn render(list: &[Series], options: &RenderOptions, out: &mut String) -> Result<(), EvalError> {
    wrapped(out, options, |out| push_list(list, options, &[], out))
}

/// Metadata of an answer. Texts are JSON values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderMeta {
    /// Metadata of the request.
    pub request: String,
    /// Metadata of each series, in the order of the series.
    pub series: Vec<String>,
}

/// Appends `format=json` in the form that Metrictank has with `meta=true`.
/// # Errors
/// As [`render`].
pub fn render_with_meta(
    list: &[Series],
    meta: &RenderMeta,
    options: &RenderOptions,
    out: &mut String,
) -> Result<(), EvalError> {
    wrapped(out, options, |out| {
        out.push_str(&format!("{{\"version\": \"v0.1\", \"meta\": {}, \"series\": ", meta.request));
        push_list(list, options, &meta.series, out)?;
        out.push('}');
        Ok(())
    })
}

/// Appends the list of series, each with the value of the same index in `metas` if there is one.
fn push_list(
    list: &[Series],
    options: &RenderOptions,
    metas: &[String],
    out: &mut String,
) -> Result<(), EvalError> {
    // Metadata of another series would name the wrong archive.
    assert!(metas.is_empty() || metas.len() == list.len(), "metadata is of each series or of none");
    out.push('[');
    let mut count = 0;
    let is_empty = list.iter().all(|series| series.values.is_empty());
    for (idx, series) in list.iter().enumerate().filter(|_| !is_empty) {
        let points = series.points()?;
        let times = times(series)?;
        let keeps = |value: f64| !options.no_null_points || !value.is_nan();
        if options.no_null_points && !points.iter().any(|value| keeps(*value)) {
            continue;
        }
        out.reserve(points.len().saturating_mul(POINT_BYTES));
        separate(out, count);
        count += 1;
        push_head(out, series);
        let kept = points.iter().copied().zip(times).filter(|(value, _)| keeps(*value));
        for (idx, (value, time)) in kept.enumerate() {
            separate(out, idx);
            out.push('[');
            push_value(out, value, series.is_integral && series.values_per_point == 1);
            out.push_str(", ");
            out.push_str(itoa::Buffer::new().format(time));
            out.push(']');
        }
        out.push(']');
        if let Some(meta) = metas.get(idx) {
            out.push_str(", \"meta\": ");
            out.push_str(meta);
        }
        out.push('}');
    }
    out.push(']');
    Ok(())
}

/// Appends target and tags, up to the first point.
fn push_head(out: &mut String, series: &Series) {
    out.push_str("{\"target\": ");
    push_string(out, &series.name);
    out.push_str(", \"tags\": {");
    for (idx, (key, value)) in series.tags.iter().enumerate() {
        separate(out, idx);
        push_string(out, key);
        out.push_str(": ");
        push_string(out, value);
    }
    out.push_str("}, \"datapoints\": [");
}

/// Appends `format=rickshaw`.
/// # Errors
/// [`EvalError::Parameter`] if a series has no step.
pub fn render_rickshaw(list: &[Series], options: &RenderOptions, out: &mut String) -> Result<(), EvalError> {
    wrapped(out, options, |out| {
        out.push('[');
        for (idx, series) in list.iter().enumerate() {
            separate(out, idx);
            out.push_str("{\"target\": ");
            push_string(out, &series.name);
            out.push_str(", \"datapoints\": [");
            let times = times(series)?.take_while(|time| *time < series.end);
            for (idx, (value, time)) in series.values.iter().zip(times).enumerate() {
                separate(out, idx);
                out.push_str(&format!("{{\"x\": {time}, \"y\": "));
                push_value(out, *value, series.is_integral);
                out.push('}');
            }
            out.push_str("]}");
        }
        out.push(']');
        Ok(())
    })
}

/// Appends `format=dygraph`: one row per time of the first series.
/// # Errors
/// [`EvalError::Parameter`] if a series has more points than the first, as graphite-web fails then.
pub fn render_dygraph(list: &[Series], options: &RenderOptions, out: &mut String) -> Result<(), EvalError> {
    wrapped(out, options, |out| {
        let Some(first) = list.first() else {
            out.push_str("{}");
            return Ok(());
        };
        let times: Vec<i64> = times(first)?.take_while(|time| *time < first.end).collect();
        if let Some(longer) = list.iter().find(|series| series.values.len() > times.len()) {
            return Err(EvalError::Parameter(format!(
                "series {} has more points than the first one",
                longer.name
            )));
        }
        if list.iter().any(|series| series.values.len() < times.len()) {
            return Err(EvalError::Parameter("series have different numbers of points".to_owned()));
        }
        out.push_str("{\"labels\" : [\"Time\"");
        for series in list {
            out.push_str(", ");
            push_string(out, &series.name);
        }
        out.push_str("], \"data\" : [");
        for (idx, time) in times.iter().enumerate() {
            separate(out, idx);
            out.push_str(&format!("[{time}000"));
            for series in list {
                out.push_str(", ");
                match series.values.get(idx).copied().unwrap_or(f64::NAN) {
                    f64::INFINITY => out.push_str("Infinity"),
                    f64::NEG_INFINITY => out.push_str("-Infinity"),
                    value => push_value(out, value, series.is_integral),
                }
            }
            out.push(']');
        }
        out.push_str("]}");
        Ok(())
    })
}
