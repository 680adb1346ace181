//! The YAML of a file, within limits.

use std::rc::Rc;

use crate::yaml::{self, Bounds, Node};

/// Bytes of a file, and of its values after aliases are replaced.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Values of a file.
const VALUES_MAX: usize = 200_000;

/// Reads the YAML of a file; `None` for a file without values.
pub(super) fn parse_yaml(bytes: &[u8]) -> Result<Option<Rc<Node>>, String> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("file has {} bytes, at most {FILE_BYTES_MAX} are allowed", bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let bounds = Bounds { nodes_max: VALUES_MAX, bytes_max: FILE_BYTES_MAX };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match yaml::parse(text, bounds) {
        Ok((_, true)) => Err("expected one YAML document, found several".to_owned()),
        Ok((root, false)) => Ok(root),
        // The text of the library may have a part of the file.
        Err(error) => Err(format!("{}: not valid YAML, or beyond its limits", error.position)),
    }
}
