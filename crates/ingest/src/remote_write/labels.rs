//! Labels out of the raw bytes that name a series: repeated `Label { name = 1, value = 2 }` fields.
//! Called for series that the series key cache lacks. Invariant: UTF-8 is checked here and only here.

use chronolith_model::{LabelsBuilder, Reject};

use super::WireError;
use super::wire::{Cursor, LEN};

/// Pushes the labels of `raw` as they come.
///
/// # Errors
/// [`Reject::InvalidUtf8`] for text that is not UTF-8, and for bytes that are no labels.
pub fn parse_labels(raw: &[u8], out: &mut LabelsBuilder) -> Result<(), Reject> {
    push_labels(raw, out).map_err(|_| Reject::InvalidUtf8)
}

fn push_labels(raw: &[u8], out: &mut LabelsBuilder) -> Result<(), WireError> {
    let mut section = Cursor::new(raw);
    while !section.is_empty() {
        match section.tag()? {
            (1, LEN) => {
                let (name, value) = label(section.message()?)?;
                out.push(name, value);
            }
            _ => return Err(section.wrong_type()),
        }
    }
    Ok(())
}

/// Name and value of one label; a missing field is empty, of a repeated one the last counts.
pub(super) fn label(mut message: Cursor<'_>) -> Result<(&str, &str), WireError> {
    let mut name = "";
    let mut value = "";
    while !message.is_empty() {
        match message.tag()? {
            (1, LEN) => name = message.message()?.text()?,
            (2, LEN) => value = message.message()?.text()?,
            (1 | 2, _) => return Err(message.wrong_type()),
            (_, other) => message.skip(other)?,
        }
    }
    Ok((name, value))
}
