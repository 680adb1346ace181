//! Markdown that renders as it was meant: tables, fences and headings stand for themselves.
//!
//! The rules are stricter than CommonMark and GitHub, which render some of the refused forms.
//! Not here: links (`links`), words (`language`), sentences (`sentences`).

use super::finding::Finding;
use super::text_file::TextFile;

/// The longest line of README.md, which many read as plain text.
const README_COLUMNS_MAX: usize = 160;

/// Programs whose command lines belong into code blocks.
const PROGRAMS: [&str; 5] = ["cargo", "chronolith", "chronolith-demo", "curl", "promtool"];

/// Kind of a line, by which the lines around it are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Blank,
    Code,
    Heading,
    Row,
    Prose,
}

/// Findings of one Markdown file.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings: Vec<(usize, String)> = Vec::new();
    let kinds = kinds(&file.text, &mut findings);
    let lines: Vec<&str> = file.text.lines().collect();
    let mut idx = 0;
    while let Some(&kind) = kinds.get(idx) {
        let line = lines.get(idx).copied().unwrap_or_default();
        let before = idx.checked_sub(1).and_then(|idx| kinds.get(idx)).copied();
        match kind {
            Line::Row => {
                let len = kinds.iter().skip(idx).take_while(|kind| **kind == Line::Row).count();
                let after = kinds.get(idx + len).copied();
                let rows = lines.get(idx..idx + len).unwrap_or_default();
                check_table(idx, rows, [before, after], &mut findings);
                idx += len;
                continue;
            }
            Line::Heading if !matches!(before, None | Some(Line::Blank)) => {
                findings.push((idx, "a heading without a blank line before it".to_owned()));
            }
            Line::Prose => findings.extend(check_prose(line).map(|what| (idx, what.to_owned()))),
            _ => {}
        }
        idx += 1;
    }
    if file.path == "README.md" {
        let columns = lines.iter().map(|line| line.chars().count()).enumerate();
        let long = columns.filter(|(_, columns)| *columns > README_COLUMNS_MAX);
        findings.extend(
            long.map(|(idx, n)| (idx, format!("a line of {n} columns, at most {README_COLUMNS_MAX}"))),
        );
    }
    findings.sort();
    findings.into_iter().map(|(idx, what)| Finding::new(&file.path, idx + 1, what)).collect()
}

/// The kind of each line; a fence that is never closed is a finding.
fn kinds(text: &str, findings: &mut Vec<(usize, String)>) -> Vec<Line> {
    let mut open: Option<(usize, &str)> = None;
    let mut kinds = Vec::new();
    for (idx, raw) in text.lines().enumerate() {
        let line = raw.trim();
        let fence = fence_of(line);
        let kind = match (open, fence) {
            (Some((_, opening)), Some(closing)) if closes(line, opening, closing) => {
                open = None;
                Line::Code
            }
            (Some(_), _) => Line::Code,
            (None, Some(opening)) => {
                open = Some((idx, opening));
                Line::Code
            }
            (None, None) if line.is_empty() => Line::Blank,
            (None, None) if line.starts_with('|') => Line::Row,
            (None, None) if is_heading(raw) => Line::Heading,
            (None, None) => Line::Prose,
        };
        kinds.push(kind);
    }
    if let Some((idx, _)) = open {
        findings.push((idx, "a code block that is never closed".to_owned()));
    }
    kinds
}

/// The backticks or tildes that open or close a code block.
fn fence_of(line: &str) -> Option<&str> {
    let first = line.chars().next().filter(|c| ['`', '~'].contains(c))?;
    let len = line.len() - line.trim_start_matches(first).len();
    // `a`, ``a`` and ```a``` are code within a line.
    let is_inline = first == '`' && line.get(len..).is_some_and(|rest| rest.contains('`'));
    if len >= 3 && !is_inline { line.get(..len) } else { None }
}

fn closes(line: &str, opening: &str, closing: &str) -> bool {
    line == closing && closing.starts_with(opening)
}

fn is_heading(line: &str) -> bool {
    let rest = line.trim_start_matches('#');
    (1..=6).contains(&(line.len() - rest.len())) && rest.starts_with(' ')
}

/// Checks a table: a blank line before and after it, a header, a separator, and the same columns in each row.
fn check_table(idx: usize, rows: &[&str], around: [Option<Line>; 2], findings: &mut Vec<(usize, String)>) {
    let mut add = |idx: usize, what: &str| findings.push((idx, what.to_owned()));
    if !matches!(around[0], None | Some(Line::Blank)) {
        add(idx, "a table without a blank line before it");
    }
    if !matches!(around[1], None | Some(Line::Blank)) {
        add(idx + rows.len(), "text directly after a table becomes a row of it");
    }
    let (Some(header), separator) = (rows.first(), rows.get(1)) else { return };
    if is_separator(header) || !separator.is_some_and(|row| is_separator(row)) {
        add(idx, "a table without a header and a separator row (|---|)");
        return;
    }
    let column_count = cell_count(header);
    for (row_idx, row) in rows.iter().enumerate().skip(1) {
        let found = cell_count(row);
        if found != column_count {
            let what =
                format!("a row of {found} cells in a table of {column_count}; write \\| within a cell");
            add(idx + row_idx, &what);
        } else if row_idx > 1 && is_separator(row) {
            add(idx + row_idx, "a second separator row: a blank line and a header are missing before it");
        }
    }
}

fn check_prose(line: &str) -> Option<&'static str> {
    let outside: String = line.split('`').step_by(2).collect();
    if line.trim().starts_with(['-', ':'])
        && line.contains('|')
        && is_separator(&format!("|{}|", line.trim()))
    {
        return Some("a separator row whose table does not begin its rows with |");
    }
    if outside.contains("|---") || outside.contains("---|") {
        return Some("rows of a table within a paragraph");
    }
    if line.contains("```") {
        return Some("a fence within a line");
    }
    let first = line.split_whitespace().next().unwrap_or_default();
    // Four spaces are a code block, too.
    let is_command = !line.starts_with("    ") && PROGRAMS.contains(&first) && line.trim().contains(' ');
    is_command.then_some("a command outside of a code block")
}

/// Returns true if all cells are dashes, with colons for the alignment.
fn is_separator(row: &str) -> bool {
    let cells = row.trim().trim_start_matches('|').trim_end_matches('|');
    cells.split('|').all(|cell| {
        let dashes = cell.trim().trim_start_matches(':').trim_end_matches(':');
        !dashes.is_empty() && dashes.bytes().all(|b| b == b'-')
    })
}

/// Cells of a row: a backslash keeps a `|` within its cell, a code span does not.
pub(super) fn cells(row: &str) -> impl Iterator<Item = &str> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let row = if row.ends_with("\\|") { row } else { row.strip_suffix('|').unwrap_or(row) };
    let mut before = ' ';
    row.split(move |c: char| {
        let is_border = c == '|' && before != '\\';
        before = c;
        is_border
    })
}

fn cell_count(row: &str) -> usize {
    cells(row).count()
}
