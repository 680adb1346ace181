//! Python's regular expressions in the syntax of `fancy_regex`.
//!
//! Invariant: only constructs that both read differently are rewritten: literal braces, `{,n}`, `\Z`,
//! escapes that Python reads as literals, characters of a class that are set operators elsewhere, and flags
//! after the start, which Python applies to the whole pattern.

/// Returns the pattern as `fancy_regex` reads it.
pub(super) fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut flags = String::new();
    let mut rest = pattern;
    while let Some(char) = rest.chars().next() {
        let used = match char {
            '\\' => escape(rest, &mut out),
            '[' => class(rest, &mut out),
            '{' => brace(rest, &mut out),
            '}' => literal("\\}", &mut out),
            '(' if rest.starts_with("(?#") => comment_bytes(rest),
            '(' => group_start(rest, &mut flags, &mut out),
            _ => {
                out.push(char);
                char.len_utf8()
            }
        };
        rest = rest.get(used.max(1)..).unwrap_or("");
    }
    if flags.is_empty() { out } else { format!("(?{flags}){out}") }
}

/// Collects flags of the whole pattern, or copies the parenthesis; returns the length.
fn group_start(text: &str, flags: &mut String, out: &mut String) -> usize {
    let global = text.strip_prefix("(?").and_then(|rest| rest.split_once(')')).map(|(letters, _)| letters);
    match global.filter(|letters| !letters.is_empty() && letters.bytes().all(|byte| b"imsux".contains(&byte)))
    {
        Some(letters) => {
            flags.extend(letters.chars().filter(|letter| !flags.contains(*letter)).collect::<Vec<_>>());
            letters.len() + 3
        }
        None => literal("(", out),
    }
}

fn literal(text: &str, out: &mut String) -> usize {
    out.push_str(text);
    1
}

/// Returns the length of a comment, which has no meaning.
fn comment_bytes(text: &str) -> usize {
    text.find(')').map_or(text.len(), |end| end + 1)
}

/// Translates the escape at the start of `text`; returns its length.
fn escape(text: &str, out: &mut String) -> usize {
    let Some(escaped) = text.chars().nth(1) else {
        return literal("\\", out);
    };
    match escaped {
        // The end of the text, without the newline before it.
        'Z' => out.push_str("\\z"),
        // Borders of words elsewhere, literals in Python.
        '<' | '>' => out.push(escaped),
        ' '..='~' if !escaped.is_ascii_alphanumeric() => {
            out.push('\\');
            out.push(escaped);
        }
        _ if escaped.is_ascii_alphanumeric() => {
            out.push('\\');
            out.push(escaped);
        }
        _ => out.push(escaped),
    }
    1 + escaped.len_utf8()
}

/// Translates a brace: a quantifier, or a literal.
fn brace(text: &str, out: &mut String) -> usize {
    let quantifier = text.find('}').and_then(|end| text.get(1..end)).filter(|inner| is_quantifier(inner));
    match quantifier {
        Some(inner) => {
            out.push('{');
            if inner.starts_with(',') {
                out.push('0');
            }
            out.push_str(inner);
            out.push('}');
            inner.len() + 2
        }
        None => literal("\\{", out),
    }
}

/// Returns true for `n`, `n,`, `,m` and `n,m`, and for the comma alone.
fn is_quantifier(inner: &str) -> bool {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match inner.split_once(',') {
        Some((min, max)) => is_digits(min) && is_digits(max),
        None => !inner.is_empty() && is_digits(inner),
    }
}

/// Translates a class, in which Python knows neither classes nor operators; returns its length.
fn class(text: &str, out: &mut String) -> usize {
    let mut used = 1;
    out.push('[');
    if text.get(used..).is_some_and(|rest| rest.starts_with('^')) {
        out.push('^');
        used += 1;
    }
    let first = used;
    while let Some(char) = text.get(used..).and_then(|rest| rest.chars().next()) {
        let before = text.get(first..used).unwrap_or("");
        match char {
            ']' if used > first => {
                out.push(']');
                return used + 1;
            }
            '\\' => {
                used += class_escape(text.get(used..).unwrap_or(""), out);
                continue;
            }
            '-' if before.ends_with('-') => out.push_str("\\-"),
            ']' | '[' | '&' | '~' => {
                out.push('\\');
                out.push(char);
            }
            _ => out.push(char),
        }
        used += char.len_utf8();
    }
    used
}

/// Translates an escape of a class; returns its length.
fn class_escape(text: &str, out: &mut String) -> usize {
    if text.starts_with("\\b") {
        out.push_str("\\x08");
        return 2;
    }
    escape(text, out)
}
