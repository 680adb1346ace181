//! Stack machine of pickles: opcodes one after the other, with a stack, marks and a memo.
//!
//! Invariants: stack, memo, sequences and decoded texts are bounded by the length of the frame; nothing
//! recurses. Not here: points (`pickle`).

use super::opcode::{self as op, PickleError, PickleFault};
use super::text;
use super::value::{Arena, DEPTH_MAX, Elements, TextRange, Value};
use crate::carbon::float;

/// Newest protocol of Python.
const PROTOCOL_MAX: u8 = 5;
/// Values that a frame may have beyond half of its bytes.
const VALUE_COUNT_MIN: usize = 64;
/// Numbers of memos that a sender may skip; brubeck's wrap at 256.
const MEMO_GAP_MAX: usize = 256;
/// Values whose memory is kept between frames.
const VALUES_KEPT: usize = 1 << 14;
/// Bytes of a value in the text about a refused element.
const DESCRIBED_BYTES_MAX: usize = 128;

/// State of the machine. Empty between frames.
#[derive(Default)]
pub(super) struct Machine {
    stack: Vec<Value>,
    /// Heights of the stack at its marks.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    arena: Arena,
    /// Texts that differ from their literals; their ranges follow the frame.
    decoded: Vec<u8>,
    /// Values that the rest of the frame may have.
    values_left: usize,
    memos_stored: usize,
}

/// Bytes of a frame that are not read.
struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], PickleFault> {
        let end = self.at.checked_add(len).ok_or(PickleFault::CutOff)?;
        let bytes = self.frame.get(self.at..end).ok_or(PickleFault::CutOff)?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleFault> {
        self.bytes(N)?.try_into().map_err(|_| PickleFault::CutOff)
    }

    fn byte(&mut self) -> Result<u8, PickleFault> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Returns the bytes before the next newline.
    fn line(&mut self) -> Result<&'a [u8], PickleFault> {
        let rest = self.frame.get(self.at..).unwrap_or(&[]);
        let len = rest.iter().position(|byte| *byte == b'\n').ok_or(PickleFault::CutOff)?;
        self.at += len + 1;
        Ok(rest.get(..len).unwrap_or(&[]))
    }

    /// Returns a length of `N` little-endian bytes.
    fn length<const N: usize>(&mut self) -> Result<usize, PickleFault> {
        let mut word = [0; 8];
        let bytes: [u8; N] = self.array()?;
        word.get_mut(..N).ok_or(PickleFault::CutOff)?.copy_from_slice(&bytes);
        usize::try_from(u64::from_le_bytes(word)).map_err(|_| PickleFault::CutOff)
    }
}

impl Machine {
    /// Reads a pickle; returns its value, which is a list or tuple.
    pub(super) fn run(&mut self, frame: &[u8]) -> Result<Value, PickleError> {
        self.values_left = frame.len() / 2 + VALUE_COUNT_MIN;
        let mut reader = Reader { frame, at: 0 };
        loop {
            let offset = reader.at;
            let fail = |fault| PickleError { fault, offset };
            let opcode = reader.byte().map_err(fail)?;
            if opcode == op::STOP {
                return match self.pop().map_err(fail)? {
                    list @ Value::Sequence(_) => Ok(list),
                    _ => Err(fail(PickleFault::NoList)),
                };
            }
            self.step(opcode, &mut reader).map_err(fail)?;
        }
    }

    fn step(&mut self, opcode: u8, reader: &mut Reader<'_>) -> Result<(), PickleFault> {
        match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => self.text::<1>(reader),
            op::BINUNICODE | op::BINSTRING | op::BINBYTES => self.text::<4>(reader),
            op::BINUNICODE8 | op::BINBYTES8 => self.text::<8>(reader),
            op::STRING | op::UNICODE => self.literal_text(opcode, reader),
            op::PUT | op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.store(opcode, reader),
            op::GET | op::BINGET | op::LONG_BINGET => self.fetch(opcode, reader),
            op::MARK
            | op::EMPTY_LIST
            | op::EMPTY_TUPLE
            | op::LIST
            | op::TUPLE
            | op::TUPLE1
            | op::TUPLE2
            | op::TUPLE3
            | op::APPEND
            | op::APPENDS => self.sequence(opcode),
            op::EMPTY_DICT | op::EMPTY_SET | op::NONE => self.push(Value::Other),
            op::PROTO => match reader.byte()? {
                0..=PROTOCOL_MAX => Ok(()),
                protocol => Err(PickleFault::Protocol(protocol)),
            },
            // The length of the rest, which Python uses to read ahead.
            op::FRAME => reader.length::<8>().map(|_| ()),
            _ => {
                let number = number(opcode, reader)?;
                self.push(number)
            }
        }
    }

    /// Opcodes that make or fill a list or tuple.
    fn sequence(&mut self, opcode: u8) -> Result<(), PickleFault> {
        match opcode {
            op::MARK if self.marks.len() >= usize::from(DEPTH_MAX) => Err(PickleFault::TooDeep),
            op::MARK => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            op::EMPTY_LIST | op::EMPTY_TUPLE => self.collect(self.stack.len()),
            op::TUPLE1 => self.collect(self.height_below(1)?),
            op::TUPLE2 => self.collect(self.height_below(2)?),
            op::TUPLE3 => self.collect(self.height_below(3)?),
            op::LIST | op::TUPLE => {
                let height = self.marks.pop().ok_or(PickleFault::NoMark)?;
                self.collect(height)
            }
            op::APPENDS => {
                let height = self.marks.pop().ok_or(PickleFault::NoMark)?;
                self.append_from(height)
            }
            _ => self.append_from(self.height_below(1)?),
        }
    }

    /// Returns the height of the stack below its uppermost values, none of which is below a mark.
    fn height_below(&self, count: usize) -> Result<usize, PickleFault> {
        let height = self.stack.len().checked_sub(count).ok_or(PickleFault::StackUnderflow)?;
        let floor = self.marks.last().copied().unwrap_or(0);
        if height < floor { Err(PickleFault::StackUnderflow) } else { Ok(height) }
    }

    /// Replaces the values from `height` on by a sequence of them.
    fn collect(&mut self, height: usize) -> Result<(), PickleFault> {
        let sequence = self.arena.new_sequence().ok_or(PickleFault::TooManyValues)?;
        self.append_to(sequence, height)?;
        self.push(sequence)
    }

    /// Appends the values from `height` on to the list below them.
    fn append_from(&mut self, height: usize) -> Result<(), PickleFault> {
        let below = height.checked_sub(1).ok_or(PickleFault::StackUnderflow)?;
        if below < self.marks.last().copied().unwrap_or(0) {
            return Err(PickleFault::StackUnderflow);
        }
        match self.stack.get(below).copied() {
            Some(list @ Value::Sequence(_)) => self.append_to(list, height),
            _ => Err(PickleFault::NoList),
        }
    }

    /// Moves the values from `height` on to the end of a sequence.
    fn append_to(&mut self, sequence: Value, height: usize) -> Result<(), PickleFault> {
        for value in self.stack.get(height..).unwrap_or(&[]) {
            self.arena.append(sequence, *value).ok_or(PickleFault::TooDeep)?;
        }
        self.stack.truncate(height);
        Ok(())
    }

    fn push(&mut self, value: Value) -> Result<(), PickleFault> {
        self.values_left = self.values_left.checked_sub(1).ok_or(PickleFault::TooManyValues)?;
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, PickleFault> {
        self.height_below(1)?;
        self.stack.pop().ok_or(PickleFault::StackUnderflow)
    }

    /// Pushes a text after its length.
    fn text<const N: usize>(&mut self, reader: &mut Reader<'_>) -> Result<(), PickleFault> {
        let len = reader.length::<N>()?;
        let start = reader.at;
        reader.bytes(len)?;
        self.push(Value::Text(text_range(start, reader.at)?))
    }

    /// Pushes a text of protocol 0.
    fn literal_text(&mut self, opcode: u8, reader: &mut Reader<'_>) -> Result<(), PickleFault> {
        let literal = reader.line()?;
        let start = reader.frame.len() + self.decoded.len();
        let decoded = match opcode {
            op::STRING => text::push_quoted(literal.trim_ascii(), &mut self.decoded),
            _ => text::push_unicode(literal, &mut self.decoded),
        };
        decoded.ok_or(PickleFault::Literal("text"))?;
        self.push(Value::Text(text_range(start, reader.frame.len() + self.decoded.len())?))
    }

    /// Stores the uppermost value in the memo.
    fn store(&mut self, opcode: u8, reader: &mut Reader<'_>) -> Result<(), PickleFault> {
        let memo = match opcode {
            op::MEMOIZE => u32::try_from(self.memos_stored).map_err(|_| PickleFault::TooManyValues)?,
            _ => memo_number(opcode, reader)?,
        };
        self.height_below(1)?;
        let value = self.stack.last().copied().ok_or(PickleFault::StackUnderflow)?;
        let slot = memo as usize;
        if slot > self.memos_stored + MEMO_GAP_MAX {
            return Err(PickleFault::MemoOrder(memo));
        }
        self.memos_stored += 1;
        if slot > self.memo.len() {
            self.memo.resize(slot, None);
        }
        match self.memo.get_mut(slot) {
            Some(stored) => *stored = Some(value),
            None => self.memo.push(Some(value)),
        }
        Ok(())
    }

    fn fetch(&mut self, opcode: u8, reader: &mut Reader<'_>) -> Result<(), PickleFault> {
        // The numbers of the opcodes that fetch are written as those that store.
        let memo = memo_number(opcode, reader)?;
        let value = self.memo.get(memo as usize).copied().flatten();
        self.push(value.ok_or(PickleFault::UnknownMemo(memo))?)
    }

    /// Elements of a list or tuple.
    pub(super) fn elements(&self, value: Value) -> Elements<'_> {
        self.arena.elements(value)
    }

    /// Returns both elements of a list or tuple of two.
    pub(super) fn pair(&self, value: Value) -> Option<[Value; 2]> {
        self.arena.pair(value)
    }

    /// Returns the bytes of a text.
    pub(super) fn text_of<'a>(&'a self, frame: &'a [u8], range: TextRange) -> &'a [u8] {
        let start = range.start as usize;
        let end = range.end as usize;
        match start.checked_sub(frame.len()) {
            Some(offset) => self.decoded.get(offset..end - frame.len()).unwrap_or(&[]),
            None => frame.get(start..end).unwrap_or(&[]),
        }
    }

    /// Returns a short text about a refused element, in Python's notation.
    #[cold]
    pub(super) fn describe(&self, frame: &[u8], value: Value) -> String {
        match value {
            Value::Number(number) => format!("{number}"),
            Value::Text(range) => {
                let bytes = self.text_of(frame, range);
                let shown = bytes.get(..DESCRIBED_BYTES_MAX).unwrap_or(bytes);
                format!("'{}'", String::from_utf8_lossy(shown))
            }
            Value::Sequence(_) => {
                let parts = self.elements(value).take(3).map(|part| match part {
                    Value::Sequence(_) => self.describe_pair(frame, part),
                    _ => self.describe(frame, part),
                });
                format!("({})", parts.collect::<Vec<_>>().join(", "))
            }
            Value::Other => "None".to_owned(),
        }
    }

    /// Describes an inner sequence without those inside of it.
    fn describe_pair(&self, frame: &[u8], value: Value) -> String {
        let parts = self.elements(value).take(3).map(|part| match part {
            Value::Sequence(_) => "(...)".to_owned(),
            _ => self.describe(frame, part),
        });
        format!("({})", parts.collect::<Vec<_>>().join(", "))
    }

    /// Empties the machine; keeps the memory of an ordinary frame.
    pub(super) fn release(&mut self) {
        self.stack.clear();
        self.stack.shrink_to(VALUES_KEPT);
        self.marks.clear();
        self.memo.clear();
        self.memo.shrink_to(VALUES_KEPT);
        self.memos_stored = 0;
        self.arena.release(VALUES_KEPT);
        self.decoded.clear();
        self.decoded.shrink_to(VALUES_KEPT);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.stack.capacity() * size_of::<Value>()
            + self.memo.capacity() * size_of::<Option<Value>>()
            + self.arena.heap_bytes()
            + self.decoded.capacity()
    }
}

/// Reads a number, a boolean included; an integer beyond 128 bits is no number.
fn number(opcode: u8, reader: &mut Reader<'_>) -> Result<Value, PickleFault> {
    let value = match opcode {
        op::BININT => f64::from(i32::from_le_bytes(reader.array()?)),
        op::BININT1 => f64::from(reader.byte()?),
        op::BININT2 => f64::from(u16::from_le_bytes(reader.array()?)),
        op::BINFLOAT => f64::from_be_bytes(reader.array()?),
        op::NEWTRUE => 1.0,
        op::NEWFALSE => 0.0,
        op::FLOAT => float::parse(reader.line()?).ok_or(PickleFault::Literal("float"))?,
        op::INT => text::integer(reader.line()?).ok_or(PickleFault::Literal("integer"))?,
        op::LONG => {
            let literal = reader.line()?.trim_ascii();
            let digits = literal.strip_suffix(b"L").unwrap_or(literal);
            text::integer(digits).ok_or(PickleFault::Literal("integer"))?
        }
        op::LONG1 => {
            let len = reader.length::<1>()?;
            return Ok(text::long(reader.bytes(len)?).map_or(Value::Other, Value::Number));
        }
        op::LONG4 => {
            let len = reader.length::<4>()?;
            return Ok(text::long(reader.bytes(len)?).map_or(Value::Other, Value::Number));
        }
        byte => return Err(PickleFault::Opcode { byte, name: op::refused_name(byte) }),
    };
    Ok(Value::Number(value))
}

/// Reads the number of a memo.
fn memo_number(opcode: u8, reader: &mut Reader<'_>) -> Result<u32, PickleFault> {
    match opcode {
        op::BINPUT | op::BINGET => reader.byte().map(u32::from),
        op::LONG_BINPUT | op::LONG_BINGET => Ok(u32::from_le_bytes(reader.array()?)),
        _ => {
            let literal = std::str::from_utf8(reader.line()?.trim_ascii()).ok();
            literal.and_then(|digits| digits.parse().ok()).ok_or(PickleFault::Literal("memo"))
        }
    }
}

fn text_range(start: usize, end: usize) -> Result<TextRange, PickleFault> {
    let at = |offset: usize| u32::try_from(offset).map_err(|_| PickleFault::TooManyValues);
    Ok(TextRange { start: at(start)?, end: at(end)? })
}
