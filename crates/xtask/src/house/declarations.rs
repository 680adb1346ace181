//! Types, fields and functions of one crate: location, visibility and size.
//!
//! Invariants: a type is identified by module and name, so types of the same name in two modules stay apart.
//! Not here: fields of enum variants, which have no visibility; functions without a body; closures.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Expr, Fields, FnArg, ImplItem, Pat, Visibility};

use super::modules::{ModuleIdx, ModuleTree, Target};
use super::rust_file::RustFile;
use super::site::Site;

/// A function has at most this number of lines (STYLE §2), counted as clippy's `too_many_lines` does.
pub(super) const FUNCTION_LINES_MAX: usize = 70;
/// A function has at most this number of parameters.
pub(super) const PARAMETERS_MAX: usize = 6;
/// A struct has at most this number of fields (STYLE §2).
pub(crate) const FIELDS_MAX: usize = 15;
/// The methods of a type lie in at most this number of files (STYLE §2).
pub(crate) const INHERENT_FILES_MAX: usize = 3;

const ASSERTIONS: [&str; 3] = ["assert", "assert_eq", "assert_ne"];

/// A struct, enum or union.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct TypeFigures {
    pub(crate) name: String,
    /// Path of the file that declares it.
    pub(crate) file: String,
    /// Line of its name, from 1.
    pub(crate) line: usize,
    /// Number of fields of a struct or union; 0 for an enum.
    pub(crate) field_count: usize,
    /// Paths of the files with a block `impl Type`.
    pub(crate) inherent_files: BTreeSet<String>,
    /// Number of functions in its blocks `impl Type`.
    pub(crate) method_count: usize,
    /// Paths of the files with a block `impl Trait for Type`.
    pub(super) trait_files: BTreeSet<String>,
}

/// Number of fields of structs and unions by visibility.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldCounts {
    pub(super) public: usize,
    /// Visible as `pub(crate)`.
    pub(crate) crate_wide: usize,
    /// `pub(super)` and `pub(in path)`.
    pub(super) ancestor_wide: usize,
    pub(super) private: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct FunctionCounts {
    pub(super) all: usize,
    /// With more than [`FUNCTION_LINES_MAX`] lines of code in the body.
    pub(super) long: usize,
    /// Lines of code in the longest body.
    pub(super) lines_max: usize,
    /// With more than [`PARAMETERS_MAX`] parameters, `self` included.
    pub(super) many_parameters: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Declarations {
    pub(crate) types: Vec<TypeFigures>,
    pub(crate) fields: FieldCounts,
    pub(super) functions: FunctionCounts,
    /// Calls of `assert!`, `assert_eq!`, `assert_ne!` and of their `debug_` forms.
    pub(crate) assertion_count: usize,
    /// Functions with a parameter that is a tuple pattern.
    pub(crate) tuple_parameters: Vec<Site>,
    /// `let (a, b) = (x, y);`, without `else`.
    pub(crate) tuple_lets: Vec<Site>,
}

impl Declarations {
    /// Adds the declarations of one library or program.
    pub(super) fn add(&mut self, files: &[RustFile], tree: &ModuleTree<'_>) {
        let mut types = BTreeMap::new();
        for (module, items) in tree.modules() {
            let mut collector = Collector {
                tree,
                module,
                file: &files[tree.file_idx(module)],
                types: &mut types,
                fields: &mut self.fields,
                functions: &mut self.functions,
                assertion_count: &mut self.assertion_count,
                tuple_parameters: &mut self.tuple_parameters,
                tuple_lets: &mut self.tuple_lets,
            };
            items.iter().for_each(|item| collector.visit_item(item));
        }
        // A target without a declaration is an alias or the output of a macro.
        let declared = types.into_values().filter(|found: &TypeFigures| !found.name.is_empty());
        self.types.extend(declared);
    }
}

struct Collector<'a> {
    tree: &'a ModuleTree<'a>,
    /// Module of the items that are visited.
    module: ModuleIdx,
    file: &'a RustFile,
    types: &'a mut BTreeMap<Target, TypeFigures>,
    fields: &'a mut FieldCounts,
    functions: &'a mut FunctionCounts,
    assertion_count: &'a mut usize,
    tuple_parameters: &'a mut Vec<Site>,
    tuple_lets: &'a mut Vec<Site>,
}

impl Collector<'_> {
    fn add_type(&mut self, name: &syn::Ident, fields: Option<&Fields>) {
        let target = Target::Item { module: self.module, name: name.to_string() };
        // An impl block may have come before the declaration.
        let found = self.types.entry(target).or_default();
        found.name = name.to_string();
        found.file = self.file.path.clone();
        found.line = name.span().start().line;
        found.field_count = fields.map_or(0, Fields::len);
        fields.into_iter().flatten().for_each(|field| self.add_field(&field.vis));
    }

    fn add_field(&mut self, visibility: &Visibility) {
        let count = match visibility {
            Visibility::Public(_) => &mut self.fields.public,
            Visibility::Restricted(vis) if vis.path.is_ident("crate") => &mut self.fields.crate_wide,
            Visibility::Restricted(vis) if !vis.path.is_ident("self") => &mut self.fields.ancestor_wide,
            _ => &mut self.fields.private,
        };
        *count += 1;
    }

    fn add_function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        // Spans count lines from 1, so these two are the lines between the braces, counted from 0.
        let open_line = body.brace_token.span.open().start().line;
        let close_line = body.brace_token.span.close().start().line - 1;
        let line_count = self.file.lines.code_line_count_within(open_line..close_line.max(open_line));
        let has_tuple = |input: &FnArg| matches!(input, FnArg::Typed(typed) if is_tuple_pattern(&typed.pat));
        self.functions.all += 1;
        self.functions.long += usize::from(line_count > FUNCTION_LINES_MAX);
        self.functions.lines_max = self.functions.lines_max.max(line_count);
        self.functions.many_parameters += usize::from(signature.inputs.len() > PARAMETERS_MAX);
        if signature.inputs.iter().any(has_tuple) {
            self.tuple_parameters.push(Site::new(&self.file.path, &signature.ident));
        }
    }

    fn add_impl(&mut self, block: &syn::ItemImpl) {
        let syn::Type::Path(self_type) = &*block.self_ty else { return };
        let path: Vec<String> =
            self_type.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let Some(target @ Target::Item { .. }) = self.tree.resolve_type(self.module, &path) else { return };
        let found = self.types.entry(target).or_default();
        if block.trait_.is_some() {
            found.trait_files.insert(self.file.path.clone());
            return;
        }
        found.inherent_files.insert(self.file.path.clone());
        found.method_count += block.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    /// Skips child modules, which [`Declarations::add`] visits.
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_type(&item.ident, Some(&item.fields));
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add_type(&item.ident, Some(&Fields::Named(item.fields.clone())));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add_type(&item.ident, None);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add_function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        self.add_impl(block);
        visit::visit_item_impl(self, block);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let is_assertion = ASSERTIONS.contains(&name.strip_prefix("debug_").unwrap_or(&name));
        *self.assertion_count += usize::from(is_assertion);
        visit::visit_macro(self, call);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let is_tuple_init = |init: &syn::LocalInit| init.diverge.is_none() && is_tuple(&init.expr);
        if is_tuple_pattern(&local.pat) && local.init.as_ref().is_some_and(is_tuple_init) {
            self.tuple_lets.push(Site::new(&self.file.path, &local.let_token));
        }
        visit::visit_local(self, local);
    }
}

fn is_tuple(expression: &Expr) -> bool {
    match expression {
        Expr::Paren(inner) => is_tuple(&inner.expr),
        expression => matches!(expression, Expr::Tuple(_)),
    }
}

fn is_tuple_pattern(pattern: &Pat) -> bool {
    match pattern {
        Pat::Paren(inner) => is_tuple_pattern(&inner.pat),
        Pat::Reference(inner) => is_tuple_pattern(&inner.pat),
        Pat::Type(inner) => is_tuple_pattern(&inner.pat),
        pattern => matches!(pattern, Pat::Tuple(_)),
    }
}
