//! Values as text: Go's package `fmt`.
//!
//! Invariants: no more than the limit of bytes is written; after that nothing is, and the result is an error.
//! Differences from Go: addresses are all the same.

mod flags;
mod float;
mod integer;
mod printer;
mod printf;
mod stringer;

pub(super) use printer::TooLong;
pub(super) use stringer::stringer;

use super::value::Value;
use printer::Printer;

/// Returns `values` as `fmt.Print` prints them.
pub(super) fn print(values: &[Value], bytes_max: usize) -> Result<Vec<u8>, TooLong> {
    let mut printer = Printer::new(bytes_max);
    let mut was_text = true;
    for (idx, value) in values.iter().enumerate() {
        let is_text = matches!(value, Value::Text(_) | Value::Html(_));
        if idx > 0 && !is_text && !was_text {
            printer.put(b" ");
        }
        printer.argument(value, 'v');
        was_text = is_text;
    }
    printer.finish()
}

/// Returns `values` as `fmt.Println` prints them.
pub(super) fn println(values: &[Value], bytes_max: usize) -> Result<Vec<u8>, TooLong> {
    let mut printer = Printer::new(bytes_max);
    for (idx, value) in values.iter().enumerate() {
        if idx > 0 {
            printer.put(b" ");
        }
        printer.argument(value, 'v');
    }
    printer.put(b"\n");
    printer.finish()
}

/// Returns `values` as `fmt.Printf` prints them.
pub(super) fn printf(format: &[u8], values: &[Value], bytes_max: usize) -> Result<Vec<u8>, TooLong> {
    let mut printer = Printer::new(bytes_max);
    printf::run(&mut printer, format, values);
    printer.finish()
}
