//! Runes of bytes: an invalid byte is a replacement character one byte wide.

/// Rune of a byte that is not part of valid UTF-8.
pub(in crate::template) const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// A decoded character or an invalid byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) struct Rune {
    pub(in crate::template) value: char,
    pub(in crate::template) width_bytes: usize,
    /// False if the byte is not part of valid UTF-8.
    pub(in crate::template) is_valid: bool,
}

/// Returns the first rune of `bytes`.
pub(in crate::template) fn first_rune(bytes: &[u8]) -> Option<Rune> {
    let first = *bytes.first()?;
    if first.is_ascii() {
        return Some(Rune { value: char::from(first), width_bytes: 1, is_valid: true });
    }
    let prefix = bytes.get(..4).unwrap_or(bytes);
    let valid = match std::str::from_utf8(prefix) {
        Ok(text) => text,
        Err(error) => {
            prefix.get(..error.valid_up_to()).and_then(|part| std::str::from_utf8(part).ok()).unwrap_or("")
        }
    };
    Some(match valid.chars().next() {
        Some(value) => Rune { value, width_bytes: value.len_utf8(), is_valid: true },
        None => Rune { value: REPLACEMENT, width_bytes: 1, is_valid: false },
    })
}

/// Iterator over the runes of bytes.
pub(in crate::template) struct Runes<'a>(pub(in crate::template) &'a [u8]);

impl Iterator for Runes<'_> {
    type Item = Rune;

    fn next(&mut self) -> Option<Rune> {
        let rune = first_rune(self.0)?;
        self.0 = self.0.get(rune.width_bytes..).unwrap_or_default();
        Some(rune)
    }
}

/// Returns the number of runes.
pub(in crate::template) fn rune_count(bytes: &[u8]) -> usize {
    Runes(bytes).count()
}

/// Returns the first `rune_count` runes.
pub(in crate::template) fn truncate(bytes: &[u8], rune_count: usize) -> &[u8] {
    let len = Runes(bytes).take(rune_count).map(|rune| rune.width_bytes).sum();
    bytes.get(..len).unwrap_or(bytes)
}

/// Returns `bytes` as text, each invalid byte as a replacement character (as Go's JSON has it).
pub(in crate::template) fn to_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => Runes(bytes).map(|rune| rune.value).collect(),
    }
}
