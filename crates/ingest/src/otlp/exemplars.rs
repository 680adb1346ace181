//! Exemplars of points: labels for trace and span, and attributes while they fit.
//!
//! Invariants: one that cannot be stored is counted, and its point is stored. Attributes keep their names.
//! Not here: which series of a histogram gets which exemplar (`explicit`).

use chronolith_model::{Exemplar, ExemplarReject, LabelsBuilder};

use super::attributes::Attributes;
use super::limits::EXEMPLAR_CHARS_MAX;
use super::points::{Exemplars, Number, double, millis};
use super::refused::{PointReject, Refused};
use crate::remote_write::WireError;
use crate::remote_write::wire::{Cursor, FIXED64, LEN};

const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";
const TRACE_ID_BYTES: usize = 16;
const SPAN_ID_BYTES: usize = 8;

/// Appends the exemplars of a point in the order of the request. One without a time gets the time of its
/// point.
pub(super) fn read_exemplars(
    exemplars: Exemplars<'_>,
    point_ms: i64,
    refused: &mut Refused,
    out: &mut Vec<Exemplar>,
) {
    let read = exemplars.for_each(|message| -> Result<(), WireError> {
        match exemplar(message, point_ms) {
            Ok(exemplar) => out.push(exemplar),
            Err(reason) => refused.note_exemplar(reason),
        }
        Ok(())
    });
    debug_assert!(read.is_ok(), "the message of the point was read before");
}

/// Sorts as storage takes them.
pub(super) fn sort_by_time(exemplars: &mut [Exemplar]) {
    exemplars.sort_by(|a, b| a.time_ms.cmp(&b.time_ms).then(a.value.total_cmp(&b.value)));
}

struct Fields<'a> {
    attributes: Attributes<'a>,
    time_ns: u64,
    value: Option<Number>,
    trace_id: &'a [u8],
    span_id: &'a [u8],
}

fn exemplar(message: Cursor<'_>, point_ms: i64) -> Result<Exemplar, ExemplarReject> {
    let fields = Fields::read(message).map_err(|_| ExemplarReject::BadReference)?;
    let value = fields.value.ok_or(ExemplarReject::BadReference)?.as_f64();
    let mut labels = LabelsBuilder::new();
    push_id(TRACE_ID, fields.trace_id, TRACE_ID_BYTES, &mut labels)?;
    push_id(SPAN_ID, fields.span_id, SPAN_ID_BYTES, &mut labels)?;
    let id_count = labels.len();
    let mut attributes = LabelsBuilder::new();
    let pushed = fields.attributes.for_each(|attribute| {
        // The ids of the exemplar itself take precedence.
        if labels.iter().take(id_count).all(|(name, _)| name != attribute.key) {
            attributes.push(attribute.key, &attribute.text()?);
        }
        Ok(())
    });
    pushed.map_err(|reject| match reject {
        PointReject::InvalidUtf8 => ExemplarReject::InvalidUtf8,
        PointReject::TooManyAttributes => ExemplarReject::LabelsTooLong,
        _ => ExemplarReject::BadReference,
    })?;
    let chars = |labels: &LabelsBuilder| -> usize {
        labels.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum()
    };
    if chars(&labels) + chars(&attributes) <= EXEMPLAR_CHARS_MAX {
        attributes.iter().for_each(|(name, value)| labels.push(name, value));
    }
    labels.remove_empty();
    labels.sort();
    if labels.iter().any(|(name, _)| name.is_empty()) {
        return Err(ExemplarReject::EmptyLabelName);
    }
    if labels.repeated_name().is_some() {
        return Err(ExemplarReject::DuplicateLabel);
    }
    let time_ms = match millis(fields.time_ns) {
        0 => point_ms,
        time_ms => time_ms,
    };
    debug_assert!(id_count <= 2 && labels.iter().all(|(_, value)| !value.is_empty()), "ids and attributes");
    Ok(Exemplar { labels: labels.finish(), value, time_ms })
}

impl<'a> Fields<'a> {
    fn read(message: Cursor<'a>) -> Result<Fields<'a>, WireError> {
        let mut at = message;
        let attributes = Attributes::new(message, 7);
        let mut out = Fields { attributes, time_ns: 0, value: None, trace_id: &[], span_id: &[] };
        while !at.is_empty() {
            match at.tag()? {
                (2, FIXED64) => out.time_ns = at.fixed64()?,
                (3, FIXED64) => out.value = Some(Number::Double(double(&mut at)?)),
                (4, LEN) => out.span_id = at.message()?.rest(),
                (5, LEN) => out.trace_id = at.message()?.rest(),
                (6, FIXED64) => out.value = Some(Number::Int(at.fixed64()?.cast_signed())),
                (7, LEN) => drop(at.message()?),
                (2..=7, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }
}

/// Pushes an id as lower-case hexadecimal digits, unless it is missing or zero.
fn push_id(name: &str, id: &[u8], len: usize, out: &mut LabelsBuilder) -> Result<(), ExemplarReject> {
    if !id.is_empty() && id.len() != len {
        return Err(ExemplarReject::BadReference);
    }
    debug_assert!(id.is_empty() || id.len() == len, "ids have one length");
    if id.iter().any(|byte| *byte != 0) {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        let text: String = id.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        out.push(name, &text);
    }
    Ok(())
}
