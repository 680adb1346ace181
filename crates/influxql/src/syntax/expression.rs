//! Rules of expressions: operators by precedence, literals, references, calls.
//!
//! Invariants: only parentheses, calls and precedence recurse.

use crate::ast::{BinaryOp, Call, Chain, DataType, Expr, VarRef};

use super::duration::parse_duration;
use super::error::ParseError;
use super::parser::Parser;
use super::token::{Kind, Position, Token};

const CASTS: [(&str, DataType); 7] = [
    ("float", DataType::Float),
    ("integer", DataType::Integer),
    ("unsigned", DataType::Unsigned),
    ("string", DataType::String),
    ("boolean", DataType::Boolean),
    ("field", DataType::AnyField),
    ("tag", DataType::Tag),
];

/// Operands and operators of one level of parentheses, before precedence shapes them.
struct Operands {
    first: Expr,
    rest: Vec<(BinaryOp, Expr)>,
}

pub(super) fn expr(parser: &mut Parser) -> Result<Expr, ParseError> {
    parser.nested(operators)
}

fn operators(parser: &mut Parser) -> Result<Expr, ParseError> {
    let mut operands = Operands { first: operand(parser)?, rest: Vec::new() };
    loop {
        let token = parser.next();
        let Kind::Op(op) = token.kind else {
            parser.unscan();
            return Ok(operands.shape());
        };
        let operand = if op.is_regex() {
            let Some(regex) = parser.regex()? else {
                return Err(ParseError::unexpected(&parser.next(), &["regex"]));
            };
            Expr::Regex(regex)
        } else {
            operand(parser)?
        };
        operands.rest.push((op, operand));
    }
}

fn operand(parser: &mut Parser) -> Result<Expr, ParseError> {
    parser.count_term()?;
    let token = parser.next();
    match token.kind {
        Kind::LeftParen => {
            let inner = expr(parser)?;
            parser.expect(Kind::RightParen, ")")?;
            return Ok(Expr::Paren(Box::new(inner)));
        }
        Kind::Ident => return call_or_reference(parser, token),
        Kind::Keyword("DISTINCT") => return distinct(parser),
        Kind::Keyword("TRUE") => return Ok(Expr::Boolean(true)),
        Kind::Keyword("FALSE") => return Ok(Expr::Boolean(false)),
        Kind::Op(BinaryOp::Mul) => return wildcard(parser),
        Kind::Op(op @ (BinaryOp::Add | BinaryOp::Sub)) => return signed(parser, op, &token),
        Kind::Text => return Ok(Expr::Text(token.literal)),
        Kind::Float => return float(&token),
        Kind::Integer => return integer(&token),
        Kind::Duration => return Ok(Expr::Duration(parse_duration(&token.literal)?)),
        Kind::Regex => return parser.regex_of(token).map(Expr::Regex),
        Kind::Parameter => return Err(parser.unbound(&token)),
        _ => {}
    }
    Err(ParseError::unexpected(&token, &["identifier", "string", "number", "bool"]))
}

/// `name(..)` without a space, or a reference.
fn call_or_reference(parser: &mut Parser, ident: Token) -> Result<Expr, ParseError> {
    if parser.scan().is(Kind::LeftParen) {
        return call(parser, &ident.literal).map(Expr::Call);
    }
    parser.unscan();
    parser.unscan();
    reference(parser).map(Expr::Ref)
}

/// Arguments of a call and its right parenthesis.
fn call(parser: &mut Parser, name: &str) -> Result<Call, ParseError> {
    let name = name.to_lowercase();
    let mut args = Vec::new();
    match parser.regex()? {
        Some(regex) => args.push(Expr::Regex(regex)),
        None => {
            if parser.next_if(|token| token.is(Kind::RightParen)).is_some() {
                return Ok(Call { name, args });
            }
            args.push(expr(parser)?);
        }
    }
    while parser.next_if(|token| token.is(Kind::Comma)).is_some() {
        parser.count_term()?;
        let arg = match parser.regex()? {
            Some(regex) => Expr::Regex(regex),
            None => expr(parser)?,
        };
        args.push(arg);
    }
    parser.expect(Kind::RightParen, ")")?;
    Ok(Call { name, args })
}

pub(super) fn reference(parser: &mut Parser) -> Result<VarRef, ParseError> {
    let name = parser.segments()?.join(".");
    if !parser.scan().is(Kind::DoubleColon) {
        parser.unscan();
        return Ok(VarRef { name, kind: DataType::Unknown });
    }
    let token = parser.scan();
    match token.kind {
        Kind::Ident => {
            let cast = CASTS.iter().find(|(word, _)| token.literal.eq_ignore_ascii_case(word));
            let Some((_, kind)) = cast else {
                let words = CASTS.map(|(word, _)| word);
                return Err(ParseError::unexpected(&token, &words));
            };
            Ok(VarRef { name, kind: *kind })
        }
        Kind::Keyword("FIELD") => Ok(VarRef { name, kind: DataType::AnyField }),
        Kind::Keyword("TAG") => Ok(VarRef { name, kind: DataType::Tag }),
        _ => {
            let words = ["float", "integer", "string", "boolean", "field", "tag"];
            Err(ParseError::unexpected(&token, &words))
        }
    }
}

fn distinct(parser: &mut Parser) -> Result<Expr, ParseError> {
    let token = parser.scan();
    match token.kind {
        Kind::LeftParen => call(parser, "distinct").map(Expr::Call),
        Kind::Space => {
            let ident = parser.expect(Kind::Ident, "identifier")?;
            Ok(Expr::Distinct(ident.literal))
        }
        _ => Err(ParseError::unexpected(&token, &["(", "identifier"])),
    }
}

fn wildcard(parser: &mut Parser) -> Result<Expr, ParseError> {
    if !parser.scan().is(Kind::DoubleColon) {
        parser.unscan();
        return Ok(Expr::Wildcard(DataType::Unknown));
    }
    let token = parser.scan();
    match token.kind {
        Kind::Keyword("FIELD") => Ok(Expr::Wildcard(DataType::AnyField)),
        Kind::Keyword("TAG") => Ok(Expr::Wildcard(DataType::Tag)),
        _ => Err(ParseError::unexpected(&token, &["field", "tag"])),
    }
}

/// The operand after a sign. A sign of a number belongs to it; one of anything else is a factor.
fn signed(parser: &mut Parser, sign: BinaryOp, sign_token: &Token) -> Result<Expr, ParseError> {
    let is_minus = sign == BinaryOp::Sub;
    let token = parser.next();
    match token.kind {
        Kind::Float | Kind::Integer | Kind::Duration | Kind::LeftParen | Kind::Ident => parser.unscan(),
        _ => return Err(ParseError::unexpected(&token, &["identifier", "number", "duration", "("])),
    }
    if is_minus && token.is(Kind::Integer) {
        parser.next();
        return negative_integer(&token);
    }
    let operand = operand(parser)?;
    match operand {
        Expr::Number(number) if is_minus => Ok(Expr::Number(-number)),
        Expr::Duration(ns) if is_minus => Ok(Expr::Duration(ns.wrapping_neg())),
        Expr::Number(_) | Expr::Duration(_) | Expr::Integer(_) | Expr::Unsigned(_) => Ok(operand),
        Expr::Ref(_) | Expr::Call(_) | Expr::Paren(_) => {
            Ok(Expr::binary(Expr::Integer(if is_minus { -1 } else { 1 }), BinaryOp::Mul, operand))
        }
        _ => Err(ParseError::unexpected(sign_token, &["identifier", "number", "duration", "("])),
    }
}

fn float(token: &Token) -> Result<Expr, ParseError> {
    let number: f64 =
        token.literal.parse().map_err(|_| ParseError::at("unable to parse number", token.position))?;
    Ok(Expr::Number(number))
}

fn integer(token: &Token) -> Result<Expr, ParseError> {
    if let Ok(number) = token.literal.parse() {
        return Ok(Expr::Integer(number));
    }
    let number = token.literal.parse().map_err(|_| unable_to_parse_integer(token.position))?;
    Ok(Expr::Unsigned(number))
}

fn unable_to_parse_integer(position: Position) -> ParseError {
    ParseError::at("unable to parse integer", position)
}

fn negative_integer(token: &Token) -> Result<Expr, ParseError> {
    let magnitude: u64 = token.literal.parse().map_err(|_| unable_to_parse_integer(token.position))?;
    match 0_i64.checked_sub_unsigned(magnitude) {
        Some(number) => Ok(Expr::Integer(number)),
        None => Err(ParseError::plain(format!("constant -{magnitude} underflows int64"))),
    }
}

impl Operands {
    /// Shapes operands by precedence, from left to right: precedence climbing over a stack of at most one
    /// chain per precedence.
    fn shape(self) -> Expr {
        let mut pending: Vec<(Expr, BinaryOp)> = Vec::new();
        let mut current = self.first;
        for (op, operand) in self.rest {
            while let Some((left, left_op)) =
                pending.pop_if(|(_, left_op)| left_op.precedence() >= op.precedence())
            {
                current = Expr::binary(left, left_op, current);
            }
            pending.push((current, op));
            current = operand;
        }
        while let Some((left, left_op)) = pending.pop() {
            current = Expr::binary(left, left_op, current);
        }
        current
    }
}

const _: () = assert!(size_of::<Chain>() <= 128, "an operand that is a chain is boxed; leaves are small");
