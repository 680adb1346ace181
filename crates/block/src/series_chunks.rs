//! Chunks of one series in the slab of its batch: one allocation for all series of a wave.
//!
//! Invariant: the range lies within the slab once it is set.

use std::ops::Deref;
use std::sync::Arc;

use chronolith_format::block::index::ChunkMeta;

/// Chunks of one series.
pub(crate) struct SeriesChunks {
    /// `None` until it is set.
    slab: Option<Arc<Vec<ChunkMeta>>>,
    start: usize,
    end: usize,
}

impl SeriesChunks {
    /// Appends `chunks` to a slab that [`SeriesChunks::set_slab`] completes.
    pub(crate) fn appended(slab: &mut Vec<ChunkMeta>, chunks: &[ChunkMeta]) -> SeriesChunks {
        let start = slab.len();
        slab.extend_from_slice(chunks);
        SeriesChunks { slab: None, start, end: slab.len() }
    }

    pub(crate) fn set_slab(&mut self, slab: &Arc<Vec<ChunkMeta>>) {
        self.slab = Some(slab.clone());
    }
}

impl Deref for SeriesChunks {
    type Target = [ChunkMeta];

    fn deref(&self) -> &[ChunkMeta] {
        let slab = self.slab.as_ref();
        slab.and_then(|slab| slab.get(self.start..self.end)).unwrap_or_default()
    }
}

impl From<Vec<ChunkMeta>> for SeriesChunks {
    fn from(chunks: Vec<ChunkMeta>) -> SeriesChunks {
        let end = chunks.len();
        SeriesChunks { slab: Some(Arc::new(chunks)), start: 0, end }
    }
}
