//! Numbered snapshots: objects of one folder, each created once with the number after the newest one; and the
//! hint next to them, which names a recent one.
//!
//! Invariant: names sort as numbers do.
//! Not here: creating and finding them (`bucket::snapshots`), the content of each kind.

use std::borrow::Cow;
use std::fmt::Display;

use chronolith_base::DecodeError;
use chronolith_base::crc::crc32c;

pub(super) mod header;
#[cfg(test)]
mod tests;

/// Digits of the number of a snapshot in its name.
const NUMBER_DIGITS: usize = 20;

/// Number of a recent snapshot, as the hint names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Followed by its checksum, so that it proves that the snapshot was created.
    Checked(u64),
    /// Written by a version without checksums.
    Unchecked(u64),
}

/// Number, writer and time of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Number: one more than in the snapshot before; 0 before the first one.
    pub number: u64,
    /// Random name of the process that wrote it, by which a writer recognizes its own snapshot.
    pub writer: [u8; 16],
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

/// Position of a snapshot in a bucket, to which its object is bound: bytes of another one are damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotKey<'a> {
    /// Key of the folder of the tenant or store, without a slash at its end.
    pub folder: &'a str,
    /// Number of the snapshot.
    pub number: u64,
}

impl SnapshotKey<'_> {
    /// Checksum of the folder, as the header of a snapshot has it.
    #[must_use]
    pub(super) fn folder_crc(&self) -> u32 {
        crc32c(self.folder.as_bytes())
    }
}

/// Content of a numbered snapshot.
pub trait NumberedSnapshot: Clone + Send + Sync + 'static {
    /// Folder of the snapshots, with a slash at its end; of kinds with several series in one folder, the
    /// start of their folders.
    const FOLDER: &'static str;
    /// Name of the content in messages.
    const WHAT: &'static str;
    /// Reason why a snapshot cannot be written.
    type EncodeError: Display;

    /// The snapshot before the first one.
    fn empty() -> Self;

    /// Number, writer and time of the snapshot.
    fn stamp(&self) -> Stamp;

    /// Replaces number, writer and time.
    fn set_stamp(&mut self, stamp: Stamp);

    /// Appends the object, for the folder with this key.
    ///
    /// # Errors
    /// The content is beyond the limits of readers.
    fn encode_object(&self, folder: &str, out: &mut Vec<u8>) -> Result<(), Self::EncodeError>;

    /// Decodes the object of snapshot `key`.
    ///
    /// # Errors
    /// [`DecodeError`] if it is damaged, of a later version or another snapshot. An object without a folder,
    /// as earlier versions wrote it, may belong to another folder's snapshot with the same number.
    fn decode_object(bytes: &[u8], key: SnapshotKey<'_>) -> Result<Self, DecodeError>;

    /// Names of the snapshots of which a folder has one series.
    #[must_use]
    fn names() -> SnapshotNames {
        SnapshotNames::new(Self::FOLDER)
    }

    /// Name of snapshot `number`, within the folder of its store or tenant.
    #[must_use]
    fn name_of(number: u64) -> String {
        Self::names().name_of(number)
    }

    /// Returns the number of the snapshot with this name; `None` for other objects.
    #[must_use]
    fn number_in(object_name: &str) -> Option<u64> {
        Self::names().number_in(object_name)
    }
}

/// Names of one series of snapshots: its folder, and the number with all digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotNames {
    folder: Cow<'static, str>,
}

impl SnapshotNames {
    /// Names within `folder`, which has a slash at its end.
    #[must_use]
    pub fn new(folder: impl Into<Cow<'static, str>>) -> SnapshotNames {
        SnapshotNames { folder: folder.into() }
    }

    /// Folder of the snapshots, with a slash at its end.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Name of snapshot `number`, within the folder of its store or tenant.
    #[must_use]
    pub fn name_of(&self, number: u64) -> String {
        format!("{}{number:0NUMBER_DIGITS$}", self.folder)
    }

    /// Returns the number of the snapshot with this name; `None` for other objects.
    #[must_use]
    pub fn number_in(&self, object_name: &str) -> Option<u64> {
        let digits = object_name.strip_prefix(&*self.folder)?;
        let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { digits.parse().ok() } else { None }
    }

    /// Content of the hint that names snapshot `number`.
    #[must_use]
    pub fn encode_hint(&self, number: u64) -> String {
        format!("{number:0NUMBER_DIGITS$} {:08x}", crc32c(self.name_of(number).as_bytes()))
    }

    /// Returns the number in a hint; `None` for damage.
    #[must_use]
    pub fn decode_hint(&self, content: &[u8]) -> Option<Hint> {
        let text = std::str::from_utf8(content).ok()?;
        let number_in = |digits: &str| self.number_in(&format!("{}{digits}", self.folder));
        match text.split_once(' ') {
            None => number_in(text).map(Hint::Unchecked),
            Some((digits, _)) => {
                number_in(digits).filter(|number| text == self.encode_hint(*number)).map(Hint::Checked)
            }
        }
    }
}
