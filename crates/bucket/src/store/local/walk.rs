//! Listing of a bucket directory in the order of keys, as object storage has it.
//!
//! Invariants: keys ascend bytewise, so that a listing can go on after any key; directories without objects
//! are not listed.

use std::io;

use chronolith_base::disk::DirEntry;
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta};

use super::files::{Files, TEMPORARY_DIR};

/// Objects of one page.
const PAGE_OBJECTS: usize = 1000;

/// Part of a listing.
pub(super) struct Page {
    pub(super) objects: Vec<ObjectMeta>,
    /// Key after which the next page begins; `None` at the end.
    pub(super) next_after: Option<String>,
}

/// Objects below `prefix` with keys after `after`.
pub(super) fn page(files: &Files, prefix: &str, after: &str) -> io::Result<Page> {
    let mut objects = Vec::new();
    let start = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    visit(files, &start, after, PAGE_OBJECTS, &mut objects)?;
    let is_full = objects.len() >= PAGE_OBJECTS;
    let last = objects.last().map(|object| object.location.to_string());
    Ok(Page { objects, next_after: last.filter(|_| is_full) })
}

/// Objects and directories directly below `prefix`.
pub(super) fn directory(files: &Files, prefix: &str) -> io::Result<ListResult> {
    let start = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let mut listed =
        ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
    for entry in entries(files, &start)? {
        let key = format!("{start}{}", entry.name);
        let Ok(location) = Path::parse(&key) else { continue };
        if entry.is_dir {
            let mut first = Vec::new();
            visit(files, &format!("{key}/"), "", 1, &mut first)?;
            if !first.is_empty() {
                listed.common_prefixes.push(location);
            }
        } else {
            listed.objects.push(object(location, &entry));
        }
    }
    Ok(listed)
}

/// Appends objects until there are `count_max`. `start` is empty or ends with a slash.
fn visit(
    files: &Files,
    start: &str,
    after: &str,
    count_max: usize,
    objects: &mut Vec<ObjectMeta>,
) -> io::Result<()> {
    for entry in entries(files, start)? {
        if objects.len() >= count_max {
            break;
        }
        let key = format!("{start}{}", entry.name);
        if entry.is_dir {
            let below = format!("{key}/");
            if below.as_str() >= after || after.starts_with(&below) {
                visit(files, &below, after, count_max, objects)?;
            }
        } else if key.as_str() > after
            && let Ok(location) = Path::parse(&key)
        {
            objects.push(object(location, &entry));
        }
    }
    Ok(())
}

/// Entries of a directory in the order of the keys below: a directory sorts as its name with a slash.
fn entries(files: &Files, start: &str) -> io::Result<Vec<DirEntry>> {
    let dir = match start.strip_suffix('/') {
        None => files.root().to_owned(),
        Some(key) => files.path(key)?,
    };
    let mut entries = match files.env().disk.list(&dir) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            // An absent root is a file system that is not mounted, not an empty bucket.
            return if start.is_empty() { Err(error) } else { Ok(Vec::new()) };
        }
        Err(error) => return Err(error),
    };
    entries.retain(|entry| !(start.is_empty() && entry.name == TEMPORARY_DIR));
    entries.sort_by(|a, b| sort_key(a).cmp(sort_key(b)));
    Ok(entries)
}

fn sort_key(entry: &DirEntry) -> impl Iterator<Item = u8> {
    entry.name.bytes().chain(entry.is_dir.then_some(b'/'))
}

fn object(location: Path, entry: &DirEntry) -> ObjectMeta {
    ObjectMeta { location, last_modified: Default::default(), size: entry.len, e_tag: None, version: None }
}
