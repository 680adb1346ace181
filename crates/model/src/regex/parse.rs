//! Parser for Go's `regexp/syntax` with Perl flags; builds [`Hir`].
//!
//! Invariants: the first error is Go's, with the same part of the pattern; the stack of open groups
//! is on the heap, so nesting costs no stack. Go's limits of repeats, depth and size hold here, too.
//! Not here: character classes (`class`), compilation.

use regex_syntax::hir::{Capture, Hir, Look, Repetition};

use super::class;
use super::class_set::ClassSet;
use super::error::{RegexError, RegexErrorKind, error};
use super::unicode;

/// Copies of the innermost item by repeat counts, alone or nested.
const REPEAT_COUNT_MAX: u32 = 1000;
/// Levels of a tree.
const HEIGHT_MAX: u32 = 1000;
/// Instructions of a program in Go's count.
const SIZE_MAX: u64 = (128 << 20) / 40;
/// Ranges of all classes of a pattern.
const CLASS_RANGE_COUNT_MAX: usize = 1 << 18;
/// Numbers of this many digits or more are "too big", whatever they are.
const REPEAT_DIGITS_MAX: usize = 8;

/// A pattern that Go accepts.
pub(super) struct Parsed {
    pub(super) hir: Hir,
    /// Group 0 is the whole.
    pub(super) group_names: Vec<Option<String>>,
    /// Instructions in Go's count.
    pub(super) size: u64,
}

/// Form in which Go compiles a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Within `^(?s:` and `)$`.
    Anchored,
    /// As it is.
    Search,
}

/// Parses `pattern` with the syntax of RE2.
pub(super) fn parse(pattern: &str, mode: Mode) -> Result<Parsed, RegexError> {
    let dot_newline = mode == Mode::Anchored;
    let mut parser = Parser {
        pattern,
        mode,
        flags: Flags { fold: false, multi_line: false, dot_newline, lazy: false },
        frames: vec![Frame::default()],
        group_names: vec![None],
        class_range_count: 0,
    };
    parser.run()?;
    parser.finish()
}

/// Flags of `(?imsU)`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) fold: bool,
    multi_line: bool,
    dot_newline: bool,
    lazy: bool,
}

/// A finished part with the figures of Go's limits.
struct Piece {
    hir: Hir,
    height: u32,
    size: u64,
    /// Copies of the innermost item.
    repeat_count: u32,
}

impl Piece {
    fn leaf(hir: Hir) -> Piece {
        Piece { hir, height: 1, size: 1, repeat_count: 1 }
    }

    fn text(text: &str) -> Piece {
        Piece { size: text.chars().count() as u64, ..Piece::leaf(Hir::literal(text.as_bytes())) }
    }
}

/// One operand of a concatenation. Text grows by characters; a repeat takes only the last of them.
enum Item {
    Text(String),
    Piece(Piece),
}

/// An open group (or the whole pattern).
#[derive(Default)]
struct Frame {
    items: Vec<Item>,
    branches: Vec<Piece>,
    /// Flags after the group.
    flags_outside: Flags,
    /// Number of the group, if it captures.
    capture_idx: Option<u32>,
}

struct Parser<'a> {
    pattern: &'a str,
    mode: Mode,
    flags: Flags,
    /// Open groups; never empty.
    frames: Vec<Frame>,
    group_names: Vec<Option<String>>,
    class_range_count: usize,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), RegexError> {
        let mut rest = self.pattern;
        // Start of the repeat operator that ends here.
        let mut last_repeat: Option<&'a str> = None;
        while let Some(c) = rest.chars().next() {
            let tail = &rest[c.len_utf8()..];
            let mut repeat = None;
            rest = match c {
                '(' if tail.starts_with('?') => self.perl_group(rest)?,
                '(' => {
                    self.open_capture(None);
                    tail
                }
                '|' => {
                    self.close_branch()?;
                    tail
                }
                ')' => {
                    self.close_group()?;
                    tail
                }
                '^' => {
                    let look = if self.flags.multi_line { Look::StartLF } else { Look::Start };
                    self.push(Hir::look(look))?;
                    tail
                }
                '$' => {
                    let look = if self.flags.multi_line { Look::EndLF } else { Look::End };
                    self.push(Hir::look(look))?;
                    tail
                }
                '.' => {
                    self.push(class::dot(self.flags.dot_newline))?;
                    tail
                }
                '[' => self.class(rest)?,
                '*' | '+' | '?' => {
                    repeat = Some(rest);
                    let (min, max) = match c {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    self.repeat(Counts { min, max, is_counted: false }, rest, tail, last_repeat)?
                }
                '{' => match counts(rest) {
                    None => {
                        self.push_char(c)?;
                        tail
                    }
                    Some((counts, after)) => {
                        repeat = Some(rest);
                        let counts =
                            counts.ok_or_else(|| error(RegexErrorKind::InvalidRepeatSize, rest, after))?;
                        self.repeat(counts, rest, after, last_repeat)?
                    }
                },
                '\\' => self.escape(rest)?,
                c => {
                    self.push_char(c)?;
                    tail
                }
            };
            last_repeat = repeat;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Parsed, RegexError> {
        let piece = self.take_group()?;
        if self.frames.len() != 1 {
            return Err(RegexError::new(RegexErrorKind::MissingParen, self.pattern));
        }
        // Prometheus compiles the pattern within `^(?s:` and `)$`; an open quotation includes the end of
        // that.
        if self.mode == Mode::Anchored && has_open_quotation(self.pattern) {
            let whole = format!("^(?s:{})$", self.pattern);
            return Err(RegexError::new(RegexErrorKind::MissingParen, &whole));
        }
        Ok(Parsed { hir: piece.hir, group_names: self.group_names, size: piece.size })
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the frame of the whole pattern is never closed")
    }

    fn push(&mut self, hir: Hir) -> Result<(), RegexError> {
        self.push_piece(Piece::leaf(hir))
    }

    fn push_piece(&mut self, piece: Piece) -> Result<(), RegexError> {
        self.check(&piece)?;
        self.frame().items.push(Item::Piece(piece));
        Ok(())
    }

    fn push_char(&mut self, c: char) -> Result<(), RegexError> {
        if self.flags.fold {
            let folded = ClassSet::from_char(c).folded();
            if !folded.is_one_char() {
                return self.push_class(&folded);
            }
        }
        match self.frame().items.last_mut() {
            Some(Item::Text(text)) => text.push(c),
            _ => self.frame().items.push(Item::Text(c.to_string())),
        }
        Ok(())
    }

    /// Pushes the code point of an escape; a surrogate matches nothing.
    fn push_code(&mut self, code: u32) -> Result<(), RegexError> {
        match char::from_u32(code) {
            Some(c) => self.push_char(c),
            None => self.push(Hir::fail()),
        }
    }

    fn push_class(&mut self, set: &ClassSet) -> Result<(), RegexError> {
        self.class_range_count += set.range_count();
        if self.class_range_count > CLASS_RANGE_COUNT_MAX {
            return Err(RegexError::new(RegexErrorKind::Large, self.pattern));
        }
        self.push(set.to_hir())
    }

    fn class(&mut self, rest: &'a str) -> Result<&'a str, RegexError> {
        let (set, after) = class::bracketed(rest, self.flags.fold)?;
        self.push_class(&set)?;
        Ok(after)
    }

    /// `rest` starts with a backslash.
    fn escape(&mut self, rest: &'a str) -> Result<&'a str, RegexError> {
        let mut chars = rest.chars();
        chars.next();
        let look = match chars.next() {
            Some('A') => Look::Start,
            Some('z') => Look::End,
            Some('b') => Look::WordAscii,
            Some('B') => Look::WordAsciiNegate,
            Some('C') => return Err(error(RegexErrorKind::InvalidEscape, rest, chars.as_str())),
            Some('Q') => return self.quotation(chars.as_str()),
            _ => return self.class_escape(rest),
        };
        self.push(Hir::look(look))?;
        Ok(chars.as_str())
    }

    fn class_escape(&mut self, rest: &'a str) -> Result<&'a str, RegexError> {
        let fold = self.flags.fold;
        if let Some((set, after)) = unicode::escape(rest, fold)?.or_else(|| class::perl(rest, fold)) {
            self.push_class(&set)?;
            return Ok(after);
        }
        let (code, after) = class::char_escape(rest)?;
        self.push_code(code)?;
        Ok(after)
    }

    /// Text between `\Q` and `\E` (or the end) is literal.
    fn quotation(&mut self, rest: &'a str) -> Result<&'a str, RegexError> {
        let (quoted, after) = rest.split_once(r"\E").unwrap_or((rest, ""));
        quoted.chars().try_for_each(|c| self.push_char(c))?;
        Ok(after)
    }

    /// `rest` starts with `(?`.
    fn perl_group(&mut self, rest: &'a str) -> Result<&'a str, RegexError> {
        let name_at = match rest.as_bytes() {
            [_, _, b'P', b'<', _, ..] => Some(4),
            [_, _, b'<', _, ..] => Some(3),
            _ => None,
        };
        if let Some(after_open) = name_at.and_then(|at| rest.get(at..)) {
            let Some((name, after)) = after_open.split_once('>') else {
                return Err(RegexError::new(RegexErrorKind::InvalidNamedCapture, rest));
            };
            if name.is_empty() || !name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
                return Err(error(RegexErrorKind::InvalidNamedCapture, rest, after));
            }
            self.open_capture(Some(name.to_owned()));
            return Ok(after);
        }
        let (flags, opens, after) = self.flag_group(rest)?;
        if opens {
            self.open(None);
        }
        self.flags = flags;
        Ok(after)
    }

    /// `(?flags)` or `(?flags:`: the flags, whether a group opens, and what follows.
    fn flag_group(&self, rest: &'a str) -> Result<(Flags, bool, &'a str), RegexError> {
        let mut chars = rest.chars();
        chars.next();
        chars.next();
        let (mut flags, mut setting, mut saw_flag) = (self.flags, true, false);
        while let Some(c) = chars.next() {
            match c {
                'i' => flags.fold = setting,
                'm' => flags.multi_line = setting,
                's' => flags.dot_newline = setting,
                'U' => flags.lazy = setting,
                '-' if setting => setting = false,
                ':' | ')' if setting || saw_flag => return Ok((flags, c == ':', chars.as_str())),
                _ => break,
            }
            saw_flag = c != '-';
        }
        Err(error(RegexErrorKind::InvalidPerlOp, rest, chars.as_str()))
    }

    fn open_capture(&mut self, name: Option<String>) {
        let idx = u32::try_from(self.group_names.len()).unwrap_or(u32::MAX);
        self.group_names.push(name);
        self.open(Some(idx));
    }

    fn open(&mut self, capture_idx: Option<u32>) {
        let flags_outside = self.flags;
        self.frames.push(Frame { flags_outside, capture_idx, ..Frame::default() });
    }

    fn close_branch(&mut self) -> Result<(), RegexError> {
        let items = std::mem::take(&mut self.frame().items);
        let pieces = items.into_iter().map(|item| match item {
            Item::Text(text) => Piece::text(&text),
            Item::Piece(piece) => piece,
        });
        let branch = join(pieces.collect(), Hir::concat, 0);
        self.check(&branch)?;
        self.frame().branches.push(branch);
        Ok(())
    }

    /// The alternation of the innermost group, which stays open.
    fn take_group(&mut self) -> Result<Piece, RegexError> {
        self.close_branch()?;
        let branches = std::mem::take(&mut self.frame().branches);
        let group = join(branches, Hir::alternation, 1);
        self.check(&group)?;
        Ok(group)
    }

    fn close_group(&mut self) -> Result<(), RegexError> {
        let mut piece = self.take_group()?;
        if self.frames.len() == 1 {
            return Err(RegexError::new(RegexErrorKind::UnexpectedParen, self.pattern));
        }
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        self.flags = frame.flags_outside;
        if let Some(index) = frame.capture_idx {
            piece.hir = Hir::capture(Capture { index, name: None, sub: Box::new(piece.hir) });
            piece.height += 1;
            piece.size += 2;
        }
        self.push_piece(piece)
    }

    fn check(&self, piece: &Piece) -> Result<(), RegexError> {
        if piece.height > HEIGHT_MAX {
            return Err(RegexError::new(RegexErrorKind::NestingDepth, self.pattern));
        }
        if piece.size > SIZE_MAX {
            return Err(RegexError::new(RegexErrorKind::Large, self.pattern));
        }
        Ok(())
    }

    /// Repeats the last item. `before` starts with the operator, `after` is what follows it.
    fn repeat(
        &mut self,
        counts: Counts,
        before: &'a str,
        mut after: &'a str,
        last_repeat: Option<&'a str>,
    ) -> Result<&'a str, RegexError> {
        let mut greedy = !self.flags.lazy;
        if let Some(stripped) = after.strip_prefix('?') {
            after = stripped;
            greedy = !greedy;
        }
        if let Some(last_repeat) = last_repeat {
            return Err(error(RegexErrorKind::InvalidRepeatOp, last_repeat, after));
        }
        let Some(sub) = self.take_last() else {
            return Err(error(RegexErrorKind::MissingRepeatArgument, before, after));
        };
        let Some(repeat_count) = counts.nested(sub.repeat_count) else {
            return Err(error(RegexErrorKind::InvalidRepeatSize, before, after));
        };
        let Counts { min, max, .. } = counts;
        let (height, size) = (sub.height + 1, counts.size(sub.size));
        let hir = Hir::repetition(Repetition { min, max, greedy, sub: Box::new(sub.hir) });
        self.push_piece(Piece { hir, height, size, repeat_count })?;
        Ok(after)
    }

    fn take_last(&mut self) -> Option<Piece> {
        match self.frame().items.pop()? {
            Item::Piece(piece) => Some(piece),
            Item::Text(mut text) => {
                let last = text.pop()?;
                if !text.is_empty() {
                    self.frame().items.push(Item::Text(text));
                }
                Some(Piece::text(last.encode_utf8(&mut [0; 4])))
            }
        }
    }
}

/// Joins pieces to one; `size_between` instructions join two of them.
fn join(mut pieces: Vec<Piece>, combine: fn(Vec<Hir>) -> Hir, size_between: u64) -> Piece {
    if pieces.len() == 1
        && let Some(piece) = pieces.pop()
    {
        return piece;
    }
    let mut joined = Piece { hir: Hir::empty(), height: 0, size: 0, repeat_count: 1 };
    let mut hirs = Vec::with_capacity(pieces.len());
    for piece in pieces {
        joined.height = joined.height.max(piece.height);
        joined.size = joined.size.saturating_add(piece.size).saturating_add(size_between);
        joined.repeat_count = joined.repeat_count.max(piece.repeat_count);
        hirs.push(piece.hir);
    }
    joined.height += 1;
    joined.size = joined.size.saturating_sub(size_between).max(1);
    joined.hir = combine(hirs);
    joined
}

/// Least and most copies of a repeat.
#[derive(Clone, Copy)]
struct Counts {
    min: u32,
    max: Option<u32>,
    /// Written with braces.
    is_counted: bool,
}

impl Counts {
    /// Copies of the innermost item with this repeat around it, if they are not too many.
    fn nested(self, sub_count: u32) -> Option<u32> {
        if !self.is_counted {
            return Some(sub_count);
        }
        match self.max.unwrap_or(self.min) {
            // An item with `{0}` has no copies; `{0,}` repeats as a star does.
            0 if self.max.is_some() => Some(1),
            0 => Some(sub_count),
            times => times.checked_mul(sub_count).filter(|&product| product <= REPEAT_COUNT_MAX),
        }
    }

    /// Instructions of `sub_size` instructions repeated.
    fn size(self, sub_size: u64) -> u64 {
        let min = u64::from(self.min);
        match self.max.map(u64::from) {
            None if min == 0 => 2 + sub_size,
            None => sub_size.saturating_mul(min).saturating_add(1),
            Some(max) => sub_size.saturating_mul(max).saturating_add(max.saturating_sub(min)).max(1),
        }
    }
}

/// `{min}`, `{min,}` or `{min,max}` and what follows; `None` if it is none of them (the brace is then a
/// character), `Some((None, _))` if the numbers are not allowed.
fn counts(rest: &str) -> Option<(Option<Counts>, &str)> {
    let (min, after) = number(rest.strip_prefix('{')?)?;
    let (max, after) = match after.strip_prefix(',') {
        None => (Some(min), after),
        Some(after) if after.starts_with('}') => (None, after),
        Some(after) => {
            let (max, after) = number(after)?;
            (Some(max), after)
        }
    };
    let after = after.strip_prefix('}')?;
    let allowed = min <= REPEAT_COUNT_MAX && max.is_none_or(|max| max <= REPEAT_COUNT_MAX && min <= max);
    Some((allowed.then_some(Counts { min, max, is_counted: true }), after))
}

/// A decimal number without leading zeros; a very large one is [`u32::MAX`].
fn number(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, after) = text.split_at_checked(digits)?;
    if digits == 0 || (digits > 1 && number.starts_with('0')) {
        return None;
    }
    let value = if digits > REPEAT_DIGITS_MAX { u32::MAX } else { number.parse().unwrap_or(u32::MAX) };
    Some((value, after))
}

/// Returns true if a `\Q` of an accepted pattern has no `\E`.
fn has_open_quotation(pattern: &str) -> bool {
    let mut rest = pattern;
    while let Some((_, escaped)) = rest.split_once('\\') {
        rest = match escaped.strip_prefix('Q').map(|quoted| quoted.split_once(r"\E")) {
            Some(None) => return true,
            Some(Some((_, after))) => after,
            // The character after any other backslash belongs to the escape.
            None => escaped.chars().next().map_or("", |c| &escaped[c.len_utf8()..]),
        };
    }
    false
}
