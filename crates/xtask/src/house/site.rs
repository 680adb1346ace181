//! Position in the production code of a crate, for findings that name a line.

use syn::spanned::Spanned;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    /// Relative to the crate's `src/`, with `/`.
    pub(crate) file: String,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Site {
    pub(super) fn new(file: &str, node: &impl Spanned) -> Site {
        Site { file: file.to_owned(), line: node.span().start().line }
    }
}
