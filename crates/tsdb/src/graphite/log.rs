//! Graphite log: frames with events and meta tag rules in two copies with equal bytes, read at the start and
//! appended to.
//!
//! Invariant: a frame has entries of one tenant.
//! Not here: the choice between the copies (`frame_log::copies`), replacement after growth or a failure
//! (`base::append_file`), the entries in memory (the parent), bytes (`format::graphite`).

use std::path::Path;

use chronolith_base::{AppendFile, DecodeError, Env};
use chronolith_format::graphite::{
    EventsReader, FILE_HEADER_BYTES, KIND_EVENTS, KIND_META_TAGS, StoredEvent, StoredMetaTags, VERSION_FIELD,
    decode_header, decode_meta_tags, encode_header, put_event, put_events_start, put_meta_tags,
};
use chronolith_format::head::frame_log::FrameWriter;
use chronolith_format::head::wal::FRAME_PAYLOAD_BYTES_MAX;
use chronolith_model::TenantId;
use chronolith_model::tenant::{ANNOTATION_FRAME_BYTES_MAX, META_TAG_RULES_MAX};

use crate::frame_log::copies::{self, CopyHeader, Findings, LogFormat};
use crate::options::OpenError;

/// Name in the data directory.
pub(crate) const FILE_NAME: &str = "graphite.log";
/// Name of the second copy.
pub(crate) const MIRROR_NAME: &str = "graphite.mirror";
/// Size at which a payload ends.
const PAYLOAD_BYTES: usize = 1 << 20;

// The events before one that is as long as a limit may allow, and this one, are one frame, as all rules of a
// tenant are. A text of n bytes takes n + 24 of the limit, a rule without texts two bytes of the frame.
const _: () = assert!(
    PAYLOAD_BYTES + ANNOTATION_FRAME_BYTES_MAX + 2 * META_TAG_RULES_MAX + (1 << 10) < FRAME_PAYLOAD_BYTES_MAX
);

/// The format of the file.
pub(crate) const FORMAT: LogFormat = LogFormat {
    content: "events and meta tags",
    header_bytes: FILE_HEADER_BYTES,
    version_field: VERSION_FIELD,
    decode_header: |bytes| decode_header(bytes).map(|key| CopyHeader { key, is_mirrored: true }),
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

/// Queue of frames to be written, in order.
pub(super) struct Frames {
    frames: FrameWriter,
    /// Events of one tenant.
    payload: Vec<u8>,
}

impl Frames {
    /// Frames under `key`.
    pub(super) fn new(key: u128) -> Frames {
        Frames { frames: FrameWriter::new(key, 0), payload: Vec::new() }
    }

    /// Returns the key of the file; 0 before there is one.
    pub(super) fn key(&self) -> u128 {
        self.frames.key()
    }

    /// Bytes of whole frames.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Adds an event; all events since the last [`Frames::end_frame`] belong to one tenant.
    pub(super) fn put_event(&mut self, tenant: &TenantId, next_id: u64, event: &StoredEvent) {
        if self.payload.is_empty() {
            put_events_start(tenant.as_str(), next_id, &mut self.payload);
        }
        put_event(event, &mut self.payload);
        if self.payload.len() >= PAYLOAD_BYTES {
            self.end_frame();
        }
    }

    /// Adds a frame with the next id of a tenant.
    pub(super) fn put_next_id(&mut self, tenant: &TenantId, next_id: u64) {
        put_events_start(tenant.as_str(), next_id, &mut self.payload);
        self.end_frame();
    }

    /// Adds a frame with all rules of a tenant.
    pub(super) fn put_meta_tags(&mut self, tenant: &TenantId, rules: &[StoredMetaTags]) {
        let mut payload = Vec::new();
        put_meta_tags(tenant.as_str(), rules, &mut payload);
        self.frames.put(KIND_META_TAGS, &payload);
    }

    /// Ends the frame of the events since the last one.
    pub(super) fn end_frame(&mut self) {
        if !self.payload.is_empty() {
            self.frames.put(KIND_EVENTS, &self.payload);
            self.payload.clear();
        }
    }

    /// Returns the frames of an empty file with the same key.
    pub(super) fn restarted(&self) -> Frames {
        let key = self.frames.key();
        Frames { frames: FrameWriter::with_header(key, &encode_header(key)), payload: Vec::new() }
    }

    /// Takes the frames; later ones continue their sequence.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.frames.take()
    }
}

/// Reads the file in `dir` and calls `keep` with each entry. Returns the file, and frames that continue it.
///
/// # Errors
/// [`OpenError`] if it cannot be read or is of a later version.
pub(super) fn load(
    env: &Env,
    dir: &Path,
    findings: &mut Findings<'_>,
    mut keep: impl FnMut(&TenantId, Entry),
) -> Result<(AppendFile, Frames), OpenError> {
    let paths = [dir.join(FILE_NAME), dir.join(MIRROR_NAME)];
    let (file, frames) = copies::load(env, &FORMAT, 0, paths, findings, |kind, payload| match kind {
        KIND_EVENTS => keep_events(payload, &mut keep),
        KIND_META_TAGS => {
            let (tenant, rules) = decode_meta_tags(payload).map_err(|error| error.to_string())?;
            keep(&stored(tenant)?, Entry::MetaTags(rules));
            Ok(())
        }
        _ => Ok(()),
    })?;
    Ok((file, Frames { frames, payload: Vec::new() }))
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
pub(crate) fn frame_entry_count(kind: u8, payload: &[u8]) -> Result<u64, DecodeError> {
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
