//! Series of an answer, batch by batch as its frames arrive.
//!
//! Invariant: the bytes of a frame are reserved until all of its series are dropped, labels and records of
//! series until their batch is.
//! Not here: their samples (`samples`).

use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_format::select::{AnswerItem, SeriesEntry, SeriesStart};
use chronolith_model::query::SERIES_PER_BATCH_MAX;
use chronolith_model::{QueryError, SeriesBatches, SeriesRead};

use super::receiver::AnswerReceiver;
use super::samples::{FrameBytes, PeerSamples, PeerSeries};

/// Memory of a series without its labels.
const SERIES_BYTES: usize = size_of::<SeriesRead>() + size_of::<PeerSamples>() + size_of::<PeerSeries>();

/// Batches of an answer.
pub(super) struct PeerBatches {
    answer: AnswerReceiver,
    frame: Option<OpenFrame>,
    /// Series that goes on in the next frame.
    open: Option<PeerSeries>,
}

/// Frame whose entries are read.
struct OpenFrame {
    bytes: Arc<FrameBytes>,
    offset: usize,
}

impl PeerBatches {
    pub(super) fn new(answer: AnswerReceiver) -> PeerBatches {
        PeerBatches { answer, frame: None, open: None }
    }

    /// Reads the next entry of the open frame; `None` if it has no more.
    fn next_entry(&mut self) -> Result<Option<(SeriesEntry, Arc<FrameBytes>)>, QueryError> {
        let Some(frame) = &mut self.frame else { return Ok(None) };
        let entry = self.answer.next_entry(frame.bytes.payload(), &mut frame.offset)?;
        let bytes = frame.bytes.clone();
        if entry.is_none() {
            self.frame = None;
        }
        Ok(entry.map(|entry| (entry, bytes)))
    }

    /// Appends the series of the open frame that are complete to `series`.
    fn read_entries(
        &mut self,
        memory: &mut Reservation,
        series: &mut Vec<PeerSeries>,
    ) -> Result<(), QueryError> {
        while series.len() < SERIES_PER_BATCH_MAX {
            let Some((entry, bytes)) = self.next_entry()? else { return Ok(()) };
            let mut current = match entry.start {
                Some(SeriesStart { ref labels, column_type }) => {
                    memory.grow((labels.heap_bytes() + SERIES_BYTES) as u64)?;
                    PeerSeries::new(labels.clone(), column_type)
                }
                None => self.open.take().expect("the decoder pairs entries that go on"),
            };
            current.add(&entry, bytes);
            if entry.goes_on {
                self.open = Some(current);
            } else {
                series.push(current);
            }
        }
        Ok(())
    }
}

impl SeriesBatches for PeerBatches {
    /// Returns as soon as a frame has a complete series.
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let mut memory = self.answer.ctx().budget.reserve(0)?;
        let mut series = Vec::new();
        loop {
            self.read_entries(&mut memory, &mut series)?;
            if !series.is_empty() {
                let memory = Arc::new(memory);
                let node = self.answer.node();
                out.extend(series.into_iter().map(|one| one.into_read(node.clone(), memory.clone())));
                return Ok(true);
            }
            if self.answer.is_ended() {
                return Ok(false);
            }
            debug_assert!(self.frame.is_none(), "a frame without a complete series is read to its end");
            match self.answer.next_item()? {
                None => return Ok(false),
                Some(AnswerItem::Series(payload)) => {
                    let reserved = self.answer.ctx().budget.reserve(payload.capacity() as u64)?;
                    let bytes = Arc::new(FrameBytes::new(payload, reserved));
                    self.frame = Some(OpenFrame { bytes, offset: 0 });
                }
                Some(_) => {}
            }
        }
    }
}
