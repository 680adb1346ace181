//! The figures of all crates as tables and lists, in plain text or Markdown.
//!
//! Not here: limits; a figure is printed, never judged.

use super::crate_figures::CrateFigures;
use super::cycles::Cycle;
use super::declarations::{FIELDS_MAX, FUNCTION_LINES_MAX, INHERENT_FILES_MAX, PARAMETERS_MAX, TypeFigures};
use super::folders::FolderCycle;

/// Characters per line of a list.
const WIDTH: usize = 110;
/// Cycles with more than this number of files are listed.
const UNLISTED_FILES_MAX: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Text,
    Markdown,
}

enum Cell {
    /// Totalled as a sum.
    Count(usize),
    /// Totalled as the largest one.
    Max(usize),
    /// Has no total.
    Median(usize),
    Text(String),
}

struct Table {
    title: &'static str,
    /// Header of each column after the crate's name.
    columns: Vec<String>,
    /// Cells of one crate, one per column.
    cells: fn(&CrateFigures) -> Vec<Cell>,
}

/// Renders all tables and lists.
pub(super) fn render(crates: &[CrateFigures], layout: Layout) -> String {
    let mut out = String::new();
    for table in tables() {
        heading(table.title, layout, &mut out);
        let mut rows = vec![[vec!["crate".to_owned()], table.columns].concat()];
        let cells: Vec<Vec<Cell>> = crates.iter().map(table.cells).collect();
        for (figures, cells) in crates.iter().zip(&cells) {
            rows.push([vec![figures.name.clone()], cells.iter().map(Cell::text).collect()].concat());
        }
        if crates.len() > 1 {
            rows.push([vec!["total".to_owned()], total(&cells)].concat());
        }
        render_table(&rows, layout, &mut out);
    }
    let cycle_title = format!("Import cycles of more than {UNLISTED_FILES_MAX} files");
    render_list(&cycle_title, &entries(crates, cycle_entries), layout, &mut out);
    let folder_title = "Import cycles of sibling modules";
    render_list(folder_title, &entries(crates, folder_cycle_entries), layout, &mut out);
    let inherent_title = format!("Types with inherent impls in more than {INHERENT_FILES_MAX} files");
    render_list(&inherent_title, &entries(crates, inherent_entries), layout, &mut out);
    let struct_title = format!("Structs of more than {FIELDS_MAX} fields");
    render_list(&struct_title, &entries(crates, struct_entries), layout, &mut out);
    out
}

fn tables() -> [Table; 5] {
    let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    [
        Table {
            title: "Size of production code, in lines of code; all lines are those with blank lines and comments",
            columns: columns(&[
                "files",
                "lines",
                "all lines",
                "median file",
                "largest",
                "largest file",
                "tests",
                "examples, benches",
            ]),
            cells: size_cells,
        },
        Table {
            title: "Import cycles: files that import each other, directly or through others",
            columns: columns(&[
                "between modules",
                "their files",
                "largest",
                "within one module",
                "their files",
                "largest",
                "parent-child pairs",
            ]),
            cells: cycle_cells,
        },
        Table {
            title: "Figures with a limit per crate (crates/xtask/house-limits.txt)",
            columns: columns(&[
                "modules in a folder cycle",
                "pub(crate) fields",
                "methods of one type",
                "assertions",
                "per 1,000 lines",
            ]),
            cells: limit_cells,
        },
        Table {
            title: "Types by the number of files with their impls; fields by visibility",
            columns: columns(&[
                "types",
                "inherent > 1 file",
                &format!("> {INHERENT_FILES_MAX} files"),
                &format!("trait > {INHERENT_FILES_MAX} files"),
                &format!("> {FIELDS_MAX} fields"),
                "pub",
                "pub(crate)",
                "pub(super), (in)",
                "private",
            ]),
            cells: type_cells,
        },
        Table {
            title: "Functions with a body",
            columns: columns(&[
                "functions",
                &format!("> {FUNCTION_LINES_MAX} lines"),
                "longest",
                &format!("> {PARAMETERS_MAX} parameters"),
                "tuple parameters",
                "tuple lets",
            ]),
            cells: function_cells,
        },
    ]
}

fn size_cells(figures: &CrateFigures) -> Vec<Cell> {
    let size = &figures.size;
    vec![
        Cell::Count(size.file_count),
        Cell::Count(size.code_lines),
        Cell::Count(size.all_lines),
        Cell::Median(size.file_lines_median),
        Cell::Max(size.file_lines_max),
        Cell::Text(size.largest_file.clone()),
        Cell::Count(size.test_lines),
        Cell::Count(size.example_lines),
    ]
}

fn cycle_cells(figures: &CrateFigures) -> Vec<Cell> {
    let mut cells = Vec::new();
    for is_within_module in [false, true] {
        let of_kind = figures.cycles.iter().filter(|cycle| cycle.is_within_module == is_within_module);
        let sizes: Vec<usize> = of_kind.map(|cycle| cycle.files.len()).collect();
        cells.push(Cell::Count(sizes.len()));
        cells.push(Cell::Count(sizes.iter().sum()));
        cells.push(Cell::Max(sizes.iter().copied().max().unwrap_or(0)));
    }
    let is_pair = |cycle: &&Cycle| cycle.is_within_module && cycle.files.len() == 2;
    cells.push(Cell::Count(figures.cycles.iter().filter(is_pair).count()));
    cells
}

fn limit_cells(figures: &CrateFigures) -> Vec<Cell> {
    let tenths = figures.assertion_tenths();
    vec![
        Cell::Max(figures.folder_cycle_max()),
        Cell::Count(figures.declarations.fields.crate_wide),
        Cell::Max(figures.methods_max()),
        Cell::Count(figures.declarations.assertion_count),
        Cell::Text(format!("{}.{}", tenths / 10, tenths % 10)),
    ]
}

fn type_cells(figures: &CrateFigures) -> Vec<Cell> {
    let types = &figures.declarations.types;
    let count = |is_counted: fn(&TypeFigures) -> bool| {
        Cell::Count(types.iter().filter(|found| is_counted(found)).count())
    };
    let fields = figures.declarations.fields;
    vec![
        Cell::Count(types.len()),
        count(|found| found.inherent_files.len() > 1),
        count(|found| found.inherent_files.len() > INHERENT_FILES_MAX),
        count(|found| found.trait_files.len() > INHERENT_FILES_MAX),
        count(|found| found.field_count > FIELDS_MAX),
        Cell::Count(fields.public),
        Cell::Count(fields.crate_wide),
        Cell::Count(fields.ancestor_wide),
        Cell::Count(fields.private),
    ]
}

fn function_cells(figures: &CrateFigures) -> Vec<Cell> {
    let functions = figures.declarations.functions;
    vec![
        Cell::Count(functions.all),
        Cell::Count(functions.long),
        Cell::Max(functions.lines_max),
        Cell::Count(functions.many_parameters),
        Cell::Count(figures.declarations.tuple_parameters.len()),
        Cell::Count(figures.declarations.tuple_lets.len()),
    ]
}

fn cycle_entries(figures: &CrateFigures) -> Vec<String> {
    let listed = figures.cycles.iter().filter(|cycle| cycle.files.len() > UNLISTED_FILES_MAX);
    let entry = |cycle: &Cycle| {
        let kind = if cycle.is_within_module { "within one module" } else { "between modules" };
        format!("{} files {kind}: {}", cycle.files.len(), cycle.files.join(", "))
    };
    listed.map(entry).collect()
}

fn folder_cycle_entries(figures: &CrateFigures) -> Vec<String> {
    let entry = |cycle: &FolderCycle| {
        let place = if cycle.parent.is_empty() { "the crate root" } else { &cycle.parent };
        format!("{} modules of {place}: {}", cycle.modules.len(), cycle.modules.join(", "))
    };
    figures.folder_cycles.iter().map(entry).collect()
}

fn inherent_entries(figures: &CrateFigures) -> Vec<String> {
    let types = figures.declarations.types.iter();
    let mut listed: Vec<_> = types.filter(|found| found.inherent_files.len() > INHERENT_FILES_MAX).collect();
    listed.sort_by_key(|found| std::cmp::Reverse(found.inherent_files.len()));
    let entry = |found: &TypeFigures| {
        let files: Vec<&str> = found.inherent_files.iter().map(String::as_str).collect();
        format!("{} ({}) in {} files: {}", found.name, found.file, files.len(), files.join(", "))
    };
    listed.into_iter().map(entry).collect()
}

fn struct_entries(figures: &CrateFigures) -> Vec<String> {
    let types = figures.declarations.types.iter();
    let mut listed: Vec<_> = types.filter(|found| found.field_count > FIELDS_MAX).collect();
    listed.sort_by_key(|found| std::cmp::Reverse(found.field_count));
    let entry =
        |found: &TypeFigures| format!("{} ({}): {} fields", found.name, found.file, found.field_count);
    listed.into_iter().map(entry).collect()
}

/// The entries of all crates, each after the name of its crate.
fn entries(crates: &[CrateFigures], of_crate: fn(&CrateFigures) -> Vec<String>) -> Vec<String> {
    let named = |figures: &CrateFigures| {
        let name = figures.name.clone();
        of_crate(figures).into_iter().map(move |entry| format!("{name}: {entry}"))
    };
    crates.iter().flat_map(named).collect()
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Cell::Count(count) | Cell::Max(count) | Cell::Median(count) => count.to_string(),
            Cell::Text(text) => text.clone(),
        }
    }
}

/// Last row of a table, from the cells of all crates.
fn total(rows: &[Vec<Cell>]) -> Vec<String> {
    let column_count = rows.first().map_or(0, Vec::len);
    (0..column_count).map(|idx| total_of(rows.iter().filter_map(|row| row.get(idx)))).collect()
}

fn total_of<'a>(column: impl Iterator<Item = &'a Cell>) -> String {
    let combine = |total: Option<usize>, cell: &Cell| match cell {
        Cell::Count(count) => Some(total.unwrap_or(0) + count),
        Cell::Max(count) => Some(total.unwrap_or(0).max(*count)),
        Cell::Median(_) | Cell::Text(_) => None,
    };
    column.fold(None, combine).map_or_else(String::new, |total| total.to_string())
}

fn heading(title: &str, layout: Layout, out: &mut String) {
    let (before, after) = match layout {
        Layout::Text => ("\n", "\n"),
        Layout::Markdown => ("\n## ", "\n\n"),
    };
    for part in [before, title, after] {
        out.push_str(part);
    }
}

/// Renders rows in columns of equal width; the first row is the header. Columns of numbers are right-aligned.
fn render_table(rows: &[Vec<String>], layout: Layout, out: &mut String) {
    let Some((header, body)) = rows.split_first() else { return };
    let is_number = |idx: usize| {
        body.iter().filter_map(|row| row.get(idx)).all(|cell| cell.bytes().all(|b| b.is_ascii_digit()))
    };
    let columns: Vec<Column> = (0..header.len())
        .map(|idx| Column {
            width: rows.iter().filter_map(|row| row.get(idx)).map(String::len).max().unwrap_or(0),
            is_number: is_number(idx),
        })
        .collect();
    render_row(header, &columns, layout, out);
    if layout == Layout::Markdown {
        let rules = columns.iter().map(Column::markdown_rule).collect::<Vec<_>>();
        render_row(&rules, &columns, layout, out);
    }
    body.iter().for_each(|row| render_row(row, &columns, layout, out));
}

struct Column {
    /// Counted in characters.
    width: usize,
    is_number: bool,
}

impl Column {
    /// Cell of the line between header and body.
    fn markdown_rule(&self) -> String {
        let dashes = "-".repeat(self.width.saturating_sub(1));
        if self.is_number { format!("{dashes}:") } else { format!("{dashes}-") }
    }
}

fn render_row(cells: &[String], columns: &[Column], layout: Layout, out: &mut String) {
    let pad = |cell: &String, column: &Column| match column.is_number {
        true => format!("{cell:>width$}", width = column.width),
        false => format!("{cell:<width$}", width = column.width),
    };
    let padded: Vec<String> = cells.iter().zip(columns).map(|(cell, column)| pad(cell, column)).collect();
    match layout {
        Layout::Text => out.push_str(padded.join("  ").trim_end()),
        Layout::Markdown => out.push_str(&format!("| {} |", padded.join(" | "))),
    }
    out.push('\n');
}

/// Renders a list; lines longer than [`WIDTH`] are broken and indented.
fn render_list(title: &str, entries: &[String], layout: Layout, out: &mut String) {
    heading(&format!("{title}: {}", entries.len()), layout, out);
    let bullet = if layout == Layout::Markdown { "- " } else { "" };
    for entry in entries {
        let mut line = bullet.to_owned();
        for (idx, word) in entry.split(' ').enumerate() {
            if idx > 0 && line.len() + 1 + word.len() > WIDTH {
                out.push_str(&line);
                out.push('\n');
                line = "  ".to_owned();
            } else if idx > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
        out.push_str(&line);
        out.push('\n');
    }
}
