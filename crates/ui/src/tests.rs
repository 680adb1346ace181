//! Hash, overlay, page and imports of a table of files.

use std::collections::BTreeMap;
use std::io::Read as _;

use bytes::Bytes;

use super::{Files, content_type, hash_of, overlay, preload};

fn table(files: &[(&str, &str)]) -> BTreeMap<String, Bytes> {
    let owned = files.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from((*text).to_owned())));
    owned.collect()
}

const PAGE: (&str, &str) = ("index.html", "<!-- preload -->\n<script src=\"ui/{hash}/app.js\"></script>");

#[test]
fn the_page_names_all_static_imports_under_the_hash_of_all_files() {
    let sources = [
        PAGE,
        (
            "app.js",
            "import { a } from \"./pages/a.js\";\nimport {\n  b,\n} from \"./lib/ui.js\";\nimport(\"./lazy.js\");",
        ),
        ("pages/a.js", "export { c } from \"../c.js\";\nimport { x } from \"./absent.js\";"),
        ("c.js", "import { app } from \"./app.js\";"),
        ("lazy.js", ""),
        ("lib/ui.js", "import z from \"./lazy.js\";"),
    ];
    let files = Files::of(table(&sources), true);
    let hash = files.hash();
    let link = |path| format!("<link rel=\"modulepreload\" href=\"ui/{hash}/{path}\">\n");
    let links: String = ["app.js", "pages/a.js", "lib/ui.js", "c.js"].map(link).concat();
    assert_eq!(files.page(), format!("{links}<script src=\"ui/{hash}/app.js\"></script>"));
    assert!(files.get("index.html").is_none(), "the page is no file of its own");
}

#[test]
fn every_byte_and_name_changes_the_hash() {
    let hash = |files: &[(&str, &str)]| Files::of(table(files), false).hash().to_owned();
    let first = hash(&[("a.js", "one"), ("b.js", "two")]);
    assert_eq!(first.len(), 16);
    assert_eq!(first, hash(&[("a.js", "one"), ("b.js", "two")]));
    for other in [
        [("a.js", "onf"), ("b.js", "two")],
        [("a.js", "onet"), ("b.js", "wo")],
        [("c.js", "one"), ("b.js", "two")],
    ] {
        assert_ne!(first, hash(&other), "{other:?}");
    }
}

#[test]
fn copies_are_gzip_of_the_same_bytes_where_that_is_shorter() {
    let text = "0123456789".repeat(100);
    let files = Files::of(table(&[("long.css", &text), ("short.css", "a")]), false);
    let packed = files.get("long.css").and_then(|file| file.gzip.clone()).expect("shorter");
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).expect("gzip");
    assert_eq!(unpacked, text);
    assert!(files.get("short.css").is_some_and(|file| file.gzip.is_none()));
}

#[test]
fn types_follow_the_ending() {
    for (path, want) in [
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.b/c.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("LICENSES", "text/plain; charset=utf-8"),
    ] {
        assert_eq!(content_type(path), want, "{path}");
    }
}

#[test]
fn imports_lead_to_files_of_the_sources() {
    assert_eq!(preload::modules("absent.js", &BTreeMap::new()), ["absent.js"]);
    let files = Files::load();
    assert!(files.page().contains(files.hash()), "{}", files.page());
    assert!(!files.page().contains("{hash}"), "{}", files.page());
}

/// A bundle of our modules replaces them if it was made of these very sources; third parties and licences
/// always do.
#[test]
fn a_bundle_of_other_sources_is_not_used() {
    let sources =
        [("app.js", "import"), ("app.css", "a{}"), ("lib/ui.js", "entry"), ("query/graph.js", "graph")];
    let hash = hash_of(&table(&sources));
    let texts = |stamp: Option<&str>, sources: &[(&str, &str)]| {
        let mut bundle =
            table(&[("app.js", "all"), ("app.css", "b{}"), ("lib/ui.js", "ui"), ("licences.txt", "MIT")]);
        bundle.extend(stamp.map(|stamp| ("sources.txt".to_owned(), Bytes::from(stamp.to_owned()))));
        let mut found = table(sources);
        overlay(&mut found, bundle);
        assert!(!found.contains_key("sources.txt"), "the hash is no file of the interface");
        let text = |path: &str| String::from_utf8_lossy(&found[path]).into_owned();
        ["app.js", "app.css", "lib/ui.js", "licences.txt", "query/graph.js"].map(text)
    };
    assert_eq!(texts(Some(&hash), &sources), ["all", "b{}", "ui", "MIT", "graph"]);
    assert_eq!(texts(Some("0123456789abcdef"), &sources), ["import", "a{}", "ui", "MIT", "graph"]);
    assert_eq!(texts(Some(""), &sources), ["import", "a{}", "ui", "MIT", "graph"]);
    assert_eq!(texts(None, &sources), ["import", "a{}", "ui", "MIT", "graph"]);
    let mut changed = sources;
    changed[3].1 = "graph, changed";
    assert_eq!(texts(Some(&hash), &changed), ["import", "a{}", "ui", "MIT", "graph, changed"]);
    changed[3] = ("query/graph2.js", "graph");
    let with_both = [&sources[..], &changed[3..]].concat();
    assert_eq!(texts(Some(&hash), &with_both)[0], "import", "a file more");
}

/// The hash of `bundle.js` equals the crate's: a bundle that was just built is used.
#[test]
fn the_script_and_the_crate_have_one_hash_of_the_sources() {
    let bundle = super::read::<super::Bundle>();
    let Some(stamp) = bundle.get("sources.txt") else { return };
    let sources = super::read::<super::Sources>();
    let page = Files::load();
    let is_used = *stamp == hash_of(&sources);
    assert_eq!(is_used, !page.page().contains("query/graph.js"), "{}", page.page());
}

/// The plain page is complete without a bundle.
#[test]
fn without_a_bundle_there_is_a_plain_page() {
    let files = Files::of(table(&[PAGE, ("plain.html", "<link href=\"ui/{hash}/plain.css\">")]), false);
    assert!(!files.is_bundled());
    assert_eq!(files.page(), format!("<link href=\"ui/{}/plain.css\">", files.hash()));
}
