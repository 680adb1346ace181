//! Compilation of parsed patterns, and its limits.

use regex_automata::meta;
use regex_syntax::hir::Hir;

/// Bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Bytes of a compiled pattern.
pub const PROGRAM_BYTES_MAX: usize = 16 << 20;
/// Bytes of the table of states times groups in a search for groups, about.
pub const GROUP_TABLE_BYTES_MAX: usize = 128 << 20;

/// Compiles a pattern. `None` if the program is larger than [`PROGRAM_BYTES_MAX`].
pub(super) fn compile(hir: &Hir) -> Option<meta::Regex> {
    let config = meta::Config::new().nfa_size_limit(Some(PROGRAM_BYTES_MAX));
    meta::Builder::new().configure(config).build_from_hir(hir).ok()
}
