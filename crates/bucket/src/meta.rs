//! Check of a `meta.json` in the bucket, before anything else of its block is read.

use chronolith_format::block::meta::{BlockMeta, META_BYTES_MAX, Ulid};
use chronolith_format::bucket::mimir::ThanosMeta;

/// Reason why the blocks of a listing do not have a block with a `meta.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Queries do not read such blocks.
    LeftOut(String),
    /// `meta.json` is damaged, or of a later version: queries of its time fail.
    Damaged(String),
}

/// Decodes the `meta.json` of the block `ulid`, and its Thanos section. The error is the reason why it cannot
/// be used.
///
/// # Errors
/// If it is too long, damaged, or of another block.
pub fn decode_meta(ulid: Ulid, text: &[u8]) -> Result<(BlockMeta, Option<ThanosMeta>), String> {
    if text.len() > META_BYTES_MAX {
        return Err(format!("{} bytes, expected at most {META_BYTES_MAX}", text.len()));
    }
    let meta = BlockMeta::decode(text).map_err(|error| error.to_string())?;
    if meta.ulid != ulid {
        return Err(format!("describes block {}", meta.ulid));
    }
    let thanos = ThanosMeta::of(&meta).map_err(|error| error.to_string())?;
    Ok((meta, thanos))
}

/// Returns the reason why queries leave out a block with this Thanos section; `None` if they read it.
#[must_use]
pub fn reason_left_out(thanos: Option<&ThanosMeta>) -> Option<String> {
    let downsampled = thanos.filter(|thanos| thanos.is_downsampled())?;
    Some(format!("downsampled by Thanos to {} ms", downsampled.downsample.resolution))
}

/// Decodes the `meta.json` of a block that queries read, and its Thanos section.
///
/// # Errors
/// As [`decode_meta`], and if queries leave it out.
pub(crate) fn decode_read_meta(ulid: Ulid, text: &[u8]) -> Result<(BlockMeta, Option<ThanosMeta>), Unread> {
    let (meta, thanos) = decode_meta(ulid, text).map_err(Unread::Damaged)?;
    match reason_left_out(thanos.as_ref()) {
        Some(why) => Err(Unread::LeftOut(why)),
        None => Ok((meta, thanos)),
    }
}
