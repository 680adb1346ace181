//! Flags of a verb.

/// Flags of a verb.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
    pub(super) plus: bool,
    pub(super) minus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// True for `%+v`, which names fields.
    pub(super) plus_v: bool,
    /// True for `%#v`, which prints Go expressions.
    pub(super) sharp_v: bool,
}

impl Flags {
    /// Returns the sign of a number, which may be a space.
    pub(super) fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }
}
