//! Doc comments of one crate: public items without one, and private items with one that repeats the name.
//!
//! Invariants: a public item is one that is `pub`, in whatever module: `unreachable_pub` refuses other uses.
//! Not here: fields and variants of public types, which need no docs; blocks `impl Trait for Type`.

use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, Expr, ExprLit, Fields, Ident, ImplItem, Lit, Meta, Visibility};

use super::modules::ModuleTree;
use super::rust_file::RustFile;
use super::site::Site;

/// A doc comment of a private item with at most this number of words repeats the name of the item.
pub(crate) const SHORT_WORDS_MAX: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct DocSites {
    /// Public types, traits and functions without docs.
    pub(crate) undocumented: Vec<Site>,
    /// Private items, fields and variants with docs of at most [`SHORT_WORDS_MAX`] words.
    pub(crate) short: Vec<Site>,
}

impl DocSites {
    /// Adds the items of one library or program.
    pub(super) fn add(&mut self, files: &[RustFile], tree: &ModuleTree<'_>) {
        for (module, items) in tree.modules() {
            let mut collector = Collector { file: &files[tree.file_idx(module)].path, sites: self };
            items.iter().for_each(|item| collector.visit_item(item));
        }
    }
}

struct Collector<'a> {
    file: &'a str,
    sites: &'a mut DocSites,
}

impl Collector<'_> {
    /// Adds a type, trait or function.
    fn add_item(&mut self, is_public: bool, attributes: &[Attribute], name: &Ident) {
        if !is_public {
            self.add_private(attributes, name);
        } else if !attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
            self.sites.undocumented.push(Site::new(self.file, name));
        }
    }

    fn add_private(&mut self, attributes: &[Attribute], name: &impl Spanned) {
        let words = doc_word_count(attributes);
        if (1..=SHORT_WORDS_MAX).contains(&words) {
            self.sites.short.push(Site::new(self.file, name));
        }
    }

    /// Adds the fields of a struct, or the fields of a variant of a private enum.
    fn add_fields(&mut self, fields: &Fields) {
        for field in fields.iter().filter(|field| !is_public(&field.vis)) {
            match &field.ident {
                Some(name) => self.add_private(&field.attrs, name),
                None => self.add_private(&field.attrs, &field.ty),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    /// Skips child modules, which [`DocSites::add`] visits.
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    /// Items within functions are an implementation detail.
    fn visit_block(&mut self, _: &'ast syn::Block) {}

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_item(is_public(&item.vis), &item.attrs, &item.ident);
        self.add_fields(&item.fields);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add_item(is_public(&item.vis), &item.attrs, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add_item(is_public(&item.vis), &item.attrs, &item.ident);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_item(is_public(&item.vis), &item.attrs, &item.sig.ident);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if !is_public(&item.vis) {
            self.add_private(&item.attrs, &item.ident);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add_item(is_public(&item.vis), &item.attrs, &item.ident);
        if is_public(&item.vis) {
            return;
        }
        for variant in &item.variants {
            self.add_private(&variant.attrs, &variant.ident);
            self.add_fields(&variant.fields);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add_item(is_public(&item.vis), &item.attrs, &item.ident);
        for member in &item.items {
            if let syn::TraitItem::Fn(function) = member {
                self.add_item(is_public(&item.vis), &function.attrs, &function.sig.ident);
            }
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if block.trait_.is_some() {
            return;
        }
        for member in &block.items {
            if let ImplItem::Fn(function) = member {
                self.add_item(is_public(&function.vis), &function.attrs, &function.sig.ident);
            }
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Number of words of the doc comment; 0 if there is none.
fn doc_word_count(attributes: &[Attribute]) -> usize {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    lines.map(|attribute| doc_line(&attribute.meta).split_whitespace().count()).sum()
}

fn doc_line(meta: &Meta) -> String {
    let Meta::NameValue(pair) = meta else { return String::new() };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value(),
        _ => String::new(),
    }
}
