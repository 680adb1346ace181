//! Labels out of the raw bytes that name a series: repeated `Label { name = 1, value = 2 }` fields.
//! Called for series that the series key cache lacks. Invariant: UTF-8 is checked here and only here.

use chronolith_model::{LabelsBuilder, Reject};

use super::WireError;
use super::wire::{Cursor, LEN};

/// Pushes the labels of `raw` as they come. On an error `out` has labels that name the series in messages,
/// with the replacement character for bytes that are not UTF-8.
///
/// # Errors
/// [`Reject::InvalidUtf8`] for text that is not UTF-8, and for bytes that are no labels.
pub fn parse_labels(raw: &[u8], out: &mut LabelsBuilder) -> Result<(), Reject> {
    match push_labels(raw, out) {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(Reject::InvalidUtf8),
    }
}

/// Returns true if all text is UTF-8.
fn push_labels(raw: &[u8], out: &mut LabelsBuilder) -> Result<bool, WireError> {
    let mut section = Cursor::new(raw);
    let mut is_valid = true;
    while !section.is_empty() {
        match section.tag()? {
            (1, LEN) => {
                let label = label(section.message()?)?;
                is_valid &= push_label(label, out);
            }
            _ => return Err(section.wrong_type()),
        }
    }
    Ok(is_valid)
}

/// Name and value of a label as they were sent.
pub(super) struct WireLabel<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Pushes a label; bytes that are not UTF-8 are replaced. Returns true if there are none.
pub(super) fn push_label(label: WireLabel<'_>, out: &mut LabelsBuilder) -> bool {
    match (std::str::from_utf8(label.name), std::str::from_utf8(label.value)) {
        (Ok(name), Ok(value)) => {
            out.push(name, value);
            true
        }
        _ => {
            out.push(&String::from_utf8_lossy(label.name), &String::from_utf8_lossy(label.value));
            false
        }
    }
}

/// Reads one label; a missing field is empty, of a repeated one the last counts.
pub(super) fn label(mut message: Cursor<'_>) -> Result<WireLabel<'_>, WireError> {
    let mut label = WireLabel { name: b"", value: b"" };
    while !message.is_empty() {
        match message.tag()? {
            (1, LEN) => label.name = message.message()?.rest(),
            (2, LEN) => label.value = message.message()?.rest(),
            (1 | 2, _) => return Err(message.wrong_type()),
            (_, other) => message.skip(other)?,
        }
    }
    Ok(label)
}
