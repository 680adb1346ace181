//! Names of series by the positions of files below the directory of whisper.
//!
//! A path is the directories and the name without `.wsp`, joined by dots. A file with tags is at
//! `_tagged/<hash>/<hash>/NAME.wsp`, its name the path with `_DOT_` for dots.
//! Not here: the syntax of tags (`ingest::carbon`).

use chronolith_ingest::carbon::{LINE_BYTES_MAX, NODE_BYTES_MAX, canonical_path, parse_key};
use chronolith_model::kind::is_reserved;
use chronolith_model::{Labels, LabelsBuilder, SeriesKey, WordKind};

/// Extension of whisper files, with its dot.
pub(crate) const EXTENSION: &str = ".wsp";
/// Directory of files with tags.
const TAGGED_DIR: &str = "_tagged";
/// Text for a dot in the names of files with tags.
const DOT: &str = "_DOT_";
/// Digits of a hash that carbon uses as a name if it is set to.
const HASH_DIGITS: usize = 64;

/// Reason why a file has no series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathReject {
    /// carbon ran with `TAG_HASH_FILENAMES`.
    HashedName,
    /// Only dots.
    Empty,
    /// Longer than carbon's inputs take.
    TooLong,
    /// A control character.
    ControlCharacter,
    /// A tag with a name of our own.
    ReservedTag,
    /// Another file has the same series.
    Duplicate,
    /// A blank, which ends the path in a line of carbon.
    Blank,
}

impl PathReject {
    /// Returns the reason as text.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            PathReject::HashedName => {
                "the name is a hash (TAG_HASH_FILENAMES), which does not tell the path and its tags"
            }
            PathReject::Empty => "the path is empty",
            PathReject::TooLong => "the path or a node of it is too long",
            PathReject::ControlCharacter => "the path has a control character",
            PathReject::ReservedTag => "a tag has a reserved name",
            PathReject::Duplicate => "another file has the same path",
            PathReject::Blank => "the path has a blank, so that no line can have it: use --data-dir",
        }
    }
}

/// Returns the canonical path and the labels of the file at `relative`, a path with `/` below the directory
/// of whisper. `builder` is cleared.
pub(crate) fn series_of(relative: &str, builder: &mut LabelsBuilder) -> Result<(String, Labels), PathReject> {
    let path = canonical_path(&sent_path(relative)?);
    check(&path)?;
    builder.clear();
    let key = SeriesKey { raw: path.as_bytes(), field: &[], kind: WordKind::Float };
    // The only other refusal is for bytes that are not UTF-8.
    parse_key(key, builder).map_err(|_| PathReject::Empty)?;
    if builder.iter().any(|(name, _)| is_reserved(name)) {
        return Err(PathReject::ReservedTag);
    }
    Ok((path, builder.finish()))
}

/// Returns the path as it was sent to carbon.
fn sent_path(relative: &str) -> Result<String, PathReject> {
    let stem = relative.strip_suffix(EXTENSION).unwrap_or(relative);
    let Some(below) = stem.strip_prefix(TAGGED_DIR).and_then(|below| below.strip_prefix('/')) else {
        return Ok(stem.replace('/', "."));
    };
    let name = below.rsplit('/').next().unwrap_or(below);
    let is_hash = name.len() == HASH_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash {
        return Err(PathReject::HashedName);
    }
    Ok(name.replace(DOT, "."))
}

fn check(path: &str) -> Result<(), PathReject> {
    let name = path.split(';').next().unwrap_or(path);
    if path.len() > LINE_BYTES_MAX || name.split('.').any(|node| node.len() > NODE_BYTES_MAX) {
        return Err(PathReject::TooLong);
    }
    if path.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(PathReject::ControlCharacter);
    }
    if name.is_empty() { Err(PathReject::Empty) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(relative: &str, want: &str) {
        let found = match series_of(relative, &mut LabelsBuilder::new()) {
            Ok((path, labels)) => {
                let pairs: Vec<String> =
                    labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("{path} {}", pairs.join(" "))
            }
            Err(reject) => format!("{reject:?}"),
        };
        assert_eq!(found, want, "{relative}");
    }

    #[test]
    fn directories_are_nodes() {
        check("a/b/c.wsp", "a.b.c __name__=a.b.c");
        check("one.wsp", "one __name__=one");
        check("a/b.c.wsp", "a.b.c __name__=a.b.c");
        check("a//b/.wsp", "a.b __name__=a.b");
        check("_taggedx/a.wsp", "_taggedx.a __name__=_taggedx.a");
    }

    #[test]
    fn tagged_files_have_tags() {
        check(
            "_tagged/0ab/fe1/disk_DOT_used;host=a_DOT_b;dc=x.wsp",
            "disk.used;dc=x;host=a.b __name__=disk.used dc=x host=a.b",
        );
        check("_tagged/0ab/fe1/plain_DOT_x.wsp", "plain.x __name__=plain.x");
    }

    #[test]
    fn files_without_a_series_are_refused() {
        check(&format!("_tagged/0ab/fe1/{}.wsp", "0a".repeat(32)), "HashedName");
        check("./..wsp", "Empty");
        check(&format!("a/{}.wsp", "x".repeat(1025)), "TooLong");
        check("a/\u{7f}.wsp", "ControlCharacter");
        check("_tagged/0ab/fe1/m;__kind__=x.wsp", "ReservedTag");
    }
}
