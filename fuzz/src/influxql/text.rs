//! Variants of a statement as text, which rules ask to prove the cause of a difference.
//!
//! Invariants: a function returns the statement itself where it finds nothing to change. Text in quotes and
//! regexes is never taken for a clause.

/// Words that begin the clauses after FROM.
const CLAUSES: [&str; 9] =
    [" WHERE ", " GROUP BY ", " fill(", " ORDER BY ", " LIMIT ", " OFFSET ", " SLIMIT ", " SOFFSET ", " tz("];

/// Position of each byte: parentheses that are open there; `None` within quotes.
fn depths(text: &str) -> Vec<Option<usize>> {
    let mut depth = 0;
    let mut quote = None;
    let mut escaped = false;
    let depth_at = |byte: u8| {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if byte == b'\\' => escaped = true,
            Some(end) if byte == end => quote = None,
            Some(_) => {}
            None if matches!(byte, b'"' | b'\'') => quote = Some(byte),
            None if byte == b'(' => depth += 1,
            None if byte == b')' => depth = usize::saturating_sub(depth, 1),
            None => {}
        }
        quote.is_none().then_some(depth)
    };
    text.bytes().map(depth_at).collect()
}

/// Position of `word` outside of quotes, at `depth` parentheses if one is given, from `from` on.
fn find(text: &str, word: &str, depth: Option<usize>, from: usize) -> Option<usize> {
    let depths = depths(text);
    let is_here = |at: &usize| match (depths.get(*at).copied().flatten(), depth) {
        (Some(found), Some(wanted)) => found == wanted,
        (found, None) => found.is_some(),
        (None, _) => false,
    };
    text.match_indices(word).map(|(at, _)| at).filter(|at| *at >= from).find(is_here)
}

/// Position of the `)` that closes the parenthesis at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let depths = depths(text);
    let inside = depths.get(open).copied().flatten()?;
    (open + 1..text.len()).find(|at| depths[*at].is_some_and(|depth| depth < inside))
}

/// Start of the first of `words` in the outermost statement.
fn clause(text: &str, words: &[&str]) -> Option<usize> {
    words.iter().filter_map(|word| find(text, word, Some(0), 0)).min()
}

/// Columns of the outermost SELECT.
pub(crate) fn columns(text: &str) -> Vec<String> {
    let Some(list) = text.strip_prefix("SELECT ") else { return Vec::new() };
    let list = &list[..find(list, " FROM ", Some(0), 0).unwrap_or(list.len())];
    let mut out = Vec::new();
    let mut start = 0;
    while let Some(at) = find(list, ", ", Some(0), start) {
        out.push(list[start..at].to_owned());
        start = at + 2;
    }
    out.push(list[start..].to_owned());
    out
}

/// The outermost SELECT with other columns.
pub(crate) fn with_columns(text: &str, columns: &str) -> String {
    match find(text, " FROM ", Some(0), 0) {
        Some(from) if text.starts_with("SELECT ") => format!("SELECT {columns}{}", &text[from..]),
        _ => text.to_owned(),
    }
}

/// The outermost statement with a further condition.
pub(crate) fn with_condition(text: &str, condition: &str) -> String {
    let end = clause(text, &CLAUSES[1..]).unwrap_or(text.len());
    let (head, tail) = text.split_at(end);
    match find(head, " WHERE ", Some(0), 0) {
        Some(at) => {
            let (before, rest) = head.split_at(at + " WHERE ".len());
            format!("{before}({rest}) AND {condition}{tail}")
        }
        None => format!("{head} WHERE {condition}{tail}"),
    }
}

/// The statement without the clause `word` of the statement that begins at `depth` parentheses.
fn without_clause_at(text: &str, word: &str, depth: usize, from: usize) -> Option<(String, usize)> {
    let at = find(text, word, Some(depth), from).or_else(|| {
        // The word of a call is one parenthesis deeper than its first letter.
        word.ends_with('(').then(|| find(text, word, Some(depth), from)).flatten()
    })?;
    let is_call = word.ends_with('(');
    let end = if is_call {
        closing(text, at + word.len() - 1)? + 1
    } else {
        let after = |next: &&str| find(text, next, Some(depth), at + 1);
        let close = (at + 1..text.len()).find(|idx| depths(text)[*idx].is_some_and(|found| found < depth));
        CLAUSES.iter().filter_map(after).chain(close).min().unwrap_or(text.len())
    };
    Some((format!("{}{}", &text[..at], &text[end..]), at))
}

/// The outermost statement without the start of its range of time, which is the first of its conditions.
pub(crate) fn without_start(text: &str) -> String {
    let Some(at) = clause(text, &[" WHERE "]) else { return text.to_owned() };
    let conditions = at + " WHERE ".len();
    let rest = &text[conditions..];
    if !rest.starts_with("time >") && !rest.starts_with("time = ") {
        return text.to_owned();
    }
    let ends = [
        " AND ",
        " GROUP BY ",
        " fill(",
        " ORDER BY ",
        " LIMIT ",
        " OFFSET ",
        " SLIMIT ",
        " SOFFSET ",
        " tz(",
    ];
    let end = ends.iter().filter_map(|word| find(rest, word, Some(0), 0)).min().unwrap_or(rest.len());
    match rest[end..].strip_prefix(" AND ") {
        Some(others) => format!("{}{others}", &text[..conditions]),
        None => format!("{}{}", &text[..at], &rest[end..]),
    }
}

/// The outermost statement without its range's start or, if it has windows, without windows that have no
/// rows.
pub(crate) fn without_early_windows(text: &str) -> String {
    if find(text, "time(", Some(0), 0).is_none() {
        return without_start(text);
    }
    let unfilled = match find(text, " fill(", Some(0), 0) {
        Some(at) => without_clause_at(text, " fill(", 0, at).map_or(text.to_owned(), |(text, _)| text),
        None => text.to_owned(),
    };
    let at = clause(&unfilled, &CLAUSES[3..]).unwrap_or(unfilled.len());
    format!("{} fill(none){}", &unfilled[..at], &unfilled[at..])
}

/// The innermost SELECT around a part of a statement.
pub(crate) fn enclosing_select<'t>(text: &'t str, part: &str) -> Option<&'t str> {
    let at = text.find(part)?;
    let starts = text[..at].match_indices("(SELECT ").map(|(open, _)| open).collect::<Vec<_>>();
    let enclosing = starts.into_iter().rev().find_map(|open| {
        let end = closing(text, open)?;
        (end > at).then(|| &text[open + 1..end])
    });
    Some(enclosing.unwrap_or(text))
}

/// The statement without all clauses that begin with `word`, in subqueries too.
pub(crate) fn without_clause(text: &str, word: &str) -> String {
    let mut out = text.to_owned();
    for depth in 0..6 {
        let mut from = 0;
        while let Some((shorter, at)) = without_clause_at(&out, word, depth, from) {
            (out, from) = (shorter, at);
        }
    }
    out
}

/// The statement with LIMIT next to each OFFSET that has none, and SLIMIT next to each SOFFSET.
pub(crate) fn with_limits(text: &str) -> String {
    let mut out = text.to_owned();
    for (clause, limit) in [(" OFFSET ", " LIMIT "), (" SOFFSET ", " SLIMIT ")] {
        let mut from = 0;
        while let Some(at) = find(&out, clause, None, from) {
            from = at + clause.len();
            let before = out[..at].rsplit(' ').nth(1).unwrap_or_default();
            if before != limit.trim() {
                let added = format!("{limit}1000000");
                out.insert_str(at, &added);
                from += added.len();
            }
        }
    }
    out
}

/// Calls of `name`: where each begins, and its arguments.
fn calls<'t>(text: &'t str, name: &str) -> Vec<(usize, &'t str)> {
    let pattern = format!("{name}(");
    let mut out = Vec::new();
    let mut from = 0;
    while let Some(at) = find(text, &pattern, None, from) {
        from = at + pattern.len();
        let is_word = text[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        if let Some(end) = closing(text, from - 1).filter(|_| !is_word) {
            out.push((at, &text[from..end]));
        }
    }
    out
}

/// Texts of the calls of `name`, with the name.
pub(crate) fn calls_of(text: &str, name: &str) -> Vec<String> {
    calls(text, name).into_iter().map(|(_, arguments)| format!("{name}({arguments})")).collect()
}

/// The statement with other text in place of the calls of `name`; `replace` gets the arguments.
pub(crate) fn with_calls(text: &str, name: &str, replace: impl Fn(&str) -> String) -> String {
    let mut out = text.to_owned();
    for (at, arguments) in calls(text, name).into_iter().rev() {
        let end = at + name.len() + arguments.len() + 2;
        out.replace_range(at..end, &replace(arguments));
    }
    out
}

/// The statement with the first argument of the calls of `name` cast to a float.
pub(crate) fn as_floats(text: &str, name: &str) -> String {
    with_calls(text, name, |arguments| {
        let end = find(arguments, ",", Some(0), 0).unwrap_or(arguments.len());
        let (first, rest) = arguments.split_at(end);
        let field = first.split("::").next().unwrap_or(first);
        let is_name = !field.contains('(') && !field.starts_with(['*', '/']) && !field.contains(' ');
        if is_name || field.starts_with('"') {
            format!("{name}({field}::float{rest})")
        } else {
            format!("{name}({arguments})")
        }
    })
}

/// The statement without parts of its condition that compare nothing.
pub(crate) fn without_calculations(text: &str) -> String {
    let Some((head, tail)) = text.split_once(" WHERE ") else { return text.to_owned() };
    let ends = [" GROUP BY ", " fill(", " ORDER BY ", " LIMIT ", " OFFSET ", " SLIMIT ", " SOFFSET ", " tz("];
    let end = ends.iter().filter_map(|word| tail.find(word)).min().unwrap_or(tail.len());
    let (condition, rest) = tail.split_at(end);
    let compared: Vec<&str> =
        condition.split(" AND ").filter(|part| part.contains(['=', '<', '>', '~'])).collect();
    match compared.is_empty() {
        true => format!("{head}{rest}"),
        false => format!("{head} WHERE {}{rest}", compared.join(" AND ")),
    }
}

/// Types that a name is cast to.
const CASTS: [&str; 4] = ["::float", "::integer", "::string", "::boolean"];

/// The statement without casts of names.
pub(crate) fn without_casts(text: &str) -> String {
    CASTS.iter().fold(text.to_owned(), |text, cast| text.replace(cast, ""))
}

/// Returns true if a name is there with a cast and without; `::field` is no cast.
pub(crate) fn has_two_casts(text: &str) -> bool {
    let places = CASTS.iter().flat_map(|cast| text.match_indices(cast));
    let cast = places.filter_map(|(at, _)| names(&text[..at]).pop());
    let is_plain = |name: &str| {
        [" ", "("].iter().any(|before| {
            [" ", ",", ")", "::field"].iter().any(|after| text.contains(&format!("{before}{name}{after}")))
        })
    };
    cast.into_iter().any(is_plain)
}

/// Operands of the arithmetic of a column.
pub(crate) fn operands(column: &str) -> Vec<&str> {
    const OPERATORS: [&str; 5] = [" + ", " - ", " * ", " / ", " % "];
    let next = OPERATORS.iter().filter_map(|operator| find(column, operator, Some(0), 0)).min();
    match next {
        Some(at) => {
            let mut out = vec![&column[..at]];
            out.extend(operands(&column[at + 3..]));
            out
        }
        None => vec![column],
    }
}

/// The statements within a statement.
pub(crate) fn subqueries(text: &str) -> Vec<&str> {
    let opened = text.match_indices("(SELECT ").map(|(open, _)| open);
    opened.filter_map(|open| Some(&text[open + 1..closing(text, open)?])).collect()
}

/// Words of a statement that may be names.
pub(crate) fn names(text: &str) -> Vec<&str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect()
}

/// Numbers of the `fill` clauses.
pub(crate) fn fill_numbers(text: &str) -> Vec<String> {
    calls(text, "fill").into_iter().map(|(_, argument)| argument.to_owned()).collect()
}

/// The statement with a float in place of each integer of `fill`. A column of integers casts it to the
/// integer.
pub(crate) fn with_fractions_in_fill(text: &str) -> String {
    with_calls(text, "fill", |number| {
        let fraction = if number.parse::<i64>().is_ok() { ".5" } else { "" };
        format!("fill({number}{fraction})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_removed_and_added_at_their_level() {
        let text = "SELECT top(v, 2) FROM (SELECT v FROM m LIMIT 3) WHERE host = ' LIMIT 4' LIMIT 5 OFFSET 1";
        let want = "SELECT top(v, 2) FROM (SELECT v FROM m) WHERE host = ' LIMIT 4' OFFSET 1";
        assert_eq!(without_clause(text, " LIMIT "), want);
        let lone = "SELECT v FROM (SELECT v FROM m LIMIT 2 OFFSET 1) OFFSET 3 SOFFSET 1";
        let want = "SELECT v FROM (SELECT v FROM m LIMIT 2 OFFSET 1) LIMIT 1000000 OFFSET 3 SLIMIT 1000000 SOFFSET 1";
        assert_eq!(with_limits(lone), want);
        assert_eq!(with_limits(text), text);
        let filled = "SELECT mean(v) FROM m GROUP BY time(1m), host fill(-1.5) LIMIT 1";
        assert_eq!(without_clause(filled, " fill("), "SELECT mean(v) FROM m GROUP BY time(1m), host LIMIT 1");
        assert_eq!(fill_numbers(filled), ["-1.5"]);
        assert_eq!(with_fractions_in_fill(filled), filled);
        let numbers = "SELECT x FROM (SELECT max(v) AS x FROM m GROUP BY time(1m) fill(7)) fill(none)";
        assert_eq!(with_fractions_in_fill(numbers), numbers.replace("fill(7)", "fill(7.5)"));
        let want = "SELECT mean(v) FROM m WHERE v = 1 GROUP BY time(1m), host fill(-1.5) LIMIT 1";
        assert_eq!(with_condition(filled, "v = 1"), want);
        assert_eq!(without_clause(want, " WHERE "), filled);
    }

    #[test]
    fn parts_of_nested_statements() {
        let text = "SELECT last(x) FROM (SELECT stddev(y) AS x FROM m WHERE time > 1s) WHERE time > 2s AND time < 9s";
        let inner = "SELECT stddev(y) AS x FROM m WHERE time > 1s";
        assert_eq!(enclosing_select(text, "stddev(y)"), Some(inner));
        assert_eq!(enclosing_select(text, "last(x)"), Some(text));
        assert_eq!(without_start(text), format!("SELECT last(x) FROM ({inner}) WHERE time < 9s"));
        assert_eq!(without_start(inner), "SELECT stddev(y) AS x FROM m");
        assert_eq!(without_early_windows(text), without_start(text));
        let windows = format!("SELECT max(x) FROM ({inner}) WHERE time > 2s GROUP BY time(1m)");
        let want = format!("{windows} fill(none) LIMIT 1");
        assert_eq!(without_early_windows(&format!("{windows} fill(0) LIMIT 1")), want);
    }

    #[test]
    fn casts_of_a_name_and_the_name_itself() {
        for two in [
            "f::integer / 7 < 3 AND f::field < 10",
            "f < 10 AND f::integer < 3",
            "(f::field + 1) > 2 AND f::float = 1",
            "abs(f) > 1 OR f::string = 'a'",
        ] {
            assert!(has_two_casts(&format!("SELECT i FROM m WHERE {two}")), "{two}");
        }
        for one in ["f::field < 10", "f::integer < 3", "f::field < 10 AND v::integer = 1", "host::tag = 'a'"]
        {
            assert!(!has_two_casts(&format!("SELECT i FROM m WHERE {one}")), "{one}");
        }
        assert_eq!(without_casts("f::integer < 3 AND f::field < 10"), "f < 3 AND f::field < 10");
    }

    #[test]
    fn calls_are_replaced_by_name() {
        let text = "SELECT abs(f), derivative(mean(\"f 1\"), 1s), non_negative_derivative(v) FROM m";
        let want = "SELECT abs(f), derivative(mean(\"f 1\"::float), 1s), non_negative_derivative(v) FROM m";
        assert_eq!(as_floats(text, "mean"), want);
        assert_eq!(calls_of(text, "derivative"), ["derivative(mean(\"f 1\"), 1s)"]);
        assert_eq!(columns(text).len(), 3);
        assert_eq!(with_columns(text, "x"), "SELECT x FROM m");
        assert_eq!(with_calls("SELECT abs(v) FROM m", "abs", str::to_owned), "SELECT v FROM m");
    }
}
