//! The parser from outside: Prometheus's verdicts, hostile text, trees that survive printing.

mod corpus;
mod hostile;
mod metric_selector;
mod round_trip;
