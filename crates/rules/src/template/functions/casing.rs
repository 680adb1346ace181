//! `title`, `toUpper`, `toLower`.

/// Returns `text` with the first letter of each word in title case; all others stay.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_in_word = false;
    let mut was_middle = false;
    for c in text.chars() {
        let is_middle = is_middle(c);
        // Two of these characters end a word.
        is_in_word &= !(was_middle && is_middle);
        if c.is_uppercase() || c.is_lowercase() {
            if is_in_word {
                out.push(c);
            } else {
                push_title(&mut out, c);
            }
            is_in_word = true;
        } else {
            out.push(c);
            is_in_word &= is_middle || is_word_char(c);
        }
        was_middle = is_middle;
    }
    out
}

fn push_title(out: &mut String, c: char) {
    let pair = match c {
        'Ǆ' | 'ǆ' => 'ǅ',
        'Ǉ' | 'ǉ' => 'ǈ',
        'Ǌ' | 'ǌ' => 'ǋ',
        'Ǳ' | 'ǳ' => 'ǲ',
        c => c,
    };
    if pair != c {
        out.push(pair);
        return;
    }
    let mut is_first_letter = true;
    for upper in c.to_uppercase() {
        if is_first_letter {
            out.push(upper);
        } else {
            out.extend(upper.to_lowercase());
        }
        is_first_letter &= !upper.is_uppercase();
    }
}

/// Characters that end no word if letters are on both sides.
fn is_middle(c: char) -> bool {
    matches!(
        c,
        ':' | '.'
            | '\''
            | '·'
            | '\u{387}'
            | '\u{55f}'
            | '\u{5f4}'
            | '‘'
            | '’'
            | '․'
            | '‧'
            | '\u{fe13}'
            | '\u{fe52}'
            | '\u{fe55}'
            | '\u{ff07}'
            | '\u{ff0e}'
            | '\u{ff1a}'
    )
}

/// Returns true for letters and digits of scripts with words, and connecting punctuation.
fn is_word_char(c: char) -> bool {
    let is_east_asian =
        matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}');
    matches!(c, '_' | '‿' | '⁀' | '⁔' | '\u{200d}') || (c.is_alphanumeric() && !is_east_asian)
}

/// Returns `text` in upper case, one character for one, as Go does.
pub(super) fn upper(text: &str) -> String {
    text.chars().map(|c| only(c.to_uppercase()).unwrap_or(c)).collect()
}

/// Returns `text` in lower case, one character for one, as Go does.
pub(super) fn lower(text: &str) -> String {
    text.chars().map(|c| if c == 'İ' { 'i' } else { only(c.to_lowercase()).unwrap_or(c) }).collect()
}

/// Returns the character if there is exactly one.
fn only(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}
