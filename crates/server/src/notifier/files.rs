//! Content of files that a configuration names: credentials, certificates, and lists of targets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::Disk;
use chronolith_rules::glob;
use chronolith_rules::notifier::config::{Auth, FILE_BYTES_MAX, HeaderValue, HttpOptions, Source};

/// Content of files by path. It has no `Debug`: it may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Files(BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    /// Reads the files of credentials, headers, certificates and keys.
    pub(super) fn read(options: &HttpOptions, disk: &dyn Disk) -> Result<Files, String> {
        let mut files = Files::default();
        for source in sources(options) {
            if let Source::File(path) = source {
                let bytes = read_bounded(path, disk).map_err(|why| format!("{}: {why}", path.display()))?;
                files.0.insert(path.clone(), bytes);
            }
        }
        Ok(files)
    }

    /// Content of a source.
    pub(super) fn bytes<'a>(&'a self, source: &'a Source) -> &'a [u8] {
        match source {
            Source::Inline(secret) => secret.reveal().as_bytes(),
            Source::File(path) => self.0.get(path).map_or(&[], Vec::as_slice),
        }
    }

    /// Content of a source for a header: without spaces and line ends around the content of a file.
    pub(super) fn header_text<'a>(&'a self, source: &'a Source) -> &'a [u8] {
        match source {
            Source::Inline(_) => self.bytes(source),
            Source::File(_) => self.bytes(source).trim_ascii(),
        }
    }
}

fn sources(options: &HttpOptions) -> Vec<&Source> {
    let mut sources: Vec<&Source> = Vec::new();
    let tls = &options.tls;
    sources.extend([&tls.ca, &tls.cert, &tls.key].into_iter().flatten());
    match &options.auth {
        Auth::None => {}
        Auth::Basic { user, password } => sources.extend([user, password].into_iter().flatten()),
        Auth::Token { credentials, .. } => sources.extend(credentials),
    }
    for value in options.headers.iter().flat_map(|header| &header.values) {
        if let HeaderValue::Hidden(source) = value {
            sources.push(source);
        }
    }
    sources
}

/// Reads a file of at most [`FILE_BYTES_MAX`].
pub(super) fn read_bounded(path: &Path, disk: &dyn Disk) -> Result<Vec<u8>, String> {
    let len = disk.open_read(path).and_then(|file| file.len()).map_err(|error| error.to_string())?;
    if len > FILE_BYTES_MAX as u64 {
        return Err(format!("file has {len} bytes, at most {FILE_BYTES_MAX} are allowed"));
    }
    disk.read(path).map_err(|error| error.to_string())
}

/// Paths of the files that a pattern matches, ascending. A pattern without a match has none.
pub(super) fn matching_paths(pattern: &Path, disk: &dyn Disk) -> Vec<PathBuf> {
    let (Some(dir), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let entries = disk.list(dir).unwrap_or_default();
    let is_match = |name_of_entry: &str| glob::matches(name, name_of_entry) == Ok(true);
    let files = entries.into_iter().filter(|entry| !entry.is_dir && is_match(&entry.name));
    files.map(|entry| dir.join(entry.name)).collect()
}
