//! One Rust source file: its syntax tree without test items, and its lines of code.
//!
//! Invariants: a line counts as code if a token other than a comment covers a part of it.
//! Not here: macro expansion, and `cfg` conditions other than `test`: code under those is production code.

use std::ops::Range;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{LexError, Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, ImplItem, Item, Meta, Token};

/// Lines of code of one text, and of each range of it.
#[derive(Debug)]
pub(super) struct CodeLines {
    /// Indexed by line, from 0.
    is_code: Vec<bool>,
}

impl CodeLines {
    pub(super) fn parse(text: &str) -> Result<CodeLines> {
        let tokens = text.parse().map_err(|error: LexError| anyhow!("{error}"))?;
        let mut lines = CodeLines { is_code: vec![false; text.lines().count()] };
        lines.mark(tokens);
        Ok(lines)
    }

    /// Marks the lines of all tokens except for doc comments, which proc-macro2 turns into attributes.
    fn mark(&mut self, tokens: TokenStream) {
        let mut is_doc_comment = false;
        for token in tokens {
            match token {
                // `#` and `!` have the span of the whole comment; in a real attribute they span one byte.
                TokenTree::Punct(punct) if punct.span().byte_range().len() > 1 => is_doc_comment = true,
                TokenTree::Group(_) if is_doc_comment => is_doc_comment = false,
                TokenTree::Group(group) => {
                    self.mark_span(group.span_open());
                    self.mark(group.stream());
                    self.mark_span(group.span_close());
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.mark_span(token.span());
                }
            }
        }
    }

    fn mark_span(&mut self, span: Span) {
        self.is_code[lines_of(span)].fill(true);
    }

    /// Number of all lines, comments and blank lines too.
    pub(super) fn line_count(&self) -> usize {
        self.is_code.len()
    }

    pub(super) fn code_line_count(&self) -> usize {
        self.code_line_count_within(0..self.is_code.len())
    }

    /// Number of lines of code in `lines`, which are counted from 0.
    pub(super) fn code_line_count_within(&self, lines: Range<usize>) -> usize {
        self.is_code.get(lines).unwrap_or_default().iter().filter(|is_code| **is_code).count()
    }
}

/// Lines that `span` covers in part or whole, counted from 0.
fn lines_of(span: Span) -> Range<usize> {
    span.start().line - 1..span.end().line
}

/// A file below `src/`.
pub(super) struct RustFile {
    /// Relative to `src/`, with `/`.
    pub(super) path: String,
    /// Without test modules and other items of tests.
    pub(super) syntax: syn::File,
    pub(super) lines: CodeLines,
    /// Lines of the items that `syntax` lacks, counted from 0.
    test_lines: Vec<Range<usize>>,
}

impl RustFile {
    pub(super) fn parse(path: &str, text: &str) -> Result<RustFile> {
        let parse = || -> Result<RustFile> {
            let lines = CodeLines::parse(text)?;
            let mut syntax = syn::parse_file(text)?;
            let mut tests = TestRemoval::default();
            tests.visit_file_mut(&mut syntax);
            Ok(RustFile { path: path.to_owned(), syntax, lines, test_lines: tests.removed_lines })
        };
        parse().with_context(|| path.to_owned())
    }

    /// Number of lines of production code.
    pub(super) fn code_line_count(&self) -> usize {
        self.lines.code_line_count() - self.test_code_line_count()
    }

    /// Number of all lines outside of test items.
    pub(super) fn line_count(&self) -> usize {
        self.lines.line_count() - self.test_lines.iter().map(ExactSizeIterator::len).sum::<usize>()
    }

    /// Number of lines of code in test items.
    pub(super) fn test_code_line_count(&self) -> usize {
        self.test_lines.iter().map(|lines| self.lines.code_line_count_within(lines.clone())).sum()
    }
}

/// Removes items that exist in test builds only.
#[derive(Default)]
struct TestRemoval {
    removed_lines: Vec<Range<usize>>,
}

impl TestRemoval {
    fn remove_items(&mut self, items: &mut Vec<Item>) {
        items.retain(|item| !self.record_if_test(item_attributes(item), item));
    }

    /// Returns true if `item` exists in test builds only, and records its lines.
    fn record_if_test(&mut self, attributes: &[Attribute], item: &impl Spanned) -> bool {
        let is_test = attributes.iter().any(is_test_attribute);
        if is_test {
            self.removed_lines.push(lines_of(item.span()));
        }
        is_test
    }
}

impl VisitMut for TestRemoval {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        self.remove_items(&mut file.items);
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            self.remove_items(items);
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| !self.record_if_test(impl_item_attributes(item), item));
        visit_mut::visit_item_impl_mut(self, block);
    }
}

/// Returns true for `#[test]`, and for `#[cfg(..)]` if its condition can only be true in a test build.
fn is_test_attribute(attribute: &Attribute) -> bool {
    let is_test_cfg = || attribute.parse_args::<Meta>().is_ok_and(|condition| implies_test(&condition));
    attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && is_test_cfg())
}

fn implies_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
        return false;
    };
    let is_all = list.path.is_ident("all") && parts.iter().any(implies_test);
    is_all || (list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(implies_test))
}

fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn impl_item_attributes(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}
