//! Opcodes of pickles by byte and name, and the errors about them.
//!
//! Not here: the effect of an opcode (`machine`).

use super::value::DEPTH_MAX;

pub(super) const MARK: u8 = b'(';
pub(super) const STOP: u8 = b'.';
pub(super) const FLOAT: u8 = b'F';
pub(super) const INT: u8 = b'I';
pub(super) const BININT: u8 = b'J';
pub(super) const BININT1: u8 = b'K';
pub(super) const LONG: u8 = b'L';
pub(super) const BININT2: u8 = b'M';
pub(super) const NONE: u8 = b'N';
pub(super) const STRING: u8 = b'S';
pub(super) const BINSTRING: u8 = b'T';
pub(super) const SHORT_BINSTRING: u8 = b'U';
pub(super) const UNICODE: u8 = b'V';
pub(super) const BINUNICODE: u8 = b'X';
pub(super) const APPEND: u8 = b'a';
pub(super) const APPENDS: u8 = b'e';
pub(super) const GET: u8 = b'g';
pub(super) const BINGET: u8 = b'h';
pub(super) const LONG_BINGET: u8 = b'j';
pub(super) const LIST: u8 = b'l';
pub(super) const PUT: u8 = b'p';
pub(super) const BINPUT: u8 = b'q';
pub(super) const LONG_BINPUT: u8 = b'r';
pub(super) const TUPLE: u8 = b't';
pub(super) const EMPTY_LIST: u8 = b']';
pub(super) const EMPTY_TUPLE: u8 = b')';
pub(super) const EMPTY_DICT: u8 = b'}';
pub(super) const BINFLOAT: u8 = b'G';
pub(super) const BINBYTES: u8 = b'B';
pub(super) const SHORT_BINBYTES: u8 = b'C';
pub(super) const PROTO: u8 = 0x80;
pub(super) const TUPLE1: u8 = 0x85;
pub(super) const TUPLE2: u8 = 0x86;
pub(super) const TUPLE3: u8 = 0x87;
pub(super) const NEWTRUE: u8 = 0x88;
pub(super) const NEWFALSE: u8 = 0x89;
pub(super) const LONG1: u8 = 0x8a;
pub(super) const LONG4: u8 = 0x8b;
pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
pub(super) const BINUNICODE8: u8 = 0x8d;
pub(super) const BINBYTES8: u8 = 0x8e;
pub(super) const EMPTY_SET: u8 = 0x8f;
pub(super) const MEMOIZE: u8 = 0x94;
pub(super) const FRAME: u8 = 0x95;

/// Names of the opcodes that are refused: they look up classes, call functions, or build other values.
const REFUSED_NAMES: [(u8, &str); 26] = [
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'c', "GLOBAL"),
    (b'd', "DICT"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (b's', "SETITEM"),
    (b'u', "SETITEMS"),
    (0x81, "NEWOBJ"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (0x92, "NEWOBJ_EX"),
    (0x93, "STACK_GLOBAL"),
    (0x96, "BYTEARRAY8"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
    (0x99, "unassigned"),
    (0x9a, "unassigned"),
];

/// Returns the name of an opcode that is refused.
pub(super) fn refused_name(opcode: u8) -> &'static str {
    REFUSED_NAMES.iter().find(|(byte, _)| *byte == opcode).map_or("unassigned", |(_, name)| name)
}

/// A frame that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pickle: {fault} at byte {offset}")]
pub struct PickleError {
    /// Cause of the refusal.
    pub fault: PickleFault,
    /// Offset of the opcode in the frame.
    pub offset: usize,
}

/// Cause why a pickle cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PickleFault {
    /// An opcode that points do not need.
    #[error("opcode {name} (0x{byte:02x}) is not allowed")]
    Opcode {
        /// The opcode as sent.
        byte: u8,
        /// Name of the opcode in Python's documentation.
        name: &'static str,
    },
    /// A protocol that Python does not have.
    #[error("protocol {0} is not 0 to 5")]
    Protocol(u8),
    /// The frame ends within an opcode or without STOP.
    #[error("the pickle is cut off")]
    CutOff,
    /// An opcode needs more values than there are.
    #[error("the stack has too few values")]
    StackUnderflow,
    /// An opcode needs a mark that is not there.
    #[error("there is no mark")]
    NoMark,
    /// Values or marks are nested too deeply.
    #[error("values are nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// More values than the points of a frame of this length need.
    #[error("the frame has too many values for its length")]
    TooManyValues,
    /// Elements are appended to a value that is no list.
    #[error("the value is no list")]
    NoList,
    /// A reference to a memo that was not stored.
    #[error("memo {0} was not stored")]
    UnknownMemo(u32),
    /// A number of a memo that Python would not use.
    #[error("memo {0} is out of order")]
    MemoOrder(u32),
    /// A number or text in an invalid form.
    #[error("{0} is not valid")]
    Literal(&'static str),
}
