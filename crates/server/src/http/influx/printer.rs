//! Printers of query results: JSON, CSV and MessagePack, whole or in chunks.
//!
//! Invariants: rows are printed as they come, and the printed bytes can be sent before the rest is known.
//! Only MessagePack, whose lists start with their length, keeps a whole document.
//! Not here: the rows (`influxql`), sending (`query`).

mod csv;
mod json;
mod msgpack;
mod output;

#[cfg(test)]
mod tests;

pub(super) use csv::CsvPrinter;
pub(super) use json::JsonPrinter;
pub(super) use msgpack::MsgpackPrinter;
pub(super) use output::{Epoch, Printer};
