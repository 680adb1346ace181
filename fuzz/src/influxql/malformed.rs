//! Statements with faults, several statements in one text, and bind parameters.

use crate::chooser::Chooser;
use crate::metadata;
use crate::piece::Piece;
use crate::select;
use crate::steps::{Output, Step};

const WORDS: [&str; 30] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "time(",
    ")",
    "(",
    ",",
    ";",
    "'",
    "\"",
    "/",
    "fill(",
    "LIMIT",
    "-1",
    "5m",
    "*",
    "::",
    "AND",
    "=~",
    "INTO",
    "tz(",
    "1.5",
    "9223372036854775808",
    "ORDER",
    "DESC",
    "$x",
    "--",
    "mean(",
];
const PARAMETERS: [(&str, &str); 12] = [
    ("SELECT usage FROM cpu WHERE usage > $x LIMIT 3", "{\"x\":50}"),
    ("SELECT usage FROM cpu WHERE usage > $x LIMIT 3", "{\"x\":50.5}"),
    ("SELECT usage FROM cpu WHERE host = $x LIMIT 3", "{\"x\":\"a\"}"),
    ("SELECT usage FROM cpu WHERE host = $x LIMIT 3", "{\"y\":\"a\"}"),
    ("SELECT usage FROM cpu WHERE up = $x LIMIT 3", "{\"x\":true}"),
    ("SELECT usage FROM cpu WHERE time > $\"x y\" LIMIT 3", "{\"x y\":\"2023-11-20T00:00:00Z\"}"),
    ("SELECT usage FROM cpu WHERE host =~ $x LIMIT 3", "{\"x\":{\"regex\":\"a|b\"}}"),
    (
        "SELECT mean(usage) FROM cpu WHERE time >= $s AND time < $e GROUP BY time($w)",
        "{\"s\":1700438400000000000,\"e\":1700438700000000000,\"w\":{\"duration\":\"1m\"}}",
    ),
    ("SELECT $f FROM cpu LIMIT 1", "{\"f\":{\"identifier\":\"usage\"}}"),
    ("SELECT usage FROM cpu LIMIT $x", "{\"x\":2}"),
    ("SELECT usage FROM cpu WHERE usage > $x", "{\"x\":null}"),
    ("SELECT usage FROM cpu WHERE usage > $x", "[1]"),
];

/// A statement that may be refused.
pub(crate) fn malformed(c: Chooser<'_>) -> Step {
    if c.percent(15) {
        let (text, params) = *c.pick(&PARAMETERS);
        let output = Output { params: params.to_owned(), ..Output::default() };
        return Step::query(Piece::text(text), "d0", output);
    }
    let base = |c: Chooser<'_>| if c.percent(70) { select::select(c) } else { metadata::show(c, "") };
    if c.percent(25) {
        let parts = (0..c.between(2, 3)).map(|_| base(c)).collect();
        return Step::query(Piece::List(parts, "; "), "d0", Output::random(c));
    }
    let text = base(c).to_string();
    let mut words: Vec<&str> = text.split(' ').collect();
    for _ in 0..c.between(1, 2) {
        let at = c.below(words.len());
        match c.below(4) {
            0 if words.len() > 1 => {
                words.remove(at);
            }
            1 => words.insert(at, *c.pick(&WORDS)),
            2 => words[at] = *c.pick(&WORDS),
            _ => words.truncate(at.max(1)),
        }
    }
    Step::query(Piece::text(words.join(" ")), "d0", Output::default())
}
