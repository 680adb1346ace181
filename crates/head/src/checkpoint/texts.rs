//! Saves texts to files, and replaces the files once most of their texts are freed.
//!
//! Invariant: the texts of all frames that were queued before a call are in a file after it.
//! Not here: the files themselves (`texts::file`), freeing of texts (`text_cleanup::unused`).

use std::sync::Arc;

use chronolith_format::head::wal;

use crate::counters::Counter;
use crate::options::{HeadError, wal_dir};
use crate::state::HeadState;
use crate::texts::TextDictionary;
use crate::texts::file::{FRAME_BYTES, TextFile};

/// Texts of one dictionary with their ids.
type NewTexts = Vec<(u64, Arc<[u8]>)>;

/// Texts that are being saved.
#[derive(Default)]
struct SavedTexts {
    by_dictionary: Vec<(Arc<TextDictionary>, NewTexts)>,
    payloads: Vec<Vec<u8>>,
}

/// Appends the texts that are in no file, durably.
///
/// # Errors
/// [`HeadError::Io`]; the next call writes them to another file.
pub(crate) fn save(state: &HeadState) -> Result<(), HeadError> {
    if !state.texts.budget.has_unsaved() {
        return Ok(());
    }
    let mut file = state.texts.file.lock();
    let unsaved = payloads_of(state, TextDictionary::take_unsaved);
    append_or_put_back(state, &mut file, &unsaved)
}

/// Replaces all files by one without freed texts, if that is worth it. The caller makes sure that no slice
/// names a freed text.
///
/// # Errors
/// [`HeadError::Io`]; the other files stay.
pub(crate) fn compact(state: &HeadState) -> Result<(), HeadError> {
    let mut file = state.texts.file.lock();
    if !file.has_freed(state.texts.budget.used_bytes()) {
        return Ok(());
    }
    file.retire();
    let live = payloads_of(state, |dictionary| {
        dictionary.take_unsaved();
        dictionary.all()
    });
    if !live.payloads.is_empty() {
        append_or_put_back(state, &mut file, &live)?;
    }
    file.remove_older(&*state.env.disk).map_err(|(path, error)| HeadError::Io { path, error })
}

fn append_or_put_back(state: &HeadState, file: &mut TextFile, texts: &SavedTexts) -> Result<(), HeadError> {
    let dir = wal_dir(&state.options.dir);
    let appended = file.append(&state.env.disk, &dir, state.wal.key(), &texts.payloads);
    if appended.is_err() {
        texts.by_dictionary.iter().for_each(|(dictionary, texts)| dictionary.put_back(texts));
        // A copy may be incomplete: the next texts go to another file.
        file.close();
    }
    appended.map_err(HeadError::io(&dir))
}

/// Returns the texts that `take` returns of each dictionary, and payloads with them.
fn payloads_of(state: &HeadState, take: impl Fn(&TextDictionary) -> Vec<(u64, Arc<[u8]>)>) -> SavedTexts {
    let mut out = SavedTexts::default();
    for tenant in state.index.tenants() {
        for (window_start, dictionary) in tenant.texts.all() {
            let texts = take(&dictionary);
            let mut payload = Vec::new();
            for (id, text) in &texts {
                if payload.is_empty() {
                    wal::encode_texts(tenant.name(), window_start, &mut payload);
                }
                wal::put_text(*id, text, &mut payload);
                if payload.len() >= FRAME_BYTES {
                    out.payloads.push(std::mem::take(&mut payload));
                }
            }
            out.payloads.extend((!payload.is_empty()).then_some(payload));
            out.by_dictionary.push((dictionary, texts));
        }
    }
    out
}

/// Counts the change of a start that found files of earlier processes: slices may name texts of windows that
/// were freed.
pub(crate) fn note_found(state: &HeadState) {
    let mut file = state.texts.file.lock();
    if file.has_older() {
        state.counters.add(Counter::Changes, 1);
        file.note_freed(state.counters.get(Counter::Changes));
    }
}
