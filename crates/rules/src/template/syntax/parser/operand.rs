//! Commands and their operands.

use super::super::super::text::{quote, unquote};
use super::super::token::{Keyword, TokenKind};
use super::super::tree::{Command, Operand};
use super::{Parser, Result};

impl Parser<'_, '_> {
    /// Operands up to a pipe, which is consumed, or the end of the pipeline, which is not.
    pub(super) fn command(&mut self) -> Result<Command> {
        let position = self.tokens.peek_non_space().position;
        let mut operands = Vec::new();
        loop {
            self.tokens.peek_non_space();
            operands.extend(self.operand()?);
            let token = self.tokens.next();
            match token.kind {
                TokenKind::Space => continue,
                TokenKind::RightDelimiter | TokenKind::RightParen => self.tokens.back_up(),
                TokenKind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        let mut operands = operands.into_iter();
        match operands.next() {
            Some(first) => Ok(Command { position, first, arguments: operands.collect() }),
            None => self.error("empty command"),
        }
    }

    /// A term and the fields after it; `None` if the next token begins no term.
    fn operand(&mut self) -> Result<Option<Operand>> {
        let Some(term) = self.term()? else { return Ok(None) };
        let first = self.tokens.peek();
        if first.kind != TokenKind::Field {
            return Ok(Some(term));
        }
        let position = first.position;
        let mut added = Vec::new();
        while self.tokens.peek().kind == TokenKind::Field {
            added.push(field_name(&self.tokens.next().text));
        }
        match term {
            Operand::Field { mut names, .. } => {
                names.extend(added);
                Ok(Some(Operand::Field { position, names }))
            }
            Operand::Variable { name, mut fields, .. } => {
                fields.extend(added);
                Ok(Some(Operand::Variable { position, name, fields }))
            }
            Operand::Pipeline(_) | Operand::Chain { .. } | Operand::Function { .. } => {
                Ok(Some(Operand::Chain { position, base: Box::new(term), names: added }))
            }
            literal => {
                let shown = quote(literal.to_string().as_bytes());
                self.error(format!("unexpected . after term {shown}"))
            }
        }
    }

    fn term(&mut self) -> Result<Option<Operand>> {
        let token = self.tokens.next_non_space();
        let position = token.position;
        let text = token.text.as_ref();
        Ok(Some(match token.kind {
            TokenKind::Identifier => {
                self.check_function(text)?;
                Operand::Function { position, name: text.to_owned() }
            }
            TokenKind::Keyword(Keyword::Dot) => Operand::Dot(position),
            TokenKind::Keyword(Keyword::Nil) => Operand::Nil(position),
            TokenKind::Variable => {
                self.check_variable(text)?;
                Operand::Variable { position, name: text.to_owned(), fields: Vec::new() }
            }
            TokenKind::Field => Operand::Field { position, names: vec![field_name(text)] },
            TokenKind::Bool => Operand::Bool { position, value: text == "true" },
            TokenKind::CharConstant | TokenKind::Complex | TokenKind::Number => {
                Operand::Number { position, value: self.number(&token)? }
            }
            TokenKind::LeftParen => Operand::Pipeline(
                self.nested(|parser| parser.pipeline("parenthesized pipeline", TokenKind::RightParen))?,
            ),
            TokenKind::String | TokenKind::RawString => match unquote(text) {
                Some(value) => Operand::Text { position, literal: text.to_owned(), value },
                None => return self.error("invalid syntax"),
            },
            _ => {
                self.tokens.back_up();
                return Ok(None);
            }
        }))
    }
}

fn field_name(token: &str) -> String {
    token.strip_prefix('.').unwrap_or(token).to_owned()
}
