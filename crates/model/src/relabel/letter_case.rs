//! Upper and lower case of a text as Go's `strings` has it: each character becomes one character.
//! Not here: rules of languages and of neighbouring characters, which Go does not have either.

/// Returns the text in lower case.
pub(super) fn lower(text: &str) -> String {
    text.chars().map(|c| if c == '\u{130}' { 'i' } else { single(c.to_lowercase(), c) }).collect()
}

/// Returns the text in upper case.
pub(super) fn upper(text: &str) -> String {
    text.chars().map(upper_char).collect()
}

fn upper_char(c: char) -> char {
    match c {
        // Greek letters with iota below: several capitals as a text, one as a character.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            char::from_u32(u32::from(c) + 8).unwrap_or(c)
        }
        '\u{1fb3}' => '\u{1fbc}',
        '\u{1fc3}' => '\u{1fcc}',
        '\u{1ff3}' => '\u{1ffc}',
        _ => single(c.to_uppercase(), c),
    }
}

/// The only character of a mapping; `c` if there are several.
fn single(mut mapped: impl Iterator<Item = char>, c: char) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}
