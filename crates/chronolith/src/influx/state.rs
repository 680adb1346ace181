//! Record of a migration on disk, so that a run continues where one before it ended.
//!
//! Invariants: what the record names as done is durable in the target; a record is of one source and one
//! target.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use chronolith_base::{Env, crc};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A record, with the names that it is of.
#[derive(Debug, Serialize, serde::Deserialize)]
struct Record<T> {
    source: String,
    target: String,
    done: T,
}

/// File of the record.
pub(crate) struct StateFile {
    env: Env,
    path: PathBuf,
    source: String,
    target: String,
}

impl StateFile {
    /// The file at `path`; without one, a file in the working directory whose name follows from source and
    /// target.
    pub(crate) fn new(env: &Env, path: Option<&str>, source: String, target: String) -> StateFile {
        let path = path.map_or_else(
            || {
                let sum = crc::crc32c(format!("{source}\n{target}").as_bytes());
                PathBuf::from(format!("chronolith-import-{sum:08x}.json"))
            },
            PathBuf::from,
        );
        // The directory is synced, so it needs a name.
        let path = if path.parent() == Some(Path::new("")) { Path::new(".").join(path) } else { path };
        StateFile { env: env.clone(), path, source, target }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the record; `None` if there is none.
    ///
    /// # Errors
    /// If the record is of another source or target, or cannot be read.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> anyhow::Result<Option<T>> {
        if !self.env.disk.exists(&self.path) {
            return Ok(None);
        }
        let path = self.path.display();
        let bytes = self.env.disk.read(&self.path).with_context(|| format!("reading {path}"))?;
        let record: Record<T> = serde_json::from_slice(&bytes)
            .with_context(|| format!("{path} is no record of an import; remove it to start again"))?;
        if record.source != self.source || record.target != self.target {
            bail!(
                "{path} is the record of an import from {} to {}; name another file with --state",
                record.source,
                record.target
            );
        }
        Ok(Some(record.done))
    }

    /// Replaces the record.
    pub(crate) fn save(&self, done: &impl Serialize) -> anyhow::Result<()> {
        let record = Record { source: self.source.clone(), target: self.target.clone(), done };
        let bytes = serde_json::to_vec(&record)?;
        let written = self.env.disk.write_atomic(&self.path, &bytes);
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_one_source_and_target() {
        let (env, ..) = Env::fake(0, 1);
        env.disk.create_dir_all(Path::new("/d")).expect("a directory");
        let file = |source: &str| StateFile::new(&env, Some("/d/s.json"), source.to_owned(), "t".to_owned());
        assert_eq!(file("a").load::<u64>().expect("no record"), None);
        file("a").save(&7u64).expect("a record");
        assert_eq!(file("a").load::<u64>().expect("a record"), Some(7));
        assert!(file("b").load::<u64>().is_err());
    }

    #[test]
    fn default_names_differ() {
        let (env, ..) = Env::fake(0, 1);
        let path =
            |source: &str| StateFile::new(&env, None, source.to_owned(), "t".to_owned()).path().to_owned();
        assert_ne!(path("a"), path("b"));
    }
}
