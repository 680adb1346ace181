//! A set of characters, as classes of all kinds make it.
//!
//! Not here: the syntax of classes (`class`), names of categories and scripts (`unicode`).

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir};

/// Ranges of code points below 0x80.
pub(super) type AsciiRanges = &'static [(char, char)];

/// A set of characters.
#[derive(Clone)]
pub(super) struct ClassSet(ClassUnicode);

impl ClassSet {
    pub(super) fn empty() -> ClassSet {
        ClassSet(ClassUnicode::empty())
    }

    pub(super) fn new(class: ClassUnicode) -> ClassSet {
        ClassSet(class)
    }

    pub(super) fn from_char(c: char) -> ClassSet {
        ClassSet(ClassUnicode::new([ClassUnicodeRange::new(c, c)]))
    }

    pub(super) fn from_ascii(ranges: AsciiRanges) -> ClassSet {
        ClassSet(ClassUnicode::new(ranges.iter().map(|&(a, b)| ClassUnicodeRange::new(a, b))))
    }

    /// With all characters that differ only in case.
    pub(super) fn folded(mut self) -> ClassSet {
        self.0.case_fold_simple();
        self
    }

    pub(super) fn folded_if(self, fold: bool) -> ClassSet {
        if fold { self.folded() } else { self }
    }

    pub(super) fn negated_if(mut self, negate: bool) -> ClassSet {
        if negate {
            self.0.negate();
        }
        self
    }

    pub(super) fn add(&mut self, other: &ClassSet) {
        self.0.union(&other.0);
    }

    pub(super) fn range_count(&self) -> usize {
        self.0.ranges().len()
    }

    pub(super) fn is_one_char(&self) -> bool {
        matches!(self.0.ranges(), [range] if range.start() == range.end())
    }

    pub(super) fn to_hir(&self) -> Hir {
        Hir::class(Class::Unicode(self.0.clone()))
    }
}
