//! Durations in brackets and after `offset`: literals, and arithmetic on them.
//!
//! Invariants: a duration without operators is a literal of milliseconds; one with operators is a small tree
//! whose size is bounded by [`DURATION_OPERATORS_MAX`].
//! Not here: the value of computed durations (engine).

use crate::ast::{BinaryOp, DurationExpr, DurationNode, Span, UnaryOp};
use crate::parser::grammar::{
    POWER_SIGN, Parser, binding_power, number_literal, offset, right_power, sign_of, token_span, unexpected,
};
use crate::parser::lexer::Failure;
use crate::parser::number::seconds_to_ms;
use crate::parser::options::DURATION_OPERATORS_MAX;
use crate::parser::token::{TokenKind, Word};

/// Context of a duration, which decides the accepted forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DurationPlace {
    /// After `offset`: any sign.
    Offset,
    /// In brackets: more than zero if the parser can know it.
    Brackets,
}

/// A duration while it is read.
struct Part {
    value: PartValue,
    span: Span,
}

enum PartValue {
    /// Seconds, and whether they were written with units.
    Literal(f64, bool),
    Node(DurationNode),
}

impl Part {
    /// A minus goes into a literal; a plus only extends the span of a literal.
    fn signed(self, sign: UnaryOp, start: usize) -> Part {
        if matches!((&self.value, sign), (PartValue::Node(_), UnaryOp::Plus)) {
            return self;
        }
        let value = match (self.value, sign) {
            (PartValue::Literal(seconds, units), UnaryOp::Minus) => PartValue::Literal(-seconds, units),
            (PartValue::Node(node), UnaryOp::Minus) => PartValue::Node(DurationNode::Neg(Box::new(node))),
            (value, UnaryOp::Plus) => value,
        };
        Part { value, span: Span { start: offset(start), end: self.span.end } }
    }

    fn is_literal(&self) -> bool {
        matches!(self.value, PartValue::Literal(..))
    }

    fn into_node(self) -> DurationNode {
        match self.value {
            PartValue::Literal(seconds, true) => DurationNode::Units(seconds),
            PartValue::Literal(seconds, false) => DurationNode::Number(seconds),
            PartValue::Node(node) => node,
        }
    }
}

impl Parser<'_> {
    /// A duration; the context for messages has been set.
    pub(super) fn duration(&mut self, place: DurationPlace) -> Result<DurationExpr, Failure> {
        let mut operators_left = DURATION_OPERATORS_MAX;
        let part = match place {
            DurationPlace::Brackets => self.duration_part(0, &mut operators_left)?,
            DurationPlace::Offset => self.offset_part(&mut operators_left)?,
        };
        let start = part.span.start as usize;
        match part.value {
            PartValue::Literal(seconds, _) if place == DurationPlace::Brackets && seconds <= 0.0 => {
                Err(Failure::new(start, "duration must be greater than 0"))
            }
            // Ranges and steps are whole milliseconds. A query with a smaller one can be parsed and printed;
            // the error of its evaluation needs the position.
            PartValue::Literal(seconds, _)
                if place == DurationPlace::Brackets && literal_ms(seconds, start)? == 0 =>
            {
                Ok(DurationExpr::Computed(Box::new(DurationNode::Units(0.0)), part.span))
            }
            PartValue::Literal(seconds, _) => Ok(DurationExpr::Literal(literal_ms(seconds, start)?)),
            PartValue::Node(node) => Ok(DurationExpr::Computed(Box::new(node), part.span)),
        }
    }

    fn duration_part(&mut self, power_min: u8, operators_left: &mut usize) -> Result<Part, Failure> {
        self.enter()?;
        let mut lhs = self.duration_signed(operators_left)?;
        loop {
            let token = self.peek()?;
            let TokenKind::Operator(op) = token.kind else { break };
            if !is_arithmetic(op) || binding_power(op) < power_min {
                break;
            }
            self.bump()?;
            *operators_left = operators_left.checked_sub(1).ok_or_else(|| {
                let message = format!("duration has more than {DURATION_OPERATORS_MAX} operators");
                Failure::new(token.start, message)
            })?;
            let rhs = self.duration_part(right_power(op), operators_left)?;
            refuse_zero(op, &rhs, token.start)?;
            let span = Span { start: lhs.span.start, end: rhs.span.end };
            let node = DurationNode::Binary(op, Box::new(lhs.into_node()), Box::new(rhs.into_node()), span);
            lhs = Part { value: PartValue::Node(node), span };
        }
        self.leave();
        Ok(lhs)
    }

    /// After `offset`, an operator belongs to the duration only where the text opens with a parenthesis or
    /// with two signs: `x offset 5m * y` multiplies `x`.
    fn offset_part(&mut self, operators_left: &mut usize) -> Result<Part, Failure> {
        let token = self.peek()?;
        let Some(sign) = sign_of(token.kind) else {
            return match token.kind {
                TokenKind::LeftParen => self.duration_part(0, operators_left),
                _ => self.duration_operand(operators_left),
            };
        };
        let second = self.peek_second()?;
        if sign_of(second.kind).is_some() {
            return self.duration_part(0, operators_left);
        }
        self.bump()?;
        if matches!(second.kind, TokenKind::Number | TokenKind::Duration) {
            self.bump()?;
            let literal = number_literal(&second)?;
            literal_ms(literal.value, token.start)?;
            let value = PartValue::Literal(literal.value, literal.is_duration);
            return Ok(Part { value, span: token_span(&second) }.signed(sign, token.start));
        }
        Ok(self.duration_operand(operators_left)?.signed(sign, token.start))
    }

    /// In a computed duration signs bind weaker than `^`.
    fn duration_signed(&mut self, operators_left: &mut usize) -> Result<Part, Failure> {
        let token = self.peek()?;
        let Some(sign) = sign_of(token.kind) else { return self.duration_operand(operators_left) };
        self.bump()?;
        Ok(self.duration_part(POWER_SIGN, operators_left)?.signed(sign, token.start))
    }

    fn duration_operand(&mut self, operators_left: &mut usize) -> Result<Part, Failure> {
        let token = self.bump()?;
        let mut span = None;
        let node = match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                let literal = number_literal(&token)?;
                literal_ms(literal.value, token.start)?;
                let value = PartValue::Literal(literal.value, literal.is_duration);
                return Ok(Part { value, span: token_span(&token) });
            }
            TokenKind::LeftParen => {
                let inner = self.duration_part(0, operators_left)?;
                self.expect(TokenKind::RightParen)?;
                // Positions in messages, as Prometheus reports them: of a computed duration without its
                // parentheses, of a literal with the opening one.
                let start = if inner.is_literal() { offset(token.start) } else { inner.span.start };
                span = Some(Span { start, end: inner.span.end });
                match inner.into_node() {
                    // One pair of parentheses is kept.
                    node @ DurationNode::Paren(_) => node,
                    node => DurationNode::Paren(Box::new(node)),
                }
            }
            TokenKind::Word(Word::Step) => self.duration_call(DurationNode::Step)?,
            TokenKind::Word(Word::Range) => self.duration_call(DurationNode::Range)?,
            TokenKind::Word(word @ (Word::MinOf | Word::MaxOf)) => {
                self.expect(TokenKind::LeftParen)?;
                let a = self.duration_part(0, operators_left)?;
                self.expect(TokenKind::Comma)?;
                let b = self.duration_part(0, operators_left)?;
                self.expect(TokenKind::RightParen)?;
                let a = Box::new(a.into_node());
                let b = Box::new(b.into_node());
                if word == Word::MinOf { DurationNode::MinOf(a, b) } else { DurationNode::MaxOf(a, b) }
            }
            _ => return Err(unexpected(&token, self.context())),
        };
        let span = span.unwrap_or_else(|| self.span_from(token.start));
        Ok(Part { value: PartValue::Node(node), span })
    }

    /// The parentheses of `step()` and `range()`.
    fn duration_call(&mut self, node: DurationNode) -> Result<DurationNode, Failure> {
        self.expect(TokenKind::LeftParen)?;
        self.expect(TokenKind::RightParen)?;
        Ok(node)
    }
}

fn literal_ms(seconds: f64, start: usize) -> Result<i64, Failure> {
    seconds_to_ms(seconds).ok_or_else(|| Failure::new(start, "duration out of range"))
}

fn is_arithmetic(op: BinaryOp) -> bool {
    use BinaryOp::{Add, Div, Mod, Mul, Pow, Sub};
    matches!(op, Add | Sub | Mul | Div | Mod | Pow)
}

fn refuse_zero(op: BinaryOp, rhs: &Part, at: usize) -> Result<(), Failure> {
    match (op, &rhs.value) {
        (BinaryOp::Div, PartValue::Literal(0.0, _)) => Err(Failure::new(at, "division by zero")),
        (BinaryOp::Mod, PartValue::Literal(0.0, _)) => Err(Failure::new(at, "modulo by zero")),
        _ => Ok(()),
    }
}
