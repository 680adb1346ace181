//! Module tree of one crate and name resolution in it: the file that defines the item of a path.
//!
//! Invariants: resolution follows imports, private ones too, because a child module sees the imports of its
//! parent.
//! Not here: names from other crates, macros and local scopes; `#[path]` is an error.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use syn::{Item, UseTree};

use super::rust_file::RustFile;

/// Imports followed for one name: `use` declarations may import each other in a cycle.
const IMPORT_DEPTH_MAX: usize = 16;

/// Index of a module in its tree.
pub(super) type ModuleIdx = usize;

struct Module<'a> {
    items: &'a [Item],
    /// Index of the file that has the module's items.
    file_idx: usize,
    parent: Option<ModuleIdx>,
    children: BTreeMap<String, ModuleIdx>,
    /// Path of each name that a `use` declaration binds.
    imports: BTreeMap<String, Vec<String>>,
    glob_imports: Vec<Vec<String>>,
    /// Names of types, functions, constants and macros.
    item_names: BTreeSet<String>,
    /// Path of the type that each type alias names.
    aliases: BTreeMap<String, Vec<String>>,
}

/// Module or item that a path refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Module(ModuleIdx),
    Item { module: ModuleIdx, name: String },
}

/// Modules of one library or program; the first one is the crate root.
pub(super) struct ModuleTree<'a> {
    modules: Vec<Module<'a>>,
}

impl<'a> ModuleTree<'a> {
    const ROOT: ModuleIdx = 0;

    /// Reads the modules that are reachable from the file `root_path` by `mod` declarations.
    pub(super) fn build(files: &'a [RustFile], root_path: &str) -> Result<ModuleTree<'a>> {
        let mut tree = ModuleTree { modules: Vec::new() };
        let root_idx = find_file(files, root_path).with_context(|| format!("{root_path}: no such file"))?;
        tree.add(files, root_idx, &files[root_idx].syntax.items, None, "")?;
        Ok(tree)
    }

    /// Index of the file that has the items of `module`.
    pub(super) fn file_idx(&self, module: ModuleIdx) -> usize {
        self.modules[module].file_idx
    }

    /// Index of the file that defines `target`.
    pub(super) fn file_idx_of(&self, target: &Target) -> usize {
        match target {
            Target::Module(module) | Target::Item { module, .. } => self.file_idx(*module),
        }
    }

    /// Each module with its items.
    pub(super) fn modules(&self) -> impl Iterator<Item = (ModuleIdx, &'a [Item])> {
        self.modules.iter().enumerate().map(|(idx, module)| (idx, module.items))
    }

    /// Indices of all files of the tree.
    pub(super) fn file_idxs(&self) -> BTreeSet<usize> {
        self.modules.iter().map(|module| module.file_idx).collect()
    }

    /// Adds a module with its descendants. `child_dir`, the folder of its child modules, ends with a slash.
    fn add(
        &mut self,
        files: &'a [RustFile],
        file_idx: usize,
        items: &'a [Item],
        parent: Option<ModuleIdx>,
        child_dir: &str,
    ) -> Result<ModuleIdx> {
        let idx = self.modules.len();
        let mut module = Module {
            items,
            file_idx,
            parent,
            children: BTreeMap::new(),
            imports: BTreeMap::new(),
            glob_imports: Vec::new(),
            item_names: BTreeSet::new(),
            aliases: BTreeMap::new(),
        };
        module.declare_names();
        self.modules.push(module);
        for item in items {
            let Item::Mod(declaration) = item else { continue };
            let name = declaration.ident.to_string();
            let dir = format!("{child_dir}{name}/");
            let child = match &declaration.content {
                Some((_, items)) => self.add(files, file_idx, items, Some(idx), &dir)?,
                None => {
                    let paths = [format!("{child_dir}{name}.rs"), format!("{dir}mod.rs")];
                    let file = paths.iter().find_map(|path| find_file(files, path));
                    let file =
                        file.with_context(|| format!("`mod {name}`: no file {}", paths.join(" or ")))?;
                    self.add(files, file, &files[file].syntax.items, Some(idx), &dir)?
                }
            };
            self.modules[idx].children.insert(name, child);
        }
        Ok(idx)
    }

    /// Target of `path` in the scope of `from`; none if it lies outside of the crate.
    pub(super) fn resolve(&self, from: ModuleIdx, path: &[String]) -> Option<Target> {
        self.resolve_within(from, path, IMPORT_DEPTH_MAX)
    }

    /// Target of the type `path` in the scope of `from`: of the aliased type if it is an alias of one.
    pub(super) fn resolve_type(&self, from: ModuleIdx, path: &[String]) -> Option<Target> {
        let mut target = self.resolve(from, path)?;
        for _ in 0..IMPORT_DEPTH_MAX {
            let Target::Item { module, name } = &target else { break };
            let Some(aliased) = self.modules[*module].aliases.get(name) else { break };
            // An alias of a type of another crate stands for itself.
            let Some(next) = self.resolve(*module, aliased) else { break };
            target = next;
        }
        Some(target)
    }

    fn resolve_within(&self, from: ModuleIdx, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(Self::ROOT),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.lookup(from, name, depth)?,
        };
        for name in rest {
            let Target::Module(module) = target else { return Some(target) };
            target = match name.as_str() {
                "self" => Target::Module(module),
                "super" => Target::Module(self.modules[module].parent?),
                // A name without a declaration, as of a macro's output, counts as an item of the module.
                name => self
                    .lookup(module, name, depth)
                    .unwrap_or_else(|| Target::Item { module, name: name.to_owned() }),
            };
        }
        Some(target)
    }

    /// Target of one name in the scope of `module`.
    fn lookup(&self, module: ModuleIdx, name: &str, depth: usize) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let scope = &self.modules[module];
        if let Some(child) = scope.children.get(name) {
            return Some(Target::Module(*child));
        }
        if scope.item_names.contains(name) {
            return Some(Target::Item { module, name: name.to_owned() });
        }
        if let Some(path) = scope.imports.get(name) {
            return self.resolve_within(module, path, depth);
        }
        scope.glob_imports.iter().find_map(|path| match self.resolve_within(module, path, depth)? {
            Target::Module(source) => self.lookup(source, name, depth),
            Target::Item { .. } => None,
        })
    }
}

impl Module<'_> {
    /// Fills imports and names of items from the items.
    fn declare_names(&mut self) {
        for item in self.items {
            let name = match item {
                Item::Const(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Fn(item) => &item.sig.ident,
                Item::Static(item) => &item.ident,
                Item::Struct(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => {
                    self.aliases.extend(alias_path(&item.ty).map(|path| (item.ident.to_string(), path)));
                    &item.ident
                }
                Item::Union(item) => &item.ident,
                Item::Macro(syn::ItemMacro { ident: Some(ident), .. }) => ident,
                Item::Use(item) if item.leading_colon.is_none() => {
                    for import in imports_of(&item.tree) {
                        match import.name {
                            Some(name) => drop(self.imports.insert(name, import.path)),
                            None => self.glob_imports.push(import.path),
                        }
                    }
                    continue;
                }
                _ => continue,
            };
            self.item_names.insert(name.to_string());
        }
    }
}

/// Path of the type that an alias names; none for references, tuples and the like, which have no methods.
fn alias_path(aliased: &syn::Type) -> Option<Vec<String>> {
    let syn::Type::Path(aliased) = aliased else { return None };
    Some(aliased.path.segments.iter().map(|segment| segment.ident.to_string()).collect())
}

/// One name of a `use` declaration.
pub(super) struct Import {
    /// Name that it binds; none for `*`.
    name: Option<String>,
    pub(super) path: Vec<String>,
}

/// All names of a `use` declaration, each with its whole path.
pub(super) fn imports_of(tree: &UseTree) -> Vec<Import> {
    let mut imports = Vec::new();
    flatten(tree, &[], &mut imports);
    imports
}

fn flatten(tree: &UseTree, prefix: &[String], imports: &mut Vec<Import>) {
    let joined = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(part) => flatten(&part.tree, &joined(&part.ident), imports),
        // `a::{self}` binds the name `a`.
        UseTree::Name(part) if part.ident == "self" => {
            imports.push(Import { name: prefix.last().cloned(), path: prefix.to_vec() });
        }
        UseTree::Name(part) => {
            imports.push(Import { name: Some(part.ident.to_string()), path: joined(&part.ident) });
        }
        UseTree::Rename(part) => {
            imports.push(Import { name: Some(part.rename.to_string()), path: joined(&part.ident) });
        }
        UseTree::Glob(_) => imports.push(Import { name: None, path: prefix.to_vec() }),
        UseTree::Group(group) => group.items.iter().for_each(|part| flatten(part, prefix, imports)),
    }
}

fn find_file(files: &[RustFile], path: &str) -> Option<usize> {
    files.iter().position(|file| file.path == path)
}
