//! Pickle, protocol 2: series and nodes, as graphite-web exchanges them in a cluster.
//!
//! Invariant: only lists, tuples, dictionaries, texts, numbers, booleans and None; no class of the reader.
//! Not here: reading; `intervals` of nodes are tuples of pairs, which readers of pickles from Graphite
//! accept.

use crate::error::EvalError;
use crate::series::Series;
use crate::storage::Node;

/// Appends opcodes of protocol 2.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn text(&mut self, text: &str) {
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.out.push(b'X');
        self.out.extend(len.to_le_bytes());
        self.out.extend(text.bytes().take(len as usize));
    }

    fn integer(&mut self, value: i64) {
        match i32::try_from(value) {
            Ok(value) => {
                self.out.push(b'J');
                self.out.extend(value.to_le_bytes());
            }
            Err(_) => {
                self.out.extend([0x8a, 8]);
                self.out.extend(value.to_le_bytes());
            }
        }
    }

    fn float(&mut self, value: f64) {
        if value.is_nan() {
            self.out.push(b'N');
        } else {
            self.out.push(b'G');
            self.out.extend(value.to_be_bytes());
        }
    }

    /// Appends an empty list, and the mark that its items follow.
    fn open_list(&mut self) {
        self.out.extend(b"](");
    }

    fn close_list(&mut self) {
        self.out.push(b'e');
    }

    fn open_map(&mut self) {
        self.out.extend(b"}(");
    }

    fn close_map(&mut self) {
        self.out.push(b'u');
    }
}

/// Appends `format=pickle` of series.
/// # Errors
/// [`EvalError::Parameter`] if the consolidation is unknown.
pub fn render(list: &[Series], out: &mut Vec<u8>) -> Result<(), EvalError> {
    out.extend([0x80, 2]);
    let mut writer = Writer { out };
    writer.open_list();
    for series in list {
        writer.open_map();
        writer.text("name");
        writer.text(&series.name);
        for (key, value) in [("start", series.start), ("end", series.end), ("step", series.step)] {
            writer.text(key);
            writer.integer(value);
        }
        writer.text("values");
        writer.open_list();
        for value in series.points()?.iter() {
            writer.float(*value);
        }
        writer.close_list();
        writer.text("pathExpression");
        writer.text(&series.path_expression);
        writer.text("valuesPerPoint");
        writer.integer(i64::try_from(series.values_per_point).unwrap_or(i64::MAX));
        writer.text("consolidationFunc");
        writer.text(series.consolidation.name());
        writer.text("xFilesFactor");
        writer.float(series.x_files_factor);
        writer.close_map();
    }
    writer.close_list();
    writer.out.push(b'.');
    Ok(())
}

/// Appends `format=pickle` of nodes.
pub fn find(nodes: &[Node], out: &mut Vec<u8>) {
    out.extend([0x80, 2]);
    let mut writer = Writer { out };
    writer.open_list();
    for node in nodes {
        writer.open_map();
        writer.text("path");
        writer.text(&node.path);
        writer.text("is_leaf");
        writer.out.push(if node.is_leaf { 0x88 } else { 0x89 });
        if node.is_leaf {
            writer.text("intervals");
            writer.open_list();
            for (start, end) in &node.intervals {
                writer.integer(*start);
                writer.integer(*end);
                writer.out.push(0x86);
            }
            writer.close_list();
        }
        writer.close_map();
    }
    writer.close_list();
    writer.out.push(b'.');
}
