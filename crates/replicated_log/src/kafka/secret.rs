//! Secrets, read from files.
//!
//! Invariant: no error has the content of a file.

use std::path::Path;

use chronolith_base::Disk;

use crate::error::LogError;

/// Returns the text of a file, without the line end after it.
///
/// # Errors
/// [`LogError::File`] for a file that cannot be read, is empty or no UTF-8.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> Result<String, LogError> {
    let bytes = disk.read(path).map_err(LogError::at(path))?;
    let wrong = |why: &str| LogError::File { path: path.to_owned(), why: why.to_owned() };
    let text = String::from_utf8(bytes).map_err(|_| wrong("expected a secret in UTF-8"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(wrong("expected a secret, found an empty file"));
    }
    Ok(text.to_owned())
}
