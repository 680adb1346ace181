//! Metadata log: its file, and frames of metadata entries.
//!
//! Invariant: a frame has entries of one tenant.
//! Not here: writing and reading of the file (`frame_log`), the entries in memory (the parent), bytes
//! (`format::head::metadata`).

use chronolith_base::DecodeError;
use chronolith_format::head::metadata::{
    EntriesReader, FILE_HEADER_BYTES, FileHeader, KIND_ENTRIES, put_entry, put_tenant,
};
use chronolith_format::parse_store_name;
use chronolith_format::store_name;
use chronolith_model::{MetadataEntry, StoreId};

use crate::frame_log::copies::{CopyHeader, LogFormat};
use crate::frame_log::frames::LogFrames;

/// The format of the file.
pub(crate) const FORMAT: LogFormat = LogFormat {
    content: "metadata",
    entries: "metadata",
    names: ["metadata.log", "metadata.mirror"],
    header_bytes: FILE_HEADER_BYTES,
    version_field: "metadata version",
    decode_header: |bytes| {
        FileHeader::decode(bytes).map(|FileHeader { key, is_mirrored }| CopyHeader { key, is_mirrored })
    },
    encode_header: |key| FileHeader { key, is_mirrored: true }.encode().to_vec(),
    entry_kind: KIND_ENTRIES,
    entry_count,
    draws_key_at_open: true,
};

/// Puts entries of `store` into frames.
pub(super) fn put<'a>(
    frames: &mut LogFrames,
    store: &StoreId,
    entries: impl Iterator<Item = &'a MetadataEntry>,
) {
    frames.put(
        |payload| put_tenant(&store_name(store), payload),
        |payload| entries.for_each(|entry| put_entry(entry, payload)),
    );
}

/// Calls `keep` with the entries of a frame; the error text is for operators.
pub(super) fn load(
    kind: u8,
    payload: &[u8],
    mut keep: impl FnMut(&StoreId, &MetadataEntry),
) -> Result<(), String> {
    if kind != KIND_ENTRIES {
        return Ok(());
    }
    let mut entries = EntriesReader::decode(payload).map_err(|error| error.to_string())?;
    let tenant = parse_store_name(entries.tenant).map_err(|error| error.to_string())?;
    while let Some(entry) = entries.next_entry().map_err(|error| error.to_string())? {
        keep(&tenant, &entry.to_entry());
    }
    Ok(())
}

/// Number of entries of a frame, all of which are read.
///
/// # Errors
/// [`DecodeError`] if one cannot be read.
fn entry_count(kind: u8, payload: &[u8]) -> Result<u64, DecodeError> {
    if kind != KIND_ENTRIES {
        return Ok(0);
    }
    let mut entries = EntriesReader::decode(payload)?;
    let mut count = 0;
    while entries.next_entry()?.is_some() {
        count += 1;
    }
    Ok(count)
}
