//! Queries with words left out, doubled, swapped and replaced: both parsers are to accept and print them, or
//! to refuse them, with the same words.
//!
//! Invariants: printed cases are minimal: no word of them can go without the difference going.
//! Not here: evaluation.

use std::collections::BTreeMap;
use std::io::Result;

use chronolith_base::Rng;
use chronolith_promql::parser::parse_expr;

use crate::compare::Difference;
use crate::explain::parser_options;
use crate::generate::Generator;
use crate::oracle::{Oracle, Verdict};
use crate::series;
use crate::{Arguments, CORNERS};

/// Changes to one query at most, less one.
const CHANGES_MAX: u64 = 3;
/// Separators of the words of a query.
const WORDS: &[&str] = &[
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "=",
    "==",
    "!=",
    "=~",
    "!~",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "@",
    "</",
    ">/",
    "!",
    "~",
    "atan2",
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "fill",
    "fill_left",
    "fill_right",
    "anchored",
    "smoothed",
    "start",
    "end",
    "step",
    "range",
    "min_of",
    "max_of",
    "start()",
    "end()",
    "step()",
    "range()",
    "sum",
    "avg",
    "topk",
    "quantile",
    "count_values",
    "limit_ratio",
    "rate",
    "time",
    "vector",
    "scalar",
    "info",
    "label_replace",
    "label_join",
    "histogram_quantiles",
    "absent",
    "foo",
    "foo:bar",
    "x.y",
    "\"x.y\"",
    "\"a\"",
    "'b'",
    "`c`",
    "\"",
    "'",
    "1",
    "0",
    "-1",
    "5m",
    "1h30m",
    "0x1f",
    "1e3",
    "1.5",
    ".5",
    "5.",
    "1_000",
    "1__0",
    "NaN",
    "Inf",
    "1x",
    "m5",
    "5m3",
    "a=\"b\"",
    "{}",
    "[5m]",
    "[5m:]",
    "[5m:1m]",
    "# c",
    "\n",
    "é",
    "$",
    "&",
    ";",
    "\\",
    "<>",
    "===",
    "bottomk",
    "group",
    "histogram_quantile",
    "sort_by_label",
    "SUM",
    "By",
    "OFFSET",
    "nan",
    "inf",
    "0b1",
    "08",
    "0.1.2",
    "0x1e5",
    "0x1ee",
    "0x.1",
    "0x_1",
    "0x1._",
    "1e5e",
    "1e+",
    ".5.",
    "0x",
    "1_e",
    "0._",
    "1.e3",
    "foo{}",
    "1 +",
    "- 1",
    "( 1",
    "5m5m",
    "1d1y",
    "__name__",
    "le",
];

/// A query as words; blanks are words, too.
type Words = Vec<String>;

/// Asks about changed queries; gives how many differ.
///
/// # Errors
/// The other parser's process is gone.
pub(crate) fn run(arguments: &Arguments, oracle: &mut Oracle) -> Result<usize> {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let (mut asked, mut refused) = (0, 0);
    for &seed in &arguments.seeds {
        let rng = Rng::from_seed(seed);
        let corners: Vec<&str> =
            CORNERS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let dataset = series::random(&rng);
        for _ in 0..arguments.count {
            let query = match rng.below(2) {
                0 => corners[rng.below(corners.len() as u64) as usize].to_owned(),
                _ => Generator { rng: &rng, dataset: &dataset }.query().to_string(),
            };
            let words = changed(&rng, split(&query));
            asked += 1;
            let (ours, theirs) = ask(oracle, &words.concat())?;
            refused += usize::from(theirs.is_err());
            if ours == theirs || is_known(&theirs) {
                continue;
            }
            let words = shrink(oracle, words)?;
            let (ours, theirs) = ask(oracle, &words.concat())?;
            let kind = Difference::Error(message(&ours), message(&theirs)).kind();
            let seen = kinds.entry(kind).or_default();
            *seen += 1;
            if *seen <= arguments.report_count {
                println!("{:?}\n  # ours:     {ours:?}\n  # Prometheus: {theirs:?}", words.concat());
            }
        }
    }
    println!("seeds {:?}: {asked} texts, {refused} refused by Prometheus", arguments.seeds);
    kinds.iter().for_each(|(kind, count)| println!("  {count:6} {kind}"));
    let differing = kinds.values().sum();
    println!("differ: {differing}");
    Ok(differing)
}

/// Our verdict and Prometheus's: type and printed form, or the message.
fn ask(oracle: &mut Oracle, query: &str) -> Result<(Verdict, Verdict)> {
    let ours = match parse_expr(query, parser_options()) {
        Ok(expr) => Ok(expr.to_string()),
        Err(error) => Err(error.to_string()),
    };
    Ok((ours, oracle.parse(query)?))
}

/// Returns true for intended differences: `offset nan`, which Prometheus takes for the smallest duration and
/// prints with two signs.
fn is_known(theirs: &Verdict) -> bool {
    theirs.as_ref().is_ok_and(|printed| printed.contains("--106751d"))
}

/// Without its place.
fn message(verdict: &Verdict) -> Option<String> {
    let text = verdict.as_ref().err()?;
    Some(text.split_once(": ").map_or(text.as_str(), |(_, message)| message).to_owned())
}

/// Names and numbers, texts in quotes, blanks, and single signs.
fn split(query: &str) -> Words {
    let mut words = Vec::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let end = match first {
            '"' | '\'' | '`' => {
                rest.get(1..).and_then(|tail| tail.find(first)).map_or(rest.len(), |at| at + 2)
            }
            c if is_name(c) => rest.find(|c: char| !is_name(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (word, tail) = rest.split_at(end);
        words.push(word.to_owned());
        rest = tail;
    }
    words
}

fn changed(rng: &Rng, mut words: Words) -> Words {
    let below = |bound: usize| rng.below(bound as u64) as usize;
    for _ in 0..=rng.below(CHANGES_MAX) * rng.below(2) {
        if words.is_empty() {
            return words;
        }
        let at = below(words.len());
        match below(6) {
            0 => {
                words.remove(at);
            }
            1 => words.insert(at, words[at].clone()),
            2 => {
                let other = below(words.len());
                words.swap(at, other);
            }
            3 => words[at] = WORDS[below(WORDS.len())].to_owned(),
            4 => words.insert(at, format!(" {} ", WORDS[below(WORDS.len())])),
            _ => words.truncate(at),
        }
    }
    words
}

/// Leaves out words as long as the verdicts still differ.
fn shrink(oracle: &mut Oracle, mut words: Words) -> Result<Words> {
    let mut at = 0;
    while at < words.len() {
        let mut fewer = words.clone();
        fewer.remove(at);
        let (ours, theirs) = ask(oracle, &fewer.concat())?;
        if ours == theirs || is_known(&theirs) {
            at += 1;
        } else {
            (words, at) = (fewer, 0);
        }
    }
    Ok(words)
}
