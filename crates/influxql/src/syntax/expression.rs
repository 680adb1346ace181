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

impl Parser {
    pub(super) fn expr(&mut self) -> Result<Expr, ParseError> {
        self.nested(Parser::operators)
    }

    fn operators(&mut self) -> Result<Expr, ParseError> {
        let mut operands = Operands { first: self.operand()?, rest: Vec::new() };
        loop {
            let token = self.next();
            let Kind::Op(op) = token.kind else {
                self.unscan();
                return Ok(operands.shape());
            };
            let operand = if op.is_regex() {
                let Some(regex) = self.regex()? else {
                    return Err(ParseError::unexpected(&self.next(), &["regex"]));
                };
                Expr::Regex(regex)
            } else {
                self.operand()?
            };
            operands.rest.push((op, operand));
        }
    }

    fn operand(&mut self) -> Result<Expr, ParseError> {
        self.count_term()?;
        let token = self.next();
        match token.kind {
            Kind::LeftParen => {
                let inner = self.expr()?;
                self.expect(Kind::RightParen, ")")?;
                return Ok(Expr::Paren(Box::new(inner)));
            }
            Kind::Ident => return self.call_or_reference(token),
            Kind::Keyword("DISTINCT") => return self.distinct(),
            Kind::Keyword("TRUE") => return Ok(Expr::Boolean(true)),
            Kind::Keyword("FALSE") => return Ok(Expr::Boolean(false)),
            Kind::Op(BinaryOp::Mul) => return self.wildcard(),
            Kind::Op(op @ (BinaryOp::Add | BinaryOp::Sub)) => return self.signed(op, &token),
            Kind::Text => return Ok(Expr::Text(token.literal)),
            Kind::Float => return float(&token),
            Kind::Integer => return integer(&token),
            Kind::Duration => return Ok(Expr::Duration(parse_duration(&token.literal)?)),
            Kind::Regex => {
                let regex = crate::ast::Regex::new(token.literal);
                return regex.map(Expr::Regex).map_err(|error| ParseError::at(error, token.position));
            }
            Kind::Parameter => return Err(self.unbound(&token)),
            _ => {}
        }
        Err(ParseError::unexpected(&token, &["identifier", "string", "number", "bool"]))
    }

    /// `name(..)` without a space, or a reference.
    fn call_or_reference(&mut self, ident: Token) -> Result<Expr, ParseError> {
        if self.scan().is(Kind::LeftParen) {
            return self.call(&ident.literal).map(Expr::Call);
        }
        self.unscan();
        self.unscan();
        self.reference().map(Expr::Ref)
    }

    /// Arguments of a call and its right parenthesis.
    fn call(&mut self, name: &str) -> Result<Call, ParseError> {
        let name = name.to_lowercase();
        let mut args = Vec::new();
        match self.regex()? {
            Some(regex) => args.push(Expr::Regex(regex)),
            None => {
                if self.next_if(|token| token.is(Kind::RightParen)).is_some() {
                    return Ok(Call { name, args });
                }
                args.push(self.expr()?);
            }
        }
        while self.next_if(|token| token.is(Kind::Comma)).is_some() {
            self.count_term()?;
            let arg = match self.regex()? {
                Some(regex) => Expr::Regex(regex),
                None => self.expr()?,
            };
            args.push(arg);
        }
        self.expect(Kind::RightParen, ")")?;
        Ok(Call { name, args })
    }

    pub(super) fn reference(&mut self) -> Result<VarRef, ParseError> {
        let name = self.segments()?.join(".");
        if !self.scan().is(Kind::DoubleColon) {
            self.unscan();
            return Ok(VarRef { name, kind: DataType::Unknown });
        }
        let token = self.scan();
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

    fn distinct(&mut self) -> Result<Expr, ParseError> {
        let token = self.scan();
        match token.kind {
            Kind::LeftParen => self.call("distinct").map(Expr::Call),
            Kind::Space => {
                let ident = self.expect(Kind::Ident, "identifier")?;
                Ok(Expr::Distinct(ident.literal))
            }
            _ => Err(ParseError::unexpected(&token, &["(", "identifier"])),
        }
    }

    fn wildcard(&mut self) -> Result<Expr, ParseError> {
        if !self.scan().is(Kind::DoubleColon) {
            self.unscan();
            return Ok(Expr::Wildcard(DataType::Unknown));
        }
        let token = self.scan();
        match token.kind {
            Kind::Keyword("FIELD") => Ok(Expr::Wildcard(DataType::AnyField)),
            Kind::Keyword("TAG") => Ok(Expr::Wildcard(DataType::Tag)),
            _ => Err(ParseError::unexpected(&token, &["field", "tag"])),
        }
    }

    /// The operand after a sign. A sign of a number belongs to it; one of anything else is a factor.
    fn signed(&mut self, sign: BinaryOp, sign_token: &Token) -> Result<Expr, ParseError> {
        let is_minus = sign == BinaryOp::Sub;
        let token = self.next();
        match token.kind {
            Kind::Float | Kind::Integer | Kind::Duration | Kind::LeftParen | Kind::Ident => self.unscan(),
            _ => return Err(ParseError::unexpected(&token, &["identifier", "number", "duration", "("])),
        }
        if is_minus && token.is(Kind::Integer) {
            self.next();
            return negative_integer(&token);
        }
        let operand = self.operand()?;
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
