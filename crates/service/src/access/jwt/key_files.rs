//! Files of key sets, read again when they change.
//!
//! Invariants: a file that cannot be used leaves its keys in use as they are.
//! Not here: verification (`jwt`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_base::{Disk, Env};

use super::keys::KeySet;

/// Bytes of a file.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Key sets by file.
#[derive(Default)]
pub(crate) struct KeyFiles {
    files: HashMap<PathBuf, KeyFile>,
}

struct KeyFile {
    /// Text at the last reading, good or bad, or the reason why there was none.
    text: Result<Vec<u8>, String>,
    is_good: bool,
    keys: Arc<KeySet>,
}

impl KeyFiles {
    /// Reads the files of `paths` whose text has changed, and forgets others. Returns true if other keys are
    /// in use.
    ///
    /// # Errors
    /// Text for the operator: files and reasons, once for each text of a file. Other files are read
    /// nevertheless.
    pub(crate) fn read<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a Path> + Clone,
        env: &Env,
    ) -> Result<bool, String> {
        self.files.retain(|path, _| paths.clone().any(|wanted| wanted == path));
        let mut is_changed = false;
        let mut errors = Vec::new();
        for path in paths {
            match self.read_one(path, env) {
                Ok(changed) => is_changed |= changed,
                Err(why) => errors.push(of_file(path, &why)),
            }
        }
        if errors.is_empty() { Ok(is_changed) } else { Err(errors.join("; ")) }
    }

    fn read_one(&mut self, path: &Path, env: &Env) -> Result<bool, String> {
        let text = env.disk.read(path).map_err(|error| error.to_string());
        let last = self.files.get(path);
        if last.is_some_and(|last| last.text == text) {
            return Ok(false);
        }
        let parsed = text.clone().and_then(|text| parse(&text));
        let is_good = parsed.is_ok();
        let previous = last.map(|last| last.keys.clone()).unwrap_or_default();
        let result = parsed.as_ref().map(|_| true).map_err(Clone::clone);
        let keys = parsed.map_or(previous, Arc::new);
        self.files.insert(path.to_owned(), KeyFile { text, is_good, keys });
        result
    }

    /// Returns true if each file could be used when it was last read.
    pub(crate) fn is_good(&self) -> bool {
        self.files.values().all(|file| file.is_good)
    }

    /// Keys of a file; none if it could not be read.
    pub(super) fn keys(&self, path: &Path) -> Arc<KeySet> {
        self.files.get(path).map(|file| file.keys.clone()).unwrap_or_default()
    }
}

/// Checks a file of keys.
///
/// # Errors
/// Path, and the reason why the file cannot be used.
pub(crate) fn check(path: &Path, disk: &dyn Disk) -> Result<(), String> {
    let text = disk.read(path).map_err(|error| error.to_string());
    text.and_then(|text| parse(&text)).map(drop).map_err(|why| of_file(path, &why))
}

fn parse(text: &[u8]) -> Result<KeySet, String> {
    match text.len() {
        0..=FILE_BYTES_MAX => KeySet::parse(text),
        bytes => Err(format!("{bytes} bytes, at most {FILE_BYTES_MAX} are allowed")),
    }
}

fn of_file(path: &Path, why: &str) -> String {
    format!("JWKS file {}: {why}", path.display())
}
