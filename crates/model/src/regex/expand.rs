//! Go's `Regexp.Expand`: fills a template with the groups of a match.

use super::unicode;

/// Fills `template`. `group` gives the text of a group that took part in the match.
pub(super) fn expand<'t>(
    template: &str,
    group_names: &[Option<String>],
    group: impl Fn(usize) -> Option<&'t str>,
) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let Some((name, after)) = reference(after) else {
            // Not a reference: the dollar is text.
            out.push('$');
            rest = after;
            continue;
        };
        rest = after;
        let found = match number(name) {
            Some(idx) => group(idx),
            // Several groups may have the name; the first that took part counts.
            None => group_names
                .iter()
                .enumerate()
                .filter(|(_, group_name)| group_name.as_deref() == Some(name))
                .find_map(|(idx, _)| group(idx)),
        };
        out.push_str(found.unwrap_or(""));
    }
    out.push_str(rest);
    out
}

/// `name` or `{name}` at the start of `text`, and what follows.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (inner, braced) = text.strip_prefix('{').map_or((text, false), |inner| (inner, true));
    let end = inner.find(|c: char| c != '_' && !unicode::is_letter_or_digit(c)).unwrap_or(inner.len());
    let (name, after) = inner.split_at(end);
    if name.is_empty() {
        return None;
    }
    Some((name, if braced { after.strip_prefix('}')? } else { after }))
}

/// Group number, unless `name` is a name. Numbers beyond any group are numbers, too.
fn number(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    // Go parses at most nine digits as a number and takes longer digits for a name; no group has either.
    is_number.then(|| name.parse().unwrap_or(usize::MAX))
}
