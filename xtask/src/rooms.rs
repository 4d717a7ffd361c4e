//! Which modules of one crate import which, and the rings that they form.
//!
//! Guarantees: an import counts for the file that defines what is imported: re-exports and imports of parents are
//! followed. What is compiled for tests only is left out. A `pub use` is no import: it is an address, and its users are
//! counted instead. Leaves to others: what modules reach through methods of a type that several files implement.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::Visit;

/// A module's place in its crate: `["device", "images"]`.
type ModulePath = Vec<String>;

/// The modules of a crate and their imports.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Debug, Default)]
struct Module {
    /// Names that `use` brings into the module, and the path behind each, as written.
    names: BTreeMap<String, Vec<String>>,
    /// Paths of `use a::b::*`, as written.
    globs: Vec<Vec<String>>,
    /// Paths that the module's own code needs, as written.
    needs: BTreeSet<Vec<String>>,
    /// Types, functions, constants and macros that the module defines.
    defines: BTreeSet<String>,
}

/// Source files of a crate at `folder` that are no tests, by module.
pub(crate) fn sources(folder: &Path) -> Result<Vec<(ModulePath, PathBuf)>> {
    let mut found = Vec::new();
    collect(&folder.join("src"), &mut Vec::new(), &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, at: &mut ModulePath, into: &mut Vec<(ModulePath, PathBuf)>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be listed", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        at.push(stem.clone());
        if path.is_dir() {
            collect(&path, at, into)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let is_root = at.len() == 1 && (stem == "lib" || stem == "main");
            into.push((if is_root { Vec::new() } else { at.clone() }, path));
        }
        at.pop();
    }
    Ok(())
}

impl Crate {
    /// Reads the crate at `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Crate> {
        let mut read = Crate::default();
        for (path, file) in sources(folder)? {
            let text = fs::read_to_string(&file)?;
            read.add(path, &text).with_context(|| format!("{} does not read as Rust", file.display()))?;
        }
        Ok(read)
    }

    fn add(&mut self, path: ModulePath, text: &str) -> Result<()> {
        let parsed = syn::parse_file(text)?;
        let mut reader = Reader { at: path.clone(), depth: path.len(), module: Module::default() };
        reader.visit_file(&parsed);
        self.modules.insert(path, reader.module);
        Ok(())
    }

    /// The file that defines what `path`, written in `from`, leads to; nothing if that is outside the crate.
    fn resolve(&self, from: &[String], path: &[String], hops: usize) -> Option<ModulePath> {
        let mut at: ModulePath = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            // A path from a child of this module, or from a name that it imports.
            first => {
                let module = self.modules.get(from)?;
                let mut child = from.to_vec();
                child.push(first.to_owned());
                let known = self.modules.contains_key(&child) || module.names.contains_key(first);
                if !known {
                    return None;
                }
            }
        }
        loop {
            let Some(next) = rest.first() else { return Some(at) };
            let mut child = at.clone();
            child.push(next.clone());
            if self.modules.contains_key(&child) {
                (at, rest) = (child, &rest[1..]);
                continue;
            }
            let module = self.modules.get(&at)?;
            if hops > 0 && !module.defines.contains(next) {
                if let Some(behind) = module.names.get(next) {
                    if behind.first().is_some_and(|first| first == next) && behind.len() == 1 {
                        return Some(at);
                    }
                    let mut whole = behind.clone();
                    whole.extend_from_slice(&rest[1..]);
                    // What a module imports from outside the crate is not of that module.
                    return self.resolve(&at, &whole, hops - 1);
                }
                let through = module.globs.iter().find_map(|glob| {
                    let target = self.resolve(&at, glob, hops - 1)?;
                    let target = self.modules.get_key_value(&target)?;
                    target.1.defines.contains(next).then(|| target.0.clone())
                });
                if through.is_some() {
                    return through;
                }
            }
            return Some(at);
        }
    }

    /// Arrows between files: from, to.
    fn arrows(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        const HOPS_MAX: usize = 8;
        let arrows_of = |path: &ModulePath, module: &Module| -> BTreeSet<ModulePath> {
            let targets = module.needs.iter().filter_map(|need| self.resolve(path, need, HOPS_MAX));
            targets.filter(|target| target != path && self.modules.contains_key(target)).collect()
        };
        self.modules.iter().map(|(path, module)| (path, arrows_of(path, module))).collect()
    }

    /// Rings of modules, each at least two, the largest first.
    pub(crate) fn rings(&self) -> Vec<Vec<String>> {
        let arrows = self.arrows();
        let reach = |start: &ModulePath| -> BTreeSet<ModulePath> {
            let (mut reached, mut open) = (BTreeSet::new(), vec![start.clone()]);
            while let Some(at) = open.pop() {
                for next in arrows.get(&at).into_iter().flatten() {
                    if reached.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            reached
        };
        let reached: BTreeMap<&ModulePath, BTreeSet<ModulePath>> =
            self.modules.keys().map(|path| (path, reach(path))).collect();
        let mut rings: BTreeSet<Vec<String>> = BTreeSet::new();
        for (path, from_it) in &reached {
            let ring: Vec<String> = from_it
                .iter()
                .filter(|other| *other == *path || reached.get(*other).is_some_and(|back| back.contains(*path)))
                .map(|module| if module.is_empty() { "lib".to_owned() } else { module.join("::") })
                .collect();
            if ring.len() > 1 {
                rings.insert(ring);
            }
        }
        let mut rings: Vec<_> = rings.into_iter().collect();
        rings.sort_by_key(|ring| std::cmp::Reverse(ring.len()));
        rings
    }

    /// Arrows inside `ring`, a line each.
    pub(crate) fn arrows_of(&self, ring: &[String]) -> Vec<String> {
        let name = |module: &ModulePath| if module.is_empty() { "lib".to_owned() } else { module.join("::") };
        let arrows = self.arrows();
        let pairs = arrows.iter().flat_map(|(from, to)| to.iter().map(|to| (name(from), name(to))));
        pairs
            .filter(|(from, to)| ring.contains(from) && ring.contains(to))
            .map(|(from, to)| format!("{from} → {to}"))
            .collect()
    }
}

/// Reads one file.
struct Reader {
    at: ModulePath,
    depth: usize,
    module: Module,
}

impl Reader {
    /// `path` as the file would write it, where it is written in a module inside the file.
    fn resolve_in_file(&self, mut path: Vec<String>) -> Vec<String> {
        let inner = self.at.len() - self.depth;
        for _ in 0..inner {
            match path.first().map(String::as_str) {
                Some("super") => drop(path.remove(0)),
                _ => break,
            }
        }
        path
    }

    fn tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree, public: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree, public);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree, public)),
            syn::UseTree::Glob(_) => {
                let path = self.resolve_in_file(before.clone());
                if !public {
                    self.module.needs.insert(path.clone());
                }
                self.module.globs.push(path);
            }
            syn::UseTree::Name(name) => self.leaf(before, &name.ident, &name.ident, public),
            syn::UseTree::Rename(rename) => self.leaf(before, &rename.ident, &rename.rename, public),
        }
    }

    fn leaf(&mut self, before: &[String], ident: &syn::Ident, name: &syn::Ident, public: bool) {
        let mut path = before.to_vec();
        let mut name = name.to_string();
        if ident == "self" {
            if name == "self" {
                name = path.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(ident.to_string());
        }
        let path = self.resolve_in_file(path);
        if !public {
            self.module.needs.insert(path.clone());
        }
        self.module.names.insert(name, path);
    }
}

/// True if an item is compiled for tests only.
pub(crate) fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string().split_whitespace().eq(["test"]))
    })
}

fn attrs_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attrs_of(item)) {
            return;
        }
        let name = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            _ => None,
        };
        if let Some(name) = name {
            self.module.defines.insert(name.to_string());
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.at.push(item.ident.to_string());
            syn::visit::visit_item_mod(self, item);
            self.at.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&mut Vec::new(), &item.tree, public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let parts = path.segments.iter().map(|part| part.ident.to_string()).collect();
            let parts = self.resolve_in_file(parts);
            self.module.needs.insert(parts);
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let mut read = Crate::default();
        for (path, text) in files {
            let path = if path.is_empty() { Vec::new() } else { path.split("::").map(str::to_owned).collect() };
            read.add(path, text).expect("it is Rust");
        }
        read.rings()
    }

    #[test]
    fn a_child_that_imports_from_its_parent_which_uses_it_is_a_ring() {
        let parent = "mod b; use b::B; pub struct A;";
        assert_eq!(rings(&[("a", parent), ("a::b", "use super::A; pub struct B;")]), [["a", "a::b"]]);
        assert!(rings(&[("a", parent), ("a::b", "pub struct B;")]).is_empty());
        assert_eq!(rings(&[("a", "fn f() { b::g() }"), ("a::b", "fn g() { super::f() }")]), [["a", "a::b"]]);
    }

    #[test]
    fn what_the_root_re_exports_is_of_the_module_that_defines_it() {
        let root = "mod a; mod b; pub use a::A; pub use b::*;";
        assert!(rings(&[("", root), ("a", "pub struct A;"), ("b", "use crate::A; pub struct B;")]).is_empty());
        let ring = rings(&[("", root), ("a", "use crate::B; pub struct A;"), ("b", "use crate::A; pub struct B;")]);
        assert_eq!(ring, [["a", "b"]]);
    }

    #[test]
    fn what_a_parent_imports_is_not_of_the_parent() {
        let files =
            [("a", "use crate::c::C; use b::B;"), ("a::b", "use super::C; pub struct B;"), ("c", "pub struct C;")];
        assert!(rings(&files).is_empty());
    }

    #[test]
    fn tests_are_left_out() {
        let b = "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }";
        assert!(rings(&[("a", "use crate::b::B; pub struct A;"), ("b", b)]).is_empty());
    }
}
