//! Scripts of the promqltest language, parsed to commands.

use super::literal::{SeriesLiteral, duration_ms, quoted_text, series, start_offsets};

/// One command.
#[derive(Debug)]
pub(crate) enum Command {
    /// Forget all series.
    Clear,
    /// Add series.
    Load(Load),
    /// Evaluate and compare.
    Eval(Box<Eval>),
}

/// `load 5m` and its series.
#[derive(Debug)]
pub(crate) struct Load {
    /// Distance of samples.
    pub(crate) gap_ms: i64,
    /// Classic histograms are to be converted as well.
    pub(crate) with_nhcb: bool,
    /// Series to append.
    pub(crate) series: Vec<SeriesLiteral>,
}

/// Evaluation times.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EvalKind {
    /// Once.
    Instant {
        /// Evaluation time in milliseconds.
        time_ms: i64,
    },
    /// At several times.
    Range {
        /// First.
        start_ms: i64,
        /// Last.
        end_ms: i64,
        /// Distance.
        step_ms: i64,
    },
}

/// A text that has to occur.
#[derive(Debug, Clone)]
pub(crate) enum TextPattern {
    /// Any text.
    Any,
    /// The text itself.
    Exact(String),
    /// One that fits.
    Regex(String),
}

/// Expected annotations, errors and order.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    /// The eval fails, with this text.
    pub(crate) fail: Option<TextPattern>,
    /// Expected warnings.
    pub(crate) warn: Vec<TextPattern>,
    /// Expected infos.
    pub(crate) info: Vec<TextPattern>,
    /// No warning.
    pub(crate) no_warn: bool,
    /// No info.
    pub(crate) no_info: bool,
    /// Elements in this order.
    pub(crate) ordered: bool,
    /// A text.
    pub(crate) string: Option<String>,
    /// A range vector with samples at start, start + step, ... end (milliseconds).
    pub(crate) range_vector: Option<(i64, i64, i64)>,
}

/// An `eval` line and the expected outcome.
#[derive(Debug)]
pub(crate) struct Eval {
    /// Line of the script, from 1.
    pub(crate) line: usize,
    /// Evaluation times.
    pub(crate) kind: EvalKind,
    /// Expression to evaluate.
    pub(crate) expr: String,
    /// Expectations other than values.
    pub(crate) expect: Expectations,
    /// Expected series.
    pub(crate) series: Vec<SeriesLiteral>,
    /// Expected scalar.
    pub(crate) scalar: Option<f64>,
}

/// Parses a script.
pub(crate) fn parse(text: &str) -> Result<Vec<Command>, String> {
    let trimmed =
        |line: &'_ str| if line.trim().starts_with('#') { String::new() } else { line.trim().to_owned() };
    let lines: Vec<String> = text.lines().map(trimmed).collect();
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let head = &lines[at];
        let end = (at + 1..lines.len()).find(|&i| lines[i].is_empty()).unwrap_or(lines.len());
        let word = head.split_whitespace().next().unwrap_or("");
        let fail = |message: String| format!("line {}: {message}", at + 1);
        match word {
            "" => at += 1,
            "clear" => {
                commands.push(Command::Clear);
                at += 1;
            }
            "load" | "load_with_nhcb" => {
                commands.push(Command::Load(parse_load(head, &lines[at + 1..end]).map_err(fail)?));
                at = end;
            }
            _ if word.starts_with("eval") => {
                commands.push(Command::Eval(Box::new(
                    parse_eval(at + 1, head, &lines[at + 1..end]).map_err(fail)?,
                )));
                at = end;
            }
            other => return Err(fail(format!("unknown command {other:?}"))),
        }
    }
    Ok(commands)
}

fn parse_load(head: &str, body: &[String]) -> Result<Load, String> {
    let mut words = head.split_whitespace();
    let with_nhcb = words.next() == Some("load_with_nhcb");
    let gap_ms = words.next().and_then(duration_ms).ok_or("load without duration")?;
    let mut all: Vec<SeriesLiteral> = Vec::new();
    let mut offsets = Vec::new();
    for line in body {
        if let Some((name, values)) =
            line.split_once("@st").filter(|(name, _)| !name.contains(char::is_whitespace))
        {
            offsets = start_offsets(values).ok_or_else(|| format!("bad start times of {name}"))?;
            continue;
        }
        let mut new = series(line)?;
        new.start_offsets = std::mem::take(&mut offsets);
        // A series that is given twice in one load has the later values only.
        all.retain(|old| old.labels != new.labels);
        all.push(new);
    }
    Ok(Load { gap_ms, with_nhcb, series: all })
}

fn parse_eval(line: usize, head: &str, body: &[String]) -> Result<Eval, String> {
    let (word, rest) = take_word(head);
    let (mode, rest) = take_word(rest);
    let mut expect = Expectations::default();
    match word.strip_prefix("eval").unwrap_or("") {
        "" => {}
        "_fail" => expect.fail = Some(TextPattern::Any),
        "_warn" => expect.warn.push(TextPattern::Any),
        "_info" => expect.info.push(TextPattern::Any),
        "_ordered" => expect.ordered = true,
        other => return Err(format!("unknown eval{other}")),
    }
    let (kind, expr) = match mode {
        "instant" => {
            let (time_ms, rest) = named_duration(rest, "at")?;
            (EvalKind::Instant { time_ms }, rest)
        }
        "range" => {
            let (start_ms, rest) = named_duration(rest, "from")?;
            let (end_ms, rest) = named_duration(rest, "to")?;
            let (step_ms, rest) = named_duration(rest, "step")?;
            (EvalKind::Range { start_ms, end_ms, step_ms }, rest)
        }
        other => return Err(format!("unknown eval {other}")),
    };
    let mut eval = Eval { line, kind, expr: expr.to_owned(), expect, series: Vec::new(), scalar: None };
    for line in body {
        parse_expectation(line, &mut eval)?;
    }
    Ok(eval)
}

fn parse_expectation(line: &str, eval: &mut Eval) -> Result<(), String> {
    let expect = &mut eval.expect;
    let (word, rest) = take_word(line);
    match word {
        "expected_fail_message" => expect.fail = Some(TextPattern::Exact(rest.to_owned())),
        "expected_fail_regexp" => expect.fail = Some(TextPattern::Regex(rest.to_owned())),
        "expect" => {
            let (what, rest) = take_word(rest);
            match what {
                "fail" => expect.fail = Some(text_pattern(rest)?),
                "warn" => expect.warn.push(text_pattern(rest)?),
                "info" => expect.info.push(text_pattern(rest)?),
                "no_warn" => expect.no_warn = true,
                "no_info" => expect.no_info = true,
                "ordered" => expect.ordered = true,
                "string" => expect.string = Some(quoted_text(rest).ok_or("bad string")?.0),
                "range" => {
                    let (_, rest) = take_word(rest);
                    let (start_ms, rest) = named_duration(rest, "from")?;
                    let (end_ms, rest) = named_duration(rest, "to")?;
                    let (step_ms, _) = named_duration(rest, "step")?;
                    expect.range_vector = Some((start_ms, end_ms, step_ms));
                }
                other => return Err(format!("unknown expectation {other:?}")),
            }
        }
        _ => match scalar(line) {
            Some(value) => eval.scalar = Some(value),
            None => eval.series.push(series(line)?),
        },
    }
    Ok(())
}

/// A line that is nothing but a number.
fn scalar(line: &str) -> Option<f64> {
    let plain = line.strip_prefix('+').unwrap_or(line);
    plain.parse().ok()
}

fn text_pattern(text: &str) -> Result<TextPattern, String> {
    if text.is_empty() {
        return Ok(TextPattern::Any);
    }
    if let Some(message) = text.strip_prefix("msg:") {
        return Ok(TextPattern::Exact(message.trim().to_owned()));
    }
    match text.strip_prefix("regex:") {
        Some(pattern) => Ok(TextPattern::Regex(pattern.trim().to_owned())),
        None => Err(format!("expected msg: or regex:, got {text:?}")),
    }
}

fn take_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn named_duration<'t>(text: &'t str, name: &str) -> Result<(i64, &'t str), String> {
    let (word, rest) = take_word(text);
    let (duration, rest) = take_word(rest);
    let ms = (word == name).then(|| duration_ms(duration)).flatten();
    Ok((ms.ok_or_else(|| format!("expected {name} and a duration, got {text:?}"))?, rest))
}
