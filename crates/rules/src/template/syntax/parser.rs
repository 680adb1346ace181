//! Recursive descent parser with three tokens of lookahead.
//!
//! Invariants: the first error is Go's; nesting is limited, so that no template exhausts the stack.

mod control;
mod operand;

use super::super::functions;
use super::super::text::{quote, unquote};
use super::number::Number;
use super::token::{Keyword, Token, TokenKind};
use super::token_buffer::TokenBuffer;
use super::tree::{Node, Pipeline, Trees};

/// Levels of control structures and parentheses.
pub(in crate::template) const DEPTH_MAX: usize = 50;

/// Reasons of a refused template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::template) enum SyntaxError {
    /// Go refuses it too. Line from 1.
    Invalid { line: usize, message: String },
    /// More than [`DEPTH_MAX`] levels.
    TooDeep { line: usize },
}

/// Parses `text`; the tree of the whole has the name `name`.
pub(in crate::template) fn parse(name: &str, text: &str) -> Result<Trees> {
    let mut parser =
        Parser { name, tokens: TokenBuffer::new(text), scope: Scope::new(), depth: 0, trees: Trees::new() };
    let body = parser.whole()?;
    parser.add(name.to_owned(), body)?;
    Ok(parser.trees)
}

/// State of the template whose body is parsed: of the whole, of a `define` or of a `block`.
struct Scope {
    /// Names of variables, with the dollar sign.
    variables: Vec<String>,
    open_loops: usize,
    /// Line of the start of the action, if one is open.
    action_line: Option<usize>,
}

impl Scope {
    fn new() -> Scope {
        Scope { variables: vec!["$".to_owned()], open_loops: 0, action_line: None }
    }
}

struct Parser<'a, 'n> {
    name: &'n str,
    tokens: TokenBuffer<'a>,
    scope: Scope,
    depth: usize,
    trees: Trees,
}

/// Result of [`Parser::text_or_action`].
enum Parsed {
    Node(Node),
    End,
    Else,
}

impl Parsed {
    fn shown(&self) -> &'static str {
        match self {
            Parsed::Node(_) => "",
            Parsed::End => "{{end}}",
            Parsed::Else => "{{else}}",
        }
    }
}

/// A body and the action after it, which is `end` or `else`.
struct Body {
    nodes: Vec<Node>,
    terminator: Parsed,
}

type Result<T> = std::result::Result<T, SyntaxError>;

impl<'a> Parser<'a, '_> {
    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(SyntaxError::Invalid { line: self.tokens.line, message: message.into() })
    }

    fn unexpected<T>(&self, token: &Token<'_>, context: &str) -> Result<T> {
        if token.kind != TokenKind::Error {
            return self.error(format!("unexpected {} in {context}", token.shown()));
        }
        let mut message = token.shown();
        if let Some(line) = self.scope.action_line.filter(|&line| line != token.line) {
            let place = if message.ends_with(" action") { "" } else { " in action" };
            message.push_str(&format!("{place} started at {}:{line}", self.name));
        }
        self.error(message)
    }

    fn expect_right_delimiter(&mut self, context: &str) -> Result<()> {
        let token = self.tokens.next_non_space();
        if token.kind == TokenKind::RightDelimiter { Ok(()) } else { self.unexpected(&token, context) }
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return Err(SyntaxError::TooDeep { line: self.tokens.line });
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Runs `parse` in the scope of another template.
    fn in_new_scope<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = std::mem::replace(&mut self.scope, Scope::new());
        let outer_line = std::mem::take(&mut self.tokens.line);
        let parsed = self.nested(parse)?;
        self.scope = outer;
        self.tokens.line = outer_line;
        Ok(parsed)
    }

    fn whole(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            let token = self.tokens.peek();
            if token.kind == TokenKind::End {
                return Ok(nodes);
            }
            if token.kind == TokenKind::LeftDelimiter {
                let delimiter = self.tokens.next();
                if self.tokens.next_non_space().kind == TokenKind::Keyword(Keyword::Define) {
                    self.in_new_scope(Self::definition)?;
                    continue;
                }
                self.tokens.back_up_two(delimiter);
            }
            match self.text_or_action()? {
                Parsed::Node(node) => nodes.push(node),
                other => return self.error(format!("unexpected {}", other.shown())),
            }
        }
    }

    fn definition(&mut self) -> Result<()> {
        const CONTEXT: &str = "define clause";
        let token = self.tokens.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        self.expect_right_delimiter(CONTEXT)?;
        let body = self.body()?;
        if !matches!(body.terminator, Parsed::End) {
            return self.error(format!("unexpected {} in {CONTEXT}", body.terminator.shown()));
        }
        self.add(name, body.nodes)
    }

    fn template_name(&self, token: &Token<'_>, context: &str) -> Result<String> {
        if !matches!(token.kind, TokenKind::String | TokenKind::RawString) {
            return self.unexpected(token, context);
        }
        match unquote(&token.text) {
            Some(name) => Ok(String::from_utf8_lossy(&name).into_owned()),
            None => self.error("invalid syntax"),
        }
    }

    /// Adds a template; one without content may be defined again.
    fn add(&mut self, name: String, body: Vec<Node>) -> Result<()> {
        let is_free = self.trees.get(&name).is_none_or(|nodes| is_blank(nodes));
        if is_free {
            self.trees.insert(name, body);
        } else if !is_blank(&body) {
            let name = quote(name.as_bytes());
            return self.error(format!("template: multiple definition of template {name}"));
        }
        Ok(())
    }

    fn body(&mut self) -> Result<Body> {
        let mut nodes = Vec::new();
        while self.tokens.peek_non_space().kind != TokenKind::End {
            match self.text_or_action()? {
                Parsed::Node(node) => nodes.push(node),
                terminator => return Ok(Body { nodes, terminator }),
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Result<Parsed> {
        let token = self.tokens.next_non_space();
        match token.kind {
            TokenKind::Text => Ok(Parsed::Node(Node::Text(token.text.into_owned()))),
            TokenKind::LeftDelimiter => {
                self.scope.action_line = Some(token.line);
                let parsed = self.action()?;
                self.scope.action_line = None;
                Ok(parsed)
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    /// Pipeline up to `end`, which is consumed.
    fn pipeline(&mut self, context: &str, end: TokenKind) -> Result<Pipeline> {
        let position = self.tokens.peek_non_space().position;
        let mut pipeline =
            Pipeline { position, variables: Vec::new(), is_assignment: false, commands: Vec::new() };
        self.variables(&mut pipeline, context)?;
        loop {
            let token = self.tokens.next_non_space();
            match token.kind {
                kind if kind == end => {
                    self.check_pipeline(&pipeline, context)?;
                    return Ok(pipeline);
                }
                TokenKind::Bool
                | TokenKind::CharConstant
                | TokenKind::Complex
                | TokenKind::Field
                | TokenKind::Identifier
                | TokenKind::Number
                | TokenKind::RawString
                | TokenKind::String
                | TokenKind::Variable
                | TokenKind::LeftParen
                | TokenKind::Keyword(Keyword::Dot | Keyword::Nil) => {
                    self.tokens.back_up();
                    let command = self.command()?;
                    pipeline.commands.push(command);
                }
                _ => return self.unexpected(&token, context),
            }
        }
    }

    /// Variables before `:=` or `=`, two of them at most, and only in a `range`.
    fn variables(&mut self, pipeline: &mut Pipeline, context: &str) -> Result<()> {
        while self.tokens.peek_non_space().kind == TokenKind::Variable {
            let variable = self.tokens.next();
            let after = self.tokens.peek();
            let next = self.tokens.peek_non_space();
            let name = variable.text.clone().into_owned();
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    pipeline.is_assignment = next.kind == TokenKind::Assign;
                    self.tokens.next_non_space();
                    pipeline.variables.push(name.clone());
                    self.scope.variables.push(name);
                    return Ok(());
                }
                TokenKind::Char if next.text == "," => {
                    self.tokens.next_non_space();
                    pipeline.variables.push(name.clone());
                    self.scope.variables.push(name);
                    if context != "range" || pipeline.variables.len() > 1 {
                        return self.error(format!("too many declarations in {context}"));
                    }
                    let follower = self.tokens.peek_non_space().kind;
                    if !matches!(
                        follower,
                        TokenKind::Variable | TokenKind::RightDelimiter | TokenKind::RightParen
                    ) {
                        return self.error("range can only initialize variables");
                    }
                }
                _ if after.kind == TokenKind::Space => {
                    self.tokens.back_up_three(variable, after);
                    return Ok(());
                }
                _ => {
                    self.tokens.back_up_two(variable);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn check_pipeline(&self, pipeline: &Pipeline, context: &str) -> Result<()> {
        if pipeline.commands.is_empty() {
            return self.error(format!("missing value for {context}"));
        }
        for (idx, command) in pipeline.commands.iter().enumerate().skip(1) {
            if !command.first.is_executable() {
                return self.error(format!("non executable command in pipeline stage {}", idx + 1));
            }
        }
        Ok(())
    }

    fn number(&self, token: &Token<'_>) -> Result<Number> {
        match Number::parse(&token.text, token.kind) {
            Ok(number) => Ok(number),
            Err(message) => self.error(message),
        }
    }

    fn check_function(&self, name: &str) -> Result<()> {
        if functions::Function::from_name(name).is_some() {
            return Ok(());
        }
        self.error(format!("function {} not defined", quote(name.as_bytes())))
    }

    fn check_variable(&self, name: &str) -> Result<()> {
        if self.scope.variables.iter().any(|known| known == name) {
            return Ok(());
        }
        self.error(format!("undefined variable {}", quote(name.as_bytes())))
    }
}

/// Returns true if a body has only space.
fn is_blank(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()))
}
