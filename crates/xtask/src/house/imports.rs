//! Import graph of one crate: an edge leads from file A to file B if A names an item of B, in a `use`
//! declaration or in a path.
//!
//! Invariants: a re-exported item counts for the file that defines it, not for the module that re-exports it.
//! Not here: methods and fields, which are used without a path; paths in attributes and in `pub(in path)`.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::modules::{ModuleIdx, ModuleTree, imports_of};

/// Edges between files, by their indices.
pub(super) type Edges = BTreeSet<(usize, usize)>;

/// Adds the edges between the files of one library or program.
pub(super) fn add_edges(tree: &ModuleTree<'_>, edges: &mut Edges) {
    for (module, items) in tree.modules() {
        let mut collector = EdgeCollector { tree, module, edges };
        items.iter().for_each(|item| collector.visit_item(item));
    }
}

struct EdgeCollector<'a> {
    tree: &'a ModuleTree<'a>,
    /// Module of the items that are visited.
    module: ModuleIdx,
    edges: &'a mut Edges,
}

impl EdgeCollector<'_> {
    fn add(&mut self, path: &[String]) {
        let Some(target) = self.tree.resolve(self.module, path) else { return };
        let from = self.tree.file_idx(self.module);
        let to = self.tree.file_idx_of(&target);
        if from != to {
            self.edges.insert((from, to));
        }
    }

    /// Adds a path outside of `use` declarations.
    fn add_inline(&mut self, path: &[String]) {
        // A name alone is a local variable, an item of the same module, or imported.
        if path.len() > 1 {
            self.add(path);
        }
    }

    /// Adds the paths in the arguments of a macro: names that are joined by `::`.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colon_count = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colon_count += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    if colon_count != 2 {
                        self.add_inline(&path);
                        path.clear();
                    }
                    path.push(name.to_string());
                }
                TokenTree::Group(group) => {
                    self.add_inline(&path);
                    path.clear();
                    self.add_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.add_inline(&path);
                    path.clear();
                }
            }
            colon_count = 0;
        }
        self.add_inline(&path);
    }
}

impl<'ast> Visit<'ast> for EdgeCollector<'_> {
    /// Skips child modules, which [`add_edges`] visits.
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            imports_of(&item.tree).iter().for_each(|import| self.add(&import.path));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add_inline(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}
