//! Tables for people: columns as wide as their widest cell.
//!
//! Not here: JSON, which every tool with a table prints as well.

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Text, from the left.
    Text(&'static str),
    /// Numbers, to the right.
    Number(&'static str),
}

impl Column {
    fn head(self) -> &'static str {
        match self {
            Column::Text(head) | Column::Number(head) => head,
        }
    }
}

/// Returns heads and rows, each a line without spaces at its end. A row has a cell per column.
pub(crate) fn aligned<const N: usize>(columns: [Column; N], rows: &[[String; N]]) -> String {
    let heads = columns.map(|column| column.head().to_owned());
    let lines = || std::iter::once(&heads).chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|idx| lines().map(|line| line[idx].chars().count()).max().unwrap_or(0));
    let mut out = String::new();
    for line in lines() {
        let mut text = String::new();
        for ((cell, column), width) in line.iter().zip(columns).zip(widths) {
            if !text.is_empty() {
                text.push_str("  ");
            }
            match column {
                Column::Text(_) => text.push_str(&format!("{cell:<width$}")),
                Column::Number(_) => text.push_str(&format!("{cell:>width$}")),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_begin_and_numbers_end_below_each_other() {
        let columns = [Column::Number("N"), Column::Text("NAME"), Column::Number("SIZE")];
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["1", "a", "1000"]), row(["12", "long name", ""])];
        assert_eq!(aligned(columns, &rows), " N  NAME       SIZE\n 1  a          1000\n12  long name\n");
        assert_eq!(aligned(columns, &[]), "N  NAME  SIZE\n");
    }
}
