//! Targets of `/render`: the parser of `chronolith-graphite`.
//!
//! Property: a tree that is printed and parsed again is the same tree; source texts of calls aside.
//! Not here: evaluation.

use chronolith_base::Rng;
use chronolith_graphite::syntax::{FunctionCall, Literal, Node, TARGET_BYTES_MAX, Template, parse};

use super::mutate::{insert, offset, pick, token};
use super::reader::{Reader, check_equal, owned};

const SEEDS: &[&[u8]] = &[
    b"servers.web01.cpu",
    b"servers.*.{cpu,mem}.load[0-9]?",
    b"alias(sumSeries(a.*.b,c.d), 'a \\'b\\'', x=1.5)",
    b"a.b|scale(-2e-3)|aliasByNode(0, -1)|limit(5)",
    b"seriesByTag('name=disk', \"dc!=x\", 'h=~^a|b$')",
    b"template(hosts.$hostname.cpu.$1, 'web', 5)",
    b"template[x]",
    b"template(scale($1,$n), n=\"a\", m=2)",
    b"movingAverage(a.b, '5min', xFilesFactor=0.5)",
    b"f(true, False, none, inf, -0, 12345678901234567890, 1e999, .5, 5.)",
    b"f(a\\.b\\=c\\{d, 'x''y', \"q\"\"r\", a=none)",
    b"divideSeries(a.b, sumSeries(c.*)) trailing",
    b"f( g( h( a.b ) , 1 ) , k = v.w )",
    b"1min.5sec|f(2)",
    "f(caf\u{e9}.x, '\u{1f4a9}')".as_bytes(),
    b"%from%.a$b@c!d:e-f+g;h<i>j&k^l~m`n#o",
];

const TOKENS: &[&[u8]] = &[
    b"template(",
    b"f(",
    b"|f()",
    b"|scale(1)",
    b")",
    b",",
    b"a.b",
    b"*",
    b"{a,b}",
    b"{",
    b"[0-9]",
    b"'x'",
    b"\"y\"",
    b"'",
    b"\"",
    b"\\",
    b"\\'",
    b"\\.",
    b"\\=",
    b"''",
    b"k=",
    b"true",
    b"FALSE",
    b"none",
    b"inf",
    b"-1",
    b"1e9",
    b"0.5",
    b"1e-999",
    b"99999999999999999999",
    b" ",
    b"\t\n",
    b"$1",
    b"$name",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
];

/// Brackets that are doubled: nesting is bounded.
const WRAPS: [(&str, &str); 5] =
    [("f(", ")"), ("template(", ",1)"), ("f(1,", ")"), ("g(k=", ")"), ("{", "}")];
const WRAPS_MAX: u64 = 100;

/// The parser.
pub(super) struct TargetReader;

impl Reader for TargetReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        owned(SEEDS)
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        match rng.below(4) {
            0 => {
                let (open, close) = *pick(rng, &WRAPS);
                let count = 1 + if rng.below(8) == 0 { rng.below(WRAPS_MAX) } else { rng.below(3) } as usize;
                insert(input, 0, open.repeat(count).as_bytes());
                input.extend_from_slice(close.repeat(count).as_bytes());
            }
            1 => {
                let second = input.clone();
                input.extend_from_slice(token(rng, &[&b","[..], b"|", b".", b" "]));
                input.extend_from_slice(&second);
            }
            _ => {
                for _ in 0..=rng.below(3) {
                    let at = offset(rng, input);
                    insert(input, at, token(rng, TOKENS));
                }
            }
        }
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(input);
        let tree = match parse(&text) {
            Ok(tree) => tree,
            Err(error) => return Ok(error.to_string()),
        };
        let printed = print(&tree);
        // Escapes make the text longer.
        if printed.len() <= TARGET_BYTES_MAX && !has_template_call(&tree) {
            let again = parse(&printed).map_err(|error| format!("{printed:?} is refused: {error}"))?;
            if !is_same(&tree, &again) {
                check_equal(&format!("{printed:?} is another tree"), &tree, &again)?;
            }
        }
        let mut shape = String::new();
        describe(&tree, &mut shape);
        Ok(shape)
    }

    fn input_bytes_max(&self) -> usize {
        TARGET_BYTES_MAX + 1
    }
}

/// Returns true if a call is named as templates are: its printed form, without pipes, may be a template.
fn has_template_call(node: &Node) -> bool {
    match node {
        Node::Call(call) => {
            let mut args = call.args.iter().chain(call.named.iter().map(|(_, value)| value));
            call.name == "template" || args.any(has_template_call)
        }
        Node::Template(template) => has_template_call(&template.body),
        Node::Literal(_) | Node::Path(_) => false,
    }
}

fn is_same(first: &Node, second: &Node) -> bool {
    let are_same = |a: &[(String, Node)], b: &[(String, Node)]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && is_same(&a.1, &b.1))
    };
    match (first, second) {
        (Node::Call(first), Node::Call(second)) => {
            first.name == second.name
                && first.args.len() == second.args.len()
                && first.args.iter().zip(&second.args).all(|(a, b)| is_same(a, b))
                && are_same(&first.named, &second.named)
        }
        (Node::Template(first), Node::Template(second)) => {
            is_same(&first.body, &second.body)
                && first.positional == second.positional
                && first.named == second.named
        }
        _ => first == second,
    }
}

fn print(node: &Node) -> String {
    match node {
        Node::Literal(literal) => print_literal(literal),
        Node::Path(path) => print_path(path),
        Node::Call(call) => print_call(call),
        Node::Template(template) => print_template(template),
    }
}

fn print_call(call: &FunctionCall) -> String {
    let mut args: Vec<String> = call.args.iter().map(print).collect();
    args.extend(call.named.iter().map(|(name, value)| format!("{name}={}", print(value))));
    // A path such as `true` or `5` is a path before a pipe only.
    match call.args.first() {
        Some(Node::Path(path)) if is_literal(path) => {
            let path = args.remove(0);
            format!("{path}|{}({})", call.name, args.join(","))
        }
        _ => format!("{}({})", call.name, args.join(",")),
    }
}

/// Returns true if a path is read as another kind of argument.
fn is_literal(path: &str) -> bool {
    let is_candidate = path.starts_with(|c: char| c.is_ascii_digit() || "-tTfFnNiI".contains(c));
    is_candidate
        && !matches!(
            parse(&format!("f({})", print_path(path))),
            Ok(Node::Call(call)) if matches!(call.args[..], [Node::Path(_)])
        )
}

fn print_template(template: &Template) -> String {
    let mut parts = vec![print(&template.body)];
    parts.extend(template.positional.iter().map(print_literal));
    parts.extend(template.named.iter().map(|(name, value)| format!("{name}={}", print_literal(value))));
    format!("template({})", parts.join(","))
}

fn print_literal(literal: &Literal) -> String {
    match literal {
        Literal::None => "none".to_owned(),
        Literal::Bool(value) => value.to_string(),
        Literal::Int(value) => value.to_string(),
        Literal::Float(value) if *value == f64::INFINITY => "inf".to_owned(),
        Literal::Float(value) if *value == f64::NEG_INFINITY => "-1e999".to_owned(),
        Literal::Float(value) => format!("{value:?}"),
        Literal::Text(text) => {
            let quote = if can_quote(text, '\'') { '\'' } else { '"' };
            format!("{quote}{text}{quote}")
        }
    }
}

/// Returns true if a text within this kind of quotes does not end early.
fn can_quote(text: &str, quote: char) -> bool {
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let is_bad = match char {
            '\\' => chars.next().is_none(),
            char if char == quote => chars.next() != Some(quote),
            _ => false,
        };
        if is_bad {
            return false;
        }
    }
    true
}

fn print_path(path: &str) -> String {
    let mut out = String::new();
    for char in path.chars() {
        if "(){},.'\"\\|=".contains(char) {
            out.push('\\');
        }
        out.push(char);
    }
    out
}

/// Appends the kinds of nodes.
fn describe(node: &Node, out: &mut String) {
    match node {
        Node::Literal(Literal::None) => out.push('n'),
        Node::Literal(Literal::Bool(_)) => out.push('b'),
        Node::Literal(Literal::Int(_)) => out.push('i'),
        Node::Literal(Literal::Float(_)) => out.push('f'),
        Node::Literal(Literal::Text(_)) => out.push('t'),
        Node::Path(_) => out.push('p'),
        Node::Call(call) => {
            out.push('(');
            call.args.iter().for_each(|arg| describe(arg, out));
            call.named.iter().for_each(|(_, arg)| {
                out.push('=');
                describe(arg, out);
            });
            out.push(')');
        }
        Node::Template(template) => {
            out.push('<');
            describe(&template.body, out);
            out.extend(template.positional.iter().map(|_| '+'));
            out.extend(template.named.iter().map(|_| '='));
            out.push('>');
        }
    }
}
