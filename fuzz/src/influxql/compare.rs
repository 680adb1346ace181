//! Comparison of two answers: structure, order, texts, and values digit by digit.
//!
//! Invariants: numbers whose texts differ are equal if they differ by less than [`TOLERANCE`]; such answers
//! are counted. Times within an hour of the present are equal: servers give points without a time their own.

use chronolith_base::clock::{Clock, SystemClock};

use crate::http::Reply;
use crate::json::Json;
use crate::msgpack;

/// Relative difference of numbers that counts as rounding.
const TOLERANCE: f64 = 1e-12;
/// Kind of a difference in the order of rows of one time.
pub(crate) const ORDER_OF_TIES: &str = "order of rows of one time";
/// Least integer that is not exact as a float.
const EXACT_MAX: i128 = 1 << 53;
const HOUR_NS: i128 = 3_600_000_000_000;

/// First difference of two answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Differences of one kind are likely to have one cause.
    pub(crate) kind: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

impl Difference {
    fn new(kind: impl Into<String>, ours: impl Into<String>, theirs: impl Into<String>) -> Difference {
        Difference { kind: kind.into(), ours: ours.into(), theirs: theirs.into() }
    }
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Equal,
    /// Equal but for the last digits of numbers.
    LastDigits,
    Different(Difference),
}

/// Compares the answers to one request.
pub(crate) fn compare(ours: &Reply, theirs: &Reply) -> Verdict {
    if ours == theirs {
        return Verdict::Equal;
    }
    let (our_text, their_text) = (ours.text(), theirs.text());
    if ours.content_type == theirs.content_type
        && ours.content_type == "application/x-msgpack"
        && let (Some(a), Some(b)) = (msgpack::parse(&ours.body), msgpack::parse(&theirs.body))
        && ours.status == theirs.status
    {
        return compare_documents(&a, &b);
    }
    if ours.status != theirs.status {
        let text = |reply: &Reply, text: &str| format!("{} {}", reply.status, text.trim());
        let kind = format!("status {} / {}", ours.status, theirs.status);
        return Verdict::Different(Difference::new(kind, text(ours, &our_text), text(theirs, &their_text)));
    }
    if ours.status == 204 {
        return Verdict::Equal;
    }
    let are_csv = is_csv(&ours.content_type) && is_csv(&theirs.content_type);
    if ours.content_type != theirs.content_type && !are_csv {
        let difference = Difference::new("content type", &ours.content_type, &theirs.content_type);
        return Verdict::Different(difference);
    }
    if let (Some(a), Some(b)) = (Json::parse_documents(&our_text), Json::parse_documents(&their_text)) {
        return compare_documents(&a, &b);
    }
    if ours.body == theirs.body {
        return Verdict::Equal;
    }
    if are_csv {
        return compare_csv(&our_text, &their_text);
    }
    let first = our_text.lines().zip(their_text.lines()).find(|(a, b)| a != b);
    let (a, b) = first.unwrap_or((&our_text, &their_text));
    Verdict::Different(Difference::new(format!("text of {}", ours.content_type), a, b))
}

/// Returns true for the media types of CSV: 1.6.7 answers a request for `application/csv` with `text/csv`.
fn is_csv(content_type: &str) -> bool {
    matches!(content_type, "text/csv" | "application/csv")
}

/// Compares field by field; a field that is a number may differ in its last digits.
fn compare_csv(ours: &str, theirs: &str) -> Verdict {
    let mut walk = Walk { last_digits: false, now_ns: i128::from(SystemClock::new().now_ms()) * 1_000_000 };
    let fields_equal = |walk: &mut Walk, a: &str, b: &str| {
        let (a, b): (Vec<&str>, Vec<&str>) = (a.split(',').collect(), b.split(',').collect());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || walk.numbers_equal(a, b))
    };
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let is_reordered = same_lines_by_time(&ours, &theirs);
    for idx in 0..ours.len().max(theirs.len()) {
        let (a, b) = (ours.get(idx).unwrap_or(&"no line"), theirs.get(idx).unwrap_or(&"no line"));
        if a != b && !fields_equal(&mut walk, a, b) {
            let kind = if is_reordered { ORDER_OF_TIES } else { "text of text/csv" };
            return Verdict::Different(Difference::new(kind, *a, *b));
        }
    }
    Verdict::LastDigits
}

fn compare_documents(ours: &Json, theirs: &Json) -> Verdict {
    let mut walk = Walk { last_digits: false, now_ns: i128::from(SystemClock::new().now_ms()) * 1_000_000 };
    match walk.values(ours, theirs, "") {
        Some(difference) => Verdict::Different(difference),
        None if walk.last_digits => Verdict::LastDigits,
        None => Verdict::Equal,
    }
}

struct Walk {
    last_digits: bool,
    now_ns: i128,
}

impl Walk {
    fn values(&mut self, ours: &Json, theirs: &Json, name: &str) -> Option<Difference> {
        match (ours, theirs) {
            _ if ours == theirs => None,
            (Json::Number(a), Json::Number(b)) if self.numbers_equal(a, b) => None,
            (Json::Array(a), Json::Array(b)) if name == "values" => self.rows(a, b),
            (Json::Array(a), Json::Array(b)) => {
                if name == "columns" {
                    return Some(Difference::new("columns", print(ours), print(theirs)));
                }
                if let Some(found) = a.iter().zip(b).find_map(|(a, b)| self.values(a, b, name)) {
                    return Some(found);
                }
                let count = |items: &[Json]| format!("{} {name}", items.len());
                (a.len() != b.len()).then(|| Difference::new(format!("number of {name}"), count(a), count(b)))
            }
            (Json::Object(a), Json::Object(b)) => self.objects(a, b),
            (Json::Text(a), Json::Text(b)) if name == "error" => {
                Some(Difference::new(format!("error {} / {}", shape(a), shape(b)), a, b))
            }
            _ => Some(Difference::new(kind_of_values(ours, theirs, name), print(ours), print(theirs))),
        }
    }

    fn objects(&mut self, a: &[(String, Json)], b: &[(String, Json)]) -> Option<Difference> {
        let names =
            |members: &[(String, Json)]| members.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if names(a) == names(b) {
            return a.iter().zip(b).find_map(|((name, a), (_, b))| self.values(a, b, name));
        }
        let error = |members: &[(String, Json)]| {
            members.iter().find(|(name, _)| name == "error").and_then(|(_, value)| value.as_text()).map(shape)
        };
        let kind = match (error(a), error(b)) {
            (None, None) => format!("members {} / {}", names(a).join(","), names(b).join(",")),
            (a, b) => format!("error {} / {}", a.unwrap_or_default(), b.unwrap_or_default()),
        };
        Some(Difference::new(kind, print(&Json::Object(a.to_vec())), print(&Json::Object(b.to_vec()))))
    }

    fn rows(&mut self, a: &[Json], b: &[Json]) -> Option<Difference> {
        let found = a.iter().zip(b).find_map(|(a, b)| {
            let found = a.items().iter().zip(b.items()).find_map(|(a, b)| self.values(a, b, "cell"));
            found.map(|found| Difference::new(found.kind, print(a), print(b)))
        });
        if found.is_some() && self.same_rows_by_time(a, b) {
            return found.map(|found| Difference { kind: ORDER_OF_TIES.to_owned(), ..found });
        }
        if a.len() != b.len() {
            let ours = format!("{} rows: {}", a.len(), print(&Json::Array(a.to_vec())));
            let theirs = format!("{} rows: {}", b.len(), print(&Json::Array(b.to_vec())));
            return Some(Difference::new("number of rows", ours, theirs));
        }
        found
    }

    /// Returns true if both have the same rows at each time, in another order.
    fn same_rows_by_time(&mut self, a: &[Json], b: &[Json]) -> bool {
        let time = |row: &Json| row.items().first().cloned();
        if a.len() != b.len() || a.iter().zip(b).any(|(a, b)| time(a) != time(b)) {
            return false;
        }
        let is_same_time = |a: &Json, b: &Json| time(a) == time(b);
        let (mut of_ours, mut of_theirs) = (a.chunk_by(is_same_time), b.chunk_by(is_same_time));
        std::iter::from_fn(|| Some((of_ours.next()?, of_theirs.next()?)))
            .all(|(ours, theirs)| self.same_rows(ours, theirs))
    }

    /// Returns true if each row of one is in the other as often; the last digits of numbers may differ.
    fn same_rows(&mut self, ours: &[Json], theirs: &[Json]) -> bool {
        let mut left: Vec<&Json> = theirs.iter().collect();
        ours.iter().all(|row| {
            let at = left.iter().position(|other| {
                row.items().len() == other.items().len()
                    && row.items().iter().zip(other.items()).all(|(a, b)| self.values(a, b, "cell").is_none())
            });
            at.map(|at| left.swap_remove(at)).is_some()
        })
    }

    fn numbers_equal(&mut self, a: &str, b: &str) -> bool {
        let integers = (a.parse::<i128>(), b.parse::<i128>());
        if let (Ok(x), Ok(y)) = integers {
            let is_float = |text: &str, value: i128| {
                value.abs() > EXACT_MAX && text.parse::<f64>().is_ok_and(|float| float.to_string() == text)
            };
            let is_now = |time: i128| (time - self.now_ns).abs() < HOUR_NS;
            if is_now(x) && is_now(y) {
                return true;
            }
            if !is_float(a, x) || !is_float(b, y) {
                return x == y && a.starts_with('-') == b.starts_with('-');
            }
        }
        let (Ok(a), Ok(b)) = (a.parse::<f64>(), b.parse::<f64>()) else { return false };
        let near = (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
        self.last_digits |= near && a != b;
        near
    }
}

/// Returns true if both have the same lines of CSV at each time, in another order.
fn same_lines_by_time(a: &[&str], b: &[&str]) -> bool {
    /// Columns are name, tags, time and values.
    const TIME_COLUMN: usize = 2;
    let sorted = |lines: &[&str]| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        lines.sort();
        lines
    };
    let times = |lines: &[&str]| lines.iter().map(|line| csv_field(line, TIME_COLUMN)).collect::<Vec<_>>();
    sorted(a) == sorted(b) && times(a) == times(b)
}

/// Field `idx` of a line of CSV. Commas within quotes do not end a field.
fn csv_field(line: &str, idx: usize) -> String {
    let mut is_quoted = false;
    let ends = |letter: char| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    };
    line.split(ends).nth(idx).unwrap_or_default().to_owned()
}

fn kind_of_values(ours: &Json, theirs: &Json, name: &str) -> String {
    match (ours, theirs) {
        (Json::Null, _) => format!("{name}: null here"),
        (_, Json::Null) => format!("{name}: null in InfluxDB"),
        (Json::Number(_), Json::Number(_)) => format!("{name}: another number"),
        _ => format!("{name}: another value"),
    }
}

/// An error without the names and numbers in it.
pub(crate) fn shape(text: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    for letter in text.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            Some(_) => continue,
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            None => {}
        }
        if letter.is_ascii_digit() {
            if !out.ends_with('#') {
                out.push('#');
            }
        } else {
            out.push(letter);
        }
    }
    out.chars().take(90).collect()
}

/// A value in one line, cut.
pub(crate) fn print(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(text) => text.clone(),
        Json::Text(text) => format!("{text:?}"),
        Json::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(",")),
        Json::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("{name:?}:{}", print(value))).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}
