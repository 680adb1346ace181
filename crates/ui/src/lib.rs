//! Files of the web interface, as the server embeds them: sources of `web/`, overlaid by the bundles of
//! third parties and of our modules in `build/`.
//!
//! Invariants: one content hash names all files, so a page of one build never loads a file of another one;
//! without a bundle there is a plain page, which needs no third party; a bundle of our modules is used if it
//! was made of the sources in `web/`; otherwise the page loads them one by one.
//! Not here: HTTP (`server/http/page`); building of the bundle (`bundle.js`, `make ui`).

mod preload;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::{EmbeddedFile, RustEmbed};
use sha2::{Digest as _, Sha256};

/// Our sources; builds with debug assertions read them from the checkout.
#[derive(RustEmbed)]
#[folder = "web/"]
struct Sources;

/// Output of `make ui`, or nothing. A file replaces the source of the same name.
#[derive(RustEmbed)]
#[folder = "build/"]
struct Bundle;

/// Hexadecimal digits of the content hash in paths.
const HASH_DIGITS: usize = 16;
/// The bundle without which only the plain page works.
const BUNDLE: &str = "lib/ui.js";
const SCRIPT: &str = "app.js";
/// Hash of the sources that the bundle of our modules was made of (`bundle.js`).
const SOURCES_HASH: &str = "sources.txt";
/// Bundles of third parties, which depend on no source.
const THIRD_PARTIES: &str = "lib/";
const GZIP_LEVEL: u32 = 9;

/// One file, as it is sent.
pub struct File {
    /// Media type, with the character set of texts.
    pub content_type: &'static str,
    /// The whole content, uncompressed.
    pub bytes: Bytes,
    /// The file compressed by gzip, if that is shorter.
    pub gzip: Option<Bytes>,
}

/// All files of the interface, and its page.
pub struct Files {
    hash: String,
    files: BTreeMap<String, File>,
    page: String,
    is_bundled: bool,
}

impl Files {
    /// Reads, hashes and compresses the embedded files: some 50 ms of CPU time, so once per process.
    pub fn load() -> Files {
        let mut found = read::<Sources>();
        let bundle = read::<Bundle>();
        let is_bundled = bundle.contains_key(BUNDLE);
        if is_bundled {
            overlay(&mut found, bundle);
        }
        Files::of(found, is_bundled)
    }

    fn of(mut found: BTreeMap<String, Bytes>, is_bundled: bool) -> Files {
        let template = if is_bundled { "index.html" } else { "plain.html" };
        let template = found.get(template).cloned().unwrap_or_default();
        found.retain(|path, _| !path.ends_with(".html"));
        let hash = hash_of(&found);
        let scripts = if is_bundled { preload::modules(SCRIPT, &found) } else { Vec::new() };
        let page = fill(&String::from_utf8_lossy(&template), &hash, &scripts);
        let files = found.into_iter().map(|(path, bytes)| {
            let content_type = content_type(&path);
            let gzip = gzip(&bytes);
            (path, File { content_type, bytes, gzip })
        });
        Files { hash, files: files.collect(), page, is_bundled }
    }

    /// Returns the file at `path`, which is relative to `ui/HASH/`.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Returns the content hash of all files, part of their addresses.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the document of every page, with addresses relative to one level below the root.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// Returns true if the whole interface is there, false for the plain page.
    pub fn is_bundled(&self) -> bool {
        self.is_bundled
    }
}

/// Files of a table by path, but for hidden ones.
fn read<Table: RustEmbed>() -> BTreeMap<String, Bytes> {
    let named = Table::iter().filter(|path| !path.starts_with('.'));
    named.filter_map(|path| Some((path.to_string(), bytes_of(Table::get(&path)?)))).collect()
}

fn bytes_of(file: EmbeddedFile) -> Bytes {
    match file.data {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    }
}

/// Replaces sources by their built bundle, or by third parties alone if the sources have changed since.
fn overlay(sources: &mut BTreeMap<String, Bytes>, mut bundle: BTreeMap<String, Bytes>) {
    let bundled_hash = bundle.remove(SOURCES_HASH);
    if bundled_hash.is_none_or(|hash| hash != hash_of(sources)) {
        bundle.retain(|path, _| path.starts_with(THIRD_PARTIES) || !is_module(path));
    }
    sources.extend(bundle);
}

/// Returns true for scripts and styles.
fn is_module(path: &str) -> bool {
    matches!(path.rsplit_once('.'), Some((_, "js" | "css")))
}

/// Hash of all paths and contents; lengths keep apart what would be equal when joined.
fn hash_of(files: &BTreeMap<String, Bytes>) -> String {
    let mut hasher = Sha256::new();
    for (path, bytes) in files {
        hasher.update((path.len() as u64).to_le_bytes());
        hasher.update(path);
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    let mut hash = String::new();
    for byte in hasher.finalize() {
        // Writing to a string does not fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash.truncate(HASH_DIGITS);
    hash
}

/// Puts addresses into the document.
fn fill(template: &str, hash: &str, scripts: &[String]) -> String {
    let links =
        scripts.iter().map(|path| format!("<link rel=\"modulepreload\" href=\"ui/{hash}/{path}\">\n"));
    template.replace("<!-- preload -->\n", &links.collect::<String>()).replace("{hash}", hash)
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn gzip(bytes: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL));
    encoder.write_all(bytes).ok()?;
    let packed = encoder.finish().ok()?;
    (packed.len() < bytes.len()).then(|| Bytes::from(packed))
}
