//! Static imports of our modules: what a browser needs before it can run the first one.
//! Not here: modules that a page imports when it is opened (`import(...)`), and the bundle, which imports
//! nothing.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Folder of bundles.
const BUNDLED: &str = "lib/";

/// Paths of `first` and all modules that it imports, each once, breadth first.
pub(super) fn modules(first: &str, files: &BTreeMap<String, Bytes>) -> Vec<String> {
    let mut found = vec![first.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let Some(bytes) = files.get(&path).filter(|_| !path.starts_with(BUNDLED)) else { continue };
        for import in imports(&String::from_utf8_lossy(bytes)) {
            let import = resolve(&path, import);
            if files.contains_key(&import) && !found.contains(&import) {
                found.push(import);
            }
        }
    }
    found
}

/// Addresses of static imports; each ends the line of its statement.
fn imports(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let quoted = line.trim_end().strip_suffix("\";")?;
        let from = quoted.rfind("from \"./").or_else(|| quoted.rfind("from \"../"))?;
        quoted.get(from + "from \"".len()..)
    })
}

/// Path of `import` as seen from the module at `path`.
fn resolve(path: &str, import: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in import.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
