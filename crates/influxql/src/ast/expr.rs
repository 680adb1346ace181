//! Expressions, and the types of their values.
//!
//! Invariants: a [`Chain`] has at least one operator, and its first operand is no chain, so that equal trees
//! have one form.
//! Not here: printing (`print`), walks (`walk`).

use std::fmt;

use jiff::Timestamp;

use super::regex::Regex;

/// Type of a value, as casts and error texts name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum DataType {
    /// Not known, or of no series.
    #[default]
    Unknown,
    /// 64-bit float.
    Float,
    /// 64-bit signed integer.
    Integer,
    /// Text.
    String,
    /// Boolean.
    Boolean,
    /// Time stamp.
    Time,
    /// Span of time.
    Duration,
    /// Tag.
    Tag,
    /// A field of any type.
    AnyField,
    /// 64-bit unsigned integer.
    Unsigned,
}

impl DataType {
    /// Name in casts and error texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DataType::Unknown => "unknown",
            DataType::Float => "float",
            DataType::Integer => "integer",
            DataType::String => "string",
            DataType::Boolean => "boolean",
            DataType::Time => "time",
            DataType::Duration => "duration",
            DataType::Tag => "tag",
            DataType::AnyField => "field",
            DataType::Unsigned => "unsigned",
        }
    }

    /// Rank of the type where a name has several: a float wins over an integer, which wins over an unsigned
    /// integer, a string, a boolean, a tag. 0 is the highest rank.
    #[must_use]
    pub fn rank(self) -> u8 {
        match self {
            DataType::Float => 0,
            DataType::Integer => 1,
            DataType::Unsigned => 2,
            DataType::String => 3,
            DataType::Boolean => 4,
            DataType::Time => 5,
            DataType::Duration => 6,
            DataType::Tag => 7,
            DataType::AnyField => 8,
            DataType::Unknown => 9,
        }
    }

    /// Returns true for the types of numbers.
    #[must_use]
    pub fn is_numeric(self) -> bool {
        matches!(self, DataType::Float | DataType::Integer | DataType::Unsigned)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `OR`.
    Or,
    /// `AND`.
    And,
    /// `=`.
    Eq,
    /// `!=`, `<>`.
    NotEq,
    /// `=~`.
    Match,
    /// `!~`.
    NotMatch,
    /// `<`.
    Less,
    /// `<=`.
    LessEq,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterEq,
    /// `+`.
    Add,
    /// `-`.
    Sub,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `*`.
    Mul,
    /// `/`.
    Div,
    /// `%`.
    Mod,
    /// `&`.
    BitAnd,
}

impl BinaryOp {
    /// 1 (binds loosest) to 5.
    #[must_use]
    pub fn precedence(self) -> u8 {
        match self {
            BinaryOp::Or => 1,
            BinaryOp::And => 2,
            op if op.is_comparison() => 3,
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::BitOr | BinaryOp::BitXor => 4,
            _ => 5,
        }
    }

    /// Returns true for operators of two values with a boolean as result, regexes included.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        use BinaryOp::{Eq, Greater, GreaterEq, Less, LessEq, Match, NotEq, NotMatch};
        matches!(self, Eq | NotEq | Match | NotMatch | Less | LessEq | Greater | GreaterEq)
    }

    /// Returns true for `<`, `<=`, `>` and `>=`.
    #[must_use]
    pub fn is_order(self) -> bool {
        use BinaryOp::{Greater, GreaterEq, Less, LessEq};
        matches!(self, Less | LessEq | Greater | GreaterEq)
    }

    /// Returns true for AND and OR.
    #[must_use]
    pub fn is_logical(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or)
    }

    /// Returns true for `=~` and `!~`.
    #[must_use]
    pub fn is_regex(self) -> bool {
        matches!(self, BinaryOp::Match | BinaryOp::NotMatch)
    }

    /// Returns true for `&`, `|` and `^`.
    #[must_use]
    pub fn is_bitwise(self) -> bool {
        matches!(self, BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor)
    }

    /// Text in statements.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            BinaryOp::Or => "OR",
            BinaryOp::And => "AND",
            BinaryOp::Eq => "=",
            BinaryOp::NotEq => "!=",
            BinaryOp::Match => "=~",
            BinaryOp::NotMatch => "!~",
            BinaryOp::Less => "<",
            BinaryOp::LessEq => "<=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterEq => ">=",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::BitOr => "|",
            BinaryOp::BitXor => "^",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::BitAnd => "&",
        }
    }
}

/// Expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// Binary operators, from left to right.
    Chain(Box<Chain>),
    /// In parentheses.
    Paren(Box<Expr>),
    /// Function call.
    Call(Call),
    /// Field, tag or `time`.
    Ref(VarRef),
    /// `DISTINCT field`.
    Distinct(String),
    /// `*`, `*::field`, `*::tag`; [`DataType::Unknown`] is both.
    Wildcard(DataType),
    /// `/pattern/`.
    Regex(Regex),
    /// Float.
    Number(f64),
    /// Integer.
    Integer(i64),
    /// Integer literal above the range of `Integer`.
    Unsigned(u64),
    /// String.
    Text(String),
    /// Boolean.
    Boolean(bool),
    /// Nanoseconds.
    Duration(i64),
    /// Time stamp; no text is parsed to it.
    Time(Timestamp),
    /// No value; no text is parsed to it.
    Nil,
}

/// `first op operand op operand ..`, evaluated from left to right: precedence put operators that bind
/// tighter into the operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Leftmost operand; no chain.
    pub first: Expr,
    /// At least one.
    pub rest: Vec<(BinaryOp, Expr)>,
}

/// Function call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// In lower case.
    pub name: String,
    /// Arguments.
    pub args: Vec<Expr>,
}

/// Name of a field, a tag or `time`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VarRef {
    /// Name, unquoted.
    pub name: String,
    /// Type in a cast (`field::type`), or the resolved type.
    pub kind: DataType,
}

impl VarRef {
    /// Reference without a cast.
    #[must_use]
    pub fn untyped(name: &str) -> VarRef {
        VarRef { name: name.to_owned(), kind: DataType::Unknown }
    }
}

impl Expr {
    /// Returns `left op right`; a chain on the left grows by one operator.
    #[must_use]
    pub fn binary(left: Expr, op: BinaryOp, right: Expr) -> Expr {
        match left {
            Expr::Chain(mut chain) => {
                chain.rest.push((op, right));
                Expr::Chain(chain)
            }
            first => Expr::Chain(Box::new(Chain { first, rest: vec![(op, right)] })),
        }
    }

    /// Call of `name` with `args`.
    #[must_use]
    pub fn call(name: &str, args: Vec<Expr>) -> Expr {
        Expr::Call(Call { name: name.to_owned(), args })
    }

    /// Reference of `name` without a cast.
    #[must_use]
    pub fn reference(name: &str) -> Expr {
        Expr::Ref(VarRef::untyped(name))
    }

    /// Returns the call, if the expression is one.
    #[must_use]
    pub fn as_call(&self) -> Option<&Call> {
        match self {
            Expr::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the reference, if the expression is one.
    #[must_use]
    pub fn as_ref(&self) -> Option<&VarRef> {
        match self {
            Expr::Ref(var) => Some(var),
            _ => None,
        }
    }

    /// Returns true for constants, regexes included.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        use Expr::{Boolean, Duration, Integer, Nil, Number, Regex, Text, Time, Unsigned};
        matches!(
            self,
            Number(_)
                | Integer(_)
                | Unsigned(_)
                | Text(_)
                | Boolean(_)
                | Duration(_)
                | Time(_)
                | Regex(_)
                | Nil
        )
    }

    /// The expression without the parentheses around it.
    #[must_use]
    pub fn without_parens(&self) -> &Expr {
        let mut expr = self;
        while let Expr::Paren(inner) = expr {
            expr = inner;
        }
        expr
    }
}
