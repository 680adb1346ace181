//! MessagePack: series and nodes, as graphite-web exchanges them in a cluster.
//!
//! Invariant: texts are `str`, values doubles or nil, times integers.
//! Not here: reading.

use crate::error::EvalError;
use crate::series::Series;
use crate::storage::Node;

/// Appends MessagePack values.
pub(super) struct Writer<'a> {
    pub(super) out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn size(&mut self, len: usize, fixed: Option<(u8, usize)>, wide: u8) {
        match (fixed, u32::try_from(len).unwrap_or(u32::MAX)) {
            (Some((tag, limit)), short) if len < limit => self.out.push(tag | (short as u8)),
            (_, short) if short <= 0xffff => {
                self.out.push(wide);
                self.out.extend((short as u16).to_be_bytes());
            }
            (_, long) => {
                self.out.push(wide + 1);
                self.out.extend(long.to_be_bytes());
            }
        }
    }

    pub(super) fn array(&mut self, len: usize) {
        self.size(len, Some((0x90, 16)), 0xdc);
    }

    pub(super) fn map(&mut self, len: usize) {
        self.size(len, Some((0x80, 16)), 0xde);
    }

    pub(super) fn text(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(len) if len >= 32 => self.out.extend([0xd9, len]),
            _ => self.size(text.len(), Some((0xa0, 32)), 0xda),
        }
        self.out.extend(text.as_bytes());
    }

    pub(super) fn integer(&mut self, value: i64) {
        if (0..128).contains(&value) {
            self.out.push(value as u8);
        } else {
            self.out.push(0xd3);
            self.out.extend(value.to_be_bytes());
        }
    }

    pub(super) fn value(&mut self, value: f64) {
        if value.is_nan() {
            self.out.push(0xc0);
        } else {
            self.out.push(0xcb);
            self.out.extend(value.to_be_bytes());
        }
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.out.push(if value { 0xc3 } else { 0xc2 });
    }
}

/// Appends `format=msgpack` of series.
/// # Errors
/// [`EvalError::Parameter`] if the consolidation is unknown.
pub fn render(list: &[Series], out: &mut Vec<u8>) -> Result<(), EvalError> {
    let mut writer = Writer { out };
    writer.array(list.len());
    for series in list {
        writer.map(9);
        writer.text("name");
        writer.text(&series.name);
        for (key, value) in [("start", series.start), ("end", series.end), ("step", series.step)] {
            writer.text(key);
            writer.integer(value);
        }
        writer.text("values");
        let points = series.points()?;
        writer.array(points.len());
        for value in points.iter() {
            writer.value(*value);
        }
        writer.text("pathExpression");
        writer.text(&series.path_expression);
        writer.text("valuesPerPoint");
        writer.integer(i64::try_from(series.values_per_point).unwrap_or(i64::MAX));
        writer.text("consolidationFunc");
        writer.text(series.consolidation.name());
        writer.text("xFilesFactor");
        writer.value(series.x_files_factor);
    }
    Ok(())
}

/// Appends `format=msgpack` of nodes.
pub fn find(nodes: &[Node], out: &mut Vec<u8>) {
    let mut writer = Writer { out };
    writer.array(nodes.len());
    for node in nodes {
        writer.map(if node.is_leaf { 3 } else { 2 });
        writer.text("path");
        writer.text(&node.path);
        writer.text("is_leaf");
        writer.boolean(node.is_leaf);
        if node.is_leaf {
            writer.text("intervals");
            writer.array(node.intervals.len());
            for (start, end) in &node.intervals {
                writer.array(2);
                writer.integer(*start);
                writer.integer(*end);
            }
        }
    }
}
