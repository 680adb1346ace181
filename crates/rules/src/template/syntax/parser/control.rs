//! Actions: control structures and calls of templates.

use super::super::token::{Keyword, TokenKind};
use super::super::tree::{Branch, Conditional, Loop, Node, Pipeline};
use super::{Parsed, Parser, Result};

impl Parser<'_, '_> {
    /// The left delimiter is consumed.
    pub(super) fn action(&mut self) -> Result<Parsed> {
        let token = self.tokens.next_non_space();
        let TokenKind::Keyword(keyword) = token.kind else {
            self.tokens.back_up();
            return self.print_action();
        };
        let node = match keyword {
            Keyword::Block => self.block()?,
            Keyword::Break => self.jump("{{break}}", Node::Break)?,
            Keyword::Continue => self.jump("{{continue}}", Node::Continue)?,
            Keyword::Else => return self.else_action(),
            Keyword::End => {
                self.expect_right_delimiter("end")?;
                return Ok(Parsed::End);
            }
            Keyword::If => Node::If(self.nested(|parser| parser.conditional("if", Keyword::If))?),
            Keyword::Range => self.nested(Self::range)?,
            Keyword::Template => self.template_call()?,
            Keyword::With => Node::With(self.nested(|parser| parser.conditional("with", Keyword::With))?),
            Keyword::Define | Keyword::Dot | Keyword::Nil => {
                self.tokens.back_up();
                return self.print_action();
            }
        };
        Ok(Parsed::Node(node))
    }

    fn print_action(&mut self) -> Result<Parsed> {
        let pipeline = self.pipeline("command", TokenKind::RightDelimiter)?;
        Ok(Parsed::Node(Node::Action(pipeline)))
    }

    fn jump(&mut self, shown: &str, node: Node) -> Result<Node> {
        self.expect_right_delimiter(shown)?;
        if self.scope.open_loops == 0 {
            return self.error(format!("{shown} outside {{{{range}}}}"));
        }
        Ok(node)
    }

    /// In `else if` and `else with` the second keyword stays in the input.
    fn else_action(&mut self) -> Result<Parsed> {
        let next = self.tokens.peek_non_space();
        if !matches!(next.kind, TokenKind::Keyword(Keyword::If | Keyword::With)) {
            self.expect_right_delimiter("else")?;
        }
        Ok(Parsed::Else)
    }

    /// `if` or `with`. A chain of `else if` is one structure with several branches.
    fn conditional(&mut self, context: &str, keyword: Keyword) -> Result<Conditional> {
        let outer_variables = self.scope.variables.len();
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let condition = self.pipeline(context, TokenKind::RightDelimiter)?;
            let body = self.body()?;
            branches.push(Branch { condition, body: body.nodes });
            if matches!(body.terminator, Parsed::End) {
                break;
            }
            if self.tokens.peek().kind == TokenKind::Keyword(keyword) {
                self.tokens.next();
                continue;
            }
            otherwise = self.else_body()?;
            break;
        }
        self.scope.variables.truncate(outer_variables);
        Ok(Conditional { branches, otherwise })
    }

    fn range(&mut self) -> Result<Node> {
        let outer_variables = self.scope.variables.len();
        let over = self.pipeline("range", TokenKind::RightDelimiter)?;
        self.scope.open_loops += 1;
        let body = self.body()?;
        self.scope.open_loops -= 1;
        let otherwise = match body.terminator {
            Parsed::Else => self.else_body()?,
            _ => Vec::new(),
        };
        self.scope.variables.truncate(outer_variables);
        Ok(Node::Range(Loop { over, body: body.nodes, otherwise }))
    }

    fn else_body(&mut self) -> Result<Vec<Node>> {
        let body = self.body()?;
        match body.terminator {
            Parsed::End => Ok(body.nodes),
            other => self.error(format!("expected end; found {}", other.shown())),
        }
    }

    /// A `block` is a definition and a call of it.
    fn block(&mut self) -> Result<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.tokens.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let argument = self.pipeline(CONTEXT, TokenKind::RightDelimiter)?;
        let terminator = self.in_new_scope(|parser| {
            let body = parser.body()?;
            if matches!(body.terminator, Parsed::End) {
                parser.add(name.clone(), body.nodes)?;
            }
            Ok(body.terminator)
        })?;
        if !matches!(terminator, Parsed::End) {
            return self.error(format!("unexpected {} in {CONTEXT}", terminator.shown()));
        }
        Ok(Node::Template { position: token.position, name, argument: Some(argument) })
    }

    fn template_call(&mut self) -> Result<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.tokens.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let mut argument: Option<Pipeline> = None;
        if self.tokens.next_non_space().kind != TokenKind::RightDelimiter {
            self.tokens.back_up();
            argument = Some(self.pipeline(CONTEXT, TokenKind::RightDelimiter)?);
        }
        Ok(Node::Template { position: token.position, name, argument })
    }
}
