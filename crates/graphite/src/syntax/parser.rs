//! Recursive-descent parser of targets, with the order of attempts of graphite-web's grammar.
//!
//! Invariants: `Ok(None)` means "does not match, try the next alternative" and leaves the position unchanged;
//! an error ends the parse. The call that does not close is no call: `scale(x` is the path `scale`.
//! Not here: tokens (`scanner`).

use super::error::{ATTEMPTS_MAX, NESTING_MAX, READ_BYTES_MAX, SyntaxError, TARGET_BYTES_MAX};
use super::scanner::Scanner;
use super::tree::{FunctionCall, Literal, Node, Template};

/// Bytes of a target that an error repeats.
const ERROR_TEXT_MAX: usize = 200;

/// Parses one target. Text after the first complete expression is ignored.
/// # Errors
/// [`SyntaxError`] if no expression begins the target, or a limit is exceeded.
pub fn parse(target: &str) -> Result<Node, SyntaxError> {
    if target.len() > TARGET_BYTES_MAX {
        return Err(SyntaxError::TooLong { bytes: target.len() });
    }
    let mut parser = Parser { scanner: Scanner::new(target), depth: 0, attempts: 0 };
    match parser.expression()? {
        Some(parsed) => Ok(parsed.node),
        None => Err(SyntaxError::Expected {
            offset: parser.scanner.position(),
            target: target.chars().take(ERROR_TEXT_MAX).collect(),
        }),
    }
}

/// Parses one target as [`parse`] does, and refuses one with a call that does not close.
/// # Errors
/// As [`parse`], and [`SyntaxError::Unclosed`].
pub fn parse_target(target: &str) -> Result<Node, SyntaxError> {
    let node = parse(target)?;
    // A call without its closing parenthesis is parsed as the path of its name; the rest begins with `(`.
    if let Node::Path(path) = &node
        && let Some(rest) = target.trim_start().strip_prefix(path.as_str())
        && rest.trim_start().starts_with('(')
    {
        return Err(SyntaxError::Unclosed { name: path.chars().take(ERROR_TEXT_MAX).collect() });
    }
    Ok(node)
}

/// A node and the height of its tree.
struct Parsed {
    node: Node,
    height: usize,
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    depth: usize,
    attempts: usize,
}

/// Arguments between the parentheses of a call.
#[derive(Default)]
struct Arguments {
    positional: Vec<Node>,
    named: Vec<(String, Node)>,
    height: usize,
}

type Attempt<T> = Result<Option<T>, SyntaxError>;

impl Parser<'_> {
    /// `template`, call or path, then pipes.
    fn expression(&mut self) -> Attempt<Parsed> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX || self.scanner.read_bytes() > READ_BYTES_MAX {
            return Err(SyntaxError::TooComplex);
        }
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(SyntaxError::TooDeep);
        }
        let parsed = self.piped();
        self.depth -= 1;
        parsed
    }

    fn piped(&mut self) -> Attempt<Parsed> {
        let first = match self.template()? {
            Some(template) => Some(template),
            None => self.call_or_path()?,
        };
        let Some(mut left) = first else { return Ok(None) };
        loop {
            let start = self.scanner.position();
            if !self.scanner.symbol('|') {
                break;
            }
            let Some((mut call, height)) = self.call()? else {
                self.scanner.rewind(start);
                break;
            };
            call.args.insert(0, left.node);
            left = Parsed { node: Node::Call(Box::new(call)), height: height.max(left.height + 1) };
            if left.height > NESTING_MAX {
                return Err(SyntaxError::TooDeep);
            }
        }
        Ok(Some(left))
    }

    fn call_or_path(&mut self) -> Attempt<Parsed> {
        if let Some((call, height)) = self.call()? {
            return Ok(Some(Parsed { node: Node::Call(Box::new(call)), height }));
        }
        Ok(self.scanner.path().map(|path| Parsed { node: Node::Path(path), height: 1 }))
    }

    fn call(&mut self) -> Attempt<(FunctionCall, usize)> {
        let before = self.scanner.position();
        self.scanner.skip_space();
        let start = self.scanner.position();
        if let Some(name) = self.scanner.word()
            && self.scanner.symbol('(')
        {
            let name = name.to_owned();
            let arguments = self.arguments()?;
            if self.scanner.symbol(')') {
                let raw = self.scanner.slice(start, self.scanner.position()).to_owned();
                let height = arguments.height + 1;
                let call = FunctionCall { name, args: arguments.positional, named: arguments.named, raw };
                return Ok(Some((call, height)));
            }
        }
        self.scanner.rewind(before);
        Ok(None)
    }

    /// Positional arguments, then keyword arguments; keywords alone do not match.
    fn arguments(&mut self) -> Result<Arguments, SyntaxError> {
        let mut arguments = Arguments::default();
        loop {
            let start = self.scanner.position();
            if !arguments.positional.is_empty() && !self.scanner.symbol(',') {
                return Ok(arguments);
            }
            if let Some((name, value)) = self.keyword_argument()? {
                if arguments.positional.is_empty() {
                    self.scanner.rewind(start);
                    return Ok(arguments);
                }
                self.keyword_arguments(&mut arguments, (name, value))?;
                return Ok(arguments);
            }
            let Some(value) = self.argument()? else {
                self.scanner.rewind(start);
                return Ok(arguments);
            };
            arguments.height = arguments.height.max(value.height);
            arguments.positional.push(value.node);
        }
    }

    fn keyword_arguments(
        &mut self,
        arguments: &mut Arguments,
        first: (String, Parsed),
    ) -> Result<(), SyntaxError> {
        let mut next = Some(first);
        while let Some((name, value)) = next {
            arguments.height = arguments.height.max(value.height);
            arguments.named.push((name, value.node));
            let start = self.scanner.position();
            next = if self.scanner.symbol(',') { self.keyword_argument()? } else { None };
            if next.is_none() {
                self.scanner.rewind(start);
            }
        }
        Ok(())
    }

    fn keyword_argument(&mut self) -> Attempt<(String, Parsed)> {
        let start = self.scanner.position();
        if let Some(name) = self.scanner.word()
            && self.scanner.symbol('=')
            && let Some(value) = self.argument()?
        {
            return Ok(Some((name.to_owned(), value)));
        }
        self.scanner.rewind(start);
        Ok(None)
    }

    fn argument(&mut self) -> Attempt<Parsed> {
        match self.literal() {
            Some(literal) => Ok(Some(Parsed { node: Node::Literal(literal), height: 1 })),
            None => self.expression(),
        }
    }

    fn literal(&mut self) -> Option<Literal> {
        for (keyword, value) in [("true", Literal::Bool(true)), ("false", Literal::Bool(false))] {
            if self.scanner.keyword(keyword) {
                return Some(value);
            }
        }
        if let Some(number) = self.scanner.number() {
            return Some(number);
        }
        if self.scanner.keyword("none") {
            return Some(Literal::None);
        }
        if let Some(text) = self.scanner.quoted() {
            return Some(Literal::Text(text.to_owned()));
        }
        self.scanner.keyword("inf").then_some(Literal::Float(f64::INFINITY))
    }

    fn template(&mut self) -> Attempt<Parsed> {
        let start = self.scanner.position();
        if self.scanner.word() == Some("template")
            && self.scanner.symbol('(')
            && let Some(body) = self.call_or_path()?
        {
            let (positional, named) = self.template_values();
            if self.scanner.symbol(')') {
                let template = Template { body: body.node, positional, named };
                return Ok(Some(Parsed {
                    node: Node::Template(Box::new(template)),
                    height: body.height + 1,
                }));
            }
        }
        self.scanner.rewind(start);
        Ok(None)
    }

    /// Either positional or named values, each a number or a text.
    fn template_values(&mut self) -> (Vec<Literal>, Vec<(String, Literal)>) {
        let mut positional = Vec::new();
        let mut named = Vec::new();
        loop {
            let start = self.scanner.position();
            if !self.scanner.symbol(',') {
                break;
            }
            if positional.is_empty()
                && let Some(value) = self.template_keyword()
            {
                named.push(value);
                continue;
            }
            match self.template_literal() {
                Some(value) if named.is_empty() => positional.push(value),
                _ => {
                    self.scanner.rewind(start);
                    break;
                }
            }
        }
        (positional, named)
    }

    fn template_keyword(&mut self) -> Option<(String, Literal)> {
        let start = self.scanner.position();
        if let Some(name) = self.scanner.word()
            && self.scanner.symbol('=')
            && let Some(value) = self.template_literal()
        {
            return Some((name.to_owned(), value));
        }
        self.scanner.rewind(start);
        None
    }

    fn template_literal(&mut self) -> Option<Literal> {
        self.scanner.number().or_else(|| self.scanner.quoted().map(|text| Literal::Text(text.to_owned())))
    }
}
