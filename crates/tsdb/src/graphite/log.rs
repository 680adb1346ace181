//! Graphite log: its file, and frames of events and meta tag rules.
//!
//! Invariant: a frame has entries of one tenant.
//! Not here: writing and reading of the file (`frame_log`), the entries in memory (the parent), bytes
//! (`format::graphite`).

use chronolith_base::DecodeError;
use chronolith_format::graphite::{
    EventsReader, FILE_HEADER_BYTES, KIND_EVENTS, KIND_META_TAGS, StoredEvent, StoredMetaTags, VERSION_FIELD,
    decode_header, decode_meta_tags, encode_header, put_event, put_events_start, put_meta_tags,
};
use chronolith_format::head::wal::FRAME_PAYLOAD_BYTES_MAX;
use chronolith_model::TenantId;
use chronolith_model::tenant::{ANNOTATION_FRAME_BYTES_MAX, META_TAG_RULES_MAX};

use crate::frame_log::copies::{CopyHeader, LogFormat};
use crate::frame_log::frames::{LogFrames, PAYLOAD_BYTES};

// The events before one that is as long as a limit may allow, and this one, are one frame, as all rules of a
// tenant are. A text of n bytes takes n + 24 of the limit, a rule without texts two bytes of the frame.
const _: () = assert!(
    PAYLOAD_BYTES + ANNOTATION_FRAME_BYTES_MAX + 2 * META_TAG_RULES_MAX + (1 << 10) < FRAME_PAYLOAD_BYTES_MAX
);

/// The format of the file.
pub(crate) const FORMAT: LogFormat = LogFormat {
    content: "events and meta tags",
    entries: "events",
    names: ["graphite.log", "graphite.mirror"],
    header_bytes: FILE_HEADER_BYTES,
    version_field: VERSION_FIELD,
    decode_header: |bytes| decode_header(bytes).map(|key| CopyHeader { key, is_mirrored: true }),
    encode_header: |key| encode_header(key).to_vec(),
    entry_kind: KIND_EVENTS,
    entry_count,
    draws_key_at_open: false,
};

/// Entry of a frame.
pub(super) enum Entry {
    /// The least id of the next event.
    NextId(u64),
    /// An event, as stored.
    Event(StoredEvent),
    /// All rules of the tenant, instead of earlier ones.
    MetaTags(Vec<StoredMetaTags>),
}

/// Puts an event into frames.
pub(super) fn put(frames: &mut LogFrames, tenant: &TenantId, next_id: u64, event: &StoredEvent) {
    frames.put(
        |payload| put_events_start(tenant.as_str(), next_id, payload),
        |payload| put_event(event, payload),
    );
}

/// Puts the next id of a tenant into a frame.
pub(super) fn put_next_id(frames: &mut LogFrames, tenant: &TenantId, next_id: u64) {
    frames.put(|payload| put_events_start(tenant.as_str(), next_id, payload), |_| ());
    frames.end_frame();
}

/// Puts all rules of a tenant into a frame.
pub(super) fn put_rules(frames: &mut LogFrames, tenant: &TenantId, rules: &[StoredMetaTags]) {
    let mut payload = Vec::new();
    put_meta_tags(tenant.as_str(), rules, &mut payload);
    frames.put_frame(KIND_META_TAGS, &payload);
}

/// Calls `keep` with the entries of a frame; the error text is for operators.
pub(super) fn load(kind: u8, payload: &[u8], mut keep: impl FnMut(&TenantId, Entry)) -> Result<(), String> {
    match kind {
        KIND_EVENTS => keep_events(payload, &mut keep),
        KIND_META_TAGS => {
            let (tenant, rules) = decode_meta_tags(payload).map_err(|error| error.to_string())?;
            keep(&stored(tenant)?, Entry::MetaTags(rules));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Calls `keep` with the events of a payload; the error text is for operators.
fn keep_events(payload: &[u8], keep: &mut impl FnMut(&TenantId, Entry)) -> Result<(), String> {
    let mut events = EventsReader::decode(payload).map_err(|error| error.to_string())?;
    let tenant = stored(events.tenant)?;
    keep(&tenant, Entry::NextId(events.next_id));
    while let Some(event) = events.next_event().map_err(|error| error.to_string())? {
        keep(&tenant, Entry::Event(event));
    }
    Ok(())
}

fn stored(tenant: &str) -> Result<TenantId, String> {
    TenantId::new(tenant).map_err(|error| error.to_string())
}

/// Number of entries of a frame, all of which are read.
///
/// # Errors
/// [`DecodeError`] if one cannot be read.
fn entry_count(kind: u8, payload: &[u8]) -> Result<u64, DecodeError> {
    match kind {
        KIND_EVENTS => {
            let mut events = EventsReader::decode(payload)?;
            let mut count = 0;
            while events.next_event()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
        KIND_META_TAGS => Ok(decode_meta_tags(payload)?.1.len() as u64),
        _ => Ok(0),
    }
}
