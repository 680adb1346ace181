//! The YAML document of a file as a tree, within bounds.

use std::rc::Rc;

use crate::faults::Faults;
use crate::yaml::{self, Bounds, Node, Position};

/// First document of a file.
pub(super) struct Document {
    /// `None` for a document without values.
    pub(super) root: Option<Rc<Node>>,
    /// True if others follow.
    pub(super) has_more: bool,
}

/// Reads the first document; `None` after a fault, which is added to `faults`.
pub(super) fn read(bytes: &[u8], bounds: Bounds, faults: &mut Faults) -> Option<Document> {
    let bytes_max = bounds.bytes_max;
    if bytes.len() > bytes_max {
        let start = Position { line: 1, column: 1 };
        faults.add(start, format!("file has {} bytes, at most {bytes_max} are allowed", bytes.len()));
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            faults.add(position_of(bytes, error.valid_up_to()), "yaml: invalid UTF-8");
            return None;
        }
    };
    match yaml::parse(text, bounds) {
        Ok((root, has_more)) => Some(Document { root, has_more }),
        Err(error) => {
            faults.add(error.position, format!("yaml: {}", error.message));
            None
        }
    }
}

/// Line and column of a byte.
fn position_of(bytes: &[u8], at: usize) -> Position {
    let before = bytes.get(..at).unwrap_or(bytes);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |idx| idx + 1);
    let column = 1 + String::from_utf8_lossy(before.get(line_start..).unwrap_or(&[])).chars().count();
    Position { line, column }
}
