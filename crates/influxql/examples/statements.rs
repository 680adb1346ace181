//! Prints, per line of standard input, the canonical form of its statements or the error: the other side of a
//! differential run against InfluxDB's own parser. `\n` in a line is a newline.

use std::io::{BufRead, Write};

use chronolith_influxql::ast::Statement;
use chronolith_influxql::parse_query;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        match parse_query(&line?) {
            Ok(statements) => {
                let texts: Vec<String> = statements.iter().map(ToString::to_string).collect();
                let columns: Vec<Vec<String>> = statements
                    .iter()
                    .filter_map(|statement| match statement {
                        Statement::Select(select) => Some(select.column_names()),
                        _ => None,
                    })
                    .collect();
                writeln!(out, "ok {} {columns:?}", texts.join(";\\n"))?;
            }
            Err(error) => writeln!(out, "error {error}")?,
        }
    }
    Ok(())
}
