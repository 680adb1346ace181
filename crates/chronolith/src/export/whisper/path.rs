//! Names of whisper files by path, as carbon 1.1.10 chooses them.
//!
//! Invariants: names are relative, have no `..`, and differ for different paths.
//! Not here: paths of files that are imported (`chronolith-import`).

use sha2::{Digest as _, Sha256};

/// Bytes of the name of a file or directory at most.
const NAME_BYTES_MAX: usize = 255;
const EXTENSION: &str = ".wsp";
/// Hexadecimal digits of the hash that name a directory.
const DIR_DIGITS: usize = 3;

/// Returns the position of the file of a canonical path.
///
/// # Errors
/// The reason why the path can have no file.
pub(super) fn file_of(path: &str) -> Result<String, &'static str> {
    if path.contains('/') || path.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("the path has a slash or a control character");
    }
    let relative = match path.contains(';') {
        true => tagged(path),
        false if path.split('.').any(str::is_empty) => return Err("the path has an empty node"),
        false => path.replace('.', "/") + EXTENSION,
    };
    match relative.split('/').all(|name| name.len() <= NAME_BYTES_MAX) {
        true => Ok(relative),
        false => Err("a name would be longer than 255 bytes"),
    }
}

fn tagged(path: &str) -> String {
    let hash = Sha256::digest(path.as_bytes());
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = digits.split_at(DIR_DIGITS);
    let (second, _) = rest.split_at(DIR_DIGITS);
    format!("_tagged/{first}/{second}/{}{EXTENSION}", path.replace('.', "_DOT_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, want: Result<&str, &'static str>) {
        assert_eq!(file_of(path).as_deref().map_err(|reason| *reason), want, "{path}");
    }

    #[test]
    fn names_are_those_of_carbon() {
        check("a.b.c", Ok("a/b/c.wsp"));
        // As `carbon.util.TaggedSeries.encode` of carbon 1.1.10 returns it.
        check("disk.used;dc=x;host=a.b", Ok("_tagged/ab3/abb/disk_DOT_used;dc=x;host=a_DOT_b.wsp"));
        check("a/../../b", Err("the path has a slash or a control character"));
        check("a..b", Err("the path has an empty node"));
        check("", Err("the path has an empty node"));
        check(&"x".repeat(252), Err("a name would be longer than 255 bytes"));
    }
}
