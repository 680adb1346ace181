//! Tokens with three tokens of lookahead.

use super::lexer::Lexer;
use super::token::{Token, TokenKind};

pub(super) struct TokenBuffer<'a> {
    lexer: Lexer<'a>,
    /// Tokens that were read but not used, the next one last.
    tokens: [Option<Token<'a>>; 3],
    peeked_count: usize,
    /// Line of the newest token, which errors name.
    pub(super) line: usize,
}

impl<'a> TokenBuffer<'a> {
    pub(super) fn new(text: &'a str) -> TokenBuffer<'a> {
        TokenBuffer { lexer: Lexer::new(text), tokens: [const { None }; 3], peeked_count: 0, line: 0 }
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        match self.peeked_count.checked_sub(1) {
            Some(left) => self.peeked_count = left,
            None => {
                let token = self.lexer.next_token();
                self.line = token.line;
                self.tokens[0] = Some(token);
            }
        }
        match self.tokens.get(self.peeked_count).cloned().flatten() {
            Some(token) => token,
            None => self.lexer.next_token(),
        }
    }

    pub(super) fn back_up(&mut self) {
        self.peeked_count += 1;
    }

    /// Returns `token`, which came before the newest token, to the input.
    pub(super) fn back_up_two(&mut self, token: Token<'a>) {
        self.tokens[1] = Some(token);
        self.peeked_count = 2;
    }

    pub(super) fn back_up_three(&mut self, first: Token<'a>, second: Token<'a>) {
        self.tokens[1] = Some(second);
        self.tokens[2] = Some(first);
        self.peeked_count = 3;
    }

    pub(super) fn peek(&mut self) -> Token<'a> {
        let token = self.next();
        self.back_up();
        token
    }

    pub(super) fn next_non_space(&mut self) -> Token<'a> {
        loop {
            let token = self.next();
            if token.kind != TokenKind::Space {
                return token;
            }
        }
    }

    pub(super) fn peek_non_space(&mut self) -> Token<'a> {
        let token = self.next_non_space();
        self.back_up();
        token
    }
}
