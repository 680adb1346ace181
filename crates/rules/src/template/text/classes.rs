//! Classes of characters as Go defines them, from the Unicode tables of the regular expressions.

use std::sync::OnceLock;

use chronolith_model::GoRegex;

/// Returns true for a letter or a decimal digit (`unicode.IsLetter`, `unicode.IsDigit`).
pub(in crate::template) fn is_letter_or_digit(c: char) -> bool {
    static CLASS: OnceLock<Option<GoRegex>> = OnceLock::new();
    if c.is_ascii() { c.is_ascii_alphanumeric() } else { is_in_class(&CLASS, r"[\pL\p{Nd}]", c) }
}

/// Returns true for letters, marks, numbers, punctuation, symbols and the ASCII space (`unicode.IsPrint`).
pub(in crate::template) fn is_printable(c: char) -> bool {
    static CLASS: OnceLock<Option<GoRegex>> = OnceLock::new();
    if c.is_ascii() { !c.is_ascii_control() } else { is_in_class(&CLASS, r"[\pL\pM\pN\pP\pS]", c) }
}

fn is_in_class(class: &OnceLock<Option<GoRegex>>, pattern: &str, c: char) -> bool {
    let class = class.get_or_init(|| GoRegex::new(pattern).ok());
    class.as_ref().is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
}
